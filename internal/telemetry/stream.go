package telemetry

import (
	"context"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Streamer counts the turns of next. known says whether a model's name is one of the configuration, so that clients cannot make labels.
func (m *Metrics) Streamer(next turn.Streamer, known func(model string) bool) turn.Streamer {
	return &streamer{metrics: m, next: next, known: known}
}

type streamer struct {
	metrics *Metrics
	next    turn.Streamer
	known   func(string) bool
}

var _ turn.Streamer = (*streamer)(nil)

// Stream hands on every pair unchanged.
func (s *streamer) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) {
		model := "other"
		if s.known(req.Model) {
			model = req.Model
		}
		outcome := "left" // the caller stopped ranging
		defer func() { s.metrics.turns.WithLabelValues(model, outcome).Inc() }()
		for ev, err := range s.next.Stream(ctx, req) {
			if err != nil {
				outcome = "error"
				if ctx.Err() != nil {
					outcome = "cancelled"
				}
			}
			if finished, ok := s.count(ev, model); ok {
				outcome = string(finished.Reason)
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

func (s *streamer) count(ev turn.Event, model string) (turn.Finished, bool) {
	switch ev := ev.(type) {
	case turn.HostedDone:
		s.metrics.hostedCalls.WithLabelValues(ev.Call.Tool, string(ev.Call.Status)).Inc()
	case turn.Finished:
		s.metrics.rounds.Add(float64(ev.Rounds))
		for kind, n := range map[string]int{
			"input": ev.Usage.Input, "cached": ev.Usage.Cached, "output": ev.Usage.Output, "reasoning": ev.Usage.Reasoning,
		} {
			s.metrics.tokens.WithLabelValues(model, kind).Add(float64(max(n, 0)))
		}
		return ev, true
	}
	return turn.Finished{}, false
}
