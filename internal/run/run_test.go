package run_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/run"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// loop stands for the agent: it plays events and keeps the requests that it gets.
type loop struct {
	events   []turn.Event
	err      error
	requests []*turn.Request
}

func (l *loop) Stream(_ context.Context, req *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) {
		l.requests = append(l.requests, req)
		for _, ev := range l.events {
			if !yield(ev, nil) {
				return
			}
		}
		if l.err != nil {
			yield(nil, l.err)
		}
	}
}

// broken is a store of steps that fails.
type broken struct{ store.Steps }

var errBroken = errors.New("disk full")

func (broken) Put(context.Context, ...store.Step) error { return errBroken }

func (broken) Get(context.Context, string, ...string) (map[string]store.Step, error) {
	return nil, errBroken
}

type files map[string]string

func (f files) Content(_ context.Context, id string) (name, mime string, data []byte, err error) {
	s, ok := f[id]
	if !ok {
		return "", "", nil, store.ErrNotFound
	}
	name, s, _ = strings.Cut(s, "|")
	mime, s, _ = strings.Cut(s, "|")
	return name, mime, []byte(s), nil
}

type bench struct {
	t    *testing.T
	loop *loop
	cfg  run.Config
	ctx  context.Context
}

func newBench(t *testing.T) *bench {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "lathe.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l := &loop{}
	return &bench{t: t, loop: l, cfg: run.Config{Next: l, Steps: s.Steps()}, ctx: inProject(t.Context(), "p")}
}

func inProject(ctx context.Context, project string) context.Context {
	return auth.WithPrincipal(ctx, auth.Principal{Name: "n", Project: project})
}

// turn lets the loop play events, and returns what came out.
func (b *bench) turn(req *turn.Request, events ...turn.Event) ([]turn.Event, error) {
	b.t.Helper()
	b.loop.events = events
	var out []turn.Event
	for ev, err := range run.New(b.cfg).Stream(b.ctx, req) {
		if err != nil {
			return out, err
		}
		out = append(out, ev)
	}
	return out, nil
}

// seen is the request's items as the loop gets them when a client sends items.
func (b *bench) seen(hosted bool, items ...turn.Item) []turn.Item {
	b.t.Helper()
	return b.request(hosted, items...).Items
}

func (b *bench) request(hosted bool, items ...turn.Item) *turn.Request {
	b.t.Helper()
	req := &turn.Request{Items: items}
	if hosted {
		req.Hosted = &turn.Hosted{Tools: []string{"python"}}
	}
	before := req.Clone()
	if _, err := b.turn(req, turn.Started{}, turn.Finished{Reason: turn.ReasonStop}); err != nil {
		b.t.Fatal(err)
	}
	if diff := cmp.Diff(before, req); diff != "" {
		b.t.Errorf("the client's request was changed: %s", diff)
	}
	return b.loop.requests[len(b.loop.requests)-1]
}

func user(s string) turn.Item {
	return turn.Message{Role: turn.User, Parts: []turn.Part{turn.Text{Text: s}}}
}

func says(s string) turn.Item {
	return turn.Message{Role: turn.Assistant, Parts: []turn.Part{turn.Text{Text: s}}}
}

func result(id, s string) turn.Item {
	return turn.Result{CallID: id, Parts: []turn.Part{turn.Text{Text: s}}}
}

func call(id, name string) turn.Item { return turn.Call{CallID: id, Name: name, Arguments: "{}"} }

var missing = turn.Message{Role: turn.System, Parts: []turn.Part{turn.Text{
	Text: "Some steps of earlier turns (code that was run, and its output) are no longer available."}}}

// mixed is a turn with a hosted call and two calls for the client.
func mixed(a, b string) []turn.Item {
	return []turn.Item{
		turn.Reasoning{Text: "plan", Signature: "sig"}, says("I look."), call("call_x", "python"), result("call_x", "42"),
		says("And you?"), call(a, "weather"), call(b, "clock"),
	}
}

func (b *bench) storeMixed() (first, second string) {
	b.t.Helper()
	first, second = turn.NewHiddenCallID(), turn.NewHiddenCallID()
	_, err := b.turn(&turn.Request{}, turn.Started{}, turn.Finished{
		Reason: turn.ReasonCalls, Items: mixed(first, second), HostedCalls: 1, Container: &turn.Container{ID: "cntr_1"},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return first, second
}

func TestHiddenStepsComeBack(t *testing.T) {
	b := newBench(t)
	x, y := b.storeMixed()
	tests := []struct {
		name        string
		items, want []turn.Item
	}{
		{
			"as Chat Completions sends them",
			[]turn.Item{user("hi"), says("I look.And you?"), call(x, "weather"), call(y, "clock"), result(x, "sun"), result(y, "noon"), user("go on")},
			append(append([]turn.Item{user("hi")}, mixed(x, y)...), result(x, "sun"), result(y, "noon"), user("go on")),
		},
		{
			"as Responses sends them",
			[]turn.Item{user("hi"), says("I look."), turn.HostedCall{ID: "ci_1", Tool: "python"}, says("And you?"), call(x, "weather"),
				call(y, "clock"), result(x, "sun"), result(y, "noon")},
			append(append([]turn.Item{user("hi")}, mixed(x, y)...), result(x, "sun"), result(y, "noon")),
		},
		{
			"one call taken out by the client",
			[]turn.Item{user("hi"), call(y, "clock"), result(y, "noon")},
			append(append([]turn.Item{user("hi")}, append(mixed(x, y)[:5:5], call(y, "clock"))...), result(y, "noon")),
		},
		{
			"arguments changed by the client, a call added",
			[]turn.Item{user("hi"), turn.Call{CallID: x, Name: "weather", Arguments: `{"a":1}`}, call(y, "clock"), call("call_own", "f"), result(x, "sun")},
			append(append([]turn.Item{user("hi")}, append(mixed(x, y)[:5:5],
				turn.Call{CallID: x, Name: "weather", Arguments: `{"a":1}`}, call(y, "clock"), call("call_own", "f"))...), result(x, "sun")),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, b.seen(true, tt.items...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSeveralStoredTurns(t *testing.T) {
	b := newBench(t)
	x, y := b.storeMixed()
	v, w := b.storeMixed()
	items := []turn.Item{user("hi"), call(x, "weather"), call(y, "clock"), result(x, "1"), result(y, "2"), call(v, "weather"), call(w, "clock"),
		result(v, "3"), result(w, "4")}
	var want []turn.Item
	want = append(append(append(want, user("hi")), mixed(x, y)...), result(x, "1"), result(y, "2"))
	want = append(append(want, mixed(v, w)...), result(v, "3"), result(w, "4"))
	if diff := cmp.Diff(want, b.seen(true, items...)); diff != "" {
		t.Error(diff)
	}
	// A client that lost the results between them.
	want = append(append(append([]turn.Item(nil), user("hi")), mixed(x, y)...), mixed(v, w)...)
	if diff := cmp.Diff(want, b.seen(true, user("hi"), call(x, "weather"), call(y, "clock"), call(v, "weather"), call(w, "clock"))); diff != "" {
		t.Error(diff)
	}
}

func TestMissingSteps(t *testing.T) {
	b := newBench(t)
	x, y := b.storeMixed()
	sys := turn.Message{Role: turn.System, Parts: []turn.Part{turn.Text{Text: "be brief"}}}
	items := []turn.Item{sys, user("hi"), call(x, "weather"), result(x, "sun"), call(y, "clock")}
	told := append([]turn.Item{sys, missing}, items[1:]...)
	t.Run("another project's", func(t *testing.T) {
		other := *b
		other.ctx = inProject(t.Context(), "q")
		if diff := cmp.Diff(told, other.seen(true, items...)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("expired", func(t *testing.T) {
		late := *b
		late.cfg.TTL = time.Nanosecond
		v, w := late.storeMixed()
		if got := late.seen(true, user("hi"), call(v, "weather"), call(w, "clock")); len(got) != 4 {
			t.Errorf("got %d items", len(got))
		}
	})
	t.Run("no note without hosted tools", func(t *testing.T) {
		other := *b
		other.ctx = inProject(t.Context(), "q")
		if diff := cmp.Diff(items, other.seen(false, items...)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("no note for ids that are not ours", func(t *testing.T) {
		foreign := []turn.Item{user("hi"), call("call_0", "weather"), result("call_0", "sun"), call(turn.NewID("call_"), "f")}
		if diff := cmp.Diff(foreign, b.seen(true, foreign...)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a store that fails", func(t *testing.T) {
		bad := *b
		bad.cfg.Steps = broken{}
		if diff := cmp.Diff(told, bad.seen(true, items...)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestContainerOfHiddenSteps(t *testing.T) {
	b := newBench(t)
	x, y := b.storeMixed()
	if got := b.request(true, user("hi"), call(x, "weather"), call(y, "clock")).Hosted.Recent; got != "cntr_1" {
		t.Errorf("recent container %q", got)
	}
	newer := turn.HostedCall{ID: "ci_2", Container: "cntr_2", Outputs: []turn.Output{}}
	if got := b.request(true, call(x, "weather"), result(x, "1"), newer).Hosted.Recent; got != "cntr_2" {
		t.Errorf("recent container %q", got)
	}
}

var hosted = turn.HostedCall{
	ID: turn.NewID("ci_"), Tool: "python", Container: "cntr_1", Code: "print(1)", Status: turn.StatusCompleted,
	Outputs: []turn.Output{{Text: "1\n"}, {MIME: "image/png", Data: []byte("png"), FileID: "cfile_1"}},
	Files:   []turn.File{{ID: "cfile_1", Path: "/mnt/data/a", Name: "a"}}, ForModel: "1",
}

func TestHostedCallsAreFilledIn(t *testing.T) {
	b := newBench(t)
	if _, err := b.turn(&turn.Request{}, turn.Started{}, turn.HostedDone{Call: hosted}, turn.Finished{HostedCalls: 1}); err != nil {
		t.Fatal(err)
	}
	edit := func(f func(*turn.HostedCall)) turn.HostedCall {
		h := turn.HostedCall{ID: hosted.ID, Tool: "python", Container: "cntr_1", Code: hosted.Code, Status: turn.StatusCompleted}
		f(&h)
		return h
	}
	redacted := []turn.Output{{Text: "(removed)"}}
	tests := []struct {
		name     string
		in, want turn.HostedCall
	}{
		{"without outputs", edit(func(*turn.HostedCall) {}), hosted},
		{"with the same outputs", edit(func(h *turn.HostedCall) {
			h.Outputs = []turn.Output{{Text: "1\n"}, {MIME: "image/png", Data: []byte("other bytes")}}
		}), hosted},
		// Messages has all of a stream in one piece, and no images.
		{"by stream", edit(func(h *turn.HostedCall) { h.Outputs = []turn.Output{{Text: "1\n", Stream: "stdout"}} }), hosted},
		{"by stream, changed", edit(func(h *turn.HostedCall) { h.Outputs = []turn.Output{{Text: "1\n", Stream: "stderr"}} }),
			edit(func(h *turn.HostedCall) {
				h.Outputs, h.Files = []turn.Output{{Text: "1\n", Stream: "stderr"}}, hosted.Files
			})},
		{"with outputs that the client has changed", edit(func(h *turn.HostedCall) { h.Outputs = redacted }),
			edit(func(h *turn.HostedCall) { h.Outputs, h.Files = redacted, hosted.Files })},
		{"unknown", edit(func(h *turn.HostedCall) { h.ID = "ci_x" }), edit(func(h *turn.HostedCall) { h.ID = "ci_x" })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff([]turn.Item{user("hi"), tt.want, says("ok")}, b.seen(true, user("hi"), tt.in, says("ok"))); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("another project's", func(t *testing.T) {
		other := *b
		other.ctx = inProject(t.Context(), "q")
		in := edit(func(*turn.HostedCall) {})
		if diff := cmp.Diff([]turn.Item{in}, other.seen(true, in)); diff != "" {
			t.Error(diff)
		}
	})
}

// A client may come back the moment it has read the end of a turn, or before it.
func TestStepsAreStoredBeforeFinished(t *testing.T) {
	b := newBench(t)
	x, y := turn.NewHiddenCallID(), turn.NewHiddenCallID()
	b.loop.events = []turn.Event{turn.Started{}, turn.HostedDone{Call: hosted},
		turn.Finished{Reason: turn.ReasonCalls, Items: mixed(x, y), HostedCalls: 1}}
	for ev, err := range run.New(b.cfg).Stream(b.ctx, &turn.Request{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := ev.(turn.Finished); !ok {
			continue
		}
		rows, err := b.cfg.Steps.Get(b.ctx, "p", x, y, hosted.ID)
		if err != nil || len(rows) != 3 {
			t.Errorf("%d of 3 rows when Finished came, %v", len(rows), err)
		}
	}
}

func TestCallsOfABrokenTurnAreStored(t *testing.T) {
	for name, stop := range map[string]bool{"error": false, "the caller stops ranging": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.loop.events = []turn.Event{turn.Started{}, turn.HostedDone{Call: hosted}}
			b.loop.err = errors.New("boom")
			for ev, err := range run.New(b.cfg).Stream(b.ctx, &turn.Request{}) {
				if _, done := ev.(turn.HostedDone); done && stop || err != nil {
					break
				}
			}
			if rows, err := b.cfg.Steps.Get(b.ctx, "p", hosted.ID); err != nil || len(rows) != 1 {
				t.Errorf("%d rows, %v", len(rows), err)
			}
		})
	}
}

func TestFailureToStore(t *testing.T) {
	b := newBench(t)
	b.cfg.Steps = broken{}
	end := turn.Finished{Reason: turn.ReasonCalls, Items: mixed(turn.NewHiddenCallID(), turn.NewHiddenCallID()), HostedCalls: 1}
	_, err := b.turn(&turn.Request{}, turn.Started{}, turn.HostedDone{Call: hosted}, end)
	if e := turn.AsError(err); err == nil || e.Kind != turn.KindInternal || !e.CodeRan || strings.Contains(e.Message, "disk") {
		t.Errorf("a turn that the client cannot continue: %+v", e)
	}
	end.HostedCalls, end.Items = 0, []turn.Item{call(turn.NewHiddenCallID(), "weather")}
	if evs, err := b.turn(&turn.Request{}, turn.Started{}, end); err != nil || len(evs) != 2 {
		t.Errorf("a turn without hidden steps: %v", err)
	}
	if evs, err := b.turn(&turn.Request{}, turn.Started{}, turn.HostedDone{Call: hosted}, turn.Finished{HostedCalls: 1}); err != nil || len(evs) != 3 {
		t.Errorf("a turn that ended: %v", err)
	}
}

func TestFileIDs(t *testing.T) {
	b := newBench(t)
	b.cfg.Files = files{"file_csv": "a.csv|text/csv|1,2", "file_png": "p.png|image/png|PNG", "cfile_raw": "q||\x89PNG\r\n\x1a\n"}
	in := []turn.Item{
		turn.Message{Role: turn.User, Parts: []turn.Part{
			turn.Text{Text: "look"}, turn.Document{FileID: "file_csv"}, turn.Image{FileID: "file_png", Detail: "low"}, turn.Image{URL: "https://x"},
		}},
		turn.Result{CallID: "c", Parts: []turn.Part{turn.Image{FileID: "cfile_raw"}, turn.Document{Name: "inline", Data: []byte("x")}}},
	}
	images := func(doc turn.Part) []turn.Item {
		return []turn.Item{
			turn.Message{Role: turn.User, Parts: []turn.Part{
				turn.Text{Text: "look"}, doc, turn.Image{URL: "data:image/png;base64,UE5H", Detail: "low"}, turn.Image{URL: "https://x"},
			}},
			turn.Result{CallID: "c", Parts: []turn.Part{turn.Image{URL: "data:image/png;base64,iVBORw0KGgo="}, turn.Document{Name: "inline", Data: []byte("x")}}},
		}
	}
	if diff := cmp.Diff(images(turn.Document{Name: "a.csv", MIME: "text/csv", Data: []byte("1,2")}), b.seen(false, in...)); diff != "" {
		t.Errorf("without hosted tools: %s", diff)
	}
	got := b.request(true, in...)
	if diff := cmp.Diff(images(turn.Document{FileID: "file_csv"}), got.Items); diff != "" {
		t.Errorf("with hosted tools: %s", diff)
	}
	if diff := cmp.Diff([]string{"file_csv", "file_png", "cfile_raw"}, got.Hosted.FileIDs); diff != "" {
		t.Errorf("files for the container: %s", diff)
	}
}

func TestFileIDsThatCannotBeResolved(t *testing.T) {
	b := newBench(t)
	b.cfg.Files = files{"file_csv": "a.csv|text/csv|1,2"}
	message := func(p turn.Part) *turn.Request {
		return &turn.Request{Items: []turn.Item{turn.Message{Role: turn.User, Parts: []turn.Part{p}}}}
	}
	for name, tt := range map[string]struct {
		part turn.Part
		kind turn.Kind
		text string
	}{
		"unknown document":       {turn.Document{FileID: "file_x"}, turn.KindNotFound, `"file_x"`},
		"unknown image":          {turn.Image{FileID: "file_x"}, turn.KindNotFound, `"file_x"`},
		"image that is no image": {turn.Image{FileID: "file_csv"}, turn.KindInvalid, "file_csv is text/csv"},
	} {
		evs, err := b.turn(message(tt.part), turn.Started{})
		if e := turn.AsError(err); err == nil || e.Kind != tt.kind || !strings.Contains(e.Message, tt.text) || len(evs) != 0 {
			t.Errorf("%s: %v after %d events", name, err, len(evs))
		}
	}
	b.cfg.Files = nil
	if _, err := b.turn(message(turn.Image{FileID: "file_x"})); err == nil || turn.AsError(err).Kind != turn.KindUnsupported {
		t.Errorf("without files: %v", err)
	}
}

// TestPendingCalls: a call that waited is found again with its container, and one that has ended since with its result.
func TestPendingCalls(t *testing.T) {
	b := newBench(t)
	paused := turn.HostedCall{ID: "ci_1", Tool: "python", Container: "cntr_1", Code: "1", Status: turn.StatusInProgress, Pending: true}
	asked := turn.Call{CallID: turn.NewHiddenCallID(), Name: "f", Arguments: "{}", Caller: "ci_1"}
	stream := func(req *turn.Request, events ...turn.Event) {
		t.Helper()
		if _, err := b.turn(req, events...); err != nil {
			t.Fatal(err)
		}
	}
	stream(&turn.Request{Hosted: &turn.Hosted{Tools: []string{"python"}}}, turn.Started{}, turn.HostedPaused{Call: paused},
		turn.Finished{Reason: turn.ReasonCalls, HostedCalls: 1, Items: []turn.Item{paused, asked}, Container: &turn.Container{ID: "cntr_1"}})
	sent := paused
	sent.Container, sent.Outputs = "", nil
	next := &turn.Request{Hosted: &turn.Hosted{Tools: []string{"python"}}, Items: []turn.Item{sent, asked, turn.Result{CallID: asked.CallID}}}
	stop := turn.Finished{Reason: turn.ReasonStop, HostedCalls: 1}
	stream(next, turn.Started{}, stop)
	got := b.loop.requests[1]
	if diff := cmp.Diff([]turn.Item{paused, asked, turn.Result{CallID: asked.CallID}}, got.Items); diff != "" || got.Hosted.Recent != "cntr_1" {
		t.Errorf("container %q: %s", got.Hosted.Recent, diff)
	}
	done := paused
	done.Pending, done.Status, done.Outputs, done.ForModel = false, turn.StatusCompleted, []turn.Output{{Text: "1"}}, "1"
	stream(next, turn.Started{}, turn.HostedResumed{ID: "ci_1"}, turn.HostedDone{Call: done}, stop)
	stream(next, turn.Started{}, stop)
	done.Pending = true
	if diff := cmp.Diff(turn.Item(done), b.loop.requests[3].Items[0]); diff != "" {
		t.Error(diff)
	}
}
