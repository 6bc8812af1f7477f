//go:build !linux

package operator

import (
	"net"
	"os"
)

// peer relies on the mode of the socket and of its folder: sandboxes, and so terminals, are of Linux alone.
func peer(*net.UnixConn) (uid int, err error) { return os.Geteuid(), nil }

func shorten(dir string) (short string, done func(), err error) { return dir, func() {}, nil }
