package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/agent"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Rules of DESIGN section 5 on failures and cancellation.

// The model ignores that its tools are gone, or invents some. The client must not see a call that it cannot have declared.
func TestRule6AProgramsFailureIsData(t *testing.T) {
	b := newBench(t, []any{python("print before\nraise ValueError: no")}, []any{"it failed"})
	r := b.ok(request("hi"))
	h := r.hosted()[0]
	if h.Status != turn.StatusCompleted || !h.Failed || len(h.Outputs) != 2 || h.Outputs[0].Text != "before\n" {
		t.Errorf("%+v", h)
	}
	items := b.model.requests[1].Items
	res := items[len(items)-1].(turn.Result)
	if got := partsText(res.Parts); !res.Error || !strings.Contains(got, "before\nTraceback") || !strings.Contains(got, "[the call failed: ValueError: no]") {
		t.Errorf("the model got %q, error %v", got, res.Error)
	}
}

func TestRule6ASandboxFailureIsAnError(t *testing.T) {
	b := newBench(t, []any{"Let me see. ", python("print 1\nbreak")})
	r := b.run(t.Context(), request("hi"))
	if r.err == nil || !r.err.CodeRan || r.err.Message != "the sandbox failed" {
		t.Fatalf("error %+v", r.err)
	}
	if h := r.hosted(); len(h) != 1 || h[0].Status != turn.StatusFailed || h[0].Code != "print 1\nbreak" {
		t.Errorf("%+v", h)
	}
}

func TestRule6NothingRan(t *testing.T) {
	r := newBench(t, []any{python("nostart")}).run(t.Context(), request("hi"))
	if r.err == nil || r.err.CodeRan || len(r.hosted()) != 1 || r.hosted()[0].Status != turn.StatusFailed {
		t.Errorf("error %+v, %+v", r.err, r.hosted())
	}
	r = newBench(t, []any{python("print 1")}, []any{python("nostart")}).run(t.Context(), request("hi"))
	if r.err == nil || !r.err.CodeRan {
		t.Errorf("an earlier call of the turn ran: %+v", r.err)
	}
}

func TestRule6OpeningFails(t *testing.T) {
	b := newBench(t, []any{"Let me see. ", python("print 1")})
	b.ws.openErr = turn.Errorf(turn.KindOverloaded, "no room")
	r := b.run(t.Context(), request("hi"))
	if r.err == nil || r.err.CodeRan || r.err.Kind != turn.KindOverloaded || len(r.hosted()) != 0 {
		t.Errorf("%+v, %+v", r.err, r.hosted())
	}
}

func TestRule7LeavingStopsCode(t *testing.T) {
	b := newBench(t, []any{python("sleep")})
	b.ws.interrupted = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var v turn.Validator
	var err error
	var done *turn.HostedDone
	for ev, e := range agent.New(b.cfg).Stream(ctx, request("hi")) {
		if e != nil {
			err = e
			break
		}
		if e := v.Push(ev); e != nil {
			t.Fatal(e)
		}
		switch e := ev.(type) {
		case turn.HostedRunning:
			cancel()
		case turn.HostedDone:
			done = &e
		}
	}
	<-b.ws.interrupted
	if e := turn.AsError(err); e.Kind != turn.KindCancelled || !e.CodeRan {
		t.Errorf("error %+v", e)
	}
	if done == nil || done.Call.Status != turn.StatusIncomplete {
		t.Errorf("the block was closed as %+v", done)
	}
	if b.ws.closed != 1 {
		t.Error("the workspace was not closed")
	}
}

func TestEndedByTheServer(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopping := &turn.Error{Kind: turn.KindOverloaded, Message: "the server is stopping"}
	b := newBench(t, []any{"one ", func(model context.Context) {
		cancel(stopping)
		<-model.Done()
	}})
	if r := b.run(ctx, request("hi")); r.err == nil || r.err.Kind != turn.KindOverloaded || r.err.Message != stopping.Message {
		t.Errorf("%+v", r.err)
	}
}

func TestRule7LeavingStopsTheModel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped := false
	b := newBench(t, []any{"one ", func(model context.Context) {
		cancel()
		<-model.Done()
		stopped = true
	}})
	r := b.run(ctx, request("hi"))
	if !stopped || r.err == nil || r.err.Kind != turn.KindCancelled || r.err.CodeRan || r.text() != "one " {
		t.Errorf("stopped %v, %+v, %q", stopped, r.err, r.text())
	}
}

// A write to the client fails: the surface stops ranging, and the context is still alive.
func TestRule7StoppingToRange(t *testing.T) {
	for _, at := range []string{"turn.TextDelta", "turn.HostedStarted", "turn.HostedCodeDelta", "turn.HostedRunning", "turn.HostedOutput", "turn.HostedDone"} {
		t.Run(at, func(t *testing.T) {
			b := newBench(t, []any{"one ", python("print 1\nsleep")})
			b.cfg.MaxTime = time.Second
			b.model.rounds = append(b.model.rounds, []any{"done"})
			req := request("hi")
			req.Live = true
			for ev, err := range agent.New(b.cfg).Stream(t.Context(), req) {
				if err != nil {
					t.Fatal(err)
				}
				if typeName(ev) == at {
					break
				}
			}
			if b.ws.opened != b.ws.closed {
				t.Error("the workspace stayed open")
			}
		})
	}
}

func TestRule12ErrorsSayThatCodeRan(t *testing.T) {
	boom := turn.Errorf(turn.KindUpstream, "boom")
	r := newBench(t, []any{python("print 1")}, []any{boom}).run(t.Context(), request("hi"))
	if r.err == nil || !r.err.CodeRan || r.err.Kind != turn.KindUpstream {
		t.Errorf("after code ran: %+v", r.err)
	}
	if boom.CodeRan {
		t.Error("the provider's error was changed in place")
	}
	r = newBench(t, []any{"text", boom}).run(t.Context(), request("hi"))
	if r.err == nil || r.err.CodeRan {
		t.Errorf("before code ran: %+v", r.err)
	}
	// The call was written and never started.
	r = newBench(t, []any{python("print 1"), "", func(context.Context) {}, boom}).run(t.Context(), request("hi"))
	if r.err == nil || r.err.CodeRan {
		t.Errorf("before code started: %+v", r.err)
	}
	if h := r.hosted(); len(h) != 1 || h[0].Status != turn.StatusIncomplete {
		t.Errorf("the open block was closed as %+v", h)
	}
}

func TestSandboxIsChecked(t *testing.T) {
	b := newBench(t)
	b.ws.checkErr = turn.NotFound("no container cntr_x")
	if r := b.run(t.Context(), request("hi")); r.err == nil || r.err.Kind != turn.KindNotFound || len(r.events) != 0 {
		t.Errorf("%+v after %d events", r.err, len(r.events))
	}
	b = newBench(t)
	b.cfg.Workspaces = nil
	if r := b.run(t.Context(), request("hi")); r.err == nil || r.err.Kind != turn.KindUnsupported || !strings.Contains(r.err.Message, "lathe doctor") {
		t.Errorf("%+v", r.err)
	}
}

func TestUpstreamErrorBeforeTheFirstEvent(t *testing.T) {
	up := &turn.Error{Kind: turn.KindRateLimited, Message: "slow down", RetryAfter: time.Second, Status: 429}
	b := newBench(t)
	b.cfg.Provider = failing{up}
	r := b.run(t.Context(), request("hi"))
	if diff := cmp.Diff(up, r.err); diff != "" || len(r.events) != 0 {
		t.Errorf("%s, %d events", diff, len(r.events))
	}
	b.cfg.Provider = failing{errors.New("secret detail")}
	if r := b.run(t.Context(), request("hi")); r.err.Kind != turn.KindInternal || strings.Contains(r.err.Message, "secret") {
		t.Errorf("%+v", r.err)
	}
}

func TestUpstreamEndsEarly(t *testing.T) {
	r := newBench(t, []any{"half an ans", noEnd{}}).run(t.Context(), request("hi"))
	if r.err == nil || r.err.Kind != turn.KindUpstream {
		t.Errorf("%+v", r.err)
	}
}

// A turn that was cut at its token limit ends as such, and half a program is never run.
type failing struct{ err error }

func (f failing) Stream(context.Context, *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) { yield(nil, f.err) }
}
