package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

var errNoProcess = errors.New("no process of a sandbox was found in /proc")

// processMemory is the PSS in bytes of all processes whose command line names dir, and of their descendants. Processes that share one
// address space, as those do in which gVisor runs a sandbox's programs, are told apart by kcmp and count once. Pages of a sandbox's memory that
// no process maps are left out: of 34 MB of a bare kernel that was 1.5.
func processMemory(dir string) (int64, error) {
	children, roots, err := processes(dir)
	if err != nil {
		return 0, err
	}
	if len(roots) == 0 {
		return 0, errNoProcess
	}
	var total int64
	seen := map[int]bool{}
	var spaces addressSpaces
	for len(roots) > 0 {
		pid := roots[0]
		roots = roots[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		roots = append(roots, children[pid]...)
		if spaces.has(pid) {
			continue
		}
		pss, err := pss(pid)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
		total += pss
	}
	return total, nil
}

func processes(dir string) (children map[int][]int, roots []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, nil, err
	}
	children = map[int][]int{}
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// pid (name) state ppid: the name may hold anything, so count from its end.
		_, after, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		if fields := strings.Fields(after); len(fields) > 1 {
			if ppid, err := strconv.Atoi(fields[1]); err == nil {
				children[ppid] = append(children[ppid], pid)
			}
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && pid != os.Getpid() && bytes.Contains(cmdline, []byte(dir)) {
			roots = append(roots, pid)
		}
	}
	return children, roots, nil
}

func pss(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, nil // a process without memory of its own
}
