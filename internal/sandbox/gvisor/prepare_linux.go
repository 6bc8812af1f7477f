package gvisor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/link"
)

// A prepared image is a memory image of a sandbox in which no program has run, with the interpreter up and libraries imported. It lies in
// layout.prepared, in a folder whose name is a digest of all that it depends on, so it is either right or not found.

// modulesFile in an image says what to import, a module a line; "#" begins a comment. An image that has none gets defaultModules, of which it
// may lack any.
const modulesFile = "usr/share/lathe/modules"

var defaultModules = []string{"numpy", "pandas", "matplotlib.pyplot", "PIL.Image"}

// leastRoom is what a prepared image must leave of Limits.Memory. The guest's limit on address space, which counts what the libraries have
// reserved, is an eighth below that.
const leastRoom = 256 << 20

// maxModules caps modulesFile.
const maxModules = 64 << 10

// modules are what a prepared image of r has imported.
func (r *rootfs) modules() ([]string, error) {
	dir, err := os.OpenRoot(r.path)
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	defer dir.Close()
	data, err := dir.ReadFile(modulesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return defaultModules, nil
	}
	if err == nil && len(data) > maxModules {
		err = fmt.Errorf("/%s has %d bytes", modulesFile, len(data))
	}
	if err != nil {
		return nil, fmt.Errorf("gvisor: image %s: %w", r.path, err)
	}
	var modules []string
	for line := range bytes.Lines(data) {
		name, _, _ := strings.Cut(string(line), "#")
		if name = strings.TrimSpace(name); name != "" {
			modules = append(modules, name)
		}
	}
	return modules, nil
}

// preparedKey is the name of a prepared image's folder.
func preparedKey(mark imageMark, modules []string) (string, error) {
	data, err := json.Marshal(struct {
		imageMark
		Manifest int      `json:"manifest"`
		Modules  []string `json:"modules"`
	}{mark, manifestVersion, modules})
	if err != nil {
		return "", fmt.Errorf("gvisor: %w", err)
	}
	return digest(data), nil
}

// preparedDir is where the prepared image for mark is, or would be.
func (b *Backend) preparedDir(root *rootfs, mark imageMark) (string, error) {
	modules, err := root.modules()
	if err != nil {
		return "", err
	}
	key, err := preparedKey(mark, modules)
	return filepath.Join(b.layout.prepared, key), err
}

// Prepare has the contract of sandbox.Backend.Prepare.
func (b *Backend) Prepare(ctx context.Context, image string) error {
	b.preparing.Lock() // one at a time: it takes a processor for seconds
	defer b.preparing.Unlock()
	if err := checkRunsc(b.cfg.Runsc); err != nil {
		return err
	}
	root, err := b.rootfs(image)
	if err != nil {
		return err
	}
	mark, err := b.mark(ctx, root, usualMounts)
	if err != nil {
		return err
	}
	dir, err := b.preparedDir(root, mark)
	if err != nil {
		return err
	}
	b.prune(ctx, root, mark, dir)
	if m, err := openMemory(dir); err == nil {
		return m.close()
	}
	work, lock, err := newWork(b.layout.prepared)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	defer lock.Close()
	image = filepath.Join(work, "image")
	if err := os.Mkdir(image, 0o700); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if err := b.prepareIn(ctx, root, mark, image); err != nil {
		return fmt.Errorf("preparing the image: %w", err)
	}
	if err := syncDir(image); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	// Where another process was faster, or what is there is damaged, this one takes its place.
	if err := errors.Join(os.RemoveAll(dir), os.Rename(image, dir)); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

// prepareIn starts a sandbox, warms it and writes its memory to dir.
func (b *Backend) prepareIn(ctx context.Context, root *rootfs, mark imageMark, dir string) error {
	modules, err := root.modules()
	if err != nil {
		return err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	spec := sandbox.Spec{ID: fmt.Sprintf("prepare-%x", id), Limits: sandbox.Defaults()}
	spec.Limits.CPUs = 0 // as fast as it can
	if err := b.reserve(spec.ID); err != nil {
		return err
	}
	x, err := b.cold(ctx, root, spec, mark)
	if err != nil {
		b.release(spec.ID)
		return err
	}
	defer x.Close()
	began := time.Now()
	r, err := x.link.Warm(ctx, modules...)
	switch {
	case err != nil:
		return err
	case r.Status != sandbox.StatusOK:
		return fmt.Errorf("gvisor: the interpreter did not import the image's libraries: %s: %s", r.Status, r.Error)
	}
	b.cfg.Logger.InfoContext(ctx, "an image is prepared", "image", root.path, "modules", modules, "not_there", r.Error,
		"took", time.Since(began).Round(time.Millisecond))
	return x.Checkpoint(ctx, dir)
}

// prune removes prepared images that no sandbox will start from any more: of another gVisor or guest, of an image that is gone, and
// earlier ones of this image; and the work of processes that were killed.
func (b *Backend) prune(ctx context.Context, root *rootfs, mark imageMark, keep string) {
	entries, err := os.ReadDir(b.layout.prepared)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(b.layout.prepared, e.Name())
		if path == keep || strings.HasPrefix(e.Name(), workPrefix) {
			clearWork(path)
			continue
		}
		m, err := openMemory(path)
		if err == nil {
			had := m.manifest.imageMark
			_ = m.close()
			if had.Runsc == mark.Runsc && had.Guest == mark.Guest && had.Proto == mark.Proto && had.Path != root.path && exists(had.Path) {
				continue
			}
		}
		if err := os.RemoveAll(path); err != nil {
			b.cfg.Logger.WarnContext(ctx, "an old prepared image was not removed", "path", path, "error", err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// workPrefix begins the names of folders in which an image is made. Whoever does so holds a lock in it, which ends with its process.
const (
	workPrefix = ".new-"
	lockName   = "lock"
)

func newWork(parent string) (dir string, lock *os.File, err error) {
	if dir, err = os.MkdirTemp(parent, workPrefix); err == nil {
		lock, err = lockWork(dir, os.O_CREATE)
	}
	if err != nil {
		return "", nil, fmt.Errorf("gvisor: %w", err)
	}
	return dir, lock, nil
}

func lockWork(dir string, flags int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// clearWork removes what a process left that was killed while it made an image. A folder without a lock is just being made, unless it is
// old.
func clearWork(dir string) {
	if !strings.HasPrefix(filepath.Base(dir), workPrefix) {
		return
	}
	lock, err := lockWork(dir, 0)
	if err == nil {
		defer lock.Close()
	} else if fi, statErr := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || statErr != nil || time.Since(fi.ModTime()) < time.Minute {
		return
	}
	_ = os.RemoveAll(dir)
}

// clearPrepared removes the work of processes that were killed; prepared images stay.
func (b *Backend) clearPrepared() error {
	entries, err := os.ReadDir(b.layout.prepared)
	for _, e := range entries {
		clearWork(filepath.Join(b.layout.prepared, e.Name()))
	}
	return err
}

// syncDir brings the files of a folder to the disk, so that what has the right name also has the right content after a power failure.
func syncDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// fromPrepared starts a sandbox from the prepared image for mark. It returns nil without an error where there is none, or none that can be
// used.
func (b *Backend) fromPrepared(ctx context.Context, root *rootfs, spec sandbox.Spec, mark imageMark) (*box, error) {
	dir, err := b.preparedDir(root, mark)
	if err != nil {
		return nil, err
	}
	m, err := openMemory(dir)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // there is none, or what is there is made anew by the next Prepare
	}
	defer m.close()
	if limit := spec.Limits.Memory; limit > 0 && limit < m.manifest.AddressSpace+leastRoom {
		return nil, nil //nolint:nilnil // a program could do nothing there: the libraries alone fill what it may have
	}
	b.mu.Lock()
	m.sound = b.sound[dir] == m.stamp()
	b.mu.Unlock()
	x, err := b.resume(ctx, root, spec, m, link.Renewal{Fresh: true, TmpSize: tmpSize(spec.Limits)})
	if errors.Is(err, sandbox.ErrUnusable) {
		b.cfg.Logger.WarnContext(ctx, "a prepared image cannot be used and is removed", "path", dir, "error", err)
		return nil, os.RemoveAll(dir)
	}
	if err == nil {
		b.mu.Lock()
		b.sound[dir] = m.stamp()
		b.mu.Unlock()
	}
	return x, err
}
