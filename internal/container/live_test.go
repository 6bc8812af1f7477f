package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestSandboxThatDies(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	python(t, w, "x = 1\nopen('f', 'w').write('kept')")
	noted := func(want bool) {
		t.Helper()
		notes := w.Notes()
		if got := len(notes) == 1 && notes[0] == noteRestarted; got != want || (!want && len(notes) > 0) {
			t.Errorf("notes %q, want the restart noted: %v", notes, want)
		}
	}
	noted(false)

	b.backend.last().Close() // between calls
	if got := text(python(t, w, "print('x' in dir(), open('f').read())")); got != "False kept\n" {
		t.Errorf("after it died between calls: %q", got)
	}
	noted(true)

	b.backend.failWith(sandbox.ErrNotStarted)
	if got := text(python(t, w, "print(open('f').read())")); got != "kept\n" {
		t.Errorf("retried call: %q", got)
	}
	noted(true)

	b.backend.failWith(sandbox.ErrNotStarted, sandbox.ErrNotStarted)
	_, err := w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
	wantKind(t, "twice not started", err, turn.KindOverloaded, "try again")
	if turn.AsError(err).CodeRan {
		t.Error("code that was not started counts as run")
	}
	w.Notes()

	python(t, w, "y = 1")
	w.Notes()
	started := b.backend.started.Load()
	b.backend.failWith(fmt.Errorf("wrapped: %w", sandbox.ErrDied))
	_, err = w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
	wantKind(t, "died", err, turn.KindInternal, "files are kept")
	if !turn.AsError(err).CodeRan {
		t.Error("code that was running does not count as run")
	}
	if got := b.backend.started.Load(); got != started {
		t.Errorf("a call that may have acted was run again")
	}
	noted(true)

	python(t, w, "y = 1")
	b.backend.failWith(fmt.Errorf("%w: %w", sandbox.ErrDied, sandbox.ErrOutOfMemory))
	out := python(t, w, "1")
	if out.Status != "killed" || !strings.Contains(out.Error, "1 GiB") {
		t.Errorf("out of memory: %+v", out)
	}
	noted(true)
	python(t, w, "1")
	noted(false) // it was said with the call that died
}

func TestStartThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, tt := range []struct {
		err  error
		want string
	}{{errors.New("secret detail"), "could not be started"}, {fmt.Errorf("%w: no runsc", sandbox.ErrUnavailable), "lathe doctor"}} {
		b.backend.mu.Lock()
		b.backend.refuse = tt.err
		b.backend.mu.Unlock()
		w := b.open(turn.Hosted{})
		_, err := w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
		wantKind(t, "start", err, turn.KindOverloaded, tt.want)
		if e := turn.AsError(err); e.CodeRan || strings.Contains(e.Message, "secret") || strings.Contains(e.Message, "runsc") {
			t.Errorf("error for the client: %+v", e)
		}
		must(t, w.Close())
	}
	b.backend.mu.Lock()
	b.backend.refuse = nil
	b.backend.mu.Unlock()
	for range b.MaxLive + 1 { // no slot was lost
		python(t, b.open(turn.Hosted{Session: "s"}), "1")
	}
}

func TestCapOnLiveSandboxes(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.MaxLive, c.SlotWait = 2, 300*time.Millisecond })
	live := func(w tool.Workspace) bool {
		e := w.(*workspace).entry
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.live != nil && !e.live.going
	}
	oldest, newer := b.open(turn.Hosted{}), b.open(turn.Hosted{})
	python(t, oldest, "1")
	python(t, newer, "1")
	third := b.open(turn.Hosted{})
	_, err := third.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
	wantKind(t, "all are in use", err, turn.KindOverloaded, "all 2 sandboxes")
	if turn.AsError(err).RetryAfter == 0 {
		t.Error("no Retry-After")
	}
	must(t, oldest.Close(), newer.Close())
	b.slots.wait = patience
	python(t, third, "1")
	if live(oldest) || !live(newer) {
		t.Errorf("oldest is live: %v, newer: %v; want the longest idle one freed", live(oldest), live(newer))
	}
}

func TestWaitForASlot(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.MaxLive, c.SlotWait = 1, patience })
	holder := b.open(turn.Hosted{})
	python(t, holder, "1")
	w := b.open(turn.Hosted{})
	done := make(chan error, 1)
	go func() {
		_, err := w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
		done <- err
	}()
	eventually(t, "the call waits", func() bool { return b.slots.waiting() == 1 })
	must(t, holder.Close()) // its sandbox is idle from now on, and somebody waits
	must(t, <-done)
}

// A program that ignores interrupts is killed together with its interpreter; the next call says so.
func TestCancelThatCostsTheInterpreter(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	ctx, cancel := context.WithCancel(t.Context())
	code := "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('now', flush=True)\nwhile True: time.sleep(1)"
	_, err := w.Run(ctx, tool.Call{Tool: tool.Python, Code: code}, func(tool.Chunk) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled run: %v", err)
	}
	python(t, w, "1")
	if notes := w.Notes(); len(notes) != 1 || notes[0] != noteRestarted {
		t.Errorf("notes %q", notes)
	}
	out := python(t, w, "#"+strings.Repeat("x", maxCode))
	if out.Status != "error" || !strings.Contains(text(out), "larger than 4 MiB") {
		t.Errorf("endless code: %s %q", out.Status, text(out))
	}
}

// The reaper at work, by itself.
func TestReaper(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.IdleAfter = time.Millisecond })
	w := b.open(turn.Hosted{})
	python(t, w, "1")
	must(t, w.Close())
	eventually(t, "the idle sandbox is freed", func() bool { return len(b.all()) == 0 })
	_, err := b.Store.Containers().Update(t.Context(), "p", w.Container().ID, func(c *store.Container) error {
		c.LastActive, c.ExpireAfter = time.Now().Add(-time.Hour), time.Minute
		return nil
	})
	must(t, err)
	eventually(t, "the container expires", func() bool {
		row, err := b.Store.Containers().Get(t.Context(), "p", w.Container().ID)
		return err == nil && row.State == store.StateExpired
	})
	eventually(t, "its folder is removed", func() bool { return !b.volumes.ran(w.Container().ID) })
}

func TestCloseEndsRunningCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.DrainTime = 50 * time.Millisecond })
	w := b.open(turn.Hosted{})
	running := make(chan struct{})
	done := make(chan error, 1)
	begun := sync.OnceFunc(func() { close(running) })
	go func() {
		_, err := w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "print('now', flush=True)\nimport time\ntime.sleep(600)"},
			func(tool.Chunk) { begun() })
		done <- err
	}()
	<-running
	must(t, b.Close())
	err := <-done
	wantKind(t, "the running call", err, turn.KindOverloaded, "shutting down")
	if !turn.AsError(err).CodeRan {
		t.Error("code that ran does not count as run")
	}
	_, err = w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
	wantKind(t, "the next call", err, turn.KindOverloaded, "shutting down")
	_, err = b.Open(as(t, "p"), &turn.Hosted{})
	wantKind(t, "open", err, turn.KindOverloaded, "shutting down")
	must(t, b.Close())
}

func TestCloseLetsCallsFinish(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.DrainTime = patience })
	w := b.open(turn.Hosted{})
	running := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "print('now', flush=True)\nimport time\ntime.sleep(.3)"},
			func(tool.Chunk) { close(running) })
		w.Close()
		done <- err
	}()
	<-running
	must(t, b.Close())
	must(t, <-done)
}

func TestSessionThatBeginsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ids := make(chan string, 8)
	for range cap(ids) {
		go func() {
			w, err := b.Open(as(t, "p"), &turn.Hosted{Session: "one"})
			if err != nil {
				t.Error(err)
				ids <- ""
				return
			}
			defer w.Close()
			ids <- w.Container().ID
		}()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != first {
			t.Errorf("one session, two containers: %s and %s", first, id)
		}
	}
}
