// Package rootfs is a root file system in a folder, seen as a program inside of it sees it: a link that begins with / begins at the
// folder, and no link, whatever it says, leads out of it. Everything goes through os.Root besides, so that a mistake here is an error
// and no escape. It is for trees that are being made, in which nobody else changes anything. Package image and those below it import it.
package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxLinks is how many links one path may follow, as in Linux.
const maxLinks = 40

// FS is an open root file system. Names are slash-separated, with or without a leading slash. Close it.
type FS struct {
	root *os.Root
}

// Open opens the folder dir.
func Open(dir string) (*FS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &FS{root}, nil
}

// Close closes the folder.
func (f *FS) Close() error { return f.root.Close() }

// Root is the folder for operations on names that Resolve or Follow returned.
func (f *FS) Root() *os.Root { return f.root }

// Resolve returns where name is, as a path without links in it, relative to the folder. The last part itself is not followed. Parts
// that do not exist stay as they are.
func (f *FS) Resolve(name string) (string, error) { return f.walk(name, false) }

// Follow is Resolve with the last part followed too.
func (f *FS) Follow(name string) (string, error) { return f.walk(name, true) }

func (f *FS) walk(name string, last bool) (string, error) {
	at, links := ".", 0
	for todo := strings.Split(name, "/"); len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		if !last && empty(todo) {
			return next, nil
		}
		info, err := f.root.Lstat(next)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many links", name)
		}
		target, err := f.root.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			at = "."
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return at, nil
}

// empty says whether no part that names something is left.
func empty(parts []string) bool {
	for _, p := range parts {
		if p != "" && p != "." {
			return false
		}
	}
	return true
}

// Stat follows all links.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	at, err := f.Follow(name)
	if err != nil {
		return nil, err
	}
	return f.root.Lstat(at)
}

// ReadFile reads a regular file of at most limit bytes.
func (f *FS) ReadFile(name string, limit int64) ([]byte, error) {
	at, err := f.Follow(name)
	if err != nil {
		return nil, err
	}
	info, err := f.root.Lstat(at)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", name, limit)
	}
	file, err := f.root.Open(at)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}

// ReadDir lists a folder.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := f.Follow(name)
	if err != nil {
		return nil, err
	}
	dir, err := f.root.Open(at)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.ReadDir(-1)
}

// WriteFile puts a new file in the place of whatever is at name, but a folder; one that has other names stays what it was under those.
func (f *FS) WriteFile(name string, data []byte, mode fs.FileMode) error {
	at, err := f.Resolve(name)
	if err != nil {
		return err
	}
	if err := f.root.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := f.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Chmod(mode), file.Close())
}

// Dir makes name a folder, with those above it: what is in the way and no folder, a link too, goes.
func (f *FS) Dir(name string) error {
	at := "."
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		at = path.Join(at, part)
		info, err := f.root.Lstat(at)
		if err == nil && info.IsDir() {
			continue
		}
		if err == nil {
			err = f.root.Remove(at)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := f.root.Mkdir(at, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Program returns the first program of one of these names in the folders of search, a PATH, as it is called inside; "" if there is none.
func (f *FS) Program(search string, names ...string) string {
	for _, name := range names {
		for dir := range strings.SplitSeq(search, ":") {
			p := path.Join("/", dir, name)
			if info, err := f.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return p
			}
		}
	}
	return ""
}
