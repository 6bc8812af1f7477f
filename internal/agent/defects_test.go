package agent_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// The tests of this file pin defects that were seen in other gateways with such a loop and that no test of a rule covers.

// A forced call came back in every round, and "required" was never relaxed: the model was made to call tools up to the cap.
func TestRequiredDoesNotLoop(t *testing.T) {
	b := newBench(t, []any{python("print 1")}, []any{"1"})
	req := request("hi")
	req.ToolChoice.Mode = turn.ChoiceRequired
	if r := b.ok(req); r.text() != "1" || b.model.requests[1].ToolChoice.Mode != turn.ChoiceAuto {
		t.Errorf("%q, %+v", r.text(), b.model.requests[1].ToolChoice)
	}
}

// Calls of several rounds came back into the history in reverse order.
func TestOrderOverRounds(t *testing.T) {
	b := newBench(t, []any{python("print 1")}, []any{python("print 2")}, []any{python("print 3")}, []any{"done"})
	b.ok(request("hi"))
	var got []string
	for _, s := range sketch(b.model.requests[3].Items) {
		if !strings.HasPrefix(s, "user") {
			got = append(got, s)
		}
	}
	want := []string{
		`call #1 python {"code":"print 1"}`, "result #1 1", `call #2 python {"code":"print 2"}`, "result #2 2",
		`call #3 python {"code":"print 3"}`, "result #3 3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Outputs were null for a program that printed nothing, which breaks typed clients.
func TestOutputsAreNeverNil(t *testing.T) {
	r := newBench(t, []any{python(""), calls("python", "[]")}, []any{"done"}).ok(request("hi"))
	for _, h := range r.hosted() {
		if h.Outputs == nil {
			t.Errorf("nil outputs: %+v", h)
		}
	}
}

// Output before an exception was lost, and the exception itself was never shown to the client.
func TestFailureShowsBothToTheClient(t *testing.T) {
	h := newBench(t, []any{python("print before\nraise NameError: x")}, []any{"done"}).ok(request("hi")).hosted()[0]
	var text strings.Builder
	for _, o := range h.Outputs {
		text.WriteString(o.Text)
	}
	if got := text.String(); !strings.Contains(got, "before") || !strings.Contains(got, "NameError: x") {
		t.Errorf("the client got %q", got)
	}
}

// A failure in a later round was swallowed and the first round's answer returned with the internal call in it.
func TestLaterFailureIsAnError(t *testing.T) {
	r := newBench(t, []any{python("print 1")}, []any{turn.Errorf(turn.KindUpstream, "boom")}).run(t.Context(), request("hi"))
	if r.err == nil || r.err.Message != "boom" || len(all[turn.Finished](r)) != 0 || len(all[turn.CallStarted](r)) != 0 {
		t.Errorf("%v, %d events", r.err, len(r.events))
	}
}

// A repeat was never noticed, since the fingerprint had the call's id in it.
func TestRepeatsAreToldByCodeNotById(t *testing.T) {
	b := newBench(t, []any{call{"a", "python", []string{`{"code":"print 1"}`}}}, []any{call{"b", "python", []string{`{ "code": "print 1" }`}}},
		[]any{call{"c", "python", []string{"print 1"}}}, []any{"enough"})
	if r := b.ok(request("hi")); r.text() != "enough" || len(b.model.requests[3].Tools) != 0 {
		t.Errorf("%q, tools %q", r.text(), toolNames(b.model.requests[3]))
	}
}

// Text beside a call, and reasoning with its signature, were dropped from the history of a mixed turn.
func TestMixedTurnKeepsTextAndReasoning(t *testing.T) {
	b := newBench(t, []any{thought{"plan", "sig"}, "First. ", calls("weather", "{}"), python("print 1")})
	req := request("hi")
	req.Tools = []turn.Tool{{Name: "weather"}}
	want := []string{"thinks: plan (sig)", "assistant: First. ", "call #1 weather {}", `call #2 python {"code":"print 1"}`, "result #2 1"}
	if diff := cmp.Diff(want, sketch(b.ok(req).finished().Items)); diff != "" {
		t.Error(diff)
	}
}

// Two hosted tools of one name, or one of the client's name, went upstream as doubles.
func TestNoDoubleNames(t *testing.T) {
	b := newBench(t, []any{"done"})
	req := request("hi")
	req.Hosted.Tools = []string{"python", "python", "bash"}
	req.Tools = []turn.Tool{{Name: "bash"}}
	b.ok(req)
	if diff := cmp.Diff([]string{"bash", "python", "lathe_bash"}, toolNames(b.model.requests[0])); diff != "" {
		t.Error(diff)
	}
}

// A call id that is the same in every conversation made steps of one conversation turn up in another.
func TestUpstreamIdsMayRepeat(t *testing.T) {
	b := newBench(t, []any{python("print 1"), python("print 2")}, []any{python("print 3")}, []any{"done"})
	b.ok(request("hi"))
	ids := map[string]bool{}
	for _, it := range b.model.requests[2].Items {
		if c, ok := it.(turn.Call); ok {
			ids[c.CallID] = true
		}
	}
	if len(ids) != 3 {
		t.Errorf("%d ids for 3 calls", len(ids))
	}
}
