// Package demo is a provider without a model: a script that reads the last message of the user, has code run for it and answers from
// the result. It needs no network, is no AI and says so, and the same conversation always gets the same answer. `make demo`, the
// documentation and the benchmarks run on it. Only the wiring and tests import it.
package demo

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Provider is safe for concurrent use.
type Provider struct{}

var _ provider.Provider = (*Provider)(nil)

// New returns the provider.
func New() *Provider { return &Provider{} }

// Check finds nothing that could be missing.
func (*Provider) Check(context.Context) error { return nil }

// Stream answers one round. It knows what to do from the conversation alone: before the result of a call it calls, after it it answers.
func (*Provider) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	var used atomic.Bool
	return func(yield func(turn.Event, error) bool) {
		if used.Swap(true) {
			yield(nil, turn.Internal(errors.New("demo: a stream was ranged twice")))
			return
		}
		over := false
		send := func(events ...turn.Event) {
			for _, ev := range events {
				if over {
					return
				}
				if ctx.Err() != nil {
					over = true
					yield(nil, &turn.Error{Kind: turn.KindCancelled, Message: "the request was cancelled", Cause: context.Cause(ctx)})
					return
				}
				over = !yield(ev, nil)
			}
		}
		var seq turn.Sequencer
		said := read(req).reply()
		send(turn.Started{ID: "demo", Model: req.Model})
		for _, w := range words(said.thought) {
			send(seq.Reasoning(w, "reasoning_content")...)
		}
		for _, w := range words(said.text) {
			send(seq.Text(w)...)
		}
		reason := turn.ReasonStop
		for i, c := range said.calls {
			reason = turn.ReasonCalls
			send(seq.Call(i, "call_"+c.name, c.name, "")...)
			for _, p := range pieces(c.arguments) {
				send(seq.Call(i, "", "", p)...)
			}
		}
		send(seq.Close()...)
		send(turn.Finished{Reason: reason, Usage: usage(req, said)})
	}
}

// words cuts text behind its blanks and line breaks.
func words(text string) []string {
	var out []string
	for len(text) > 0 {
		n := strings.IndexAny(text, " \n") + 1
		if n == 0 {
			n = len(text)
		}
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}

// pieces cuts arguments into a few characters each, as models write them.
func pieces(s string) []string {
	const size = 6
	var out []string
	for len(s) > size {
		n := size
		for !utf8.RuneStart(s[n]) {
			n--
		}
		out, s = append(out, s[:n]), s[n:]
	}
	return append(out, s)
}

// usage counts words, which is all that tokens are here.
func usage(req *turn.Request, said reply) turn.Usage {
	var u turn.Usage
	for _, it := range req.Items {
		switch v := it.(type) {
		case turn.Message:
			u.Input += len(strings.Fields(textOf(v.Parts)))
		case turn.Call:
			u.Input += len(strings.Fields(v.Arguments))
		case turn.Result:
			u.Input += len(strings.Fields(textOf(v.Parts)))
		}
	}
	u.Reasoning = len(strings.Fields(said.thought))
	u.Output = u.Reasoning + len(strings.Fields(said.text))
	for _, c := range said.calls {
		u.Output += len(strings.Fields(c.arguments))
	}
	return u
}

func textOf(parts []turn.Part) string {
	var out []string
	for _, p := range parts {
		if t, ok := p.(turn.Text); ok {
			out = append(out, t.Text)
		}
	}
	return strings.Join(out, "\n")
}
