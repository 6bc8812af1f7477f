package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// program is one of a fake workspace that waits at a line "await TOOL TOOL".
type program struct {
	outcome *tool.Outcome
	lines   []string
	wanted  []tool.Wanted
}

func (w *workspaces) wait(c tool.Call, o *tool.Outcome, lines []string, tools string) *tool.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &program{outcome: o, lines: lines}
	for _, name := range strings.Fields(tools) {
		i := slices.IndexFunc(c.Functions, func(f tool.Function) bool { return f.Name == name })
		if i < 0 {
			return &tool.Outcome{Status: "error", Error: "NameError: " + name}
		}
		p.wanted = append(p.wanted, tool.Wanted{CallID: turn.NewHiddenCallID(), Tool: c.Functions[i].Tool, Arguments: `{"a":1}`})
	}
	if w.waiting == nil {
		w.waiting = map[string]*program{}
	}
	w.waiting[c.ID] = p
	return &tool.Outcome{Status: tool.StatusWaiting, Wanted: p.wanted}
}

func (w *workspaces) resume(c tool.Call) (*tool.Outcome, []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.waiting[c.ID]
	delete(w.waiting, c.ID)
	for _, want := range p.wanted {
		p.outcome.Outputs = append(p.outcome.Outputs, turn.Output{Stream: "stdout", Text: fmt.Sprintf("%s=%+v\n", want.Tool, c.Answers[want.CallID])})
	}
	return p.outcome, p.lines
}

func (w *workspace) Waiting(_ context.Context, id string) ([]tool.Wanted, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.waiting[id]
	if !ok {
		return nil, false, nil
	}
	return p.wanted, true, nil
}

func programmatic(text string) *turn.Request {
	req := request(text)
	req.Hosted.Tools = []string{tool.Python, tool.Bash}
	req.Tools = []turn.Tool{
		{Name: "get-rows", Programmatic: true, NotDirect: true}, {Name: "roll", Programmatic: true}, {Name: "ask"},
	}
	return req
}

// next is the request that follows a turn, as a client would make it that keeps the container and gets everything it was shown.
func (r result) next(req *turn.Request, answer func(turn.Call) []turn.Part) *turn.Request {
	n := req.Clone()
	n.Hosted.Container = r.finished().Container.ID
	var results []turn.Item
	for _, ev := range r.events {
		switch e := ev.(type) {
		case turn.MessageDone:
			n.Items = append(n.Items, e.Message)
		case turn.HostedPaused:
			if i := hostedAt(n.Items, e.Call.ID); i < 0 {
				n.Items = append(n.Items, e.Call)
			}
		case turn.HostedDone:
			if i := hostedAt(n.Items, e.Call.ID); i >= 0 {
				n.Items[i] = e.Call
			} else {
				n.Items = append(n.Items, e.Call)
			}
		case turn.CallDone:
			n.Items = append(n.Items, e.Call)
			if answer != nil {
				results = append(results, turn.Result{CallID: e.Call.CallID, Parts: answer(e.Call)})
			}
		}
	}
	n.Items = append(n.Items, results...)
	return n
}

func hostedAt(items []turn.Item, id string) int {
	return slices.IndexFunc(items, func(it turn.Item) bool { h, ok := it.(turn.HostedCall); return ok && h.ID == id })
}

func fixed(text string) func(turn.Call) []turn.Part {
	return func(turn.Call) []turn.Part { return []turn.Part{turn.Text{Text: text}} }
}

func kinds(r result) string {
	var out []string
	for _, ev := range r.events {
		switch e := ev.(type) {
		case turn.HostedStarted:
			out = append(out, "started")
		case turn.HostedResumed:
			out = append(out, "resumed")
		case turn.HostedRunning:
			out = append(out, "running")
		case turn.HostedPaused:
			out = append(out, "paused")
		case turn.HostedDone:
			out = append(out, "done")
		case turn.CallDone:
			who := "model"
			if e.Call.Caller != "" {
				who = "program"
			}
			out = append(out, e.Call.Name+" by "+who)
		case turn.MessageDone:
			out = append(out, "text")
		case turn.Finished:
			out = append(out, string(e.Reason))
		}
	}
	return strings.Join(out, ", ")
}

func TestProgramCallsTools(t *testing.T) {
	b := newBench(t, []any{"let me", python("print before\nawait get_rows roll\nprint between\nawait roll\nprint after")}, []any{"the end"})
	req := programmatic("hi")
	first := b.ok(req)
	if got, want := kinds(first), "text, started, running, paused, get-rows by program, roll by program, tool_calls"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	paused := all[turn.HostedPaused](first)[0].Call
	if !paused.Pending || paused.Status != turn.StatusInProgress || paused.Code == "" {
		t.Errorf("paused: %+v", paused)
	}
	for _, c := range all[turn.CallDone](first) {
		if c.Call.Caller != paused.ID || c.Call.Arguments != `{"a":1}` {
			t.Errorf("%+v", c.Call)
		}
	}
	for _, tl := range b.model.requests[0].Tools {
		if tl.Name == "get-rows" {
			t.Error("the model is offered a tool that is for programs only")
		}
	}
	second := b.ok(first.next(req, fixed("rows")))
	if got, want := kinds(second), "resumed, running, paused, roll by program, tool_calls"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	third := b.ok(second.next(first.next(req, fixed("rows")), fixed("6")))
	if got, want := kinds(third), "resumed, running, done, text, stop"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	done := third.hosted()[0]
	if done.ID != paused.ID || done.Pending || done.Stdout() != "before\nget-rows={Text:rows Error:false}\nroll={Text:rows Error:false}\nbetween\nroll={Text:6 Error:false}\nafter\n" {
		t.Errorf("%+v", done)
	}
	want := []string{"user: hi", "assistant: let me", "call #1 python", "result #1: " + done.ForModel}
	if diff := cmp.Diff(want, sketchShort(b.model.requests[1].Items)); diff != "" {
		t.Errorf("the model sees what only the program saw: %s", diff)
	}
	if len(b.model.requests) != 2 {
		t.Errorf("the model was asked %d times", len(b.model.requests))
	}
	// What came after goes on as ever, with the program's calls still in the client's history.
	b.model.rounds = append(b.model.rounds, []any{"more"})
	last := third.next(second.next(first.next(req, fixed("rows")), fixed("6")), nil)
	last.Items = append(last.Items, turn.Message{Role: turn.User, Parts: []turn.Part{turn.Text{Text: "and?"}}})
	if got := kinds(b.ok(last)); got != "text, stop" {
		t.Error(got)
	}
	if got := sketchShort(b.model.requests[2].Items); len(got) != 6 || !slices.Equal(got[:4], want) {
		t.Errorf("%q", got)
	}
}

// sketchShort is the conversation in one line an item.
func sketchShort(items []turn.Item) []string {
	var out []string
	for _, it := range items {
		switch v := it.(type) {
		case turn.Message:
			out = append(out, string(v.Role)+": "+partsText(v.Parts))
		case turn.Call:
			out = append(out, "call #1 "+v.Name)
		case turn.Result:
			out = append(out, "result #1: "+partsText(v.Parts))
		default:
			out = append(out, fmt.Sprintf("%T", it))
		}
	}
	return out
}

func TestProgramWaitsBesideOtherCalls(t *testing.T) {
	b := newBench(t, []any{python("await roll"), calls("ask", `{}`), calls("bash", tool.Arguments(tool.Bash, "print x")), "then"})
	r := b.ok(programmatic("hi"))
	if got, want := kinds(r), "started, running, paused, roll by program, ask by model, started, done, text, tool_calls"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if h := r.hosted()[0]; h.Status != turn.StatusIncomplete || h.ErrorCode != turn.ErrorUnavailable || len(b.ws.ran) != 1 {
		t.Errorf("a call behind a waiting program: %+v", h)
	}
}

func TestProgramResults(t *testing.T) {
	start := func(t *testing.T) (*bench, *turn.Request, result) {
		b := newBench(t, []any{python("await roll roll")}, []any{"the end"})
		req := programmatic("hi")
		r := b.ok(req)
		return b, req, r
	}
	t.Run("some are missing", func(t *testing.T) {
		b, req, r := start(t)
		n := r.next(req, fixed("1"))
		n.Items = n.Items[:len(n.Items)-1]
		got := b.run(t.Context(), n)
		if got.err == nil || got.err.Kind != turn.KindInvalid || len(got.events) != 0 || !strings.Contains(got.err.Message, "tool_use` ids were found without `tool_result`") {
			t.Errorf("%v", got.err)
		}
	})
	t.Run("none is there", func(t *testing.T) { // the answer with the calls was lost on its way
		b, req, r := start(t)
		again := b.ok(r.next(req, nil))
		if got, want := kinds(again), "resumed, paused, roll by program, roll by program, tool_calls"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		if diff := cmp.Diff(all[turn.CallDone](r), all[turn.CallDone](again)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("the program is gone", func(t *testing.T) {
		b, req, r := start(t)
		b.ws.waiting = nil
		got := b.ok(r.next(req, fixed("1")))
		h := got.hosted()[0]
		if kinds(got) != "resumed, done, text, stop" || h.ErrorCode != turn.ErrorUnavailable || h.Status != turn.StatusFailed || !strings.Contains(h.ForModel, "is gone") {
			t.Errorf("%s: %+v", kinds(got), h)
		}
	})
	t.Run("it had ended", func(t *testing.T) { // and the client did not get the answer: the store has filled it in
		b, req, r := start(t)
		b.ws.waiting = nil
		n := r.next(req, fixed("1"))
		h := n.Items[1].(turn.HostedCall)
		h.Outputs, h.ForModel, h.Status = []turn.Output{{Text: "ended"}}, "ended", turn.StatusCompleted
		n.Items[1] = h
		got := b.ok(n)
		if kinds(got) != "resumed, done, text, stop" || got.hosted()[0].Outputs[0].Text != "ended" || got.hosted()[0].Pending {
			t.Errorf("%s: %+v", kinds(got), got.hosted())
		}
	})
	t.Run("no container", func(t *testing.T) {
		b, req, r := start(t)
		n := r.next(req, fixed("1"))
		n.Hosted.Container = ""
		h := n.Items[1].(turn.HostedCall)
		h.Container = ""
		n.Items[1] = h
		got := b.run(t.Context(), n)
		if got.err == nil || got.err.Param != "container" {
			t.Errorf("%v", got.err)
		}
	})
	t.Run("another container", func(t *testing.T) {
		b, req, r := start(t)
		b.ws.waiting = nil // not there
		n := r.next(req, fixed("1"))
		h := n.Items[1].(turn.HostedCall)
		h.Container = "cntr_2"
		n.Items[1] = h
		got := b.run(t.Context(), n)
		if got.err == nil || got.err.Param != "container" || !strings.Contains(got.err.Message, "cntr_2") || len(got.events) != 0 {
			t.Errorf("%v", got.err)
		}
	})
	t.Run("no tool", func(t *testing.T) {
		b, req, r := start(t)
		n := r.next(req, fixed("1"))
		n.Hosted.Tools = []string{tool.Bash}
		got := b.run(t.Context(), n)
		if got.err == nil || got.err.Kind != turn.KindInvalid || got.err.Param != "tools" {
			t.Errorf("%v", got.err)
		}
	})
}

// TestDeferredCallRuns: another server has left a hosted call of a mixed turn for now.
func TestDeferredCallRuns(t *testing.T) {
	b := newBench(t, []any{"the end"})
	req := programmatic("hi")
	req.Items = append(req.Items,
		turn.HostedCall{ID: "srvtoolu_1", Tool: tool.Bash, Code: "print x", Pending: true},
		turn.HostedCall{ID: "srvtoolu_2", Tool: tool.Python, Code: "print y", Pending: true},
		turn.Call{CallID: "toolu_1", Name: "ask", Arguments: "{}"}, turn.Result{CallID: "toolu_1", Parts: []turn.Part{turn.Text{Text: "a"}}})
	r := b.ok(req)
	if got, want := kinds(r), "resumed, running, done, resumed, running, done, text, stop"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if h := r.hosted(); h[0].ID != "srvtoolu_1" || h[0].Stdout() != "x\n" || h[1].Stdout() != "y\n" || r.finished().HostedCalls != 2 {
		t.Errorf("%+v", h)
	}
	want := []string{"user: hi", "call #1 bash", "result #1: x", "call #1 python", "result #1: y", "call #1 ask", "result #1: a"}
	if diff := cmp.Diff(want, sketchShort(b.model.requests[0].Items)); diff != "" {
		t.Error(diff)
	}
	req.Items[1] = turn.HostedCall{ID: "srvtoolu_1", Tool: tool.Edit, Code: "{}", Pending: true}
	req.Hosted.Tools = append(req.Hosted.Tools, tool.Edit)
	b.model.rounds = append(b.model.rounds, []any{"the end"})
	if h := b.ok(req).hosted()[0]; h.ErrorCode != turn.ErrorInvalidInput {
		t.Errorf("a call that cannot be run: %+v", h)
	}
}

func TestPause(t *testing.T) {
	b := newBench(t, []any{python("print 1")}, []any{"so", python("print 2"), "far"}, []any{"the end"})
	b.cfg.MaxRounds = 2
	req := programmatic("hi")
	req.Hosted.Pause = true
	r := b.ok(req)
	if got, want := kinds(r), "started, running, done, text, started, running, done, text, pause"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	n := r.next(req, nil)
	if got := kinds(b.ok(n)); got != "text, stop" {
		t.Error(got)
	}
	want := []string{"user: hi", "call #1 python", "result #1: 1", "assistant: so", "assistant: far", "call #1 python", "result #1: 2"}
	if diff := cmp.Diff(want, sketchShort(b.model.requests[2].Items)); diff != "" {
		t.Errorf("the conversation must not end with what the model said: %s", diff)
	}
	for _, up := range b.model.requests {
		if len(up.Tools) < 3 {
			t.Error("a round without hosted tools")
		}
	}
}

// TestMuteLastRound: a model that only goes on calling tools gets one more try, and then the client is told.
func TestMuteLastRound(t *testing.T) {
	more := []any{python("print 1")}
	b := newBench(t, more, more, more)
	b.cfg.MaxRounds = 1
	r := b.ok(request("hi"))
	if got, want := kinds(r), "started, running, done, text, stop"; got != want || !strings.Contains(r.text(), "limit of steps") {
		t.Errorf("%s: %q", got, r.text())
	}
	if items := r.finished().Items; len(items) != 7 {
		t.Errorf("%q", sketchShort(items))
	}
	b = newBench(t, more, more, []any{"now then"})
	b.cfg.MaxRounds = 1
	if r := b.ok(request("hi")); r.text() != "now then" {
		t.Errorf("the second try gave %q", r.text())
	}
}

func TestToolForProgramsOnly(t *testing.T) {
	b := newBench(t, []any{calls("get-rows", "{}")}, []any{"the end"})
	r := b.ok(programmatic("hi"))
	if got := kinds(r); got != "text, stop" {
		t.Error(got)
	}
	if got := sketchShort(b.model.requests[1].Items); !strings.Contains(got[2], "only be called by the code of the python tool") {
		t.Errorf("%q", got)
	}
	req := programmatic("hi")
	req.ToolChoice = turn.ToolChoice{Mode: turn.ChoiceFunction, Name: "get-rows"}
	if got := b.run(t.Context(), req); got.err == nil || got.err.Param != "tool_choice" {
		t.Errorf("%v", got.err)
	}
}

func TestEditCall(t *testing.T) {
	b := newBench(t, []any{calls("edit", `{"command":`, `"view","path":"a`, `"}`)}, []any{calls("edit", `{"command":"view"}`)}, []any{"the end"})
	req := request("hi")
	req.Hosted.Tools = []string{tool.Edit}
	r := b.ok(req)
	h := r.hosted()
	if h[0].Code != `{"command":"view","path":"a"}` || h[0].Edit == nil || h[0].Edit.Content != "x\n" || h[0].ForModel != "     1\tx" {
		t.Errorf("%+v", h[0])
	}
	if deltas := all[turn.HostedCodeDelta](r); len(deltas) < 3 || deltas[0].Delta != `{"command":` {
		t.Errorf("the arguments did not stream: %+v", deltas)
	}
	if h[1].ErrorCode != turn.ErrorInvalidInput || h[1].Status != turn.StatusFailed || !strings.Contains(h[1].ForModel, `no "path"`) {
		t.Errorf("%+v", h[1])
	}
}
