package catalog

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncTree waits until what was written below dir is on the disk: in one call, since one for each of 5,000 files takes seconds.
func syncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
