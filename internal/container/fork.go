package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/memory"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// NewFork is what a client says of a fork. Zero values are those of the container that it comes from.
type NewFork struct {
	Name        string
	ExpireAfter time.Duration
}

// errNoCheckpoint is for a container whose memory cannot be written down, which is needed.
var errNoCheckpoint = &turn.Error{
	Kind: turn.KindInternal, Message: "the container's memory could not be written: its variables are gone, its files are kept; try again",
}

// still calls fn while nothing of the container runs and calls of it wait: its sandbox hibernates, or has ended for good if keep is
// false, and its volume is whole and not mounted. files is what the volume has.
func (e *entry) still(ctx context.Context, keep bool, fn func(row store.Container, files map[string]known) error) error {
	if err := e.calls.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer e.calls.Release(1)
	if err := e.boot.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer e.boot.Release(1)
	ctx = context.WithoutCancel(ctx) // half of it helps nobody
	if err := e.lieDown(keep); err != nil {
		return err
	}
	if err := e.whyEnded(); err != nil {
		return err
	}
	s := &e.files
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := e.attachLocked(ctx); err != nil {
		return err
	}
	files := s.known
	if err := e.syncLocked(); err != nil {
		return err
	}
	vol := s.vol
	s.vol, s.known = nil, nil
	if err := e.m.volumes.unmount(vol); err != nil {
		return err
	}
	row, err := e.m.Store.Containers().Get(ctx, e.key.project, e.key.id)
	if err != nil {
		return err
	}
	return fn(row, files)
}

// lieDown ends the sandbox, if there is one, after its memory has been written if keep says so.
func (e *entry) lieDown(keep bool) error {
	e.mu.Lock()
	l := e.live
	e.mu.Unlock()
	if l == nil {
		return nil
	}
	if keep {
		e.parkNow(time.Now(), true)
	} else {
		e.freeSandbox()
	}
	<-l.freed
	if keep && l.saving != nil && l.saved.ID == "" {
		return errNoCheckpoint
	}
	return nil
}

// Fork makes a container with the files and the memory that another one has now. From then on neither sees what the other does.
func (m *Manager) Fork(ctx context.Context, id string, n NewFork) (store.Container, error) {
	if err := m.checkExpiry("expires_after.minutes", n.ExpireAfter); err != nil {
		return store.Container{}, err
	}
	e, done, err := m.using(ctx, id)
	if err != nil {
		return store.Container{}, err
	}
	defer done()
	if err := m.mayCopy(ctx, e); err != nil {
		return store.Container{}, err
	}
	var made store.Container
	err = e.still(ctx, true, func(row store.Container, files map[string]known) error {
		ctx := context.WithoutCancel(ctx)
		made, err = m.makeFork(ctx, row, n)
		if err != nil {
			return err
		}
		if err := m.fill(ctx, row, &made, files); err != nil {
			return errors.Join(err, m.unmake(ctx, made))
		}
		return nil
	})
	if err != nil {
		return store.Container{}, err
	}
	m.kickMemories()
	return made, nil
}

// mayCopy says why a project may not have what a container stores once more.
func (m *Manager) mayCopy(ctx context.Context, e *entry) error {
	if err := m.checkSpace(); err != nil {
		return err
	}
	row, err := m.lookup(ctx, e.key.project, e.key.id)
	if err != nil {
		return err
	}
	return m.quotas.mayStore(ctx, row.Project, m.volumes.stored(row.ID)+row.Memory.Bytes, 0)
}

// makeFork makes the row of a fork. It is not to be seen until it has its files.
func (m *Manager) makeFork(ctx context.Context, from store.Container, n NewFork) (store.Container, error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	c := store.Container{
		ID: turn.NewID("cntr_"), Project: from.Project, Name: n.Name, State: store.StateCreating, MemoryLimit: from.MemoryLimit,
		ExpireAfter: n.ExpireAfter, Named: true, CreatedAt: now, LastActive: now, Owner: m.owner, Lease: leaseEnd(now),
		Network: from.Network,
	}
	if c.Name == "" {
		c.Name = from.Name
	}
	if c.ExpireAfter == 0 {
		c.ExpireAfter = from.ExpireAfter
	}
	return c, m.Store.Containers().Create(ctx, c)
}

// fill gives a fork what another container has, and lets it be seen.
func (m *Manager) fill(ctx context.Context, from store.Container, to *store.Container, files map[string]known) error {
	dir, err := m.volumes.folder(to.ID)
	if err != nil {
		return err
	}
	if err := m.snapshot(ctx, from, dir, func() string {
		to.Memory = store.Memory{ID: turn.NewID("mem_"), Bytes: from.Memory.Bytes, CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
		return m.memoryDir(to.ID, to.Memory.ID)
	}); err != nil {
		return err
	}
	if err := m.copyRows(ctx, *to, files); err != nil {
		return err
	}
	*to, err = m.Store.Containers().Update(ctx, to.Project, to.ID, func(c *store.Container) error {
		c.State, c.Memory = store.StateIdle, to.Memory
		if to.Memory.ID != "" {
			c.State = store.StateHibernated
		}
		c.Owner, c.Lease = "", time.Time{}
		return nil
	})
	return err
}

// snapshot copies everything but the rows of a container, which is still, to the folder dir. Where it has memory, memoryDir is asked for
// where to put it.
func (m *Manager) snapshot(ctx context.Context, from store.Container, dir string, memoryDir func() string) error {
	src, err := m.volumes.folder(from.ID)
	if err != nil {
		return err
	}
	if err := m.volumes.clone(src, dir); err != nil {
		return err
	}
	if from.State != store.StateHibernated {
		return nil
	}
	raw := m.memoryDir(from.ID, from.Memory.ID)
	if _, ok := memory.Sealed(raw); !ok {
		if err := m.unpack(ctx, entryKey{from.Project, from.ID}, from.Memory); err != nil {
			return err
		}
	}
	to := memoryDir()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return memory.Share(raw, to)
}

// clone copies a volume that is not mounted, with what is noted beside it, to another folder.
func (v *volumes) clone(src, dst string) error {
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return err
	}
	var errs []error
	for name, copy := range map[string]func(src, dst string) error{
		"volume.img": cloneFile, "removals.json": cloneFile, "ran": cloneFile, "vol": cloneTree,
	} {
		info, err := os.Lstat(filepath.Join(src, name))
		if errors.Is(err, fs.ErrNotExist) || (err == nil && name == "vol" && isImage(src)) {
			continue // the folder that an image is mounted on
		}
		if err == nil && info.IsDir() != (name == "vol") {
			err = &fs.PathError{Op: "clone", Path: name, Err: fs.ErrInvalid}
		}
		if err == nil {
			err = copy(filepath.Join(src, name), filepath.Join(dst, name))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// isImage says whether the volume in a container's folder is an image.
func isImage(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "volume.img"))
	return err == nil
}

// copyRows gives a fork rows of its own for the files that it has.
func (m *Manager) copyRows(ctx context.Context, to store.Container, files map[string]known) error {
	var rows []store.File
	flush := func() error {
		batch := rows
		rows = nil
		if len(batch) == 0 {
			return nil
		}
		return m.uploads.keep(ctx, make([]*blob.Staged, len(batch)), batch)
	}
	for _, k := range files {
		if k.id == "" {
			continue
		}
		f, err := m.Store.Files().Get(ctx, to.Project, k.id)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted by a client at this moment
		}
		if err != nil {
			return err
		}
		f.ID, f.Container = turn.NewID("cfile_"), to.ID
		if rows = append(rows, f); len(rows) >= batch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// unmake removes a container that no client has heard of.
func (m *Manager) unmake(ctx context.Context, c store.Container) error {
	e, err := m.reference(ctx, entryKey{c.Project, c.ID})
	if err != nil {
		return err
	}
	defer m.release(e)
	return m.remove(ctx, e)
}
