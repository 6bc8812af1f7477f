package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

const (
	// tidyEvery is how often what was left behind is looked for while the Manager works.
	tidyEvery = 5 * time.Minute
	// rowTime is more than it takes from writing bytes to writing the row that names them.
	rowTime = 30 * time.Minute
)

// Reconcile brings everything in line after earlier processes, whatever way they ended: no mount or loop device is left below Config.Dir,
// no folder without a container, no memory that no row names, no bytes without a file, and each container has the state that fits what
// its owner had last written down. It reconciles the Backend first, since sandboxes hold mounts. What another process that lives owns is
// left alone. Call it once, before the first request.
func (m *Manager) Reconcile(ctx context.Context) error {
	if err := m.Backend.Reconcile(ctx); err != nil {
		return fmt.Errorf("reconcile sandboxes: %w", err)
	}
	before := time.Now().Add(-rowTime)
	if alone, err := m.isAlone(); err != nil {
		return fmt.Errorf("reconcile containers: %w", err)
	} else if alone {
		before = time.Now().Add(time.Minute) // nobody writes now
	}
	if err := m.tidy(ctx, before); err != nil {
		return fmt.Errorf("reconcile containers: %w", err)
	}
	m.kickMemories() // an earlier process may have had no time to pack them
	return nil
}

// tidyNowAndThen is tidy every few minutes, until the Manager closes: what this process could not remove, and what others that have
// died meanwhile left.
func (m *Manager) tidyNowAndThen() {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
			if err := m.tidy(m.ctx, time.Now().Add(-rowTime)); err != nil && m.ctx.Err() == nil {
				m.log.Error("removing what was left behind failed", "error", err)
			}
		}
	}
}

// tidy does what Reconcile promises, for all containers that nothing in this process uses, and for bytes that were written before then.
// It may be called at any time.
func (m *Manager) tidy(ctx context.Context, before time.Time) error {
	// Folders first: one whose container is made from now on is not among them.
	folders, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	now := time.Now()
	rows := map[string]store.Container{}
	err = m.Store.Containers().All(ctx, func(row store.Container) error {
		if !row.Ended() || row.State == store.StateDeleted {
			rows[row.ID] = row
		}
		return nil
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range folders {
		row, known := rows[d.Name()]
		switch {
		case strings.HasPrefix(d.Name(), "probe-"):
			errs = append(errs, m.removeStray(d.Name()))
		case !containerID.MatchString(d.Name()): // not ours
		case !known && !m.uses(d.Name()) && !m.pool.has(d.Name()) && !m.isOthersSpare(d.Name()):
			errs = append(errs, m.removeStray(d.Name()))
		case known && m.isFree(&row, now):
			errs = append(errs, m.tidyMounts(ctx, row))
		}
	}
	for _, row := range rows {
		if m.isFree(&row, now) {
			errs = append(errs, m.tidyRow(ctx, row), m.tidyFolder(ctx, row))
		}
	}
	return errors.Join(append(errs, m.removeOwners(), m.sweep(ctx, before))...)
}

// uses says whether something in this process uses a container.
func (m *Manager) uses(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.entries {
		if key.id == id {
			return true
		}
	}
	return false
}

// isOthersSpare says whether a folder without a row is a spare container of another process that lives.
func (m *Manager) isOthersSpare(id string) bool {
	owner, err := os.ReadFile(m.volumes.spareOf(id))
	return err == nil && string(owner) != m.owner && ownerID.Match(owner) && !m.hasDied(string(owner))
}

// removeStray deletes a folder of ours that no container has, with what is mounted in it.
func (m *Manager) removeStray(name string) error {
	dir := filepath.Join(m.Dir, name)
	if err := releaseAll(dir); err != nil {
		return err
	}
	return removeAll(dir)
}

// tidyMounts takes away what a process that died has mounted of a container.
func (m *Manager) tidyMounts(ctx context.Context, row store.Container) error {
	return m.unused(ctx, entryKey{row.Project, row.ID}, func() error { return releaseAll(filepath.Join(m.Dir, row.ID)) })
}

// tidyFolder removes images of memory and checkpoints that are none of a container.
func (m *Manager) tidyFolder(ctx context.Context, row store.Container) error {
	return m.unused(ctx, entryKey{row.Project, row.ID}, func() error {
		dir := filepath.Join(m.Dir, row.ID)
		now, err := m.Store.Containers().Get(ctx, row.Project, row.ID)
		if err != nil || !m.isFree(&now, time.Now()) {
			return ignoreNotFound(err)
		}
		errs := []error{m.tidyCheckpoints(ctx, now), removeAll(filepath.Join(dir, rewound))}
		images, err := os.ReadDir(filepath.Join(dir, "memory"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, d := range images {
			if d.Name() != now.Memory.ID {
				errs = append(errs, removeAll(filepath.Join(dir, "memory", d.Name())))
			}
		}
		return errors.Join(errs...)
	})
}

// tidyRow brings the row of a container in line that no process that lives has.
func (m *Manager) tidyRow(ctx context.Context, row store.Container) error {
	key := entryKey{row.Project, row.ID}
	switch {
	case row.Owner == m.owner || m.uses(row.ID):
		return nil
	case row.State == store.StateCreating || row.State == store.StateDeleted:
		// Of the one no client has heard, and of the other none will any more.
		e, err := m.reference(ctx, key)
		if err != nil {
			return err
		}
		defer m.release(e)
		return ignoreNotFound(m.remove(ctx, e))
	case m.overdue(row, time.Now()):
		return m.expire(ctx, row)
	case row.Owner == "" && (row.State == store.StateIdle || row.State == store.StateHibernated):
		return nil
	}
	return m.unused(ctx, key, func() error {
		_, err := m.Store.Containers().Update(ctx, row.Project, row.ID, func(c *store.Container) error {
			if c.Ended() || c.Owner == m.owner || !m.isFree(c, time.Now()) {
				return errInUse
			}
			m.recovered(c)
			return nil
		})
		return ignoreNotFound(err)
	})
}

func ignoreNotFound(err error) error {
	t, _ := errors.AsType[*turn.Error](err)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, errInUse) || (t != nil && t.Kind == turn.KindNotFound) {
		return nil
	}
	return err
}

// unused calls fn while nothing in this process uses the container, and keeps others waiting. It does nothing where something does.
func (m *Manager) unused(ctx context.Context, key entryKey, fn func() error) error {
	e, err := m.reference(ctx, key)
	if err != nil {
		return err
	}
	defer m.release(e)
	if !e.boot.TryAcquire(1) {
		return nil
	}
	defer e.boot.Release(1)
	e.files.mu.Lock()
	defer e.files.mu.Unlock()
	e.mu.Lock()
	used := e.live != nil || e.owned
	e.mu.Unlock()
	if used || e.files.vol != nil {
		return nil
	}
	return fn()
}

// sweep deletes bytes that no row names and that were written before then: those of a process that was killed between the two.
func (m *Manager) sweep(ctx context.Context, before time.Time) error {
	named := map[string]bool{}
	err := m.Store.Files().All(ctx, func(f store.File) error {
		named[blob.Key(f.Project, f.SHA256)] = true
		return nil
	})
	if err != nil {
		return err
	}
	err = m.Store.Skills().AllVersions(ctx, func(v store.SkillVersion) error {
		named[blob.Key(v.BlobOwner(), v.SHA256)] = true
		return nil
	})
	if err != nil {
		return err
	}
	rows, err := m.Store.Containers().WithMemory(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		named[blob.NamedKey(row.Project, row.Memory.ID)] = true
	}
	n, err := m.Blobs.Sweep(ctx, before, func(key string) bool { return named[key] })
	if n > 0 {
		m.log.InfoContext(ctx, "bytes without a file removed", "blobs", n)
	}
	return err
}
