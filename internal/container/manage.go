package container

import (
	"context"
	"errors"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// NewContainer is what a client says of a container. Zero values get the operator's defaults.
type NewContainer struct {
	Name        string
	FileIDs     []string
	ExpireAfter time.Duration
	MemoryLimit int64 // bytes
	Network     *turn.Network
	Skills      []turn.SkillRef
}

// Create makes a container with files in it. No sandbox is started.
func (m *Manager) Create(ctx context.Context, n NewContainer) (store.Container, error) {
	if err := m.begin(); err != nil {
		return store.Container{}, err
	}
	defer m.wg.Done()
	project, err := projectOf(ctx)
	if err != nil {
		return store.Container{}, err
	}
	if err := m.checkMemory("memory_limit", n.MemoryLimit); err != nil {
		return store.Container{}, err
	}
	if err := m.checkExpiry("expires_after.minutes", n.ExpireAfter); err != nil {
		return store.Container{}, err
	}
	if _, err := m.checkFiles(ctx, "file_ids", n.FileIDs); err != nil {
		return store.Container{}, err
	}
	network, err := m.network("network_policy", n.Network)
	if err != nil {
		return store.Container{}, err
	}
	e, err := m.make(ctx, store.Container{
		Project: project, Name: n.Name, Named: true, MemoryLimit: n.MemoryLimit, ExpireAfter: n.ExpireAfter, Network: network,
	})
	if err != nil {
		return store.Container{}, err
	}
	defer m.release(e)
	err = m.putAll(ctx, e, "file_ids", n.FileIDs)
	if err == nil && len(n.Skills) > 0 {
		err = m.keepSkills(ctx, e.key.id, n.Skills)
	}
	if err != nil {
		// A container that the client never heard of is of no use.
		return store.Container{}, errors.Join(err, m.remove(context.WithoutCancel(ctx), e))
	}
	return m.Store.Containers().Get(ctx, project, e.key.id)
}

// Get returns a container, which counts as a use. Expired ones can still be seen, with State expired.
func (m *Manager) Get(ctx context.Context, id string) (store.Container, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return store.Container{}, err
	}
	now := time.Now()
	row, err := m.Store.Containers().Get(ctx, project, id)
	if err == nil && (row.State == store.StateCreating || row.State == store.StateDeleted) {
		return row, notFound(id)
	}
	if err == nil && !row.Ended() && !m.overdue(row, now) {
		row, err = m.Store.Containers().Update(ctx, project, id, func(c *store.Container) error {
			if now.After(c.LastActive) && !c.Ended() {
				c.LastActive = now
			}
			return nil
		})
	}
	if errors.Is(err, store.ErrNotFound) {
		return row, notFound(id)
	}
	return m.current(row, now), err
}

// Usable says why a container can be given nothing more, nil if it can.
func (m *Manager) Usable(ctx context.Context, id string) error {
	project, err := projectOf(ctx)
	if err == nil {
		_, err = m.lookup(ctx, project, id)
	}
	return err
}

// current shows a row as it is now: one that is overdue counts as expired before the reaper has come by.
func (m *Manager) current(row store.Container, now time.Time) store.Container {
	if !row.Ended() && m.overdue(row, now) {
		row.State = store.StateExpired
	}
	return row
}

// List returns a page of the project's containers.
func (m *Manager) List(ctx context.Context, p store.Page) ([]store.Container, bool, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, false, err
	}
	rows, more, err := m.Store.Containers().List(ctx, project, p)
	if err != nil {
		return nil, false, badCursor(err, p)
	}
	now := time.Now()
	for i := range rows {
		rows[i] = m.current(rows[i], now)
	}
	return rows, more, nil
}

// Delete removes a container for good: its sandbox with whatever runs in it, its files and their bytes.
func (m *Manager) Delete(ctx context.Context, id string) error {
	if err := m.begin(); err != nil {
		return err
	}
	defer m.wg.Done()
	project, err := projectOf(ctx)
	if err != nil {
		return err
	}
	row, err := m.Store.Containers().Get(ctx, project, id)
	if errors.Is(err, store.ErrNotFound) || (err == nil && (row.State == store.StateCreating || row.State == store.StateDeleted)) {
		return notFound(id)
	}
	if err != nil {
		return err
	}
	e, err := m.reference(ctx, entryKey{project, id})
	if err != nil {
		return err
	}
	defer m.release(e)
	return m.remove(ctx, e)
}

// remove deletes a container. From the first step on it is gone for clients; a process that is killed between them leaves the rest to
// the next Reconcile.
func (m *Manager) remove(ctx context.Context, e *entry) error {
	ctx = context.WithoutCancel(ctx) // half a removal helps nobody
	now := time.Now()
	row, err := m.Store.Containers().Update(ctx, e.key.project, e.key.id, func(c *store.Container) error {
		if !m.isFree(c, now) {
			return errElsewhere
		}
		c.State = store.StateDeleted
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return notFound(e.key.id) // another request was faster
	}
	if err != nil {
		return err
	}
	e.end(notFound(e.key.id))
	if err := m.Blobs.DeleteNamed(ctx, row.Project, row.Memory.ID); err != nil {
		return err
	}
	rows, err := m.Store.Files().DeleteContainer(ctx, e.key.project, e.key.id)
	if err == nil {
		err = m.Store.Containers().Delete(ctx, e.key.project, e.key.id)
	}
	if errors.Is(err, store.ErrNotFound) {
		return notFound(e.key.id) // another request was faster
	}
	if err != nil {
		return err
	}
	return m.uploads.free(ctx, rows)
}

// expire ends a container whose time is over: its files go, its row stays.
func (m *Manager) expire(ctx context.Context, row store.Container) error {
	e, err := m.reference(ctx, entryKey{row.Project, row.ID})
	if err != nil {
		return err
	}
	defer m.release(e)
	var mem store.Memory
	_, err = m.Store.Containers().Update(ctx, row.Project, row.ID, func(c *store.Container) error {
		if c.Ended() || !m.overdue(*c, time.Now()) || !m.isFree(c, time.Now()) {
			return errInUse
		}
		mem = c.Memory
		c.State, c.Memory = store.StateExpired, store.Memory{}
		c.Owner, c.Lease = "", time.Time{}
		return nil
	})
	if errors.Is(err, errInUse) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	e.end(errExpired)
	if err := m.Blobs.DeleteNamed(ctx, row.Project, mem.ID); err != nil {
		return err
	}
	files, err := m.Store.Files().DeleteContainer(ctx, row.Project, row.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return m.uploads.free(ctx, files)
}

// reap hibernates idle sandboxes and ends containers and uploads whose time is over, until the Manager closes.
func (m *Manager) reap() {
	tick := time.NewTicker(min(max(min(m.IdleAfter, m.ExpireAfter)/4, time.Second), 30*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case now := <-tick.C:
			for _, e := range m.all() {
				e.park(now.Add(-m.IdleAfter))
			}
			if err := m.expireAll(m.ctx, now); err != nil && m.ctx.Err() == nil {
				m.log.Error("removing what has expired failed", "error", err)
			}
		}
	}
}

func (m *Manager) expireAll(ctx context.Context, now time.Time) error {
	err := m.Store.Containers().All(ctx, func(row store.Container) error {
		if row.Ended() || !m.overdue(row, now) {
			return nil
		}
		return m.expire(ctx, row)
	})
	_, errSteps := m.Store.Steps().Expire(ctx, now)
	return errors.Join(err, m.uploads.expire(ctx, now), errSteps)
}

// Status is the word that clients of the hosted service know for a state.
func Status(row store.Container) string {
	if row.Ended() {
		return row.State
	}
	return "running"
}
