package operator

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peer is the user at the other end.
func peer(conn *net.UnixConn) (uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}

// maxDir is what a folder's path may have: an address of a Unix socket holds 107 bytes.
const maxDir = 80

// shorten returns a path of dir that fits into an address, until done is called.
func shorten(dir string) (short string, done func(), err error) {
	if len(dir) <= maxDir {
		return dir, func() {}, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), func() { _ = f.Close() }, nil
}
