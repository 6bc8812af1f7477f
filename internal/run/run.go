// Package run is the life of a turn around the loop: before it, what the client's protocol could not carry is put back from the store
// and file ids become content; after it, the same is stored, before the client learns that the turn is over.
//
// It runs nothing itself and knows no protocol. Only the wiring and tests import it.
package run

import (
	"context"
	"log/slog"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Files reads uploaded files and files of containers. The project is that of ctx's principal; another project's id is unknown.
type Files interface {
	// Content returns a file whole. Errors are *turn.Error, or wrap store.ErrNotFound.
	Content(ctx context.Context, id string) (name, mime string, data []byte, err error)
}

// Config is what a Runner is made of.
type Config struct {
	// Next is the agent.
	Next turn.Streamer
	// Steps keeps hidden steps and hosted calls. Somebody else expires them.
	Steps store.Steps
	// Files resolves file ids in the input; nil refuses them.
	Files Files
	// TTL is how long steps are kept, 0 for 30 days.
	TTL time.Duration
	// Logger gets failures of the store; nil discards.
	Logger *slog.Logger
}

// Runner is safe for concurrent use.
type Runner struct{ cfg Config }

var _ turn.Streamer = (*Runner)(nil)

// New returns a Runner.
func New(cfg Config) *Runner {
	if cfg.TTL <= 0 {
		cfg.TTL = 30 * 24 * time.Hour
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runner{cfg: cfg}
}

// Stream answers a turn with Next. Everything of the request that the store or a file can complete has been completed when Next gets it.
func (r *Runner) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) {
		project := auth.FromContext(ctx).Project
		up, err := r.prepare(ctx, project, req)
		if err != nil {
			yield(nil, err)
			return
		}
		rec := &record{runner: r, project: project}
		// A call whose end the client has seen can be named by it, however the turn ends.
		defer rec.saveCalls(ctx)
		for ev, err := range r.cfg.Next.Stream(ctx, up) {
			switch e := ev.(type) {
			case turn.HostedDone:
				rec.calls = append(rec.calls, e.Call)
			case turn.HostedPaused:
				rec.calls = append(rec.calls, e.Call)
			case turn.Finished:
				err = rec.finish(ctx, e)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// prepare returns a request of its own.
func (r *Runner) prepare(ctx context.Context, project string, req *turn.Request) (*turn.Request, error) {
	up := req.Clone()
	r.restore(ctx, project, up)
	if err := r.resolve(ctx, up); err != nil {
		return nil, err
	}
	return up, nil
}
