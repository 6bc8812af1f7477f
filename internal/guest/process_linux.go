package guest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// scopeGroup is the first of the group ids that mark scopes. A supplementary group is inherited by every descendant and cannot be given
// up without a capability, so unlike a session or a variable it finds them all. No file belongs to it, so it grants nothing.
const scopeGroup = 1 << 20

func (ps *processes) attributes(s scope) *syscall.SysProcAttr {
	if !ps.isolate {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{
		Setsid:     true,
		Credential: &syscall.Credential{Uid: ps.user, Gid: ps.user, Groups: []uint32{uint32(scopeGroup + s)}},
	}
}

// find returns the processes of a scope, or of all scopes for 0.
func (ps *processes) find(s scope) []int {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err == nil && pid > 1 && pid != os.Getpid() && ps.in(pid, s) {
			found = append(found, pid)
		}
	}
	return found
}

func (ps *processes) in(pid int, s scope) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	if !ps.isolate {
		env, err := os.ReadFile(dir + "/environ")
		return err == nil && bytes.Contains(env, []byte(ps.mark(s)))
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(status) {
		switch {
		case bytes.HasPrefix(line, []byte("State:")) && bytes.ContainsAny(line, "ZX"):
			return false
		case bytes.HasPrefix(line, []byte("Groups:")):
			return slices.ContainsFunc(bytes.Fields(line[len("Groups:"):]), func(g []byte) bool {
				n, err := strconv.Atoi(string(g))
				return err == nil && (n == scopeGroup+int(s) || s == 0 && n > scopeGroup)
			})
		}
	}
	return false
}

// setLimits sets the limits of pid. RLIMIT_NPROC counts all processes of a user, so without isolation it would count the developer's.
func setLimits(pid int, l proto.Limits, isolate bool) error {
	limits := []struct {
		resource int
		value    int64
	}{{unix.RLIMIT_AS, l.Memory}, {unix.RLIMIT_FSIZE, l.FileSize}, {unix.RLIMIT_NPROC, l.Processes}, {unix.RLIMIT_CORE, 0}}
	for _, limit := range limits {
		value := uint64(limit.value)
		switch {
		case limit.resource == unix.RLIMIT_NPROC && !isolate:
			continue
		case limit.value <= 0 && limit.resource != unix.RLIMIT_CORE:
			value = unix.RLIM_INFINITY
		}
		lim := unix.Rlimit{Cur: value, Max: value}
		if !isolate {
			// Who is not root could not raise it again for the next call, and need not: nothing is kept from hostile code here.
			var old unix.Rlimit
			if err := unix.Prlimit(pid, limit.resource, nil, &old); err != nil {
				return ignoreGone(err)
			}
			lim = unix.Rlimit{Cur: min(value, old.Max), Max: old.Max}
		}
		if err := unix.Prlimit(pid, limit.resource, &lim, nil); err != nil {
			return ignoreGone(err)
		}
	}
	return nil
}

// ignoreGone: a program that has already ended needs no limits.
func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// reapAll waits for every child, those that were left to PID 1 too.
func (ps *processes) reapAll() {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, unix.SIGCHLD)
	defer signal.Stop(sig)
	for {
		ps.mu.Lock()
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if pid <= 0 {
				break
			}
			ps.record(pid, status)
		}
		ps.mu.Unlock()
		select {
		case <-sig:
		case <-ps.stop:
			return
		}
	}
}

func waitExited(pid int) error {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
}

// confine takes from this process and all it will start every way to gain rights: no_new_privs, and no bounding, inheritable or ambient
// capability for what is executed later. The process itself keeps its capabilities. It works only in a program without cgo.
func confine() error {
	if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("bounding set: %w", err)
		}
	}
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(header, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	// The ambient set is never larger than the inheritable one. A guest that is not root has both, to keep its own across execve.
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := allThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(&data[0]))); err != nil {
		return fmt.Errorf("inheritable capabilities: %w", err)
	}
	return nil
}

func allThreads(trap, a1, a2 uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// dup is dup2, which linux/arm64 does not have.
func dup(from, to int) error { return unix.Dup3(from, to, 0) }
