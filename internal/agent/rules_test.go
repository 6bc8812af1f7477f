package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/agent"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// The tests of this file are named after the rules of DESIGN section 5.

func TestRule1EveryRoundKeepsTheRequest(t *testing.T) {
	b := newBench(t, []any{python("print 1")}, []any{python("print 2")}, []any{"done"})
	req := request("hi")
	req.Items = append([]turn.Item{turn.Message{Role: turn.System, Parts: []turn.Part{turn.Text{Text: "be brief"}}}}, req.Items...)
	req.Tools = []turn.Tool{{Name: "weather", Parameters: json.RawMessage(`{}`)}}
	req.Sampling = turn.Sampling{Temperature: ptr(0.5), Stop: []string{"x"}}
	req.Reasoning = turn.ReasoningConfig{Effort: "low"}
	req.MaxOutputTokens = ptr(99)
	req.Metadata = map[string]string{"k": "v"}
	req.User = "u"
	req.Extra = turn.Extra{Protocol: "openai-chat", Fields: map[string]json.RawMessage{"logit_bias": json.RawMessage(`{}`)}}
	before := req.Clone()
	b.ok(req)
	if diff := cmp.Diff(before, req); diff != "" {
		t.Errorf("the request was changed: %s", diff)
	}
	for n, up := range b.model.requests {
		want := req.Clone()
		want.Hosted, want.Items, want.Tools, want.ToolChoice = nil, nil, nil, turn.ToolChoice{}
		got := up.Clone()
		got.Items, got.Tools = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("round %d differs: %s", n, diff)
		}
		if diff := cmp.Diff([]string{"weather", "python"}, toolNames(up)); diff != "" {
			t.Errorf("round %d tools: %s", n, diff)
		}
		if s := sketch(up.Items); s[0] != "system: be brief" || s[1] != "user: hi" || len(s) != 2+2*n {
			t.Errorf("round %d history: %q", n, s)
		}
	}
}

func TestRule1ForcedChoiceIsRelaxedOnceObeyed(t *testing.T) {
	forced := func(c turn.ToolChoice) *turn.Request {
		req := request("hi")
		req.Tools = []turn.Tool{{Name: "weather"}}
		req.ToolChoice = c
		return req
	}
	tests := []struct {
		name   string
		choice turn.ToolChoice
		want   []turn.ToolChoice
	}{
		{"hosted", turn.ToolChoice{Mode: turn.ChoiceHosted, Name: "python"},
			[]turn.ToolChoice{{Mode: turn.ChoiceFunction, Name: "python"}, {Mode: turn.ChoiceAuto}}},
		{"hosted by its function's name", turn.ToolChoice{Mode: turn.ChoiceFunction, Name: "python"},
			[]turn.ToolChoice{{Mode: turn.ChoiceFunction, Name: "python"}, {Mode: turn.ChoiceAuto}}},
		{"required", turn.ToolChoice{Mode: turn.ChoiceRequired}, []turn.ToolChoice{{Mode: turn.ChoiceRequired}, {Mode: turn.ChoiceAuto}}},
		{"required of allowed", turn.ToolChoice{Mode: turn.ChoiceRequired, Allowed: []string{"python", "weather"}},
			[]turn.ToolChoice{{Mode: turn.ChoiceRequired}, {Mode: turn.ChoiceAuto}}},
		{"another function stays forced", turn.ToolChoice{Mode: turn.ChoiceFunction, Name: "weather"},
			[]turn.ToolChoice{{Mode: turn.ChoiceFunction, Name: "weather"}, {Mode: turn.ChoiceFunction, Name: "weather"}}},
		{"auto", turn.ToolChoice{Mode: turn.ChoiceAuto}, []turn.ToolChoice{{Mode: turn.ChoiceAuto}, {Mode: turn.ChoiceAuto}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, []any{python("print 1")}, []any{"done"})
			b.ok(forced(tt.choice))
			for n, up := range b.model.requests {
				if diff := cmp.Diff(tt.want[n], up.ToolChoice); diff != "" {
					t.Errorf("round %d: %s", n, diff)
				}
			}
		})
	}
	t.Run("hosted tool that is not there", func(t *testing.T) {
		r := newBench(t).run(t.Context(), forced(turn.ToolChoice{Mode: turn.ChoiceHosted, Name: "bash"}))
		if r.err == nil || r.err.Kind != turn.KindInvalid || r.err.Param != "tool_choice" || len(r.events) != 0 {
			t.Errorf("%v after %d events", r.err, len(r.events))
		}
	})
	t.Run("none", func(t *testing.T) {
		b := newBench(t, []any{python("print 1")}, []any{"done"})
		r := b.ok(forced(turn.ToolChoice{Mode: turn.ChoiceNone}))
		if len(b.ws.ran) != 0 || len(r.hosted()) != 0 || r.text() != "done" || b.model.requests[1].ToolChoice.Mode != turn.ChoiceNone {
			t.Errorf("ran %q, text %q", b.ws.ran, r.text())
		}
	})
}

func TestRule1AllowedToolsAreResolvedByLeavingOthersOut(t *testing.T) {
	b := newBench(t, []any{python("print 1"), calls("weather", "{}")}, []any{"done"})
	req := request("hi")
	req.Tools = []turn.Tool{{Name: "weather"}, {Name: "clock"}}
	req.ToolChoice = turn.ToolChoice{Mode: turn.ChoiceAuto, Allowed: []string{"clock"}}
	r := b.ok(req)
	if diff := cmp.Diff([]string{"clock"}, toolNames(b.model.requests[0])); diff != "" {
		t.Error(diff)
	}
	if len(b.model.requests[0].ToolChoice.Allowed) != 0 {
		t.Error("a provider saw Allowed")
	}
	if len(b.ws.ran) != 0 || len(all[turn.CallStarted](r)) != 0 || r.text() != "done" {
		t.Errorf("a tool that is not allowed was called: %q %q", b.ws.ran, r.text())
	}
}

func TestRule2TheTurnIsKeptWhole(t *testing.T) {
	b := newBench(t,
		[]any{thought{"let me see", "sig1"}, "I compute. ", python("print 42"), "Then more.", python("write a.csv")},
		[]any{thought{"now", "sig2"}, "It is 42."})
	r := b.ok(request("what is it"))
	want := []string{
		"user: what is it", "thinks: let me see (sig1)", "assistant: I compute. ", `call #1 python {"code":"print 42"}`, "assistant: Then more.",
		`call #2 python {"code":"write a.csv"}`, "result #1 42",
		"result #2 (no output)\n\nFiles made or changed:\n- [a.csv](sandbox:/mnt/data/a.csv) (3 bytes)",
	}
	if diff := cmp.Diff(want, sketch(b.model.requests[1].Items)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(append(want[1:], "thinks: now (sig2)", "assistant: It is 42."), sketch(r.finished().Items)); diff != "" {
		t.Errorf("Finished.Items: %s", diff)
	}
}

func TestRule3MixedTurn(t *testing.T) {
	b := newBench(t, []any{"Both. ", calls("weather", `{"city":`, `"Rome"}`), python("print 1"), calls("weather", `{"city":"Oslo"}`)})
	req := request("hi")
	req.Tools = []turn.Tool{{Name: "weather"}}
	r := b.ok(req)
	f := r.finished()
	if f.Reason != turn.ReasonCalls || f.Rounds != 1 || f.HostedCalls != 1 {
		t.Errorf("finished %+v", f)
	}
	if len(r.hosted()) != 1 || r.hosted()[0].Status != turn.StatusCompleted || len(b.ws.ran) != 1 {
		t.Errorf("the hosted call did not run: %+v", r.hosted())
	}
	want := []string{
		"assistant: Both. ", `call #1 weather {"city":"Rome"}`, `call #2 python {"code":"print 1"}`, `call #3 weather {"city":"Oslo"}`,
		"result #2 1",
	}
	if diff := cmp.Diff(want, sketch(f.Items)); diff != "" {
		t.Error(diff)
	}
	var order []string
	for _, ev := range r.events {
		switch e := ev.(type) {
		case turn.CallDone:
			order = append(order, e.Call.Arguments)
		case turn.HostedDone:
			order = append(order, e.Call.Code)
		}
	}
	if diff := cmp.Diff([]string{`{"city":"Rome"}`, "print 1", `{"city":"Oslo"}`}, order); diff != "" {
		t.Errorf("the client saw another order than the model wrote: %s", diff)
	}
}

func TestRule4UsageIsTheSum(t *testing.T) {
	b := newBench(t, []any{python("print 1")}, []any{python("print 2")}, []any{"done"})
	f := b.ok(request("hi")).finished()
	if want := (turn.Usage{Input: 30, Cached: 12, Output: 15, Reasoning: 6}); f.Usage != want || f.Rounds != 3 || f.HostedCalls != 2 {
		t.Errorf("finished %+v", f)
	}
}

func TestRule5MaxRounds(t *testing.T) {
	b := newBench(t, []any{python("print 1")}, []any{python("print 2")}, []any{"that is what I have"})
	b.cfg.MaxRounds = 2
	r := b.ok(request("hi"))
	if got := r.text(); got != "that is what I have" || r.finished().Reason != turn.ReasonStop {
		t.Errorf("%q, %v", got, r.finished().Reason)
	}
	last := b.model.requests[2]
	if len(last.Tools) != 0 || last.ToolChoice.Mode != "" || last.ParallelToolCalls != nil {
		t.Errorf("last round: tools %q, choice %+v", toolNames(last), last.ToolChoice)
	}
	if s := sketch(last.Items); !strings.Contains(s[len(s)-1], "limit of steps") || !strings.Contains(s[len(s)-1], "Answer now") {
		t.Errorf("the model was not told: %q", s[len(s)-1])
	}
}

func TestRule5LastRoundKeepsClientTools(t *testing.T) {
	b := newBench(t, []any{python("print 1")}, []any{calls("weather", "{}")})
	b.cfg.MaxRounds = 1
	req := request("hi")
	req.Tools = []turn.Tool{{Name: "weather"}}
	req.ParallelToolCalls = ptr(false)
	r := b.ok(req)
	last := b.model.requests[1]
	if diff := cmp.Diff([]string{"weather"}, toolNames(last)); diff != "" || last.ParallelToolCalls == nil {
		t.Errorf("%s, parallel %v", diff, last.ParallelToolCalls)
	}
	if len(all[turn.CallDone](r)) != 1 || r.finished().Reason != turn.ReasonCalls {
		t.Error("the client's call in the last round was lost")
	}
}

func TestRule5MaxCalls(t *testing.T) {
	b := newBench(t, []any{python("print 1"), python("print 2"), python("print 3")}, []any{"done"})
	req := request("hi")
	req.Hosted.MaxCalls = ptr(2)
	r := b.ok(req)
	if diff := cmp.Diff([]string{"print 1", "print 2"}, b.ws.ran); diff != "" {
		t.Error(diff)
	}
	if len(r.hosted()) != 2 || r.finished().HostedCalls != 2 {
		t.Errorf("the client saw %d calls", len(r.hosted()))
	}
	s := sketch(b.model.requests[1].Items)
	if got := s[len(s)-1]; !strings.Contains(got, "result #3 Not run: the limit of tool calls") {
		t.Errorf("the third attempt was answered with %q", got)
	}
	if len(b.model.requests[1].Tools) != 0 {
		t.Error("the last round has hosted tools")
	}
}

func TestRule5MaxCallsOfZeroRunsNothing(t *testing.T) {
	b := newBench(t, []any{"as I am"})
	req := request("hi")
	req.Hosted.MaxCalls = ptr(0)
	req.ToolChoice = turn.ToolChoice{Mode: turn.ChoiceHosted, Name: "python"}
	if r := b.ok(req); r.text() != "as I am" || len(b.model.requests[0].Tools) != 0 || b.model.requests[0].ToolChoice.Mode != "" {
		t.Errorf("%q, %+v", r.text(), b.model.requests[0])
	}
}

func TestRule5MaxTime(t *testing.T) {
	b := newBench(t, []any{python("print before\nsleep")}, []any{"done"})
	b.cfg.MaxTime = 300 * time.Millisecond
	r := b.ok(request("hi"))
	h := r.hosted()
	if len(h) != 1 || h[0].Status != turn.StatusIncomplete || !h[0].Failed || len(h[0].Outputs) == 0 || h[0].Outputs[0].Text != "before\n" {
		t.Fatalf("%+v", h)
	}
	s := sketch(b.model.requests[1].Items)
	if got := s[len(s)-1]; !strings.Contains(got, "before") || !strings.Contains(got, "the time for this answer is up") {
		t.Errorf("the model was told %q", got)
	}
	if r.text() != "done" || len(b.model.requests[1].Tools) != 0 {
		t.Errorf("%q, %q", r.text(), toolNames(b.model.requests[1]))
	}
}

// The model ignores that its tools are gone, or invents some. The client must not see a call that it cannot have declared.
func TestRule5NoCallThatTheClientDidNotDeclare(t *testing.T) {
	t.Run("hosted tool in the last round", func(t *testing.T) {
		b := newBench(t, []any{python("print 1")}, []any{"Well. ", python("print 2")})
		b.cfg.MaxRounds = 1
		r := b.ok(request("hi"))
		if len(r.hosted()) != 1 || len(b.ws.ran) != 1 || len(all[turn.CallStarted](r)) != 0 {
			t.Errorf("ran %q, hosted %d, calls %v", b.ws.ran, len(r.hosted()), all[turn.CallStarted](r))
		}
		f := r.finished()
		if s := sketch(f.Items); f.Reason != turn.ReasonStop || r.text() != "Well. " || !strings.Contains(s[len(s)-1], "Not run") {
			t.Errorf("%v %q %q", f.Reason, r.text(), s)
		}
	})
	t.Run("invented tool", func(t *testing.T) {
		b := newBench(t, []any{calls("browser/open it", `not json`), calls("", "")}, []any{"sorry"})
		r := b.ok(request("hi"))
		if len(all[turn.CallStarted](r)) != 0 || r.text() != "sorry" || r.finished().Reason != turn.ReasonStop {
			t.Errorf("%v, %q", all[turn.CallStarted](r), r.text())
		}
		want := []string{
			"user: hi", `call #1 browser_open_it {"arguments":"not json"}`, "call #2 unnamed {}",
			"result #1 Error: there is no tool of this name. The tools are: python.",
			"result #2 Error: there is no tool of this name. The tools are: python.",
		}
		if diff := cmp.Diff(want, sketch(b.model.requests[1].Items)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("without hosted tools", func(t *testing.T) {
		b := newBench(t, []any{python("print 1")}, []any{"sorry"})
		req := request("hi")
		req.Hosted = nil
		r := b.ok(req)
		if len(all[turn.CallStarted](r)) != 0 || len(r.hosted()) != 0 || b.ws.opened != 0 || r.text() != "sorry" {
			t.Errorf("%+v", r.events)
		}
	})
	t.Run("invented beside a client's", func(t *testing.T) {
		b := newBench(t, []any{calls("weather", "{}"), calls("browser", "{}")})
		req := request("hi")
		req.Tools = []turn.Tool{{Name: "weather"}}
		r := b.ok(req)
		if c := all[turn.CallDone](r); len(c) != 1 || c[0].Call.Name != "weather" || r.finished().Reason != turn.ReasonCalls {
			t.Errorf("%+v", c)
		}
	})
}

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

func TestRule8TheSameCodeWithTheSameResult(t *testing.T) {
	same := []any{python("print 1")}
	b := newBench(t, same, same, same, []any{"I stop"})
	r := b.ok(request("hi"))
	if len(b.ws.ran) != 3 || r.text() != "I stop" || len(b.model.requests[3].Tools) != 0 {
		t.Errorf("ran %q, %q", b.ws.ran, r.text())
	}
	b = newBench(t, same, same, []any{python("print 2")}, same, same, []any{"done"})
	if r := b.ok(request("hi")); r.text() != "done" || len(b.model.requests[5].Tools) != 1 {
		t.Error("calls that differ in between were taken for repeats")
	}
	bad := []any{calls("nonsense", "{}")}
	b = newBench(t, bad, bad, bad, []any{"I stop"})
	if r := b.ok(request("hi")); r.text() != "I stop" || len(b.model.requests[3].Tools) != 0 {
		t.Error("the same wrong call was answered for ever")
	}
}

func TestRule9TheModelSeesHeadAndTail(t *testing.T) {
	b := newBench(t, []any{python("print first\nprint " + strings.Repeat("x", 200_000) + "\nprint last")}, []any{"done"})
	r := b.ok(request("hi"))
	got := sketch(b.model.requests[1].Items)[2]
	if len(got) > tool.MaxForModel+20 || !strings.Contains(got, "first\n") || !strings.HasSuffix(got, "\nlast") || !strings.Contains(got, "cut out here") {
		t.Errorf("the model got %d bytes: %.100s", len(got), got)
	}
	total := 0
	for _, o := range r.hosted()[0].Outputs {
		total += len(o.Text)
	}
	if total < 200_000 {
		t.Errorf("the client got %d bytes", total)
	}
}

func TestRule10ArgumentsThatAreNotTheDeclaredJSON(t *testing.T) {
	b := newBench(t,
		[]any{calls("python", "print ", "raw")}, []any{calls("python", `"print `, `string"`)}, []any{calls("python", "```python\nprint ", "fenced\n```")},
		[]any{calls("python", `{"code":5}`)}, []any{calls("python", `[1]`)}, []any{"done"})
	r := b.ok(request("hi"))
	if diff := cmp.Diff([]string{"print raw", "print string", "print fenced"}, b.ws.ran); diff != "" {
		t.Error(diff)
	}
	h := r.hosted()
	if len(h) != 5 || h[3].Status != turn.StatusFailed || !h[3].Failed || !strings.Contains(h[3].Outputs[0].Text, "must be a string") {
		t.Fatalf("%+v", h)
	}
	items := b.model.requests[5].Items
	for _, it := range items {
		if c, ok := it.(turn.Call); ok && !json.Valid([]byte(c.Arguments)) {
			t.Errorf("the history has arguments that servers cannot parse: %s", c.Arguments)
		}
	}
	s := sketch(items)
	if got := s[len(s)-1]; !strings.Contains(got, "not an object") || !strings.Contains(got, `{"code": "..."}`) {
		t.Errorf("the model was answered %q", got)
	}
}

func TestRule10CodeStreams(t *testing.T) {
	pause := make(chan struct{})
	wait := func(context.Context) { <-pause }
	b := newBench(t, []any{piecewise{"python", []any{`{"co`, `de":"print`, wait, ` 1"}`}}}, []any{"done"})
	b.cfg.Provider = &pausing{b.model}
	seen := ""
	for ev, err := range agent.New(b.cfg).Stream(t.Context(), request("hi")) {
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := ev.(turn.HostedCodeDelta); ok {
			seen += d.Delta
			if seen == "print" {
				close(pause) // the model goes on only because the first piece has come
			}
		}
	}
	if seen != "print 1" {
		t.Errorf("code %q", seen)
	}
}

func TestRule11ToolsAreRenamedOnCollision(t *testing.T) {
	b := newBench(t, []any{calls("lathe_python", `{"code":"print 1"}`), calls("python", `{"x":1}`)})
	req := request("hi")
	req.Tools = []turn.Tool{{Name: "python"}}
	req.ToolChoice = turn.ToolChoice{Mode: turn.ChoiceHosted, Name: "python"}
	req.Items = append(req.Items, turn.HostedCall{ID: "ci_old", Tool: "python", Code: "x", Outputs: []turn.Output{}})
	r := b.ok(req)
	up := b.model.requests[0]
	if diff := cmp.Diff([]string{"python", "lathe_python"}, toolNames(up)); diff != "" || up.ToolChoice.Name != "lathe_python" {
		t.Errorf("%s, choice %+v", diff, up.ToolChoice)
	}
	if s := sketch(up.Items); !strings.Contains(s[1], "lathe_python") {
		t.Errorf("the replayed call is %q", s[1])
	}
	if h := r.hosted(); len(h) != 1 || h[0].Tool != tool.Python || h[0].Code != "print 1" {
		t.Errorf("%+v", h)
	}
	if c := all[turn.CallDone](r); len(c) != 1 || c[0].Call.Name != "python" {
		t.Errorf("the client's own function: %+v", c)
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

func TestRule16LiveOutputIsOptIn(t *testing.T) {
	rounds := [][]any{{python("print a\nprint b")}, {"done"}}
	if r := newBench(t, rounds...).ok(request("hi")); len(all[turn.HostedOutput](r)) != 0 {
		t.Error("output came without being asked for")
	}
	req := request("hi")
	req.Live = true
	r := newBench(t, rounds...).ok(req)
	want := []turn.HostedOutput{{Stream: "stdout", Text: "a\n"}, {Stream: "stdout", Text: "b\n"}}
	if diff := cmp.Diff(want, all[turn.HostedOutput](r)); diff != "" {
		t.Error(diff)
	}
}

func TestRule17IdsAreMintedHere(t *testing.T) {
	b := newBench(t, []any{python("print 1")}, []any{calls("weather", "{}"), calls("weather", "{}")})
	req := request("hi")
	req.Tools = []turn.Tool{{Name: "weather"}}
	r := b.ok(req)
	seen := map[string]bool{}
	for _, c := range all[turn.CallDone](r) {
		seen[c.Call.CallID] = true
		if !turn.IsHiddenCallID(c.Call.CallID) {
			t.Errorf("call id %q", c.Call.CallID)
		}
	}
	starts := all[turn.CallStarted](r)
	if len(seen) != 2 || !seen[starts[0].CallID] || !seen[starts[1].CallID] {
		t.Errorf("ids %v, started %v", seen, starts)
	}
	for _, it := range r.finished().Items {
		if c, ok := it.(turn.Call); ok && strings.HasPrefix(c.CallID, "call_0") {
			t.Errorf("the upstream's id stayed in the history: %q", c.CallID)
		}
	}
	if id := r.hosted()[0].ID; !strings.HasPrefix(id, "ci_") || len(id) != 35 {
		t.Errorf("item id %q", id)
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
func TestCutOffTurn(t *testing.T) {
	length := turn.Finished{Reason: turn.ReasonLength, Usage: usage}
	b := newBench(t, []any{calls("python", `{"code":"print 1\nprin`), length})
	r := b.ok(request("hi"))
	if h := r.hosted(); len(h) != 1 || h[0].Status != turn.StatusIncomplete || len(b.ws.ran) != 0 {
		t.Errorf("%+v, ran %q", h, b.ws.ran)
	}
	if f := r.finished(); f.Reason != turn.ReasonLength || f.Usage != usage {
		t.Errorf("%+v", f)
	}
	b = newBench(t, []any{python("print 1"), calls("python", "print 2"), length})
	if r := b.ok(request("hi")); len(b.ws.ran) != 0 || len(r.hosted()) != 2 || r.finished().Reason != turn.ReasonLength {
		t.Errorf("ran %q", b.ws.ran)
	}
}

type failing struct{ err error }

func (f failing) Stream(context.Context, *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) { yield(nil, f.err) }
}
