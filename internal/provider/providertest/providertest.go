// Package providertest is the suite that every provider passes, the demo one included, and the golden tests of those that translate to a
// protocol. Only tests import it.
package providertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Suite says how to make the provider under test behave. Each function is called once a test.
type Suite struct {
	// Requests are answered well, each under its name. They must not be empty.
	Requests map[string]*turn.Request
	// New returns a provider that answers Requests.
	New func(t *testing.T) provider.Provider
	// Failing returns a provider whose calls fail before their first event; nil for one that cannot fail so.
	Failing func(t *testing.T) provider.Provider
	// Endless returns a provider whose answer to any of Requests begins but does not end, and a channel that is closed when the server
	// sees that its client has gone; the channel is nil where there is no server. Endless is nil for a provider whose answers always end.
	Endless func(t *testing.T) (provider.Provider, <-chan struct{})
}

// soon is a generous bound for what must happen within a second, for a slow machine under the race detector.
const soon = 10 * time.Second

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	for name, req := range s.Requests {
		t.Run("well formed/"+name, func(t *testing.T) { s.wellFormed(t, req) })
	}
	t.Run("single use", s.singleUse)
	t.Run("parallel", s.parallel)
	t.Run("cancelled before", s.cancelledBefore)
	if s.Failing != nil {
		t.Run("error before the first event", s.errorFirst)
	}
	if s.Endless != nil {
		t.Run("cancelled in the middle", s.cancelled)
		t.Run("stopped in the middle", s.stopped)
	}
}

func (s Suite) any() *turn.Request {
	for _, req := range s.Requests {
		return req.Clone()
	}
	panic("providertest: no requests")
}

// Collect ranges a stream to its end, checks that it is well formed, and returns its events.
func Collect(t *testing.T, stream turn.Stream) ([]turn.Event, error) {
	t.Helper()
	var v turn.Validator
	var events []turn.Event
	var last error
	for ev, err := range stream {
		switch {
		case last != nil:
			t.Errorf("a pair after the error: %#v, %v", ev, err)
		case err != nil && ev != nil:
			t.Errorf("an event beside an error: %#v", ev)
		}
		if last = err; err != nil {
			if e, ok := errors.AsType[*turn.Error](err); !ok || e.Message == "" {
				t.Errorf("the error is no *turn.Error with a message: %v", err)
			}
			continue
		}
		if err := v.Push(ev); err != nil {
			t.Errorf("event %d: %v", len(events), err)
		}
		events = append(events, ev)
	}
	if last != nil {
		return events, last
	}
	if err := v.End(); err != nil {
		t.Error(err)
	}
	return events, nil
}

func (s Suite) wellFormed(t *testing.T, req *turn.Request) {
	before := req.Clone()
	if _, err := Collect(t, s.New(t).Stream(t.Context(), req)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, req); diff != "" {
		t.Errorf("the provider changed the request:\n%s", diff)
	}
}

func (s Suite) singleUse(t *testing.T) {
	stream := s.New(t).Stream(t.Context(), s.any())
	if _, err := Collect(t, stream); err != nil {
		t.Fatal(err)
	}
	for ev, err := range stream {
		if err == nil {
			t.Fatalf("the second range yields %#v", ev)
		}
	}
}

func (s Suite) parallel(t *testing.T) {
	p := s.New(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := Collect(t, p.Stream(t.Context(), s.any())); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func (s Suite) cancelledBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Collect(t, s.New(t).Stream(ctx, s.any())); err == nil {
		t.Error("a cancelled context gives no error")
	}
}

func (s Suite) errorFirst(t *testing.T) {
	events, err := Collect(t, s.Failing(t).Stream(t.Context(), s.any()))
	if err == nil || len(events) > 0 {
		t.Fatalf("got %d events and %v, want an error first", len(events), err)
	}
	if e := turn.AsError(err); e.Kind == turn.KindInternal {
		t.Errorf("a failure of the model's server is not ours: %v", err)
	}
}

func (s Suite) cancelled(t *testing.T) {
	p, gone := s.Endless(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, last := 0, error(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range p.Stream(ctx, s.any()) {
			if last = err; err != nil {
				return
			}
			if events++; events == 1 {
				cancel()
			}
		}
	}()
	wait(t, "the stream did not end", done)
	if e := turn.AsError(last); last == nil || e.Kind != turn.KindCancelled {
		t.Errorf("the stream ended with %v, want KindCancelled", last)
	}
	if gone != nil {
		wait(t, "the server still has its client", gone)
	}
}

func (s Suite) stopped(t *testing.T) {
	p, gone := s.Endless(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Stream(t.Context(), s.any())(func(turn.Event, error) bool { return false })
	}()
	wait(t, "the stream did not end", done)
	if gone != nil {
		wait(t, "the server still has its client", gone)
	}
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(soon):
		t.Fatal(what)
	}
}
