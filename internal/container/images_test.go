package container

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// imageSpy remembers which images were started and prepared.
type imageSpy struct {
	sandbox.Backend
	mu                sync.Mutex
	started, prepared []string
}

func (s *imageSpy) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s.mu.Lock()
	s.started = append(s.started, spec.Image)
	s.mu.Unlock()
	return s.Backend.Start(ctx, spec)
}

func (s *imageSpy) Prepare(ctx context.Context, image string) error {
	s.mu.Lock()
	s.prepared = append(s.prepared, image)
	s.mu.Unlock()
	return s.Backend.Prepare(ctx, image)
}

// TestImageOfAProject: a project's sandboxes start from its own image, and never from a spare, which has the default one.
func TestImageOfAProject(t *testing.T) {
	t.Parallel()
	spy := &imageSpy{}
	b := newBench(t, func(c *Config) {
		spy.Backend = c.Backend
		c.Backend, c.Pool, c.PoolMax, c.Images = spy, 1, 1, map[string]string{"p": "/images/own", "q": "/images/own"}
	})
	b.StartPool()
	b.filled(1)
	w := b.open(turn.Hosted{})
	python(t, w, "1")
	if b.Spares() != 1 {
		t.Error("the spare was taken")
	}
	spy.mu.Lock()
	defer spy.mu.Unlock()
	if !slices.Equal(spy.started, []string{"", "/images/own"}) || !slices.Equal(spy.prepared, []string{"", "/images/own"}) {
		t.Errorf("started %q, prepared %q", spy.started, spy.prepared)
	}
}
