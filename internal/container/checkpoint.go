package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/lathe-gateway/lathe/internal/memory"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// rewound is the copy, in a container's folder, that is about to become its volume.
const rewound = "rewound"

// maxCheckpoints caps the checkpoints of one container.
const maxCheckpoints = 100

// checkpointDir has a copy of a container's volume and, in the folder memoryOf, of its memory.
func (m *Manager) checkpointDir(container, id string) string {
	return filepath.Join(m.Dir, container, "checkpoints", id)
}

func noCheckpoint(id, checkpoint string) error {
	return turn.NotFound("Checkpoint %s not found on container %s", checkpoint, id)
}

// Checkpoint gives the files and the memory that a container has now a name, under which they can be had again. A call that runs comes to
// its end first. A name that the container has used already is a turn.KindConflict.
func (m *Manager) Checkpoint(ctx context.Context, id, name string) (store.Checkpoint, error) {
	e, done, err := m.using(ctx, id)
	if err != nil {
		return store.Checkpoint{}, err
	}
	defer done()
	if err := m.mayCheckpoint(ctx, e, name); err != nil {
		return store.Checkpoint{}, err
	}
	c := store.Checkpoint{
		ID: turn.NewID("ckpt_"), Project: e.key.project, Container: id, Name: name, CreatedAt: time.Now().UTC().Truncate(time.Microsecond),
	}
	err = e.still(ctx, true, func(row store.Container, _ map[string]known) error {
		ctx := context.WithoutCancel(ctx)
		dir := m.checkpointDir(id, c.ID)
		err := m.snapshot(ctx, row, dir, func() string {
			c.Memory = true
			return memoryOf(dir)
		})
		if err == nil {
			c.Bytes = onDisk(dir)
			err = m.Store.Checkpoints().Create(ctx, c)
		}
		if err != nil {
			err = errors.Join(err, removeAll(dir))
		}
		return err
	})
	if errors.Is(err, store.ErrExists) {
		return store.Checkpoint{}, checkpointExists(name)
	}
	m.quotas.forget(c.Project)
	return c, err
}

func memoryOf(checkpoint string) string { return filepath.Join(checkpoint, "memory") }

func checkpointExists(name string) error {
	return &turn.Error{Kind: turn.KindConflict, Param: "name", Message: "the container has a checkpoint called \"" + name + "\" already; delete it first, or choose another name"}
}

func (m *Manager) mayCheckpoint(ctx context.Context, e *entry, name string) error {
	if err := m.mayCopy(ctx, e); err != nil {
		return err
	}
	rows, _, err := m.Store.Checkpoints().List(ctx, e.key.project, e.key.id, store.Page{Limit: maxCheckpoints})
	if err != nil {
		return err
	}
	if len(rows) >= maxCheckpoints {
		return turn.Invalid("", "a container may have %d checkpoints; delete some", maxCheckpoints)
	}
	for _, row := range rows {
		if row.Name == name {
			return checkpointExists(name)
		}
	}
	return nil
}

// Checkpoints returns a page of a container's checkpoints.
func (m *Manager) Checkpoints(ctx context.Context, id string, p store.Page) ([]store.Checkpoint, bool, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, false, err
	}
	if err := m.refresh(ctx, project, id); err != nil {
		return nil, false, err
	}
	rows, more, err := m.Store.Checkpoints().List(ctx, project, id, p)
	return rows, more, badCursor(err, p)
}

// checkpointOf finds a checkpoint by its id.
func (m *Manager) checkpointOf(ctx context.Context, key entryKey, checkpoint string) (store.Checkpoint, error) {
	c, err := m.Store.Checkpoints().Get(ctx, key.project, key.id, checkpoint)
	if errors.Is(err, store.ErrNotFound) {
		err = noCheckpoint(key.id, checkpoint)
	}
	return c, err
}

// Rewind gives a container the files and the memory back that it had at a checkpoint. What it had since is lost, but for the versions of
// files that were recorded. The checkpoint stays.
func (m *Manager) Rewind(ctx context.Context, id, checkpoint string) (store.Container, error) {
	e, done, err := m.using(ctx, id)
	if err != nil {
		return store.Container{}, err
	}
	defer done()
	c, err := m.checkpointOf(ctx, e.key, checkpoint)
	if err != nil {
		return store.Container{}, err
	}
	if err := m.checkSpace(); err != nil {
		return store.Container{}, err
	}
	err = e.still(ctx, false, func(row store.Container, _ map[string]known) error {
		return e.rewind(context.WithoutCancel(ctx), row, c)
	})
	if err != nil {
		return store.Container{}, err
	}
	// The files as they are now become the newest versions.
	if _, _, err := e.capture(context.WithoutCancel(ctx)); err != nil {
		return store.Container{}, err
	}
	m.kickMemories()
	return m.Store.Containers().Get(ctx, e.key.project, id)
}

// rewind replaces what a container has, which is still. In each of its steps the memory that the row names fits the files.
func (e *entry) rewind(ctx context.Context, row store.Container, c store.Checkpoint) error {
	m := e.m
	src, dir := m.checkpointDir(row.ID, c.ID), filepath.Join(m.Dir, row.ID)
	mem := store.Memory{}
	if c.Memory {
		mem = store.Memory{ID: turn.NewID("mem_"), CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
		to := m.memoryDir(row.ID, mem.ID)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := memory.Share(memoryOf(src), to); err != nil {
			return err
		}
		mem.Bytes, _ = memory.Sealed(to)
	}
	part := filepath.Join(dir, rewound)
	if err := errors.Join(removeAll(part), m.volumes.clone(src, part)); err != nil {
		return errors.Join(err, removeAll(part))
	}
	// From here on the old memory is lost.
	if err := e.putState(ctx, store.StateIdle, store.Memory{}); err != nil {
		return errors.Join(err, removeAll(part))
	}
	m.dropMemory(ctx, e.key, row.Memory)
	e.setForgot()
	if err := m.volumes.replace(dir, part); err != nil {
		return err
	}
	if mem.ID == "" {
		return nil
	}
	e.mu.Lock()
	e.forgot = ""
	e.mu.Unlock()
	return e.putState(ctx, store.StateHibernated, mem)
}

func (e *entry) putState(ctx context.Context, state string, mem store.Memory) error {
	_, err := e.edit(ctx, func(c *store.Container) error {
		if c.Owner != e.m.owner || c.Ended() {
			return errLost
		}
		c.State, c.Memory = state, mem
		return nil
	})
	return err
}

// replace puts a clone in the place of a container's volume, which is not mounted. From then on until the next capture no version of a
// file is taken for the one that lies there.
func (v *volumes) replace(dir, clone string) error {
	if err := os.WriteFile(filepath.Join(dir, doubtFile), nil, 0o600); err != nil {
		return err
	}
	for _, name := range []string{"removals.json", "volume.img"} {
		err := os.Rename(filepath.Join(clone, name), filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) && name == "removals.json" {
			err = os.Remove(filepath.Join(dir, name))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(clone, "vol")); err == nil {
		vol, old := filepath.Join(dir, "vol"), filepath.Join(dir, oldVolume)
		if err := removeAll(old); err != nil {
			return err
		}
		if err := os.Rename(vol, old); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(clone, "vol"), vol); err != nil {
			return err
		}
		if err := removeAll(old); err != nil {
			return err
		}
	}
	if err := removeAll(clone); err != nil {
		return err
	}
	return syncDir(dir) // before a row says what lies there
}

// oldVolume is the plain folder that is being replaced.
const oldVolume = "vol.old"

// unreplace takes back what a process began that was killed in the middle of replace.
func (v *volumes) unreplace(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, "vol")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(filepath.Join(dir, oldVolume), filepath.Join(dir, "vol")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// DeleteCheckpoint removes a checkpoint for good.
func (m *Manager) DeleteCheckpoint(ctx context.Context, id, checkpoint string) error {
	e, done, err := m.using(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	err = m.Store.Checkpoints().Delete(ctx, e.key.project, id, checkpoint)
	if errors.Is(err, store.ErrNotFound) {
		return noCheckpoint(id, checkpoint)
	}
	if err != nil {
		return err
	}
	m.quotas.forget(e.key.project)
	return removeAll(m.checkpointDir(id, checkpoint))
}

// tidyCheckpoints removes copies that no row names.
func (m *Manager) tidyCheckpoints(ctx context.Context, row store.Container) error {
	dirs, err := os.ReadDir(filepath.Join(m.Dir, row.ID, "checkpoints"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, d := range dirs {
		_, err := m.Store.Checkpoints().Get(ctx, row.Project, row.ID, d.Name())
		if errors.Is(err, store.ErrNotFound) {
			err = removeAll(m.checkpointDir(row.ID, d.Name()))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
