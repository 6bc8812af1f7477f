package container

import (
	"context"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Hibernate does at once what Config.IdleAfter would bring, and returns when the container's memory is on the disk and its sandbox is gone. A
// container without a sandbox stays as it is. One that a turn uses is KindConflict.
func (m *Manager) Hibernate(ctx context.Context, id string) error {
	e, done, err := m.using(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	e.mu.Lock()
	l := e.live
	e.mu.Unlock()
	if l == nil {
		return nil
	}
	if !e.park(time.Now()) && !isDone(l.Done()) { //nolint:contextcheck // memory is written down also if the caller leaves
		return turn.Errorf(turn.KindConflict, "container %s is in use", id)
	}
	select {
	case <-l.freed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
