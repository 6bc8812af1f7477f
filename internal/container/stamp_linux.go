package container

import (
	"io/fs"
	"syscall"
)

// stampOf is what tells one state of a file from another. A program can set mtime back, but neither ctime nor the inode's number.
func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ctime, s.inode = st.Ctim.Nano(), st.Ino
	}
	return s
}
