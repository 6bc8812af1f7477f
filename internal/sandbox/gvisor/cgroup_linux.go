package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// cgroups is what this machine has of them, under root (/sys/fs/cgroup). runsc makes a sandbox's cgroup and sets its limits; the folder
// above it, what is read from it, and its end are ours.
type cgroups struct {
	root    string
	version int    // 1, 2, or 0 for none
	parent  string // "/lathe-..."
	swap    bool
	// why is the reason for version 0, for lathe doctor.
	why string
}

// needed are the controllers that hold our limits: hierarchies of version 1, names of version 2.
var needed = []string{"memory", "cpu", "pids"}

func detectCgroups(root, parent string, uid int) cgroups {
	c := cgroups{root: root, parent: parent}
	if uid != 0 {
		c.why = "only root may limit memory and processor through cgroups"
		return c
	}
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		c.why = root + " is not there"
		return c
	}
	c.version = 1
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		c.version = 2
	}
	for _, dir := range c.limitDirs("") {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			c.version, c.why = 0, fmt.Sprintf("%s cannot be made: %v", dir, err)
			return c
		}
	}
	swapFile := "memory.memsw.limit_in_bytes"
	if c.version == 2 {
		swapFile = "memory.swap.max"
		if err := delegate(root); err != nil {
			c.version, c.why = 0, err.Error()
			return c
		}
	}
	_, err := os.Stat(filepath.Join(c.memoryDir(""), swapFile))
	c.swap = err == nil
	return c
}

// delegate lets the cgroups below root (version 2) have the controllers with our limits. In a container it fails with EBUSY if processes
// are in the topmost cgroup that the container sees.
func delegate(root string) error {
	controllers := "+" + strings.Join(needed, " +")
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte(controllers), 0); err != nil {
		return fmt.Errorf("%s are not to be had for new cgroups: %w", strings.Join(needed, ", "), err)
	}
	return nil
}

// path is the cgroup of a sandbox as runsc wants it, "" without cgroups.
func (c cgroups) path(id string) string {
	if c.version == 0 {
		return ""
	}
	return c.parent + "/" + id
}

func (c cgroups) limitDirs(id string) []string {
	if c.version == 2 {
		return []string{filepath.Join(c.root, c.parent, id)}
	}
	var dirs []string
	for _, controller := range needed {
		dirs = append(dirs, filepath.Join(c.root, controller, c.parent, id))
	}
	return dirs
}

func (c cgroups) memoryDir(id string) string {
	if c.version == 2 {
		return filepath.Join(c.root, c.parent, id)
	}
	return filepath.Join(c.root, "memory", c.parent, id)
}

// starting lets a sandbox start at the full speed of the machine: no program of a call runs yet, and a start takes more than a period's
// share of one processor. It had its limit while runsc created it, which is how gVisor knows how many processors to show.
func (c cgroups) starting(id string) error {
	switch c.version {
	case 1:
		return os.WriteFile(filepath.Join(c.root, "cpu", c.parent, id, "cpu.cfs_quota_us"), []byte("-1"), 0)
	case 2:
		return os.WriteFile(filepath.Join(c.root, c.parent, id, "cpu.max"), []byte("max"), 0)
	}
	return nil
}

// started sets the limits that are in force from now on. A sandbox that was idle may use the processor time that it saved, as much again
// as its limit for one period, so that the first call after a pause is not held back. On version 2 the kernel is told to end a sandbox as
// a whole, not one task of it.
func (c cgroups) started(id string, l sandbox.Limits) error {
	var errs []error
	quota := cpuQuota(l)
	burst := strconv.FormatInt(quota, 10)
	switch c.version {
	case 1:
		dir := filepath.Join(c.root, "cpu", c.parent, id)
		if quota > 0 {
			errs = append(errs, writeKnown(filepath.Join(dir, "cpu.cfs_quota_us"), burst))
		}
		errs = append(errs, writeKnown(filepath.Join(dir, "cpu.cfs_burst_us"), burst))
	case 2:
		dir := filepath.Join(c.root, c.parent, id)
		if quota > 0 {
			errs = append(errs, writeKnown(filepath.Join(dir, "cpu.max"), burst))
		}
		errs = append(errs, writeKnown(filepath.Join(dir, "cpu.max.burst"), burst),
			os.WriteFile(filepath.Join(c.memoryDir(id), "memory.oom.group"), []byte("1"), 0))
	}
	return errors.Join(errs...)
}

// writeKnown writes a file that not every kernel has.
func writeKnown(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// oomKilled says whether the kernel has killed anything in the sandbox for want of memory.
func (c cgroups) oomKilled(id string) bool {
	if c.version == 0 {
		return false
	}
	file := "memory.oom_control"
	if c.version == 2 {
		file = "memory.events"
	}
	data, err := os.ReadFile(filepath.Join(c.memoryDir(id), file))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			count, _ := strconv.Atoi(strings.TrimSpace(n))
			return count > 0
		}
	}
	return false
}

// remove removes the cgroup of a sandbox, or with "" that of the state directory with all below it, in every hierarchy: runsc uses more
// of them than it is told to. It waits for processes that are still ending, until ctx does.
func (c cgroups) remove(ctx context.Context, id string) error {
	if c.parent == "" {
		return nil
	}
	dirs, err := filepath.Glob(filepath.Join(c.root, "*", c.parent, id))
	if err != nil {
		return err
	}
	dirs = append(dirs, filepath.Join(c.root, c.parent, id))
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeCgroup(ctx, dir))
	}
	return errors.Join(errs...)
}

func removeCgroup(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(ctx, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cgroup %s is still in use: %w", dir, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}
