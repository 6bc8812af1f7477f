package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

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

// The model is told what programs can reach in the container that it gets.
func TestModelIsToldOfTheNetwork(t *testing.T) {
	for _, reach := range [][]string{nil, {"pypi.org"}} {
		b := newBench(t, []any{"done"})
		b.ws.reach = reach
		b.ok(request("hi"))
		text := b.model.requests[0].Tools[0].Description
		if told := strings.Contains(text, "these domains only: pypi.org;"); told != (reach != nil) {
			t.Errorf("reaching %q it is told %s", reach, text)
		}
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
