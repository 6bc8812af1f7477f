package gvisor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a process of runsc's that was seen to be ours. It is held by a pidfd: a number would soon mean somebody else's process.
type process struct {
	pid int
	fd  int
}

// openProcess returns the process with that number if its command line has the argument mark, which names our runsc root.
func openProcess(pid int, mark string) (process, bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return process{}, false
	}
	// Looked at only now: the pidfd keeps the process what it is.
	if !hasArgument(pid, mark) {
		unix.Close(fd)
		return process{}, false
	}
	return process{pid, fd}, true
}

// findProcesses returns the processes whose command line has the argument mark.
func findProcesses(mark string) []process {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []process
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || !hasArgument(pid, mark) {
			continue
		}
		if p, ok := openProcess(pid, mark); ok {
			found = append(found, p)
		}
	}
	return found
}

func hasArgument(pid int, mark string) bool {
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
		if string(arg) == mark {
			return true
		}
	}
	return false
}

// kill ends it and waits until it is gone, or until ctx ends.
func (p process) kill(ctx context.Context) error {
	if err := unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return p.wait(ctx)
}

func (p process) wait(ctx context.Context) error {
	for {
		timeout := 100 * time.Millisecond
		if deadline, ok := ctx.Deadline(); ok {
			timeout = min(timeout, time.Until(deadline))
		}
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, max(0, int(timeout.Milliseconds())))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			// Where this process is init, or a subreaper, what runsc left behind became its child.
			var ws unix.WaitStatus
			_, _ = unix.Wait4(p.pid, &ws, unix.WNOHANG, nil)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func (p process) close() { unix.Close(p.fd) }

// killMarked ends every process with the argument mark. It looks again until there is none: a runsc that is just starting a sandbox may
// have got further meanwhile.
func killMarked(ctx context.Context, mark string) (ended int, err error) {
	for ctx.Err() == nil {
		found := findProcesses(mark)
		if len(found) == 0 {
			return ended, nil
		}
		ended += len(found)
		if err := killAll(ctx, found); err != nil {
			return ended, err
		}
	}
	return ended, context.Cause(ctx)
}

// killAll ends all of them at once and waits for all.
func killAll(ctx context.Context, ps []process) error {
	for _, p := range ps {
		_ = unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0)
	}
	var errs []error
	for _, p := range ps {
		errs = append(errs, p.kill(ctx))
		p.close()
	}
	return errors.Join(errs...)
}

// unmountUnder takes away every mount at or below dir, the newest first.
func unmountUnder(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var targets []string
	for line := range strings.Lines(string(data)) {
		// proc_pid_mountinfo(5): the fifth field is the mount point, with blanks and the like in octal.
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		target := unescapeMount(fields[4])
		if target == dir || strings.HasPrefix(target, dir+"/") {
			targets = append(targets, target)
		}
	}
	var errs []error
	for i := len(targets) - 1; i >= 0; i-- {
		if err := unix.Unmount(targets[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, &os.PathError{Op: "unmount", Path: targets[i], Err: err})
		}
	}
	return errors.Join(errs...)
}

func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
