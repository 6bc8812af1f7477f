// Package agent is the loop: it asks a model, runs the hosted calls that the model makes, shows the model what came of them, and asks
// again until there is an answer or the client is to run calls of its own. All of it is one turn for the client, one stream.
//
// It knows no protocol and no sandbox: the model is a turn.Streamer, code runs in a tool.Workspace. DESIGN section 5 has its rules, and
// each has a test of its name here. Only the wiring and tests import it.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Config is what an Agent is made of.
type Config struct {
	// Provider answers each round; it routes by Request.Model.
	Provider turn.Streamer
	// Workspaces are where hosted calls run. Nil refuses requests for hosted tools.
	Workspaces tool.Workspaces
	// Images says whether the model that clients call by this name takes images in results. Nil means that none does.
	Images func(model string) bool
	// MaxRounds is how many times a model is asked with hosted tools in one turn, 0 for 32. One more round without them may follow.
	MaxRounds int
	// MaxCalls is how many hosted calls one turn may make, over all its rounds, 0 for 100. The client's own limit holds where it is lower.
	MaxCalls int
	// MaxTime is after how long a turn gets its last round, 0 for 10 minutes. Code that runs then is interrupted; a model that
	// writes is not.
	MaxTime time.Duration
	// PreloadSkills puts the whole text of each skill into the prompt, for models that would not read it.
	PreloadSkills bool
	// Logger gets one line a turn; nil discards.
	Logger *slog.Logger
}

// Agent is safe for concurrent use.
type Agent struct{ cfg Config }

var _ turn.Streamer = (*Agent)(nil)

// New returns an Agent.
func New(cfg Config) *Agent {
	if cfg.Images == nil {
		cfg.Images = func(string) bool { return false }
	}
	if cfg.MaxRounds <= 0 {
		cfg.MaxRounds = 32
	}
	if cfg.MaxCalls <= 0 {
		cfg.MaxCalls = 100
	}
	if cfg.MaxTime <= 0 {
		cfg.MaxTime = 10 * time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Agent{cfg: cfg}
}

// errStopped ends a turn whose caller stopped ranging: nothing may be yielded any more.
var errStopped = errors.New("agent: the caller stopped ranging")

// Stream answers one turn. Hosted calls among req.Items are shown to the model as calls with results; those that the model makes come
// as hosted blocks, and a call of a tool that the client did not declare never comes at all. Its errors say by CodeRan whether code may
// have run.
func (a *Agent) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) {
		l := &loop{cfg: &a.cfg, req: req, yield: yield, start: time.Now()}
		defer l.close(ctx)
		err := l.run(ctx)
		if err != nil && !errors.Is(err, errStopped) {
			err = l.clientError(ctx, err)
			l.log(ctx, err)
			yield(nil, err)
			return
		}
		l.log(ctx, err)
	}
}

func (l *loop) clientError(ctx context.Context, err error) *turn.Error {
	e := *turn.AsError(err)
	if ctx.Err() != nil {
		e = turn.Error{Kind: turn.KindCancelled, Message: "the request was cancelled", Cause: context.Cause(ctx)}
		if ended := turn.Ended(ctx); ended != nil {
			e = *ended
		} else if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			e.Kind, e.Message = turn.KindTimeout, "the request took too long"
		}
	}
	e.CodeRan = e.CodeRan || l.codeRan
	return &e
}

// outcome is one word for the log. The error itself is logged by the surface that answers with it.
func outcome(ctx context.Context, reason turn.Reason, err error) string {
	switch {
	case err == nil:
		return string(reason)
	case errors.Is(err, errStopped), ctx.Err() != nil && turn.Ended(ctx) == nil:
		return "left"
	}
	return "error"
}

func (l *loop) log(ctx context.Context, err error) {
	attrs := []slog.Attr{
		slog.String("model", l.req.Model),
		slog.Int("rounds", l.rounds),
		slog.Int("hosted_calls", l.calls),
		slog.Float64("sandbox_seconds", l.sandboxTime.Seconds()),
		slog.Int("input_tokens", l.usage.Input),
		slog.Int("output_tokens", l.usage.Output),
		slog.Duration("duration", time.Since(l.start)),
		slog.String("outcome", outcome(ctx, l.ended, err)),
	}
	if l.spentReason != "" {
		attrs = append(attrs, slog.String("last_round", string(l.spentReason)))
	}
	l.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "turn ended", attrs...)
}
