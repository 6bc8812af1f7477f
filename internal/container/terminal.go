package container

import (
	"context"
	"errors"
	"sync"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
)

// errFound ends a search.
var errFound = errors.New("found")

// OpenTerminal opens an operator's terminal into a container of any project, beside the calls of turns, and starts its sandbox if there is
// none. It keeps the container in use until it is closed, which the caller must do; then what was changed becomes files as after a call.
func (m *Manager) OpenTerminal(ctx context.Context, id string, spec sandbox.TerminalSpec) (sandbox.Terminal, error) {
	if err := m.begin(); err != nil {
		return nil, err
	}
	defer m.wg.Done()
	var project string
	err := m.Store.Containers().All(ctx, func(c store.Container) error {
		if c.ID == id {
			project = c.Project
			return errFound
		}
		return nil
	})
	if err == nil {
		return nil, notFound(id)
	}
	if !errors.Is(err, errFound) {
		return nil, err
	}
	e, err := m.acquire(ctx, project, id)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.opens++
	e.mu.Unlock()
	t := &terminal{w: &workspace{entry: e}}
	l, err := e.sandbox(ctx, true)
	if err == nil {
		e.setRan(l) // what is typed may change everything
		t.Terminal, err = l.OpenTerminal(ctx, spec)
	}
	if err != nil {
		return nil, errors.Join(err, t.w.Close())
	}
	m.log.WarnContext(ctx, "an operator's terminal was opened", "container", id, "project", project)
	return t, nil
}

// terminal is one of a container that is held.
type terminal struct {
	sandbox.Terminal
	w    *workspace
	once sync.Once
	err  error
}

// Close hangs up, records files, and gives the container back.
func (t *terminal) Close() error {
	t.once.Do(func() {
		e := t.w.entry
		t.err = t.Terminal.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.m.ctx), captureTimeout)
		defer cancel()
		// A call that runs records files itself when it ends.
		if e.m.begin() == nil {
			if e.calls.TryAcquire(1) {
				if _, _, err := e.capture(ctx); err != nil && !e.hasEnded() {
					e.m.log.ErrorContext(ctx, "capturing files failed", "container", e.key.id, "error", err)
				}
				e.calls.Release(1)
			}
			e.m.wg.Done()
		}
		t.err = errors.Join(t.err, t.w.Close())
	})
	return t.err
}
