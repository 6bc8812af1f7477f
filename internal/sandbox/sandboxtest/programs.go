package sandboxtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// ask runs a program that may call the functions f and g.
func (p *Place) ask(t *testing.T, code string) *Outcome {
	t.Helper()
	return p.Exec(t, sandbox.Call{Kind: sandbox.Python, Code: code, Program: "prog", Functions: []string{"f", "g"}})
}

// answer lets it go on; each result is what text says of a call.
func (p *Place) answer(t *testing.T, waits *Outcome, text func(sandbox.FunctionCall) string) *Outcome {
	t.Helper()
	if waits.Status != sandbox.StatusWaiting {
		t.Fatalf("the program does not wait: %+v, %q", waits.Result, waits.Text(""))
	}
	r := &sandbox.Resume{}
	for _, c := range waits.Calls {
		r.Results = append(r.Results, sandbox.FunctionResult{ID: c.ID, Text: text(c)})
	}
	return p.resume(t, r)
}

func (p *Place) resume(t *testing.T, r *sandbox.Resume) *Outcome {
	t.Helper()
	return p.Exec(t, sandbox.Call{Kind: sandbox.Python, Program: "prog", Resume: r})
}

// mustRefuse runs a call that must not be started.
func (p *Place) mustRefuse(t *testing.T, call sandbox.Call, want error) {
	t.Helper()
	if _, err := p.Sandbox.Exec(t.Context(), call, nil); !errors.Is(err, want) || !errors.Is(err, sandbox.ErrNotStarted) {
		t.Errorf("%+v: %v, want %v", call, err, want)
	}
}

func echo(c sandbox.FunctionCall) string { return c.Name + c.Arguments }

func testPrograms(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	waits := p.ask(t, "import asyncio\nx = 1\nprint('before')\na, b = await asyncio.gather(f({'n': 1}), g({'n': 2}))\nprint(a, b, type(a).__name__)")
	if waits.Text("") != "before\n" || len(waits.Calls) != 2 || waits.Calls[0].Name != "f" || waits.Calls[1].Arguments != `{"n": 2}` {
		t.Fatalf("%+v, %q", waits.Result, waits.Text(""))
	}
	p.mustRefuse(t, sandbox.Call{Kind: sandbox.Python, Code: "1"}, sandbox.ErrWaiting)
	p.mustRefuse(t, sandbox.Call{Kind: sandbox.Python, Program: "other", Resume: &sandbox.Resume{}}, sandbox.ErrNoProgram)
	if out := p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: "echo beside"}); out.Text("") != "beside\n" {
		t.Errorf("bash while a program waits: %q", out.Text(""))
	}
	if out := p.answer(t, waits, echo); out.Status != sandbox.StatusOK || out.Text("") != `f{"n": 1} g{"n": 2} str`+"\n" {
		t.Errorf("%+v, %q", out.Result, out.Text(""))
	}
	p.mustRefuse(t, sandbox.Call{Kind: sandbox.Python, Program: "prog", Resume: &sandbox.Resume{}}, sandbox.ErrNoProgram)

	t.Run("loop in asyncio.run", func(t *testing.T) {
		out := p.ask(t, "async def main():\n    for i in range(3):\n        print(await f(n=i), end=' ')\n    await asyncio.sleep(0.01)\nasyncio.run(main())\nx += 1")
		for i := range 3 {
			if len(out.Calls) != 1 {
				t.Fatalf("round %d: %+v, %q", i, out.Result, out.Text(""))
			}
			out = p.answer(t, out, echo)
		}
		if out.Status != sandbox.StatusOK || out.Text("") != `f{"n": 2} ` {
			t.Errorf("%+v, %q", out.Result, out.Text(""))
		}
		if out := p.ask(t, "x"); out.Text(sandbox.Value) != "2" {
			t.Errorf("variables: %q", out.Text(""))
		}
	})
	t.Run("tasks that go on without an answer come first", func(t *testing.T) {
		out := p.ask(t, "async def slow():\n    for _ in range(5): await asyncio.sleep(0)\n    return await g()\nprint(await asyncio.gather(f(), slow()))")
		if len(out.Calls) != 2 {
			t.Errorf("%+v", out.Calls)
		}
		p.answer(t, out, echo)
	})
	t.Run("more than one exchange takes", func(t *testing.T) {
		out := p.ask(t, "r = await asyncio.gather(*[f(n=i) for i in range(150)])\nprint(len(r), r[149])")
		if len(out.Calls) != 100 {
			t.Fatalf("%d calls", len(out.Calls))
		}
		out = p.answer(t, p.answer(t, out, echo), echo)
		if out.Text("") != `150 f{"n": 149}`+"\n" {
			t.Errorf("%q", out.Text(""))
		}
	})
	t.Run("errors and time-outs", func(t *testing.T) {
		out := p.ask(t, "try: await f()\nexcept RuntimeError as e: print('caught', e)\ntry: await asyncio.gather(f(), g())\nexcept TimeoutError as e: print(e)")
		out = p.resume(t, &sandbox.Resume{Results: []sandbox.FunctionResult{{ID: out.Calls[0].ID, Text: "no \u00e9\x00", Error: true}}})
		if out.Text("") != "caught no \u00e9\x00\n" {
			t.Errorf("%q", out.Text(""))
		}
		out = p.resume(t, &sandbox.Resume{TimedOut: true})
		if out.Status != sandbox.StatusOK || out.Text("") != "Calling tool ['f', 'g'] timed out (no response after 270s).\n" {
			t.Errorf("%+v, %q", out.Result, out.Text(""))
		}
	})
	t.Run("wrong use", func(t *testing.T) {
		out := p.ask(t, `
import threading
def other():
    try: asyncio.run(f())
    except RuntimeError as e: print(e)
t = threading.Thread(target=other); t.start(); t.join()
for wrong in ([1], "x" * (2 << 20)):
    try: await f(wrong if isinstance(wrong, list) else {"x": wrong})
    except (TypeError, ValueError) as e: print(type(e).__name__)
try: await f({1j: 2})
except TypeError as e: print("keys")
`)
		if out.Text("") != "f can be called in the main thread only\nTypeError\nValueError\nkeys\n" {
			t.Errorf("%+v, %q", out.Result, out.Text(""))
		}
		out = p.Exec(t, sandbox.Call{Kind: sandbox.Python, Code: "f"})
		if out.Status != sandbox.StatusError || !strings.Contains(out.Text(""), "NameError") {
			t.Errorf("a function that the call does not have: %q", out.Text(""))
		}
	})
}

// testProgramsEnd is how programs end that wait.
func testProgramsEnd(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, func(s *sandbox.Spec) { s.Limits.ExecTime = 2e9 })
	t.Run("its time does not run", func(t *testing.T) {
		out := p.ask(t, "r = await f()\nprint(r)")
		p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: "sleep 1.9"})
		p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: "sleep 1.9"})
		if out := p.answer(t, out, echo); out.Status != sandbox.StatusOK {
			t.Errorf("%+v, %q", out.Result, out.Text(""))
		}
		out = p.ask(t, "import time\nr = await f()\nwhile True: time.sleep(0.1)")
		if out := p.answer(t, out, echo); out.Status != sandbox.StatusTimeout || out.KernelRestarted {
			t.Errorf("%+v", out.Result)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		p.ask(t, "kept = 1\ntry: await f()\nexcept Exception: print('not this')\nprint('nor this')")
		out := p.resume(t, &sandbox.Resume{Interrupt: true})
		if out.Status != sandbox.StatusError || out.Error != "KeyboardInterrupt" || strings.Contains(out.Text(sandbox.Stdout), "this") {
			t.Errorf("%+v, %q", out.Result, out.Text(""))
		}
		if out := p.ask(t, "kept"); out.Text("") != "1" {
			t.Errorf("%+v, %q", out.Result, out.Text(""))
		}
	})
	t.Run("it will not end", func(t *testing.T) {
		p.ask(t, "import asyncio\nwhile True:\n    try: asyncio.run(f())\n    except BaseException: pass")
		if out := p.resume(t, &sandbox.Resume{Interrupt: true}); !out.KernelRestarted {
			t.Errorf("%+v", out.Result)
		}
		if out := p.ask(t, "1"); out.Status != sandbox.StatusOK {
			t.Errorf("%+v", out.Result)
		}
	})
	t.Run("its interpreter dies", func(t *testing.T) {
		out := p.ask(t, "import os\nprint(os.getpid(), flush=True)\nawait f()")
		p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: "kill -9 " + strings.TrimSpace(out.Text(""))})
		r, err := p.Sandbox.Exec(t.Context(), sandbox.Call{Kind: sandbox.Python, Program: "prog", Resume: &sandbox.Resume{TimedOut: true}}, nil)
		told := r != nil && r.Status == sandbox.StatusKilled && r.KernelRestarted // its death was not known yet
		if !told && !errors.Is(err, sandbox.ErrNoProgram) {
			t.Errorf("%+v, %v", r, err)
		}
		if out := p.ask(t, "1"); out.Status != sandbox.StatusOK || out.KernelRestarted == told {
			t.Errorf("%+v", out.Result)
		}
	})
	t.Run("the client leaves while it goes on", func(t *testing.T) {
		waits := p.ask(t, "import time\nkept = 2\nr = await f()\nprint('on', flush=True)\nwhile True: time.sleep(0.1)")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &sandbox.Resume{Results: []sandbox.FunctionResult{{ID: waits.Calls[0].ID}}}
		_, err := p.Sandbox.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Program: "prog", Resume: r}, func(o sandbox.Output) {
			if o.Text == "on\n" {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if out := p.ask(t, "kept"); out.Text("") != "2" {
			t.Errorf("%+v, %q", out.Result, out.Text(""))
		}
	})
	t.Run("what threads print while it waits", func(t *testing.T) {
		out := p.ask(t, "import threading\nthreading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()\nr = await f()\nprint('main')")
		p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: "sleep 0.8"})
		out = p.answer(t, out, echo)
		if lines := strings.Split(out.Text(sandbox.Stdout), "\n"); !slices.Contains(lines, "thread") || !slices.Contains(lines, "main") {
			t.Errorf("%+v, %q", out.Result, out.Text(""))
		}
	})
}
