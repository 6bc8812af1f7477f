package oci

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/image/rootfs"
)

// Whiteouts: https://github.com/opencontainers/image-spec/blob/v1.1.1/layer.md#whiteouts
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	aufs     = ".wh..wh."
)

// maxName is PATH_MAX.
const maxName = 4095

// tree is what layers are laid over one another in. What they hold is a stranger's.
type tree struct {
	fs     *rootfs.FS
	limits Limits
	// What has been used of the limits.
	bytes, names int64
	entries      int
	skipped      int // devices, fifos
}

// layer is one of them while it is applied.
type layer struct {
	*tree
	// written are the paths that this layer has, and the folders above them: its whiteouts hide only what is below it.
	written map[string]bool
}

// apply unpacks a tar over what is there.
func (t *tree) apply(ctx context.Context, r io.Reader) error {
	l := &layer{tree: t, written: map[string]bool{}}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the tar is damaged: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.entry(h, tr); err != nil {
			return fmt.Errorf("%q: %w", clip(h.Name), err)
		}
	}
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

// count charges one name to the limits.
func (t *tree) count(name string) error {
	t.entries++
	t.names += int64(len(name))
	if t.entries > t.limits.Entries || t.names > t.limits.Names {
		return fmt.Errorf("the image has more than %d files, or names of more than %d MiB together", t.limits.Entries, t.limits.Names>>20)
	}
	return nil
}

// inside refuses a name that is none, or that says to leave the root.
func inside(name string) (string, error) {
	if len(name) > maxName || strings.ContainsRune(name, 0) {
		return "", errors.New("is not a name of a file")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errors.New("has a .. in its name")
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

func (l *layer) entry(h *tar.Header, r io.Reader) error {
	name, err := inside(h.Name)
	if err != nil {
		return err
	}
	if err := l.count(name); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader || name == "" {
		return nil
	}
	dir, base := path.Split(name)
	switch {
	case base == opaque:
		return l.hideIn(dir)
	case strings.HasPrefix(base, aufs):
		return nil
	case strings.HasPrefix(base, whiteout):
		return l.hide(dir, strings.TrimPrefix(base, whiteout))
	}
	at, err := l.fs.Resolve(name)
	if err != nil {
		return err
	}
	if err := l.above(path.Dir(at)); err != nil {
		return err
	}
	if err := l.put(h, r, at); err != nil {
		return err
	}
	l.written[at] = true
	return nil
}

// above makes the folders that an entry lies in.
func (l *layer) above(dir string) error {
	if dir == "." || l.written[dir] {
		return nil
	}
	if err := l.above(path.Dir(dir)); err != nil {
		return err
	}
	err := l.fs.Root().Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		err = nil // what it is shows below it
	} else if err == nil {
		err = l.count(dir)
	}
	l.written[dir] = true
	return err
}

// put makes the file, folder or link at a path without links in it. Nothing that exists is written to: it may have other names.
func (l *layer) put(h *tar.Header, r io.Reader, at string) error {
	root := l.fs.Root()
	if h.Typeflag == tar.TypeDir {
		info, err := root.Lstat(at)
		if err == nil && info.IsDir() {
			return root.Chmod(at, rootfs.Mode(fs.ModeDir|fs.FileMode(h.Mode&0o777)))
		}
	}
	var source string
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeDir, tar.TypeSymlink:
	case tar.TypeLink:
		var err error
		if source, err = l.linked(h.Linkname); err != nil || source == at {
			return err
		}
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		l.skipped++ // a sandbox has devices of its own
		return root.RemoveAll(at)
	default:
		return fmt.Errorf("is of the unknown type %q", h.Typeflag)
	}
	if err := root.RemoveAll(at); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(at, 0o755); err != nil {
			return err
		}
		return root.Chmod(at, rootfs.Mode(fs.ModeDir|fs.FileMode(h.Mode&0o777)))
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxName || strings.ContainsRune(h.Linkname, 0) {
			return errors.New("is a link to what is not a name of a file")
		}
		l.names += int64(len(h.Linkname))
		return root.Symlink(h.Linkname, at)
	case tar.TypeLink:
		return root.Link(source, at)
	}
	return l.file(h, r, at)
}

// linked is what a hard link is one to: a file or a link that is there.
func (l *layer) linked(name string) (string, error) {
	name, err := inside(name)
	if err != nil {
		return "", fmt.Errorf("the target of the hard link %w", err)
	}
	at, err := l.fs.Resolve(name)
	if err != nil {
		return "", err
	}
	info, err := l.fs.Root().Lstat(at)
	if err != nil {
		return "", fmt.Errorf("hard link to what is not there: %w", err)
	}
	if info.IsDir() {
		return "", errors.New("hard link to a folder")
	}
	return at, nil
}

func (l *layer) file(h *tar.Header, r io.Reader, at string) error {
	root := l.fs.Root()
	f, err := root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	left := l.limits.Bytes - l.bytes
	n, err := io.Copy(f, io.LimitReader(r, left+1))
	l.bytes += n
	if err == nil && n > left {
		err = l.tooLarge()
	}
	if err := errors.Join(err, f.Chmod(rootfs.Mode(fs.FileMode(h.Mode&0o777))), f.Close()); err != nil {
		return err
	}
	// Python takes a compiled file only if its source has the time that is noted in it.
	if at64 := h.ModTime.Unix(); at64 >= 0 && at64 < 1<<33 {
		return root.Chtimes(at, time.Time{}, h.ModTime)
	}
	return nil
}

func (t *tree) tooLarge() error {
	return fmt.Errorf("the image is larger than %d GiB, which is the most that is unpacked", t.limits.Bytes>>30)
}

// hide is a whiteout of what lies below this layer.
func (l *layer) hide(dir, base string) error {
	if base == "" || base == "." || base == ".." {
		return errors.New("is a whiteout of nothing")
	}
	at, err := l.fs.Resolve(path.Join(dir, base))
	if err != nil {
		return err
	}
	return l.remove(at)
}

// hideIn is an opaque whiteout: of all in a folder that lies below this layer.
func (l *layer) hideIn(dir string) error {
	at, err := l.fs.Follow(dir)
	if err != nil {
		return err
	}
	info, err := l.fs.Root().Lstat(at)
	if err != nil || !info.IsDir() {
		return nil //nolint:nilerr // there is nothing to hide
	}
	return l.removeIn(at)
}

func (l *layer) removeIn(dir string) error {
	entries, err := l.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := l.remove(path.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// remove removes what this layer has not put there.
func (l *layer) remove(at string) error {
	if !l.written[at] {
		return l.fs.Root().RemoveAll(at)
	}
	info, err := l.fs.Root().Lstat(at)
	if err != nil || !info.IsDir() {
		return nil //nolint:nilerr // it is gone already
	}
	return l.removeIn(at)
}
