// Package datadir is the data directory: it belongs to one process at a time, which holds a lock on it. It knows the folder's parts by
// name and nothing of what is in them. Only the wiring imports it.
package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Dir is a data directory that this process holds.
type Dir struct {
	path string
	lock *os.File
}

// ErrInUse is wrapped by the error of Open where another process holds the directory.
var ErrInUse = errors.New("in use by another process")

// Open makes path if it is missing (0700) and takes its lock, which ends with the process at the latest.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data_dir cannot be made: %w: make it yourself, or set data_dir to a folder that you may write to", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lathe.lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data_dir cannot be written to: %w: set data_dir to a folder that you may write to", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := holder(lock)
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data_dir %s is %w%s: stop that one, or give this one a data_dir of its own", path, ErrInUse, holder)
		}
		return nil, fmt.Errorf("data_dir %s cannot be locked: %w: it must be on a file system with locks", path, err)
	}
	d := &Dir{path: path, lock: lock}
	return d, d.note(fmt.Sprintf("pid %d", os.Getpid()))
}

// Holding notes in the lock file what this process does, for the message that the next one gets.
func (d *Dir) Holding(what string) error { return d.note(fmt.Sprintf("pid %d, %s", os.Getpid(), what)) }

func (d *Dir) note(text string) error {
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("data_dir %s: %w", d.path, err)
	}
	if _, err := d.lock.WriteAt([]byte(text+"\n"), 0); err != nil {
		return fmt.Errorf("data_dir %s: %w", d.path, err)
	}
	return nil
}

// Whole refuses a directory whose index, a file, is missing or empty while one of folders has something in it. What a new index does not
// name would be taken for left behind, and deleted.
func (d *Dir) Whole(index string, folders ...string) error {
	info, err := os.Stat(d.Path(index))
	if err == nil && info.Size() > 0 {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("data_dir %s: %w", d.path, err)
	}
	for _, folder := range folders {
		entries, err := os.ReadDir(d.Path(folder))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("data_dir %s: %w", d.path, err)
		}
		if len(entries) > 0 {
			return fmt.Errorf("data_dir %s has files of clients in %s, but %s, which says whose they are, is missing or empty: restore it, "+
				"or, to begin anew, move the folder %s away", d.path, folder, index, folder)
		}
	}
	return nil
}

// Path joins parts to the directory.
func (d *Dir) Path(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

// Close gives the directory free. The lock file stays: removing it would let two processes hold different files of that name.
func (d *Dir) Close() error { return d.lock.Close() }

func holder(lock *os.File) string {
	note := make([]byte, 256)
	n, _ := lock.ReadAt(note, 0) // what another process wrote a moment ago may be missing: then the message has no holder
	if text := strings.TrimSpace(string(note[:n])); text != "" {
		return " (" + text + ")"
	}
	return ""
}

// Free is how many bytes of the file system under path this user may still write.
func Free(path string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("free space cannot be read: %w", err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the types differ between platforms
}
