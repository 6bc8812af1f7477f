package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// round is one call of the model and the hosted calls that it asked for.
//
// Text, reasoning and calls go to the client as they come, up to the end of the first hosted call. What the model sends after that is
// held until it has finished, and played when the calls before it have run: blocks may not overlap, and the client shall see things in
// the order in which the model wrote them.
type round struct {
	*loop
	last bool // without hosted tools

	items    []turn.Item   // what the model said, in order
	results  []turn.Result // of the calls that were answered here
	clients  int           // calls that the client is to run
	answered int           // calls that were answered here
	reason   turn.Reason
	said     bool // the model has written some text
	waits    bool // a program of this round waits for the client

	call    *openCall // the call that the model is writing
	hosted  *openCall // the hosted block that the client sees open
	waiting *openCall // the first hosted call, written and not yet run
	holding bool
	held    []turn.Event
}

func (r *round) run(ctx context.Context) error {
	r.rounds++
	err := r.ask(ctx)
	if err == nil {
		err = r.settle(ctx)
	}
	if err != nil {
		return r.abandon(ctx, r.hosted, err)
	}
	r.spentReason = r.spend()
	if _, over := r.ends(); !over && r.spentReason != "" && !r.pauses() {
		r.tellLimit()
	}
	r.added = append(r.added, r.items...)
	for _, res := range r.results {
		r.added = append(r.added, res)
	}
	return ctx.Err()
}

// ask streams the model's turn.
func (r *round) ask(ctx context.Context) error {
	finished := false
	for ev, err := range r.cfg.Provider.Stream(ctx, r.request(r.last)) {
		if err != nil {
			return err
		}
		switch e := ev.(type) {
		case turn.Started:
			if !r.started {
				r.started = true
				err = r.emit(e)
			}
		case turn.Finished:
			finished = true
			r.reason, r.upstream = e.Reason, e
			r.usage = r.usage.Add(e.Usage)
		default:
			if r.holding {
				r.held = append(r.held, ev)
			} else {
				err = r.play(ctx, ev)
			}
		}
		if err != nil {
			return err
		}
	}
	if !finished && ctx.Err() == nil {
		return turn.Errorf(turn.KindUpstream, "the model's server ended its answer early; try again")
	}
	return ctx.Err()
}

// settle runs the first hosted call and plays what was held behind it.
func (r *round) settle(ctx context.Context) error {
	if r.waiting != nil {
		if err := r.runHosted(ctx, r.waiting); err != nil {
			return err
		}
	}
	for _, ev := range r.held {
		if err := r.play(ctx, ev); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// play handles one event of the model whose turn it is.
func (r *round) play(ctx context.Context, ev turn.Event) error {
	switch e := ev.(type) {
	case turn.MessageDone:
		return r.messageDone(ctx, e.Message)
	case turn.ReasoningDone:
		r.items = append(r.items, e.Reasoning)
	case turn.BlockDone:
		r.items = append(r.items, e.Block)
	case turn.CallStarted:
		return r.callStarted(ctx, e)
	case turn.CallDelta:
		return r.callDelta(e.Delta)
	case turn.CallDone:
		return r.callDone(ctx, e.Call)
	case turn.HostedStarted, turn.HostedCodeDelta, turn.HostedCodeDone, turn.HostedRunning, turn.HostedOutput, turn.HostedDone,
		turn.HostedResumed, turn.HostedPaused:
		return fmt.Errorf("agent: a provider sent %T", e)
	}
	return r.emit(ev)
}

func (r *round) messageDone(ctx context.Context, m turn.Message) error {
	m, annotations := r.annotate(ctx, m)
	for _, a := range annotations {
		if err := r.emit(turn.Annotated{Annotation: a}); err != nil {
			return err
		}
	}
	r.items = append(r.items, m)
	r.said = r.said || len(m.Parts) > 0
	return r.emit(turn.MessageDone{Message: m})
}

// cut says that the model was stopped before it had said everything: its calls cannot be trusted to be whole.
func (r *round) cut() bool { return r.reason == turn.ReasonLength || r.reason == turn.ReasonFilter }

// ends says whether the turn is over after this round, and why.
func (r *round) ends() (turn.Reason, bool) {
	switch {
	case r.cut():
		return r.reason, true
	case r.clients > 0:
		return turn.ReasonCalls, true
	case r.answered > 0 && (!r.last || !r.said && !r.oneMore):
		return "", false
	case r.answered > 0 || r.reason == turn.ReasonCalls:
		return turn.ReasonStop, true
	}
	return r.reason, true
}

// mute says that this last round has called tools and said nothing: there is no answer.
func (r *round) mute() bool { return r.last && r.answered > 0 && r.clients == 0 && !r.said && !r.cut() }

// tellLimit says in the newest result that the next round is the last.
func (r *round) tellLimit() {
	if n := len(r.results); n > 0 {
		last := &r.results[n-1]
		last.Parts = append(last.Parts, turn.Text{Text: "[" + r.spentReason.sentence() + "]"})
	}
}

// abandon closes a hosted block that an error left open, so that the client does not see it in progress for ever. c is nil for none.
func (l *loop) abandon(ctx context.Context, c *openCall, err error) error {
	if c == nil || errors.Is(err, errStopped) {
		return err
	}
	done := c.item(turn.StatusIncomplete)
	if c.running && ctx.Err() == nil {
		done.Status = turn.StatusFailed
	}
	done.ErrorCode = turn.ErrorUnavailable
	if stopped := l.emit(turn.HostedDone{Call: done}); stopped != nil {
		return stopped
	}
	return err
}
