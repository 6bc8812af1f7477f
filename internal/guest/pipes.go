package guest

import (
	"os"

	"golang.org/x/sys/unix"
)

// What a cell leaves in the background prints to the descriptors that it has inherited, which are the interpreter's. So that this is not
// taken for the output of later calls, the interpreter gets new pipes once such a program is found; what comes from the old ones is
// discarded, as that of a shell's background programs is.

// output is the tap of the kernel's descriptors 1 and 2.
func (k *kernel) output() *tap {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tap
}

// freshPipes gives the kernel new pipes if programs of earlier cells live. It returns "1" if it did, for the kernel to take them.
func (in *interpreter) freshPipes() string {
	k := in.kernel
	if !in.spawned || k == nil || k.dead() || in.waits() {
		return "0"
	}
	if found := in.procs.find(k.proc.scope); len(found) == 0 || len(found) == 1 && found[0] == k.proc.pid {
		in.spawned = false
		return "0"
	}
	t, out, errOut, err := newTap()
	if err != nil {
		return "0"
	}
	err = unix.Sendmsg(int(k.pipes.Fd()), []byte{0}, unix.UnixRights(int(out.Fd()), int(errOut.Fd())), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	out.Close()
	errOut.Close()
	if err != nil {
		t.close()
		return "0"
	}
	k.mu.Lock()
	old := k.tap
	k.tap = t
	k.mu.Unlock()
	old.attach(nil)
	in.procs.watch(old)
	return "1"
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pipes"), os.NewFile(uintptr(fds[1]), "pipes"), nil
}
