package container

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

const (
	// maxWalk caps the files that one look at a volume takes in, maxDepth the folders within folders: a program can make millions.
	maxWalk  = 20_000
	maxDepth = 64
)

// stamp tells whether a file has been changed.
type stamp struct {
	size, mtime, ctime int64
	inode              uint64
}

// look is a walk over /mnt/data.
type look struct {
	root  *os.Root
	max   int
	files map[string]stamp // by path below /mnt/data
	seen  int
	// left says that there was more than could be taken in.
	left bool
}

// hidden files are not reported as made: what tools keep for themselves. They stay in the volume.
func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || name == "__pycache__"
}

// lookAt lists the regular files below root that are not hidden. No link is followed out of the volume and nothing can block, whatever
// a program does to the tree meanwhile: folders are opened as folders only, through os.Root, and files are not opened at all.
func lookAt(root *os.Root) (*look, error) { return lookAtMost(root, maxWalk) }

func lookAtMost(root *os.Root, n int) (*look, error) {
	l := &look{root: root, max: n, files: map[string]stamp{}}
	return l, l.walk("", 0)
}

// walk looks at one folder; prefix is "" or ends in a slash. Root.OpenRoot will not do here: it waits for a writer if a program puts a
// FIFO in the folder's place at the right moment.
func (l *look) walk(prefix string, depth int) error {
	f, err := l.root.OpenFile("./"+prefix, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return l.ofFolder(err, depth)
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(512)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return l.ofFolder(err, depth)
		}
		for _, name := range names {
			if err := l.entry(prefix, name, depth); err != nil || l.seen > l.max {
				return err
			}
		}
	}
}

// ofFolder forgives what is gone or unreadable below the first folder: programs may do that to their own.
func (l *look) ofFolder(err error, depth int) error {
	if depth > 0 {
		return nil
	}
	return err
}

func (l *look) entry(prefix, name string, depth int) error {
	if hidden(name) {
		return nil
	}
	if l.seen++; l.seen > l.max || depth > maxDepth {
		l.left = true
		return nil // what is too deep is left out alone; walk sees to the rest
	}
	info, err := l.root.Lstat(prefix + name)
	if err != nil {
		return l.ofFolder(err, depth+1) // gone meanwhile
	}
	switch {
	case info.Mode().IsRegular():
		l.files[prefix+name] = stampOf(info)
	case info.IsDir():
		return l.walk(prefix+name+"/", depth+1)
	}
	return nil
}

// paths are sorted, so that files are reported in an order that means something.
func (l *look) paths() []string {
	out := make([]string, 0, len(l.files))
	for p := range l.files {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

var errNotRegular = errors.New("not a regular file")

// openRegular opens a file of a volume for reading, without following a last link and without blocking on a FIFO, and makes sure that
// what it opened is a regular file.
func openRegular(root *os.Root, name string) (*os.File, stamp, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, stamp{}, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
		return nil, stamp{}, err
	}
	return f, stampOf(info), nil
}

// inData turns /mnt/data/a/b into a/b; ok is false for any other place.
func inData(p string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(path.Clean(p), dataMount+"/")
	return rel, ok && rel != ""
}
