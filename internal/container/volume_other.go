//go:build !linux

package container

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

var errNoImages = errors.New("disk images are mounted on Linux only")

func mountImage(string, string) error { return errNoImages }
func unmountImage(string) error       { return errNoImages }
func releaseAll(string) error         { return nil }

func copyHoles(string, *os.File) error { return errNoImages }

func syncFileSystem(dir *os.File) error { return dir.Sync() }

func freeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// hostMemory is a guess that gives a small cap: sandboxes run on Linux only.
func hostMemory() int64 { return 8 << 30 }
