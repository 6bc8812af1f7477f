package container

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// slots caps the live sandboxes of this machine. Who finds none free has the longest idle sandbox freed and waits in order of arrival.
type slots struct {
	sem     *semaphore.Weighted
	n       int
	wait    time.Duration
	waiting atomic.Int32
	evict   func() bool // begins to free an idle sandbox, if there is one
}

func newSlots(n int, wait time.Duration, evict func() bool) *slots {
	return &slots{sem: semaphore.NewWeighted(int64(n)), n: n, wait: wait, evict: evict}
}

var errNoSlot = errors.New("container: no free slot for a sandbox")

// acquire takes a slot. With patient false it does not wait: errNoSlot says that none was free.
func (s *slots) acquire(ctx context.Context, patient bool) error {
	if s.sem.TryAcquire(1) {
		return nil
	}
	if !patient {
		return errNoSlot
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	s.evict()
	waitCtx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if err := s.sem.Acquire(waitCtx, 1); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &turn.Error{
			Kind: turn.KindOverloaded, RetryAfter: 10 * time.Second,
			Message: fmt.Sprintf("all %d sandboxes of this server are busy; try again", s.n), Cause: errNoSlot,
		}
	}
	return nil
}

func (s *slots) release() { s.sem.Release(1) }

// eased is called when a sandbox has become idle: whoever waits may have it.
func (s *slots) eased() {
	if s.waiting.Load() > 0 {
		s.evict()
	}
}
