package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// sandboxState knows whether sandboxes work here, without starting one at each question of a load balancer: the backend is asked at the
// start, and again when the last answer was bad and is old.
type sandboxState struct {
	backend sandbox.Backend
	log     *slog.Logger

	mu      sync.Mutex
	asking  bool
	asked   time.Time
	err     error
	running sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the life of the background check, ended by close
	cancel  context.CancelFunc
}

// askAgain is how old a bad answer may become.
const askAgain = time.Minute

var errUnknown = errors.New("the sandbox is still being checked")

func newSandboxState(ctx context.Context, backend sandbox.Backend, log *slog.Logger) *sandboxState {
	s := &sandboxState{backend: backend, log: log, err: errUnknown}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// ready is for /readyz.
func (s *sandboxState) ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && !s.asking && time.Since(s.asked) > askAgain {
		s.asking = true
		s.running.Go(s.ask)
	}
	return s.err
}

// begin asks for the first time, in the background.
func (s *sandboxState) begin() { _ = s.ready(s.ctx) }

func (s *sandboxState) ask() {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	found := s.backend.Check(ctx)
	var failed []error
	for _, f := range found {
		switch f.Level {
		case levelFail:
			failed = append(failed, errors.New(f.Detail))
			s.log.ErrorContext(ctx, "hosted tools do not work; everything else does", "part", f.Name, "found", f.Detail, "mend", f.Mend)
		case levelWarn:
			s.log.WarnContext(ctx, "the sandbox is weaker than it could be", "part", f.Name, "found", f.Detail, "mend", f.Mend)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking, s.asked, s.err = false, time.Now(), errors.Join(failed...)
}

func (s *sandboxState) close() error {
	s.cancel()
	s.running.Wait()
	return nil
}
