package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/lathe-gateway/lathe/internal/memory"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// A container's sandbox and volume belong to one process at a time, its owner, which the row names. The owner renews its lease while it
// lives. Another process takes a container over when the lease has run out, or at once where it sees that the owner has died: each owner
// holds a lock on a file of its own below Config.Dir.
const (
	leaseTime = 30 * time.Second
	owners    = "owners" // folder below Config.Dir
)

var ownerID = regexp.MustCompile(`^own_[0-9a-f]{32}$`)

// errElsewhere is for a container that another process runs.
var errElsewhere = &turn.Error{
	Kind: turn.KindOverloaded, RetryAfter: leaseTime, Message: "the container is in use by another server; try again",
}

// errLost ends what this process began with a container that another one has taken over.
var errLost = errors.New("container: another process has taken the container over")

// lockOwner makes the file that says that this process lives.
func (m *Manager) lockOwner() error {
	m.owner = turn.NewID("own_")
	dir := filepath.Join(m.Dir, owners)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("container: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, m.owner), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("container: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("container: lock %s: %w: it must be on a file system with locks", f.Name(), err), f.Close())
	}
	m.alive = f
	return nil
}

// unlockOwner is the last thing that a Manager does.
func (m *Manager) unlockOwner() error {
	return errors.Join(os.Remove(m.alive.Name()), m.alive.Close())
}

// hasDied says whether an owner has certainly died. Of one on another machine that cannot be said.
func (m *Manager) hasDied(owner string) bool {
	if !ownerID.MatchString(owner) || owner == m.owner {
		return false
	}
	f, err := os.OpenFile(filepath.Join(m.Dir, owners, owner), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// isAlone says whether no other process that lives works with Config.Dir.
func (m *Manager) isAlone() (bool, error) {
	entries, err := os.ReadDir(filepath.Join(m.Dir, owners))
	for _, d := range entries {
		if d.Name() != m.owner && !m.hasDied(d.Name()) {
			return false, nil
		}
	}
	return true, err
}

// removeOwners removes the files of owners that have died.
func (m *Manager) removeOwners() error {
	entries, err := os.ReadDir(filepath.Join(m.Dir, owners))
	errs := []error{err}
	for _, d := range entries {
		if m.hasDied(d.Name()) {
			errs = append(errs, os.Remove(filepath.Join(m.Dir, owners, d.Name())))
		}
	}
	return errors.Join(errs...)
}

// isFree says whether this process may have a container.
func (m *Manager) isFree(c *store.Container, now time.Time) bool {
	return c.Owner == "" || c.Owner == m.owner || now.After(c.Lease) || m.hasDied(c.Owner)
}

// recovered is what a container is when its owner has ended without a word, by the last that it wrote.
func (m *Manager) recovered(c *store.Container) {
	switch c.State {
	case store.StateLive, store.StateResuming:
		// Programs may have run and changed files: memory from before would not fit them.
		c.State, c.Memory = store.StateIdle, store.Memory{}
	case store.StateHibernating:
		// Nothing has run since the image was whole.
		if n, ok := memory.Sealed(m.memoryDir(c.ID, c.Memory.ID)); ok {
			c.State, c.Memory.Bytes = store.StateHibernated, n
		} else {
			c.State, c.Memory = store.StateIdle, store.Memory{}
		}
	}
	c.Owner, c.Lease = "", time.Time{}
}

// take makes this process the owner of a row that is being edited.
func (m *Manager) take(c *store.Container) error {
	now := time.Now()
	switch {
	case c.State == store.StateDeleted:
		return notFound(c.ID)
	case c.Ended():
		return errExpired
	case !m.isFree(c, now):
		return errElsewhere
	case c.Owner != m.owner:
		m.recovered(c)
	}
	c.Owner, c.Lease = m.owner, leaseEnd(now)
	return nil
}

func leaseEnd(now time.Time) time.Time { return now.Add(leaseTime).UTC().Truncate(time.Microsecond) }

// own makes this process the container's owner, before it touches the volume.
func (e *entry) own(ctx context.Context) error {
	e.mu.Lock()
	owned := e.owned
	e.mu.Unlock()
	if owned {
		return nil
	}
	_, err := e.edit(ctx, e.m.take)
	return err
}

// claim makes this process the owner and writes down that a sandbox is about to be there, which may change the files. It returns the
// memory to go on with.
func (e *entry) claim(ctx context.Context) (store.Memory, error) {
	row, err := e.edit(ctx, func(c *store.Container) error {
		if err := e.m.take(c); err != nil {
			return err
		}
		if c.State == store.StateHibernated {
			c.State = store.StateResuming
			return nil
		}
		c.State, c.Memory = store.StateLive, store.Memory{}
		return nil
	})
	return row.Memory, err
}

// edit is an Update after which this process is the owner.
func (e *entry) edit(ctx context.Context, fn func(*store.Container) error) (store.Container, error) {
	row, err := e.m.Store.Containers().Update(ctx, e.key.project, e.key.id, fn)
	if errors.Is(err, store.ErrNotFound) {
		return row, notFound(e.key.id)
	}
	if err == nil {
		e.mu.Lock()
		e.owned = true
		e.mu.Unlock()
	}
	return row, err
}

// transition changes the state of a container that this process owns, from one of those that it must be in.
func (e *entry) transition(ctx context.Context, from string, edit func(*store.Container)) error {
	_, err := e.m.Store.Containers().Update(ctx, e.key.project, e.key.id, func(c *store.Container) error {
		if c.Owner != e.m.owner {
			return errLost
		}
		if c.State != from {
			return fmt.Errorf("container: %s is %s, not %s", c.ID, c.State, from)
		}
		edit(c)
		return nil
	})
	return err
}

// renewLeases renews the leases of this process until the Manager closes. Where that fails for too long, others may have taken the
// containers: then nothing runs here any more.
func (m *Manager) renewLeases() {
	tick := time.NewTicker(leaseTime / 3)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		ctx, cancel := context.WithTimeout(m.ctx, leaseTime/3)
		_, err := m.Store.Containers().Renew(ctx, m.owner, leaseEnd(now))
		cancel()
		switch {
		case err == nil:
			last = now
		case m.ctx.Err() != nil:
			return
		default:
			m.log.Error("renewing the leases of containers failed", "error", err)
			if now.Sub(last) >= leaseTime {
				for _, e := range m.all() {
					e.freeSandbox()
				}
			}
		}
	}
}
