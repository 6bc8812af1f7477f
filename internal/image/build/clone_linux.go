package build

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// clone makes to, an empty folder, a copy of the tree from: its folders, files and links. Files of a tree that share names with it are
// one file with two names where the file system can do that, so that the copy takes no space, and must never be written to; else they are
// copied, by reference where the file system can do that.
func clone(ctx context.Context, from, to string, share bool) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil || rel == "." {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.Mkdir(target, 0o755) //nolint:gosec // as all of an image
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case !d.Type().IsRegular():
			return nil // devices are a sandbox's own
		}
		if share {
			if err := os.Link(p, target); err == nil {
				return nil
			}
		}
		return copyFile(p, target)
	})
}

func copyFile(from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil { // only some file systems can
		_, err = io.Copy(out, in)
	}
	return errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close(), os.Chtimes(to, time.Time{}, info.ModTime()))
}
