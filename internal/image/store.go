package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// versionForm is the name of the folder behind an image's link.
var versionForm = regexp.MustCompile(`^(.+)-\d{14}-[0-9a-z]+$`)

// Store is a folder of images that this user may write to.
type Store struct{ Dir string }

// Draft is an image that is being made. Nobody sees it before it is whole.
type Draft struct {
	// Dir will be the image's folder, with Root, which is empty at first, in it.
	Dir, Root string
	// Work is an empty folder on the same file system, which goes when the image is made.
	Work string
}

// Make makes the image name anew: fill fills the draft and says what it is. Only when it is whole is the link of that name switched to
// it; after an error, or a crash, everything is as before. The version before stays until the next one comes, for the sandboxes that
// started from it. waiting, which may be nil, is called if another process is making an image of the same name.
func (s Store) Make(ctx context.Context, name string, waiting func(), fill func(context.Context, *Draft) (Info, error)) (*Image, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil { //nolint:gosec // everyone may use an image
		return nil, fmt.Errorf("image: %w", err)
	}
	unlock, err := s.lock(ctx, name, waiting)
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Left by a process that was killed: this one holds the lock.
	if err := s.removeAll(".build-"+name+"-", nil); err != nil {
		return nil, err
	}
	build, err := os.MkdirTemp(s.Dir, ".build-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	defer os.RemoveAll(build)
	d := &Draft{Dir: filepath.Join(build, "image"), Root: filepath.Join(build, "image", "rootfs"), Work: filepath.Join(build, "work")}
	for _, dir := range []string{build, d.Dir, d.Root, d.Work} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { //nolint:gosec // programs in sandboxes read it
			return nil, fmt.Errorf("image: %w", err)
		}
	}
	info, err := fill(ctx, d)
	if err != nil {
		return nil, err
	}
	info.Name = name
	if info.Created.IsZero() {
		info.Created = time.Now().UTC().Truncate(time.Second)
	}
	if err := d.write(info); err != nil {
		return nil, err
	}
	return s.install(name, build, d, info)
}

func (d *Draft) write(info Info) error {
	if info.Libraries == nil {
		info.Libraries = map[string]string{}
	}
	data, err := json.MarshalIndent(info, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(d.Dir, "image.json"), append(data, '\n'), 0o644) //nolint:gosec // as the rest of an image
	}
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// Describe makes the draft an image that Open takes, before it is whole: a sandbox can be started from Dir.
func (d *Draft) Describe(info Info) (*Image, error) {
	if err := d.write(info); err != nil {
		return nil, err
	}
	return Open(d.Dir)
}

// install gives the draft its place and its name.
func (s Store) install(name, build string, d *Draft, info Info) (*Image, error) {
	if _, err := Open(d.Dir); err != nil {
		return nil, err
	}
	version := fmt.Sprintf("%s-%s-%.8s", name, info.Created.UTC().Format("20060102150405"), info.Recipe+"00000000")
	current := filepath.Join(s.Dir, name)
	before, _ := os.Readlink(current) // none is fine
	target := filepath.Join(s.Dir, version)
	if exists(target) {
		return nil, fmt.Errorf("image: %s exists already: try again in a second", target)
	}
	if err := os.Rename(d.Dir, target); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if info, err := os.Lstat(current); err == nil && info.IsDir() {
		return nil, errors.Join(fmt.Errorf("image: %s is a folder: move it away, or take another name", current), os.RemoveAll(target))
	}
	link := filepath.Join(build, "link")
	err := os.Symlink(version, link)
	if err == nil {
		err = os.Rename(link, current)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image: %w", err), os.RemoveAll(target))
	}
	if err := s.removeVersions(name, version, before); err != nil {
		return nil, err
	}
	return Open(current)
}

// Remove removes an image with all its versions. It wraps ErrNotFound if there is none.
func (s Store) Remove(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	current := filepath.Join(s.Dir, name)
	if !exists(current) {
		return fmt.Errorf("%w: no image %q in %s", ErrNotFound, name, s.Dir)
	}
	unlock, err := s.lock(ctx, name, nil)
	if err != nil {
		return err
	}
	defer unlock()
	info, err := os.Lstat(current)
	if err == nil && info.Mode()&os.ModeSymlink != 0 {
		err = os.Remove(current)
	} else if err == nil {
		err = os.RemoveAll(current)
	}
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return s.removeVersions(name)
}

func (s Store) removeVersions(name string, keep ...string) error {
	return s.removeAll(name+"-", func(entry string) bool {
		m := versionForm.FindStringSubmatch(entry)
		return m != nil && m[1] == name && !slices.Contains(keep, entry)
	})
}

// removeAll removes the entries that begin with prefix and that which, if it is not nil, names.
func (s Store) removeAll(prefix string, which func(string) bool) error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && (which == nil || which(e.Name())) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.Dir, e.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// lock waits for the lock on a name, which image/build.sh takes too.
func (s Store) lock(ctx context.Context, name string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.Dir, "."+name+".lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o644) //nolint:gosec // as the rest
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("image: %w", err), f.Close())
		}
		if first && waiting != nil {
			waiting()
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		}
	}
}
