package sandboxtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// stubborn is Python that no interrupt ends, and that says when it has begun.
const stubborn = "print('begun', flush=True)\nwhile True:\n    try:\n        while True: sum(range(99))\n    except KeyboardInterrupt: pass\n"

// beat writes a heartbeat for ever, in Python and in a shell.
const (
	beat      = "import time\nwhile True:\n    with open('beat', 'a') as f: f.write('x')\n    time.sleep(0.02)\n"
	shellBeat = "while :; do printf x >> beat; sleep 0.02; done"
)

// testStop: a call's time, with and without a program that reacts.
func testStop(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.Must(t, "x = 1")
	for name, code := range map[string]string{
		"loop":         "print('begun')\nwhile True: pass",
		"sleep":        "print('begun')\nimport time; time.sleep(100)",
		"subprocess":   "print('begun')\nimport subprocess; subprocess.run(['sleep', '100'])",
		"os.system":    "print('begun')\nimport os; os.system('sleep 100')",
		"async":        "print('begun')\nimport asyncio; await asyncio.sleep(100)",
		"much output":  "print('begun')\nwhile True: print('y' * 1000)",
		"both streams": "print('begun')\nimport sys\nwhile True: print('o'); print('e', file=sys.stderr)",
	} {
		t.Run("python "+name, func(t *testing.T) {
			o := p.Exec(t, brief(sandbox.Python, code))
			if o.Status != sandbox.StatusTimeout || o.KernelRestarted || !strings.Contains(o.Error, "timed out after 1s") {
				t.Errorf("%+v", *o.Result)
			}
			if !strings.Contains(o.Text(sandbox.Stdout), "begun") {
				t.Error("what it printed before is lost")
			}
			if o := p.Must(t, "x"); o.Text(sandbox.Value) != "1" {
				t.Errorf("the state is lost: %q", o.Text(""))
			}
		})
	}
	t.Run("python that does not react", func(t *testing.T) {
		// Time enough for a slow machine to get as far as the part that does not react.
		o := p.Exec(t, sandbox.Call{Kind: sandbox.Python, Code: stubborn, Timeout: 4 * time.Second})
		if o.Status != sandbox.StatusTimeout || !o.KernelRestarted || !strings.Contains(o.Error, "was killed") {
			t.Errorf("%+v", *o.Result)
		}
		o = p.Python(t, "x")
		if o.Status != sandbox.StatusError || o.KernelRestarted || !strings.Contains(o.Error, "NameError") {
			t.Errorf("a fresh kernel should have no x, and its start be told once: %+v", *o.Result)
		}
	})
	testStopBash(t, p)
	t.Run("the limit of the sandbox", func(t *testing.T) {
		p := Start(t, b, func(s *sandbox.Spec) { s.Limits.ExecTime = 500 * time.Millisecond })
		o := p.Exec(t, sandbox.Call{Kind: sandbox.Python, Code: "while True: pass", Timeout: time.Hour})
		if o.Status != sandbox.StatusTimeout {
			t.Errorf("%+v: a call's own time may only be shorter", *o.Result)
		}
	})
}

func testStopBash(t *testing.T, p *Place) {
	t.Helper()
	for name, code := range map[string]string{
		"plain":       "echo begun; sleep 100",
		"a trap":      "trap '' INT; echo begun; " + shellBeat,
		"a new group": "echo begun; setsid sh -c '" + shellBeat + "' & wait",
		"two forks":   "echo begun; (setsid sh -c '" + shellBeat + "' >/dev/null 2>&1 &) ; sleep 100",
		"no marks":    "echo begun; env -i PATH=\"$PATH\" sh -c '" + shellBeat + "'",
	} {
		t.Run("bash "+name, func(t *testing.T) {
			o := p.Exec(t, brief(sandbox.Bash, code))
			if o.Status != sandbox.StatusTimeout || !strings.Contains(o.Error, "timed out") || o.Text("") != "begun\n" {
				t.Errorf("%+v with %q", *o.Result, o.Text(""))
			}
			if name != "plain" {
				p.stopped(t)
			}
		})
	}
}

// brief is a call with a second of time.
func brief(kind sandbox.Kind, code string) sandbox.Call {
	return sandbox.Call{Kind: kind, Code: code, Timeout: time.Second}
}

// testCancel: a caller that leaves.
func testCancel(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.Must(t, "x = 1")
	for name, call := range map[string]sandbox.Call{
		"python":                     {Kind: sandbox.Python, Code: "print('begun')\n" + beat},
		"python that does not react": {Kind: sandbox.Python, Code: "print('begun', flush=True)\nwhile True:\n    try:\n" + indent(beat) + "    except KeyboardInterrupt: pass\n"},
		"bash":                       {Kind: sandbox.Bash, Code: "echo begun; " + shellBeat},
		"bash that does not react":   {Kind: sandbox.Bash, Code: "trap '' INT; echo begun; setsid sh -c '" + shellBeat + "' & " + shellBeat},
	} {
		t.Run(name, func(t *testing.T) {
			p.cancelAfter(t, call, "begun")
			p.stopped(t)
			if o := p.Must(t, "print('usable')"); o.Text(sandbox.Stdout) != "usable\n" {
				t.Errorf("then got %q", o.Text(""))
			}
			if o := p.Bash(t, "echo usable"); o.Text("") != "usable\n" {
				t.Errorf("then got %q", o.Text(""))
			}
		})
	}
	t.Run("state is kept", func(t *testing.T) {
		p.Must(t, "x = 2")
		p.cancelAfter(t, sandbox.Call{Kind: sandbox.Python, Code: "print('begun')\nimport time; time.sleep(100)"}, "begun")
		if o := p.Must(t, "x"); o.Text(sandbox.Value) != "2" {
			t.Errorf("got %q", o.Text(""))
		}
	})
	t.Run("before it starts", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := p.Sandbox.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: "x = 3"}, nil)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		p.Must(t, "None")
	})
	t.Run("while it waits for another", func(t *testing.T) {
		running := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			_, err := p.Sandbox.Exec(t.Context(), sandbox.Call{Kind: sandbox.Python, Code: "print('begun')\n" + waitFor("release")},
				func(sandbox.Output) { close(running) })
			ended <- err
		}()
		<-running
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := p.Sandbox.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: "print('no')"}, func(o sandbox.Output) { t.Error("it ran") })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, sandbox.ErrNotStarted) {
			t.Errorf("got %v", err)
		}
		p.touch(t, "release")
		if err := <-ended; err != nil {
			t.Errorf("the one that ran: %v", err)
		}
	})
}

// cancelAfter cancels a call once its output contains text, and checks that it then returns as promised.
func (p *Place) cancelAfter(t *testing.T, call sandbox.Call, text string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen string
	var left time.Time
	_, err := p.Sandbox.Exec(ctx, call, func(o sandbox.Output) {
		if seen += o.Text; strings.Contains(seen, text) && left.IsZero() {
			if call.Kind == sandbox.Python && strings.Contains(call.Code, "beat") || strings.Contains(call.Code, shellBeat) {
				p.beats(t)
			}
			left = time.Now()
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, sandbox.ErrDied) {
		t.Fatalf("got %v after %q", err, seen)
	}
	// The contract is one second; the rest is for a machine that is busy with other tests.
	if took := time.Since(left); took > 3*time.Second {
		t.Errorf("it took %v to return", took)
	}
}

// testDeath: an interpreter that ends itself.
func testDeath(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	for _, c := range []struct{ name, code, err string }{
		{"os._exit", "import os\nprint('last words', flush=True)\nos._exit(3)", "exited with status 3"},
		{"a segmentation fault", "import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"},
		{"SIGKILL", "import os\nprint('last words', flush=True)\nos.kill(os.getpid(), 9)", "SIGKILL, most often for want of memory"},
		{"closed channels", "import os\nprint('last words', flush=True)\nos.closerange(3, 1024)\nwhile True: pass", "garbled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.Must(t, "x = 1")
			o := p.Python(t, c.code)
			if o.Status != sandbox.StatusKilled || !o.KernelRestarted || !strings.Contains(o.Error, c.err) {
				t.Errorf("%+v", *o.Result)
			}
			if !strings.Contains(o.Text(sandbox.Stdout), "last words\n") {
				t.Errorf("what it printed before is lost: %q", o.Text(""))
			}
			if o := p.Python(t, "x"); o.Status != sandbox.StatusError || !strings.Contains(o.Error, "NameError") {
				t.Errorf("the next call: %+v", *o.Result)
			}
		})
	}
	t.Run("between calls", func(t *testing.T) {
		p.Must(t, "x = 1\nimport os, threading\ndef leave():\n    while not os.path.exists('leave'): pass\n    os._exit(0)\n"+
			"threading.Thread(target=leave, daemon=True).start()\nopen('pid', 'w').write(str(os.getpid()))")
		p.touch(t, "leave")
		p.Bash(t, "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.02; done")
		o := p.Python(t, "x")
		if o.Status != sandbox.StatusError || !o.KernelRestarted {
			t.Errorf("the death of the kernel was not told: %+v", *o.Result)
		}
	})
	t.Run("forged frames", func(t *testing.T) {
		p.Must(t, "x = 1")
		o := p.Python(t, "import os\nfor fd in range(3, 300):\n    try: os.write(fd, b'\\xff' * 100)\n    except OSError: pass\nwhile True: pass")
		if o.Status != sandbox.StatusKilled || !o.KernelRestarted {
			t.Errorf("%+v", *o.Result)
		}
		p.Must(t, "print('usable')")
	})
}

// testBroken: programs that break the interpreter's own parts. What the next call does is at worst a fresh interpreter.
func testBroken(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	for _, c := range []struct{ name, code string }{
		{"descriptors closed", "import os\nfor fd in range(100):\n    try: os.close(fd)\n    except OSError: pass"},
		{"descriptors redirected", "import os\nnull = os.open('/dev/null', os.O_RDWR)\nfor fd in range(60):\n    os.dup2(null, fd)"},
		{"stdout deleted", "import sys\ndel sys.stdout, sys.__stdout__\nsys.stderr = None"},
		{"stdout closed", "import sys\nsys.stdout.close()"},
		{"IPython's parts", "try: get_ipython().run_cell = None\nexcept NameError: pass"},
		{"builtins", "import builtins\nbuiltins.compile = builtins.exec = builtins.print = None\nbuiltins.len = lambda x: 1/0"},
		{"recursion limit", "import sys\ndef f(): sys.setrecursionlimit(8)\ntry: f()\nexcept RecursionError: pass"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.Python(t, c.code)
			var o *Outcome
			for range 2 { // the first may be what finds the interpreter broken
				if o = p.Python(t, "print('usable')"); o.Text(sandbox.Stdout) == "usable\n" {
					return
				}
			}
			t.Errorf("it is lost: %+v, %q", *o.Result, o.Text(""))
		})
	}
	t.Run("a thread that prints on is told", func(t *testing.T) {
		p.Must(t, "import threading, time\non = True\ndef go():\n    while on: print('tick', flush=True); time.sleep(0.01)\n"+
			"thread = threading.Thread(target=go, daemon=True)\nthread.start()")
		const note = "[a thread that an earlier call started prints here too]\n"
		o := p.Must(t, "time.sleep(0.5)\nprint('mine')\non = False\nthread.join()")
		if text := o.Text(sandbox.Stdout); strings.Count(text, note) != 1 || strings.Index(text, note) > strings.Index(text, "tick") {
			t.Errorf("got %q", text)
		}
		if text := p.Must(t, "print('mine')").Text(""); text != "mine\n" {
			t.Errorf("got %q", text)
		}
	})
	t.Run("a captured stdout is told", func(t *testing.T) {
		o := p.Python(t, "import io, sys\nsys.stdout = io.StringIO()\nprint('kept')")
		if text := o.Text(sandbox.Stderr); !strings.Contains(text, "sys.__stdout__") {
			t.Errorf("got %q", text)
		}
		o = p.Must(t, "held = sys.stdout.getvalue()\nsys.stdout = sys.__stdout__\nprint(held)")
		if text := o.Text(""); text != "kept\n\n" {
			t.Errorf("got %q", text)
		}
	})
}

func indent(code string) string {
	return "        " + strings.ReplaceAll(strings.TrimRight(code, "\n"), "\n", "\n        ") + "\n"
}
