package bench

import (
	"path/filepath"
	"syscall"
)

// unmountNetns removes what runsc leaves mounted in its root folder, which could not be removed otherwise.
func unmountNetns(root string) {
	_ = syscall.Unmount(filepath.Join(root, "null-netns"), syscall.MNT_DETACH) // not there where runsc never ran
}
