package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lathe-gateway/lathe/internal/egress"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

type entryKey struct{ project, id string }

// entry is a container that something in this process uses: a workspace, an operation on its files or its sandbox. Each of them holds a
// reference; with the last one the volume is unmounted and the entry is forgotten.
type entry struct {
	m   *Manager
	key entryKey

	refs    int           // guarded by m.mu
	closing chan struct{} // guarded by m.mu; not nil while the entry is being forgotten

	// calls is held by the call that runs: they run one after another in order of arrival.
	calls *semaphore.Weighted
	// boot is held while a sandbox is looked up or started.
	boot *semaphore.Weighted

	mu    sync.Mutex
	row   store.Container // as last seen; LastActive may be newer than the store's
	saved time.Time       // LastActive of the store
	opens int             // workspaces
	live  *live
	// forgot is what the next call has to be told: that it meets an interpreter without what earlier calls defined. "" where it does not.
	forgot string
	// owned says that the row names this process as the owner.
	owned bool
	// running is how many calls run.
	running int
	ended   error // set once: the container was deleted or has expired

	files    fileState
	programs programs
}

// live is one sandbox of a container.
type live struct {
	sandbox.Sandbox
	memory int64                // its limit, which counts in slots
	ran    bool                 // code has run in it; guarded by entry.mu
	going  bool                 // it is being freed; guarded by entry.mu
	skills map[string]heldSkill // by their folder; of the calls, which run one after another
	freed  chan struct{}        // closed when its slot and its reference have been given back
	// saving is not nil from when its memory begins to be written down, and closed when that has come to its end; guarded by entry.mu.
	saving chan struct{}
	saved  store.Memory // what came of it; set before saving is closed
	// asked says that its network has been seen to, and gate is the network, nil for none; guarded by entry.mu.
	asked bool
	gate  *egress.Gate
}

func notFound(id string) error { return turn.NotFound("Container with id '%s' not found.", id) }

// errExpired is exactly what clients of the hosted service know.
var errExpired = &turn.Error{Kind: turn.KindInvalid, Message: "Container is expired."}

// acquire returns the entry of a container that exists and has not ended. Whoever gets it calls release.
func (m *Manager) acquire(ctx context.Context, project, id string) (*entry, error) {
	e, err := m.reference(ctx, entryKey{project, id})
	if err != nil {
		return nil, err
	}
	row, err := m.lookup(ctx, project, id)
	e.mu.Lock()
	if err == nil {
		err = e.ended
	}
	if err == nil && row.LastActive.After(e.row.LastActive) {
		e.row, e.saved = row, row.LastActive
	}
	e.mu.Unlock()
	if err != nil {
		m.release(e)
		return nil, err
	}
	return e, nil
}

// lookup returns the row of a container that has not ended.
func (m *Manager) lookup(ctx context.Context, project, id string) (store.Container, error) {
	row, err := m.Store.Containers().Get(ctx, project, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return row, notFound(id)
	case err != nil:
		return row, fmt.Errorf("container %s: %w", id, err)
	case row.State == store.StateCreating || row.State == store.StateDeleted:
		return row, notFound(id)
	case row.Ended() || m.overdue(row, time.Now()):
		return row, errExpired
	}
	return row, nil
}

// overdue says whether a container has not been used for longer than it was to live.
func (m *Manager) overdue(row store.Container, now time.Time) bool {
	if row.ExpireAfter == 0 {
		return false
	}
	m.mu.Lock()
	e := m.entries[entryKey{row.Project, row.ID}]
	m.mu.Unlock()
	last := row.LastActive
	if e != nil {
		e.mu.Lock()
		if e.row.LastActive.After(last) {
			last = e.row.LastActive
		}
		if e.opens > 0 {
			last = now
		}
		e.mu.Unlock()
	}
	return now.After(last.Add(row.ExpireAfter))
}

func (m *Manager) reference(ctx context.Context, key entryKey) (*entry, error) {
	for {
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			return nil, errClosing
		}
		e := m.entries[key]
		if e == nil {
			e = &entry{m: m, key: key, calls: semaphore.NewWeighted(1), boot: semaphore.NewWeighted(1)}
			if m.volumes.ran(key.id) {
				e.forgot = noteRestarted
			}
			m.entries[key] = e
		}
		if closing := e.closing; closing != nil {
			m.mu.Unlock()
			select {
			case <-closing:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		e.refs++
		m.mu.Unlock()
		return e, nil
	}
}

// hold takes one more reference; the caller has one already.
func (m *Manager) hold(e *entry) {
	m.mu.Lock()
	e.refs++
	m.mu.Unlock()
}

// release gives a reference back.
func (m *Manager) release(e *entry) {
	m.mu.Lock()
	e.refs--
	if e.refs > 0 {
		m.mu.Unlock()
		return
	}
	e.closing = make(chan struct{})
	m.mu.Unlock()

	if err := m.volumes.unmount(e.detach()); err != nil {
		m.log.Error("unmounting a volume failed", "container", e.key.id, "error", err)
	}
	e.giveBack()
	e.mu.Lock()
	ended := e.ended
	e.mu.Unlock()
	if ended != nil {
		if err := m.volumes.remove(e.key.id); err != nil {
			m.log.Error("removing a container's folder failed", "container", e.key.id, "error", err)
		}
	}
	m.mu.Lock()
	delete(m.entries, e.key)
	close(e.closing)
	m.mu.Unlock()
}

// touch notes that the container was used now.
func (e *entry) touch(ctx context.Context) {
	e.mu.Lock()
	e.row.LastActive = time.Now()
	e.mu.Unlock()
	e.save(ctx)
}

// saveStep is how far the store's LastActive may lag behind: a write for each call would cost more than some calls.
func saveStep(expireAfter time.Duration) time.Duration {
	if expireAfter == 0 {
		return 30 * time.Second
	}
	return min(30*time.Second, expireAfter/20)
}

// giveBack writes LastActive to the store, and that nobody owns the container.
func (e *entry) giveBack() {
	e.mu.Lock()
	last, owned := e.row.LastActive, e.owned
	idle := e.ended != nil || (!owned && !last.After(e.saved))
	e.owned, e.saved = false, last
	e.mu.Unlock()
	if idle {
		return
	}
	e.update(e.m.ctx, func(c *store.Container) {
		if last.After(c.LastActive) {
			c.LastActive = last
		}
		if c.Owner == e.m.owner {
			c.Owner, c.Lease = "", time.Time{}
		}
	})
}

// save writes LastActive to the store if it is due.
func (e *entry) save(ctx context.Context) {
	e.mu.Lock()
	last, due := e.row.LastActive, e.row.LastActive.Sub(e.saved)
	if e.ended != nil || due < saveStep(e.row.ExpireAfter) {
		e.mu.Unlock()
		return
	}
	e.saved = last
	e.mu.Unlock()
	e.update(ctx, func(c *store.Container) {
		if last.After(c.LastActive) {
			c.LastActive = last
		}
	})
}

// update edits the row; a failure is logged, since nothing but a time or a state is lost.
func (e *entry) update(ctx context.Context, edit func(*store.Container)) {
	_, err := e.m.Store.Containers().Update(context.WithoutCancel(ctx), e.key.project, e.key.id, func(c *store.Container) error {
		if !c.Ended() {
			edit(c)
		}
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		e.m.log.ErrorContext(ctx, "updating a container's row failed", "container", e.key.id, "error", err)
	}
}

// busy says whether a workspace is open.
func (e *entry) busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opens > 0
}

// calling says whether a call runs.
func (e *entry) calling() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running > 0
}

// end makes the container unusable for good: its sandbox ends, and whoever uses it gets why.
func (e *entry) end(why error) {
	e.mu.Lock()
	if e.ended == nil {
		e.ended = why
	}
	e.mu.Unlock()
	if l := e.freeSandbox(); l != nil {
		<-l.freed
	}
}
