package container

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/lathe-gateway/lathe/internal/memory"
	"github.com/lathe-gateway/lathe/internal/store"
)

// unnamedMemory is how long memory is kept that most likely nobody will ask for: of a container that no request has named yet.
const unnamedMemory = 24 * time.Hour

// kickMemories has keepMemories look soon.
func (m *Manager) kickMemories() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// keepMemories packs the images of hibernated containers into the blobs, and removes those that are too old or too many, until the
// Manager closes. It does one at a time: programs that somebody waits for go first.
func (m *Manager) keepMemories() {
	tick := time.NewTicker(min(max(m.RawFor/4, time.Second), time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-m.kick:
		case <-tick.C:
		}
		if err := m.tendMemories(m.ctx, time.Now()); err != nil && m.ctx.Err() == nil && !errors.Is(err, errClosing) {
			m.log.Error("keeping the memory of hibernated containers failed", "error", err)
		}
	}
}

// tendMemories is one round of keepMemories.
func (m *Manager) tendMemories(ctx context.Context, now time.Time) error {
	rows, err := m.Store.Containers().WithMemory(ctx)
	if err != nil {
		return err
	}
	var errs []error
	var raw int64
	sum := map[string]int64{}             // of each project
	for i := len(rows) - 1; i >= 0; i-- { // the newest first: the quotas are theirs
		row := rows[i]
		if row.State != store.StateHibernated || !m.isFree(&row, now) {
			continue
		}
		sum[row.Project] += max(row.Memory.Bytes, row.Memory.Packed)
		if (!row.Named && now.Sub(row.Memory.CreatedAt) > unnamedMemory) || (m.MemoryQuota > 0 && sum[row.Project] > m.MemoryQuota) {
			sum[row.Project] -= max(row.Memory.Bytes, row.Memory.Packed)
			errs = append(errs, m.forgetMemory(ctx, row))
			continue
		}
		if row.Memory.Packed == 0 {
			row, err = m.pack(ctx, row)
			errs = append(errs, err)
		}
		if n, ok := memory.Sealed(m.memoryDir(row.ID, row.Memory.ID)); ok {
			if raw += n; row.Memory.Packed > 0 && (now.Sub(row.Memory.CreatedAt) > m.RawFor || raw > m.RawQuota) {
				raw -= n
				errs = append(errs, m.dropRaw(ctx, row))
			}
		}
	}
	return errors.Join(errs...)
}

// pack writes the image of a hibernated container into the blobs. One that is resumed meanwhile is left alone.
func (m *Manager) pack(ctx context.Context, row store.Container) (store.Container, error) {
	dir := m.memoryDir(row.ID, row.Memory.ID)
	if _, ok := memory.Sealed(dir); !ok || m.checkSpace() != nil {
		return row, nil
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := memory.Pack(ctx, dir, w)
		w.CloseWithError(err)
		packed <- err
	}()
	sum, n, err := m.Blobs.PutNamed(ctx, row.Project, row.Memory.ID, r)
	_ = r.Close() // Pack, if it still writes, gets an error
	if err := errors.Join(<-packed, err); err != nil {
		if _, ok := memory.Sealed(dir); !ok {
			return row, nil //nolint:nilerr // it was resumed, and its image removed
		}
		return row, err
	}
	id := row.Memory.ID
	now, err := m.Store.Containers().Update(ctx, row.Project, row.ID, func(c *store.Container) error {
		if c.Memory.ID != id {
			return errInUse
		}
		c.Memory.Packed, c.Memory.SHA256 = n, sum
		return nil
	})
	if err != nil {
		if errors.Is(err, errInUse) || errors.Is(err, store.ErrNotFound) {
			err = nil
		}
		return row, errors.Join(err, m.Blobs.DeleteNamed(context.WithoutCancel(ctx), row.Project, id))
	}
	return now, nil
}

// errInUse is what an edit of a row returns that comes too late.
var errInUse = errors.New("container: in use")

// dropRaw removes the unpacked form of an image, unless the container is being resumed from it.
func (m *Manager) dropRaw(ctx context.Context, row store.Container) error {
	return m.undisturbed(ctx, row, func(now store.Container) error {
		if now.Memory.ID != row.Memory.ID || now.Memory.Packed == 0 {
			return nil
		}
		return os.RemoveAll(m.memoryDir(row.ID, row.Memory.ID))
	})
}

// forgetMemory ends the hibernation of a container: its files stay, its variables do not.
func (m *Manager) forgetMemory(ctx context.Context, row store.Container) error {
	return m.undisturbed(ctx, row, func(store.Container) error {
		id := row.Memory.ID
		_, err := m.Store.Containers().Update(ctx, row.Project, row.ID, func(c *store.Container) error {
			if c.State != store.StateHibernated || c.Memory.ID != id {
				return errInUse
			}
			c.State, c.Memory = store.StateIdle, store.Memory{}
			return nil
		})
		if errors.Is(err, errInUse) || errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil {
			m.log.InfoContext(ctx, "the memory of a hibernated container was given up", "container", row.ID, "bytes", row.Memory.Bytes)
			m.dropMemory(ctx, entryKey{row.Project, row.ID}, row.Memory)
		}
		return err
	})
}

// undisturbed calls fn while the container hibernates and no sandbox of it is being started here. It does nothing where one is.
func (m *Manager) undisturbed(ctx context.Context, row store.Container, fn func(store.Container) error) error {
	e, err := m.reference(ctx, entryKey{row.Project, row.ID})
	if err != nil {
		return err
	}
	defer m.release(e)
	if !e.boot.TryAcquire(1) {
		return nil
	}
	defer e.boot.Release(1)
	now, err := m.Store.Containers().Get(ctx, row.Project, row.ID)
	if errors.Is(err, store.ErrNotFound) || (err == nil && now.State != store.StateHibernated) {
		return nil
	}
	if err != nil {
		return err
	}
	return fn(now)
}
