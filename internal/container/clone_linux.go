package container

import (
	"errors"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// cloneFile makes dst, which must not exist, a copy of src that is on the disk when it returns. Where the file system can, both share
// their blocks until one is written to; else holes stay holes.
func cloneFile(src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		err = copySparse(in, out)
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

func copySparse(in, out *os.File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := out.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		begin, err := in.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole up to the end
		}
		if err != nil {
			return err
		}
		end, err := in.Seek(begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := in.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, end-begin); err != nil {
			return err
		}
		at = end
	}
}

// cloneTree is cloneFile for a folder in which no program runs, with owners, times and links as they are.
func cloneTree(src, dst string) error {
	out, err := exec.Command("cp", "-a", "--reflink=auto", "--sparse=always", "--", src, dst).CombinedOutput() //nolint:noctx // half a copy is worth nothing
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return nil
}
