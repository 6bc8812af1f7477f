package agent_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/agent"
	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/provider/openaichat"
	"github.com/lathe-gateway/lathe/internal/run"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// stack is run, the agent and the provider over a model server that speaks HTTP; only the programs are made up.
type stack struct {
	t      *testing.T
	up     *upstreamtest.Server
	ws     *workspaces
	turns  turn.Streamer
	ctx    context.Context
	cancel context.CancelFunc
}

func newStack(t *testing.T, answers ...upstreamtest.Answer) *stack {
	up := upstreamtest.Start(t, answers...)
	p, err := openaichat.New(openaichat.Config{BaseURL: up.BaseURL(), Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "lathe.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := &stack{t: t, up: up, ws: &workspaces{}}
	s.turns = run.New(run.Config{Next: agent.New(agent.Config{Provider: p, Workspaces: s.ws}), Steps: db.Steps()})
	s.ctx, s.cancel = context.WithCancel(auth.WithPrincipal(t.Context(), auth.Principal{Name: "a", Project: "p"}))
	t.Cleanup(s.cancel)
	return s
}

// turn answers req; each is called with every event.
func (s *stack) turn(req *turn.Request, each func(turn.Event)) result {
	s.t.Helper()
	var v turn.Validator
	var r result
	for ev, err := range s.turns.Stream(s.ctx, req) {
		if err != nil {
			r.err = turn.AsError(err)
			break
		}
		if err := v.Push(ev); err != nil {
			s.t.Fatal(err)
		}
		r.events = append(r.events, ev)
		if each != nil {
			each(ev)
		}
	}
	return r
}

func (s *stack) ok(req *turn.Request) result {
	s.t.Helper()
	r := s.turn(req, nil)
	if r.err != nil {
		s.t.Fatal(r.err)
	}
	return r
}

// upstream is the conversation of the newest request as the model's server got it.
func (s *stack) upstream() []string {
	var out []string
	for _, m := range s.up.Last().Chat().Messages {
		line := m.Role + ": " + m.Content.String()
		for _, c := range m.ToolCalls {
			line += " [" + c.Function.Name + " " + c.Function.Arguments + "]"
		}
		out = append(out, line)
	}
	return out
}

const twoBlocks = "Compute\n```python\nprint 1\n```\n```python\nprint 2\n```\nanswer: it is {result}"

// However odd the server's form is, the turn is the same.
func TestServersOfAllForms(t *testing.T) {
	for _, scenario := range []string{"run", "odd", "reasoning"} {
		t.Run(scenario, func(t *testing.T) {
			s := newStack(t)
			s.up.Answer(upstreamtest.ByName)
			r := s.ok(request("#stub:" + scenario + "\n" + twoBlocks))
			var ran []string
			for _, h := range r.hosted() {
				ran = append(ran, strings.TrimSpace(h.Code))
			}
			if diff := cmp.Diff([]string{"print 1", "print 2"}, ran); diff != "" {
				t.Error(diff)
			}
			f := r.finished()
			if !strings.HasSuffix(r.text(), "it is 2") || f.Reason != turn.ReasonStop || f.Rounds != 3 || f.Usage.Input != 30 || f.Usage.Output != 15 {
				t.Errorf("%q, %+v", r.text(), f)
			}
		})
	}
	t.Run("parallel", func(t *testing.T) {
		s := newStack(t)
		s.up.Answer(upstreamtest.ByName)
		if r := s.ok(request("#stub:parallel\n" + twoBlocks)); len(r.hosted()) != 2 || r.finished().Rounds != 2 || !strings.HasSuffix(r.text(), "it is 2") {
			t.Errorf("%d calls, %q", len(r.hosted()), r.text())
		}
	})
	t.Run("repeat", func(t *testing.T) {
		s := newStack(t)
		s.up.Answer(upstreamtest.ByName)
		if r := s.ok(request("#stub:repeat")); len(r.hosted()) != 3 || r.finished().Rounds != 4 {
			t.Errorf("%d calls in %d rounds", len(r.hosted()), r.finished().Rounds)
		}
	})
}

// Chat Completions cannot carry what the model did before it called the client's function. It comes back all the same, once.
func TestHiddenStepsOverChat(t *testing.T) {
	s := newStack(t, upstreamtest.Do(
		upstreamtest.Reasoning("plan"), upstreamtest.Text("Both."),
		upstreamtest.Call{Name: "python", Pieces: upstreamtest.CodeArguments("print 42", 5)},
		upstreamtest.Call{Name: "weather", Pieces: []string{`{"city":`, `"Rome"}`}},
		upstreamtest.Call{Name: "weather", Pieces: []string{`{"city":"Oslo"}`}},
	), upstreamtest.Say("Warm."))
	req := request("compute and tell the weather")
	req.Tools = []turn.Tool{{Name: "weather"}}
	r := s.ok(req)
	calls := all[turn.CallDone](r)
	if len(calls) != 2 || r.finished().Reason != turn.ReasonCalls {
		t.Fatalf("%+v", r.events)
	}
	back := req.Clone()
	back.Items = append(back.Items, turn.Message{Role: turn.Assistant, Parts: []turn.Part{turn.Text{Text: r.text()}}})
	for _, c := range calls {
		back.Items = append(back.Items, turn.Call{CallID: c.Call.CallID, Name: c.Call.Name, Arguments: c.Call.Arguments})
	}
	for i, c := range calls {
		back.Items = append(back.Items, turn.Result{CallID: c.Call.CallID, Parts: []turn.Part{turn.Text{Text: []string{"sun", "snow"}[i]}}})
	}
	if r := s.ok(back); r.text() != "Warm." {
		t.Errorf("%q", r.text())
	}
	want := []string{
		"user: compute and tell the weather",
		`assistant: Both. [python {"code":"print 42"}] [weather {"city":"Rome"}] [weather {"city":"Oslo"}]`,
		"tool: 42", "tool: sun", "tool: snow",
	}
	if diff := cmp.Diff(want, s.upstream()); diff != "" {
		t.Error(diff)
	}
	messages := s.up.Last().Chat().Messages
	if messages[1].ReasoningContent != "plan" {
		t.Errorf("the reasoning was lost: %+v", messages[1])
	}
	for i, m := range messages[2:] {
		if m.ToolCallID != messages[1].ToolCalls[i].ID {
			t.Errorf("result %d answers %q, the call is %q", i, m.ToolCallID, messages[1].ToolCalls[i].ID)
		}
	}
}

// Responses clients send hosted calls back; without include they have no outputs.
func TestReplayedCallsAreFilledIn(t *testing.T) {
	s := newStack(t, upstreamtest.RunCode("print 42"), upstreamtest.Say("42"), upstreamtest.Say("as I said"))
	req := request("compute")
	h := s.ok(req).hosted()[0]
	back := req.Clone()
	back.Items = append(back.Items,
		turn.HostedCall{ID: h.ID, Tool: h.Tool, Container: h.Container, Code: h.Code, Status: h.Status},
		turn.Message{Role: turn.Assistant, Parts: []turn.Part{turn.Text{Text: "42"}}},
		turn.Message{Role: turn.User, Parts: []turn.Part{turn.Text{Text: "again?"}}})
	s.ok(back)
	want := []string{"user: compute", `assistant:  [python {"code":"print 42"}]`, "tool: 42", "assistant: 42", "user: again?"}
	if diff := cmp.Diff(want, s.upstream()); diff != "" {
		t.Error(diff)
	}
}

func TestConnectionBreaksInTheArguments(t *testing.T) {
	reached, cut := make(chan struct{}), make(chan struct{})
	s := newStack(t, upstreamtest.Do(
		upstreamtest.Call{Name: "python", Pieces: []string{`{"code":"print`, ` 1"}`}, Held: 1, Reached: reached, Between: cut}))
	go func() {
		<-reached
		s.up.CloseConnections()
		close(cut)
	}()
	r := s.turn(request("hi"), nil)
	if r.err == nil || r.err.Kind != turn.KindUpstream || r.err.CodeRan {
		t.Errorf("%+v", r.err)
	}
	if h := r.hosted(); len(h) == 1 && h[0].Status != turn.StatusIncomplete || len(s.ws.ran) != 0 {
		t.Errorf("%+v, ran %q", h, s.ws.ran)
	}
}

func TestErrorsOfTheServer(t *testing.T) {
	s := newStack(t, upstreamtest.RateLimited(7))
	if r := s.turn(request("hi"), nil); r.err == nil || r.err.Kind != turn.KindRateLimited || r.err.CodeRan || len(r.events) != 0 {
		t.Errorf("%+v after %d events", r.err, len(r.events))
	}
	s = newStack(t, upstreamtest.RunCode("print 1"), upstreamtest.RateLimited(7))
	if r := s.turn(request("hi"), nil); r.err == nil || r.err.Kind != turn.KindRateLimited || !r.err.CodeRan || len(r.hosted()) != 1 {
		t.Errorf("%+v", r.err)
	}
}

func TestLeavingReachesTheServer(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	s := newStack(t, upstreamtest.Do(upstreamtest.Text("one "), upstreamtest.Wait(never)))
	r := s.turn(request("hi"), func(ev turn.Event) {
		if _, ok := ev.(turn.TextDelta); ok {
			s.cancel()
		}
	})
	if r.err == nil || r.err.Kind != turn.KindCancelled {
		t.Errorf("%+v", r.err)
	}
	<-s.up.Last().Gone()
}
