package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/agent"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// model is a scripted turn.Streamer: each round of it is a list of what it says (string), thinks (thought), calls (call), does
// (func(context.Context)) and fails with (error). A turn.Finished ends a round early; without one it ends as it should.
type model struct {
	t        testing.TB
	rounds   [][]any
	mu       sync.Mutex
	requests []*turn.Request
}

type thought struct{ text, signature string }

// call is a tool call, its arguments in pieces.
type call struct {
	id, name string
	pieces   []string
}

func python(code string) call { return calls("python", tool.Arguments(tool.Python, code)) }

func calls(name string, pieces ...string) call { return call{id: "call_0", name: name, pieces: pieces} }

// noEnd cuts a round off without its terminal event.
type noEnd struct{}

var usage = turn.Usage{Input: 10, Cached: 4, Output: 5, Reasoning: 2}

func (m *model) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) {
		m.mu.Lock()
		n := len(m.requests)
		m.requests = append(m.requests, req)
		m.mu.Unlock()
		if n >= len(m.rounds) {
			m.t.Errorf("the model was asked %d times, the script has %d rounds", n+1, len(m.rounds))
			yield(nil, errors.New("script ended"))
			return
		}
		if !yield(turn.Started{ID: fmt.Sprintf("up_%d", n), Model: req.Model}, nil) {
			return
		}
		var seq turn.Sequencer
		end := turn.Finished{Reason: turn.ReasonStop, Usage: usage}
		for i, el := range m.rounds[n] {
			var evs []turn.Event
			switch e := el.(type) {
			case string:
				for _, word := range strings.SplitAfter(e, " ") {
					evs = append(evs, seq.Text(word)...)
				}
			case thought:
				evs = append(seq.Reasoning(e.text, "reasoning_content"), seq.Sign(e.signature, "")...)
			case call:
				end.Reason = turn.ReasonCalls
				evs = seq.Call(i, e.id, e.name, "")
				for _, p := range e.pieces {
					evs = append(evs, seq.Call(i, "", "", p)...)
				}
			case func(context.Context):
				e(ctx)
			case turn.Block:
				evs = append(seq.Close(), turn.BlockDone{Block: e})
			case turn.Finished:
				end = e
			case error:
				yield(nil, e)
				return
			case noEnd:
				return
			}
			for _, ev := range evs {
				if !yield(ev, nil) {
					return
				}
			}
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return
			}
		}
		for _, ev := range append(seq.Close(), end) {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// workspaces is a tool.Workspaces with one container whose programs are lines of a few made-up words: see (*workspaces).exec.
type workspaces struct {
	checkErr, openErr error
	uploads           []turn.File
	openNotes         []string
	reach             []string // the domains of the container
	skills            []tool.Skill
	mounted           []tool.Skill

	mu             sync.Mutex
	opened, closed int
	ran            []string
	notes          []string
	files          map[string]turn.File
	interrupted    chan struct{} // closed when a program was interrupted
	waiting        map[string]*program
}

func (w *workspaces) Check(context.Context, *turn.Hosted) ([]turn.File, error) {
	return w.uploads, w.checkErr
}

func (w *workspaces) Reach(context.Context, *turn.Hosted) []string { return w.reach }
func (w *workspaces) Skills(_ context.Context, h *turn.Hosted) ([]tool.Skill, error) {
	if len(h.Skills) == 0 {
		return nil, nil
	}
	return w.skills, nil
}

func (w *workspaces) Mount(skills []tool.Skill) { w.mounted = skills }

func (w *workspaces) Open(context.Context, *turn.Hosted) (tool.Workspace, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.openErr != nil {
		return nil, w.openErr
	}
	w.opened++
	w.notes = append(w.notes, w.openNotes...)
	if w.files == nil {
		w.files = map[string]turn.File{}
	}
	return &workspace{w}, nil
}

type workspace struct{ *workspaces }

func (w *workspace) Container() turn.Container { return turn.Container{ID: "cntr_1", ExpiresAt: 7} }

func (w *workspace) Notes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.notes
	w.notes = nil
	return n
}

func (w *workspace) Find(_ context.Context, path string) (turn.File, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.files[path]
	return f, ok
}

func (w *workspace) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
	return nil
}

func (w *workspace) Run(ctx context.Context, c tool.Call, sink func(tool.Chunk)) (*tool.Outcome, error) {
	w.mu.Lock()
	w.ran = append(w.ran, c.Code)
	w.mu.Unlock()
	o := &tool.Outcome{Status: "ok", Duration: time.Millisecond}
	if c.Tool == tool.Edit {
		o.Edit, o.Path = &turn.Edit{Command: "view", FileType: "text", Content: "x\n", StartLine: 1, NumLines: 1, TotalLines: 1}, "a"
		return o, nil
	}
	lines := strings.SplitAfter(strings.TrimSuffix(c.Code, "\n"), "\n")
	if c.Answers != nil {
		o, lines = w.resume(c)
	}
	for i, line := range lines {
		verb, arg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if verb == "await" {
			return w.wait(c, o, lines[i+1:], arg), nil
		}
		if err := w.exec(ctx, o, verb, arg, sink); err != nil || o.Status != "ok" {
			return o, err
		}
	}
	return o, nil
}

// exec knows: print TEXT, write NAME, show, image, raise ERROR, sleep (until interrupted), note TEXT, break (the sandbox fails), nostart (it fails
// before anything ran).
func (w *workspace) exec(ctx context.Context, o *tool.Outcome, verb, arg string, sink func(tool.Chunk)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	file := func(name string, shown bool) turn.File {
		f := turn.File{ID: "cfile_" + name, Container: "cntr_1", Path: "/mnt/data/" + name, Name: name, Bytes: 3, Shown: shown}
		o.Files = append(o.Files, f)
		return f
	}
	switch verb {
	case "print":
		w.mu.Unlock()
		done := make(chan struct{})
		go func() { // output comes from another goroutine
			defer close(done)
			sink(tool.Chunk{Stream: "stdout", Text: arg + "\n"})
		}()
		<-done
		w.mu.Lock()
		o.Outputs = append(o.Outputs, turn.Output{Text: arg + "\n"})
	case "write":
		f := file(arg, false)
		w.files[f.Path] = f
	case "show":
		f := file(fmt.Sprintf("shown%d.png", len(w.ran)), true)
		o.Outputs = append(o.Outputs, turn.Output{MIME: "image/png", Data: []byte("png"), FileID: f.ID})
	case "raise":
		o.Status, o.ExitCode, o.Error = "error", 1, arg
		o.Outputs = append(o.Outputs, turn.Output{Text: "Traceback ...\n" + arg + "\n"})
	case "sleep":
		w.mu.Unlock()
		<-ctx.Done()
		if w.interrupted != nil {
			close(w.interrupted)
		}
		w.mu.Lock()
		return context.Cause(ctx)
	case "note":
		w.notes = append(w.notes, arg)
	case "break":
		return &turn.Error{Kind: turn.KindInternal, Message: "the sandbox failed", CodeRan: true}
	case "nostart":
		return turn.Errorf(turn.KindOverloaded, "the sandbox did not start the code")
	}
	return nil
}

// bench is one agent with its model and workspaces.
type bench struct {
	t     testing.TB
	model *model
	ws    *workspaces
	cfg   agent.Config
}

func newBench(t testing.TB, rounds ...[]any) *bench {
	m, w := &model{t: t, rounds: rounds}, &workspaces{}
	return &bench{t: t, model: m, ws: w, cfg: agent.Config{Provider: m, Workspaces: w}}
}

// result is what a client saw of a turn.
type result struct {
	events []turn.Event
	err    *turn.Error
}

func request(text string) *turn.Request {
	return &turn.Request{
		Model:  "m",
		Items:  []turn.Item{turn.Message{Role: turn.User, Parts: []turn.Part{turn.Text{Text: text}}}},
		Hosted: &turn.Hosted{Tools: []string{tool.Python}},
	}
}

// run answers req and checks the events' order. Whatever happens, a workspace that was opened is closed.
func (b *bench) run(ctx context.Context, req *turn.Request) result {
	b.t.Helper()
	var v turn.Validator
	var r result
	for ev, err := range agent.New(b.cfg).Stream(ctx, req) {
		if r.err != nil {
			b.t.Fatalf("%T %v after the error %v", ev, err, r.err)
		}
		if err != nil {
			var e *turn.Error
			if !errors.As(err, &e) {
				b.t.Fatalf("error %v is no *turn.Error", err)
			}
			r.err = e
			continue
		}
		if err := v.Push(ev); err != nil {
			b.t.Fatalf("event %d: %v", len(r.events), err)
		}
		r.events = append(r.events, ev)
	}
	if r.err == nil {
		if err := v.End(); err != nil {
			b.t.Fatal(err)
		}
	}
	if b.ws.opened != b.ws.closed {
		b.t.Errorf("%d workspaces opened, %d closed", b.ws.opened, b.ws.closed)
	}
	return r
}

// ok runs a turn that must end well.
func (b *bench) ok(req *turn.Request) result {
	b.t.Helper()
	r := b.run(b.t.Context(), req)
	if r.err != nil {
		b.t.Fatalf("error %v", r.err)
	}
	return r
}

func (r result) finished() turn.Finished {
	f, _ := r.events[len(r.events)-1].(turn.Finished)
	return f
}

func all[E turn.Event](r result) []E {
	var out []E
	for _, ev := range r.events {
		if e, ok := ev.(E); ok {
			out = append(out, e)
		}
	}
	return out
}

func (r result) text() string {
	var b strings.Builder
	for _, d := range all[turn.TextDelta](r) {
		b.WriteString(d.Text)
	}
	return b.String()
}

func (r result) hosted() []turn.HostedCall {
	var out []turn.HostedCall
	for _, d := range all[turn.HostedDone](r) {
		out = append(out, d.Call)
	}
	return out
}

// sketch is the conversation in one line an item, ids replaced by their pairing.
func sketch(items []turn.Item) []string {
	ids := map[string]string{}
	id := func(s string) string {
		if ids[s] == "" {
			ids[s] = fmt.Sprintf("#%d", len(ids)+1)
		}
		return ids[s]
	}
	var out []string
	for _, it := range items {
		switch v := it.(type) {
		case turn.Message:
			out = append(out, string(v.Role)+": "+partsText(v.Parts))
		case turn.Reasoning:
			out = append(out, "thinks: "+v.Text+" ("+v.Signature+")")
		case turn.Call:
			out = append(out, fmt.Sprintf("call %s %s %s", id(v.CallID), v.Name, v.Arguments))
		case turn.Result:
			out = append(out, fmt.Sprintf("result %s %s", id(v.CallID), partsText(v.Parts)))
		default:
			out = append(out, fmt.Sprintf("%T", it))
		}
	}
	return out
}

func partsText(parts []turn.Part) string {
	var out []string
	for _, p := range parts {
		switch p := p.(type) {
		case turn.Text:
			out = append(out, p.Text)
		case turn.Image:
			out = append(out, "<image>")
		default:
			out = append(out, fmt.Sprintf("<%T>", p))
		}
	}
	return strings.Join(out, " ")
}

func toolNames(req *turn.Request) []string {
	var out []string
	for _, t := range req.Tools {
		out = append(out, t.Name)
	}
	return out
}

func ptr[T any](v T) *T { return &v }
