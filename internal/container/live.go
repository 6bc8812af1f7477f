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
	if !patient && !e.busy() {
		return nil, errNoSlot // it was to be ready for a workspace that is closed by now
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
	if l == nil { // else watch does this
		m.slots.release(e.key.project, memory)
		m.release(e)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// boots mounts the volume, starts a sandbox on it or resumes the one that hibernates, and has it watched. With an error it returns a
// sandbox that is up all the same, and going.
func (e *entry) boots(ctx context.Context, memory int64) (*live, error) {
	mem, err := e.claim(ctx)
	if err != nil {
		return nil, err
	}
	if mem.ID != "" {
		ctx = context.WithoutCancel(ctx) // a client that leaves must not cost the memory
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	l, err := e.raise(ctx, memory, mem)
	if err != nil {
		e.unclaim(ctx, mem, errors.Is(err, errSpent))
		return nil, err
	}
	e.m.wg.Go(func() { e.watch(l) })
	if err := context.Cause(e.m.ctx); err != nil { //nolint:contextcheck // that of the Manager: the sandbox outlives the request
		e.parkNow(time.Now(), true) // Close may have come by already
		return l, err
	}
	return l, nil
}

// errSpent is wrapped where programs have run that were in a memory image: nothing may be resumed from it any more.
var errSpent = errors.New("container: memory has been used")

// raise has a sandbox up, with what mem holds if that can be.
func (e *entry) raise(ctx context.Context, memory int64, mem store.Memory) (up *live, err error) {
	vol, err := e.attach(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	spec := e.m.spec(vol, e.key.project, memory)
	l := &live{memory: memory, freed: make(chan struct{})}
	spec.Mounts = append(spec.Mounts, e.boundSkills(ctx, l)...)
	defer func() {
		if up == nil {
			l.releaseSkills()
		}
	}()
	if mem.ID != "" {
		if l.Sandbox, err = e.resume(ctx, spec, mem); err != nil {
			if errors.Is(err, sandbox.ErrUnavailable) {
				return nil, startError(ctx, err)
			}
			e.m.log.WarnContext(ctx, "a container goes on without its memory", "container", e.key.id, "error", err)
			spec.ID = e.key.id + "-" + suffix()
		}
		l.ran = err == nil
	}
	if l.Sandbox == nil {
		if l.Sandbox, err = e.m.Backend.Start(ctx, spec); err != nil {
			return nil, startError(ctx, err)
		}
	}
	if err := e.settle(ctx, l, mem); err != nil {
		if l.ran {
			err = errors.Join(err, errSpent)
		}
		return nil, errors.Join(err, l.Close())
	}
	e.m.log.DebugContext(ctx, "sandbox started", "container", e.key.id, "resumed", l.ran, "took", time.Since(began))
	return l, nil
}

// settle makes a sandbox that is up the container's, before code runs in it.
func (e *entry) settle(ctx context.Context, l *live, mem store.Memory) error {
	if mem.ID != "" {
		if err := e.consumed(ctx, mem); err != nil {
			return err
		}
	}
	if err := e.thaw(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case l.ran:
		e.forgot = ""
	case mem.ID != "":
		e.forgot = noteUnusable
	}
	if e.ended != nil { // meanwhile
		return e.ended
	}
	e.live = l
	return nil
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
	e.mu.Lock()
	l.going = true
	saving := l.saving
	e.mu.Unlock()
	if saving != nil {
		<-saving
	}
	if err := l.Close(); err != nil {
		e.m.log.Error("ending a sandbox failed", "container", e.key.id, "error", err)
	}
	e.offline(l)
	l.releaseSkills()
	kept := saving != nil && l.saved.ID != ""
	if !kept {
		e.update(e.m.ctx, func(c *store.Container) {
			if c.Owner == e.m.owner {
				c.State, c.Memory = store.StateIdle, store.Memory{}
			}
		})
	}
	e.mu.Lock()
	e.live = nil
	if l.ran && !kept && e.forgot == "" {
		e.forgot = noteRestarted
	}
	e.mu.Unlock()
	e.files.mu.Lock()
	e.files.gone = map[string]bool{}
	e.files.mu.Unlock()
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

// evict begins to free something for who waits: with "" a spare first, else a sandbox of the project, which hibernates.
func (m *Manager) evict(project string) bool {
	return project == "" && m.pool.giveUp() || m.evictLongestIdle(project)
}

// evictLongestIdle begins to hibernate the sandbox that has been idle for longest, of one project or, with "", of any. Nothing that a turn
// still uses goes.
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
		if longest.park(since) {
			return true
		}
	}
}

// takeForgot says once that the interpreter has forgotten what earlier calls defined, "" if it has not.
func (e *entry) takeForgot() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	note := e.forgot
	e.forgot = ""
	return note
}

// setForgot has the next call told.
func (e *entry) setForgot() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgot = noteRestarted
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
