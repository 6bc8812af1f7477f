//go:build !linux

package container

import "io/fs"

// stampOf has no ctime here: sandboxes run on Linux only.
func stampOf(info fs.FileInfo) stamp {
	return stamp{size: info.Size(), mtime: info.ModTime().UnixNano()}
}
