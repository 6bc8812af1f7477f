package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// drawRound is anything a model may say in one round: also calls of tools that are gone, that never were, and with arguments that are
// none.
func drawRound(t *rapid.T) []any {
	var out []any
	for range rapid.IntRange(0, 5).Draw(t, "length") {
		switch rapid.IntRange(0, 7).Draw(t, "what") {
		case 0:
			out = append(out, rapid.SampledFrom([]string{"hello there ", "[a](sandbox:/mnt/data/a.csv) ", "sandbox:"}).Draw(t, "text"))
		case 1:
			out = append(out, thought{"hm", rapid.StringMatching("[a-z]{0,3}").Draw(t, "signature")})
		case 2:
			out = append(out, calls("weather", `{"city":`, `"Rome"}`))
		case 3, 4:
			code := rapid.SampledFrom([]string{"print 1", "print 2", "raise E", "write a.csv", "show", "note n", "print x\nprint y", "await roll roll\nprint z"}).Draw(t, "code")
			out = append(out, calls("python", cutUp(t, tool.Arguments(tool.Python, code))...))
		case 5:
			out = append(out, calls("python", cutUp(t, rapid.SampledFrom([]string{"", "{}", "[1]", `{"code":1}`, `{"code":"pri`, "print raw"}).Draw(t, "args"))...))
		case 6:
			out = append(out, calls(rapid.SampledFrom([]string{"browser", "", "Python", "a b"}).Draw(t, "name"), "x"))
		case 7:
			if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
				out = append(out, rapid.SampledFrom([]any{
					turn.Finished{Reason: turn.ReasonLength, Usage: usage}, turn.Finished{Reason: turn.ReasonStop, Usage: usage},
					turn.Errorf(turn.KindUpstream, "boom"), noEnd{}, calls("python", `{"code":"print 1\nbreak"}`),
				}).Draw(t, "end"))
			}
		}
	}
	return out
}

func cutUp(t *rapid.T, s string) []string {
	var out []string
	for len(s) > 0 {
		n := rapid.IntRange(1, len(s)).Draw(t, "cut")
		out, s = append(out, s[:n]), s[n:]
	}
	return out
}

// Whatever a model does, the stream is well formed, every block that was started is done, nothing undeclared is seen, usage is the sum,
// and the history upstream is one that servers accept.
func TestAnyModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			b.model.rounds = append(b.model.rounds, drawRound(rt))
		}
		b.cfg.MaxRounds = rapid.IntRange(1, len(b.model.rounds)).Draw(rt, "max rounds")
		b.model.rounds = append(b.model.rounds, []any{"the end"})
		b.cfg.MaxTime = time.Hour
		req := request("hi")
		req.Live = rapid.Bool().Draw(rt, "live")
		if rapid.Bool().Draw(rt, "capped") {
			req.Hosted.MaxCalls = ptr(rapid.IntRange(0, 4).Draw(rt, "max calls"))
		}
		if rapid.Bool().Draw(rt, "client tool") {
			req.Tools = []turn.Tool{{Name: "weather"}, {Name: "roll", Programmatic: true}}
		}
		req.Hosted.Pause = rapid.Bool().Draw(rt, "pause")
		req.ToolChoice.Mode = rapid.SampledFrom([]turn.ChoiceMode{"", turn.ChoiceAuto, turn.ChoiceNone, turn.ChoiceRequired}).Draw(rt, "choice")

		r := b.run(t.Context(), req)
		checkBlocks(rt, req, r)
		for n, up := range b.model.requests {
			checkHistory(rt, fmt.Sprintf("round %d", n), up.Items, nil)
		}
		if r.err != nil {
			return
		}
		f := r.finished()
		rounds := len(b.model.requests)
		if want := (turn.Usage{Input: 10 * rounds, Cached: 4 * rounds, Output: 5 * rounds, Reasoning: 2 * rounds}); f.Usage != want || f.Rounds != rounds {
			rt.Fatalf("usage %+v over %d rounds (%d reported)", f.Usage, rounds, f.Rounds)
		}
		if rounds > b.cfg.MaxRounds+2 {
			rt.Fatalf("%d rounds of %d", rounds, b.cfg.MaxRounds)
		}
		if m := req.Hosted.MaxCalls; m != nil && f.HostedCalls > *m {
			rt.Fatalf("%d hosted calls of %d", f.HostedCalls, *m)
		}
		if paused := len(all[turn.HostedPaused](r)); f.HostedCalls != len(r.hosted())+paused || len(b.ws.ran) > f.HostedCalls {
			rt.Fatalf("%d hosted calls, %d seen, %d run", f.HostedCalls, len(r.hosted()), len(b.ws.ran))
		}
		if req.ToolChoice.Mode == turn.ChoiceNone && len(b.ws.ran) > 0 {
			rt.Fatal("tools were off, and code ran")
		}
		open := map[string]bool{}
		for _, c := range all[turn.CallDone](r) {
			open[c.Call.CallID] = true
		}
		if (f.Reason == turn.ReasonCalls) != (len(open) > 0) && f.Reason != turn.ReasonLength {
			rt.Fatalf("reason %v with %d calls for the client", f.Reason, len(open))
		}
		checkHistory(rt, "the turn", f.Items, open)
	})
}

func checkBlocks(t *rapid.T, req *turn.Request, r result) {
	declared := map[string]bool{}
	for _, d := range req.Tools {
		declared[d.Name] = true
	}
	ids := map[string]bool{}
	fresh := func(id string) {
		if id == "" || ids[id] {
			t.Fatalf("id %q is used twice", id)
		}
		ids[id] = true
	}
	var hosted *turn.HostedStarted
	for _, ev := range r.events {
		switch e := ev.(type) {
		case turn.CallStarted:
			fresh(e.CallID)
			if !declared[e.Name] {
				t.Fatalf("the client saw a call of %q", e.Name)
			}
		case turn.HostedStarted:
			fresh(e.ID)
			hosted = &e
		case turn.HostedOutput:
			if !req.Live {
				t.Fatal("live output was not asked for")
			}
		case turn.HostedDone:
			c := e.Call
			if hosted == nil || c.ID != hosted.ID || c.Tool != hosted.Tool || c.Container != hosted.Container || c.Outputs == nil {
				t.Fatalf("%+v was started, %+v done", hosted, c)
			}
			if c.Status == turn.StatusInProgress || c.Status == "" {
				t.Fatalf("done with status %q", c.Status)
			}
			hosted = nil
		case turn.HostedPaused:
			if hosted == nil || e.Call.ID != hosted.ID || !e.Call.Pending {
				t.Fatalf("%+v was started, %+v paused", hosted, e.Call)
			}
			hosted = nil
		}
	}
	if hosted != nil {
		t.Fatalf("hosted call %s was started and never done (%v)", hosted.ID, r.err)
	}
}

// checkHistory checks what vendors insist on: every call is answered once, after it and before the model speaks again. Those in open
// are the client's to answer.
func checkHistory(t *rapid.T, what string, items []turn.Item, open map[string]bool) {
	waiting := map[string]bool{}
	seen := map[string]bool{}
	answering := false
	for i, it := range items {
		switch v := it.(type) {
		case turn.Call:
			if seen[v.CallID] || !strings.HasPrefix(v.CallID, "call_") || v.CallID == "call_0" {
				t.Fatalf("%s, item %d: call id %q", what, i, v.CallID)
			}
			seen[v.CallID] = true
			if !open[v.CallID] {
				waiting[v.CallID] = true
			}
		case turn.Result:
			if !waiting[v.CallID] || len(v.Parts) == 0 || partsText(v.Parts) == "" {
				t.Fatalf("%s, item %d: result of %q with %q", what, i, v.CallID, partsText(v.Parts))
			}
			delete(waiting, v.CallID)
			answering = true
			continue
		case turn.HostedCall:
			if v.Pending && open != nil {
				break
			}
			t.Fatalf("%s, item %d is a HostedCall", what, i)
		}
		if answering && len(waiting) > 0 {
			if _, isCall := it.(turn.Call); !isCall || len(waiting) > 1 {
				t.Fatalf("%s, item %d: the model speaks before its calls are answered", what, i)
			}
		}
		answering = false
	}
	if len(waiting) > 0 {
		t.Fatalf("%s: %d calls are not answered", what, len(waiting))
	}
}
