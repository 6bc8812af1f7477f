package guest

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// blockingPipe is a pipe that Go's poller does not watch. In gVisor each read at its other end would wake this process for nothing.
func blockingPipe() (r, w *os.File, err error) {
	var fds [2]int
	// With the lock, as nothing that is started meanwhile may inherit them; not every system has pipe2.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := syscall.Pipe(fds[:]); err != nil {
		return nil, nil, os.NewSyscallError("pipe", err)
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}

// writable waits until a frame without payload can be written to a pipe at once.
func writable(pipe *os.File, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		fds := []unix.PollFd{{Fd: int32(pipe.Fd()), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, int(max(0, time.Until(deadline).Milliseconds())))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n == 0:
			return os.ErrDeadlineExceeded
		default:
			return nil
		}
	}
}
