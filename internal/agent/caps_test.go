package agent_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Rules of DESIGN section 5 on limits.

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

// A model that writes thousands of calls in one turn does not keep a sandbox busy until the time is up.
func TestRule5OperatorsMaxCalls(t *testing.T) {
	for name, own := range map[string]*int{"alone": nil, "client allows more": ptr(4000)} {
		t.Run(name, func(t *testing.T) {
			script := make([]any, 5000)
			for i := range script {
				script[i] = python("print " + strconv.Itoa(i))
			}
			b := newBench(t, script, []any{"done"})
			b.cfg.MaxCalls = 7
			req := request("hi")
			req.Hosted.MaxCalls = own
			r := b.ok(req)
			if len(b.ws.ran) != 7 || len(r.hosted()) != 7 || r.finished().HostedCalls != 7 {
				t.Errorf("%d calls ran, the client saw %d, counted are %d", len(b.ws.ran), len(r.hosted()), r.finished().HostedCalls)
			}
			if r.text() != "done" || r.finished().Reason != turn.ReasonStop || len(b.model.requests[1].Tools) != 0 {
				t.Errorf("%q, %v, tools of the last round %q", r.text(), r.finished().Reason, toolNames(b.model.requests[1]))
			}
			s := sketch(b.model.requests[1].Items)
			if got := s[len(s)-1]; !strings.Contains(got, "limit of tool calls") {
				t.Errorf("the model was not told: %q", got)
			}
		})
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
