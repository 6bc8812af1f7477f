package container

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// startTimeout bounds the start of a sandbox, volume included.
const startTimeout = 60 * time.Second

// sandbox returns the container's sandbox and starts one if there is none. With patient false it gives up where it would have to wait
// for a slot.
func (e *entry) sandbox(ctx context.Context, patient bool) (*live, error) {
	if err := e.boot.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer e.boot.Release(1)
	l, err := e.current()
	if err != nil {
		return nil, err
	}
	if l != nil {
		return l, nil
	}
	return e.start(ctx, patient)
}

// current returns the sandbox that is up, nil for none. One that is going away has then gone.
func (e *entry) current() (*live, error) {
	e.mu.Lock()
	l, ended := e.live, e.ended
	gone := l != nil && (l.going || isDone(l.Done()))
	e.mu.Unlock()
	if ended != nil {
		return nil, ended
	}
	if gone {
		<-l.freed // Sandbox.Close ends by itself
		return nil, nil
	}
	return l, nil
}

func isDone(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (e *entry) start(ctx context.Context, patient bool) (*live, error) {
	m := e.m
	m.hold(e) // the sandbox's own reference
	memory := e.memory()
	if err := m.slots.acquire(ctx, e.key.project, memory, patient); err != nil {
		m.release(e)
		return nil, err
	}
	m.pool.starting.Add(1)
	l, err := e.boots(ctx, memory)
	m.pool.starting.Add(-1)
	if err != nil {
		m.slots.release(e.key.project, memory)
		m.release(e)
		return nil, err
	}
	e.update(ctx, func(c *store.Container) { c.State = store.StateLive })
	return l, nil
}

// boots mounts the volume, starts a sandbox on it and has it watched.
func (e *entry) boots(ctx context.Context, memory int64) (*live, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	vol, err := e.attach(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	sb, err := e.m.Backend.Start(ctx, e.m.spec(vol, e.key.project, memory))
	if err != nil {
		return nil, startError(ctx, err)
	}
	e.m.log.DebugContext(ctx, "sandbox started", "container", e.key.id, "took", time.Since(began))
	l := &live{Sandbox: sb, memory: memory, freed: make(chan struct{})}
	e.mu.Lock()
	ended := e.ended
	if ended == nil {
		ended = context.Cause(e.m.ctx) //nolint:contextcheck // that of the Manager: the sandbox outlives the request
	}
	if ended == nil {
		e.live = l
	}
	e.mu.Unlock()
	if ended != nil { // meanwhile
		return nil, errors.Join(ended, sb.Close())
	}
	e.m.wg.Go(func() { e.watch(l) })
	return l, nil
}

// spec is what a sandbox of a container is made of.
func (m *Manager) spec(vol *volume, project string, memory int64) sandbox.Spec {
	limits := m.Limits
	limits.Memory = memory
	return sandbox.Spec{
		ID: vol.id + "-" + suffix(), Image: m.Images[project], Mounts: vol.mounts(), Limits: limits,
		Env: map[string]string{"INPUT_DIR": dataMount, "OUTPUT_DIR": dataMount},
	}
}

// suffix keeps a new sandbox of a container apart from one that is still ending.
func suffix() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	e := &turn.Error{
		Kind: turn.KindOverloaded, RetryAfter: 5 * time.Second, Message: "the sandbox could not be started; try again", Cause: err,
	}
	if errors.Is(err, sandbox.ErrUnavailable) {
		e.Message, e.Code, e.RetryAfter = "this server cannot run code: its operator finds the reason with `lathe doctor`", "sandbox_unavailable", 0
	}
	return e
}

// watch waits for the end of a sandbox, whatever its cause, and gives back what it held.
func (e *entry) watch(l *live) {
	<-l.Done()
	if err := l.Close(); err != nil {
		e.m.log.Error("ending a sandbox failed", "container", e.key.id, "error", err)
	}
	e.update(e.m.ctx, func(c *store.Container) { c.State = store.StateIdle })
	e.mu.Lock()
	e.live = nil
	e.restarted = e.restarted || l.ran
	e.mu.Unlock()
	e.m.slots.release(e.key.project, l.memory)
	e.m.release(e)
	close(l.freed)
}

// freeSandbox begins to end the sandbox, if there is one, and returns it.
func (e *entry) freeSandbox() *live {
	e.mu.Lock()
	l := e.live
	if l != nil {
		l.going = true
	}
	e.mu.Unlock()
	e.close(l)
	return l
}

// close ends a sandbox that is marked as going. watch does the rest.
func (e *entry) close(l *live) {
	if l != nil {
		e.m.wg.Go(func() { _ = l.Close() }) // watch gets the same error
	}
}

// freeIfIdle begins to end the sandbox if nothing has used it since before, and says whether it did.
func (e *entry) freeIfIdle(before time.Time) bool {
	e.mu.Lock()
	l := e.live
	if l == nil || l.going || e.opens > 0 || e.row.LastActive.After(before) {
		e.mu.Unlock()
		return false
	}
	l.going = true
	e.mu.Unlock()
	e.close(l)
	return true
}

// evict begins to free something for who waits: with "" a spare first, else a sandbox of the project.
func (m *Manager) evict(project string) bool {
	return project == "" && m.pool.giveUp() || m.evictLongestIdle(project)
}

// evictLongestIdle begins to free the sandbox that has been idle for longest, of one project or, with "", of any. Nothing that a turn still
// uses is freed.
func (m *Manager) evictLongestIdle(project string) bool {
	for {
		var longest *entry
		var since time.Time
		for _, e := range m.all() {
			if project != "" && e.key.project != project {
				continue
			}
			e.mu.Lock()
			last := e.row.LastActive
			idle := e.live != nil && !e.live.going && e.opens == 0
			e.mu.Unlock()
			if idle && (longest == nil || last.Before(since)) {
				longest, since = e, last
			}
		}
		if longest == nil {
			return false
		}
		if longest.freeIfIdle(since) {
			return true
		}
	}
}

// takeRestarted says once that the interpreter has forgotten what earlier calls defined.
func (e *entry) takeRestarted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.restarted
	e.restarted = false
	return r
}

func (e *entry) setRestarted() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.restarted = true
}

// setRan remembers that code has run in l.
func (e *entry) setRan(l *live) {
	e.mu.Lock()
	first := !l.ran
	l.ran = true
	e.mu.Unlock()
	if first {
		if err := e.m.volumes.setRan(e.key.id); err != nil {
			e.m.log.Warn("remembering that code ran failed", "container", e.key.id, "error", err)
		}
	}
}
