package container

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

var functions = []tool.Function{{Name: "get_rows", Tool: "get-rows"}, {Name: "roll", Tool: "roll"}}

// ask runs a program that may call functions.
func ask(t testing.TB, w tool.Workspace, id, code string) *tool.Outcome {
	t.Helper()
	return call(t, w, tool.Call{Tool: tool.Python, ID: id, Code: code, Functions: functions})
}

// reply answers all that the program of a call waits for.
func reply(t testing.TB, w tool.Workspace, id, text string) *tool.Outcome {
	t.Helper()
	wanted, ok, err := w.Waiting(as(t, "p"), id)
	must(t, err)
	if !ok {
		t.Fatalf("no program of %s waits", id)
	}
	answers := map[string]tool.Answer{}
	for _, c := range wanted {
		answers[c.CallID] = tool.Answer{Text: text + " of " + c.Tool}
	}
	return call(t, w, tool.Call{Tool: tool.Python, ID: id, Functions: functions, Answers: answers})
}

func call(t testing.TB, w tool.Workspace, c tool.Call) *tool.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(as(t, "p"), patience)
	defer cancel()
	out, err := w.Run(ctx, c, nil)
	if err != nil {
		t.Fatalf("run %+v: %v", c, err)
	}
	return out
}

const twoCalls = `
import asyncio, os
print('before')
open(os.environ.get('OUTPUT_DIR', '.') + '/early.txt', 'w').write('1')
a, b = await asyncio.gather(get_rows({'n': 1}), roll())
print(a, b)
`

func TestProgramWaits(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{OutputDir: true})
	out := ask(t, w, "ci_1", twoCalls+"open(os.environ['OUTPUT_DIR'] + '/late.txt', 'w').write('2')\nprint(await roll())\n3")
	if out.Status != tool.StatusWaiting || len(out.Wanted) != 2 || len(out.Outputs) != 0 {
		t.Fatalf("%+v", out)
	}
	if c := out.Wanted[0]; c.Tool != "get-rows" || c.Arguments != `{"n": 1}` || !turn.IsHiddenCallID(c.CallID) {
		t.Errorf("%+v", c)
	}
	must(t, w.Close())
	w = b.open(turn.Hosted{Container: w.Container().ID, OutputDir: true})
	if wanted, ok, err := w.Waiting(as(t, "p"), "ci_1"); !ok || err != nil || !slices.Equal(wanted, out.Wanted) {
		t.Errorf("%+v, %v, %v", wanted, ok, err)
	}
	if _, ok, err := w.Waiting(as(t, "p"), "ci_2"); ok || err != nil {
		t.Errorf("another call's program: %v, %v", ok, err)
	}
	if got := text(bash(t, w, "echo beside")); got != "beside\n" {
		t.Errorf("bash beside it: %q", got)
	}
	if out := reply(t, w, "ci_1", "1"); out.Status != tool.StatusWaiting || len(out.Wanted) != 1 {
		t.Fatalf("%+v", out)
	}
	out = reply(t, w, "ci_1", "2")
	if out.Status != tool.StatusOK || stdout(out) != "before\n1 of get-rows 1 of roll\n2 of roll\n3" {
		t.Errorf("%+v", out)
	}
	var made []string
	for _, f := range out.Files {
		made = append(made, f.Name)
	}
	if !slices.Equal(made, []string{"early.txt", "late.txt"}) {
		t.Errorf("files %q", made)
	}
	if _, ok, err := w.Waiting(as(t, "p"), "ci_1"); ok || err != nil {
		t.Errorf("it still waits: %v, %v", ok, err)
	}
	late := call(t, w, tool.Call{Tool: tool.Python, ID: "ci_1", Answers: map[string]tool.Answer{}})
	if late.ErrorCode != turn.ErrorUnavailable || !late.Failed() {
		t.Errorf("a second answer: %+v", late)
	}
}

func TestProgramOfAnEarlierProcess(t *testing.T) {
	s := newShared(t)
	b := s.manager(nil)
	w := b.open(turn.Hosted{})
	ask(t, w, "ci_1", "x = 5\n"+twoCalls)
	must(t, w.Close())
	must(t, b.Close())
	b = s.manager(nil)
	w = b.open(turn.Hosted{Container: w.Container().ID})
	wanted, ok, err := w.Waiting(as(t, "p"), "ci_1")
	if !ok || err != nil || len(wanted) != 2 {
		t.Fatalf("%+v, %v, %v", wanted, ok, err)
	}
	out := reply(t, w, "ci_1", "1")
	if gone := out.ErrorCode == turn.ErrorUnavailable && strings.Contains(text(out), "is gone"); !gone && stdout(out) != "before\n1 of get-rows 1 of roll\n" {
		t.Errorf("%+v", out)
	}
}

func TestProgramsClientIsLate(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	ask(t, w, "ci_1", "try: await roll()\nexcept TimeoutError as e: print(e)")
	b.backdate(w, pendingTime+time.Second)
	out := reply(t, w, "ci_1", "1")
	if out.Status != tool.StatusOK || text(out) != "Calling tool ['roll'] timed out (no response after 270s).\n" {
		t.Errorf("%+v", out)
	}
}

// backdate has the program of a container wait since long.
func (b *bench) backdate(w tool.Workspace, by time.Duration) {
	b.t.Helper()
	e := w.(*workspace).entry
	e.programs.mu.Lock()
	defer e.programs.mu.Unlock()
	e.programs.waiting.Since = e.programs.waiting.Since.Add(-by)
}

func TestOtherCallsWaitForAProgram(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	ask(t, w, "ci_1", "x = 5\nprint(await roll())")
	other := b.open(turn.Hosted{Container: w.Container().ID})
	done := make(chan *tool.Outcome, 1)
	go func() {
		out, _ := other.Run(auth.WithPrincipal(t.Context(), auth.Principal{Project: "p"}), tool.Call{Tool: tool.Python, Code: "print(x)"}, nil)
		done <- out
	}()
	ctx, cancel := context.WithTimeout(as(t, "p"), 3*programStep)
	defer cancel()
	if _, err := b.open(turn.Hosted{Container: w.Container().ID}).Run(ctx, tool.Call{Tool: tool.Python, Code: "1"}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that gives up: %v", err)
	}
	select {
	case out := <-done:
		t.Fatalf("it did not wait: %+v", out)
	default:
	}
	if out := reply(t, w, "ci_1", "1"); text(out) != "1 of roll\n" {
		t.Errorf("%+v", out)
	}
	if out := <-done; out == nil || text(out) != "5\n" {
		t.Errorf("%+v", out)
	}
}

func TestProgramThatIsForsaken(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	ask(t, w, "ci_1", "x = 5\ntry: await roll()\nfinally: open('ended', 'w').write('1')")
	b.backdate(w, programPatience)
	out := python(t, w, "print(x)")
	if text(out) != "5\n" || !strings.Contains(strings.Join(w.Notes(), " "), "was ended") {
		t.Errorf("%+v", out)
	}
	if _, ok, err := w.Waiting(as(t, "p"), "ci_1"); ok || err != nil {
		t.Errorf("it still waits: %v, %v", ok, err)
	}
}

func TestProgramWithOtherTools(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	ask(t, w, "ci_1", "print(await roll())\ntry: await get_rows()\nexcept RuntimeError as e: print(e)\nprint('on')")
	wanted, _, err := w.Waiting(as(t, "p"), "ci_1")
	must(t, err)
	out := call(t, w, tool.Call{
		Tool: tool.Python, ID: "ci_1", Functions: functions[1:], Answers: map[string]tool.Answer{wanted[0].CallID: {Text: strings.Repeat("x", 3), Error: false}},
	})
	if text(out) != "xxx\nthe tool get_rows is not available any more\non\n" {
		t.Errorf("%+v", out)
	}
	// What writes to the interpreter's own channel can call anything.
	out = ask(t, w, "ci_2", `
import asyncio
tools = next(o for o in __import__('gc').get_objects() if type(o).__name__ == 'Tools')
tools.made['nothing'] = None
while True:
    try: asyncio.run(tools.make('nothing')())
    except RuntimeError: pass
`)
	if out.Status != tool.StatusError || out.Error != "the program called tools that do not exist" {
		t.Errorf("%+v", out)
	}
	if out := python(t, w, "1"); out.Failed() {
		t.Errorf("%+v", out)
	}
}

func TestLargeAnswers(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	ask(t, w, "ci_1", "print(len(await roll()))\ntry: await roll()\nexcept RuntimeError as e: print(e)")
	wanted, _, err := w.Waiting(as(t, "p"), "ci_1")
	must(t, err)
	out := call(t, w, tool.Call{Tool: tool.Python, ID: "ci_1", Functions: functions, Answers: map[string]tool.Answer{wanted[0].CallID: {Text: strings.Repeat("\x01", maxAnswer)}}})
	if out.Status != tool.StatusWaiting {
		t.Fatalf("%+v", out)
	}
	out = call(t, w, tool.Call{Tool: tool.Python, ID: "ci_1", Functions: functions, Answers: map[string]tool.Answer{out.Wanted[0].CallID: {Text: strings.Repeat("x", maxAnswer+1)}}})
	if !strings.Contains(text(out), "1048576\nthe result of roll is too large") {
		t.Errorf("%+v", out)
	}
}
