package sandboxtest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// in runs a call in a named session.
func (p *Place) in(t *testing.T, kind sandbox.Kind, session, code string) *Outcome {
	t.Helper()
	return p.Exec(t, sandbox.Call{Kind: kind, Session: session, Code: code})
}

// testSessions: several interpreters and shells side by side, each with a state of its own.
func testSessions(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	t.Run("python", func(t *testing.T) {
		p.Must(t, "x = 'default'")
		p.in(t, sandbox.Python, "a", "x = 'a'")
		for session, want := range map[string]string{"": "default", "a": "a", "b": "none"} {
			if o := p.in(t, sandbox.Python, session, "print(globals().get('x', 'none'))"); o.Text("") != want+"\n" {
				t.Errorf("session %q has %q, want %q", session, o.Text(""), want)
			}
		}
	})
	t.Run("bash keeps its state", func(t *testing.T) {
		p.in(t, sandbox.Bash, "s", "mkdir -p sub; cd sub; X='a b'; f() { echo \"f of $X\"; }; export E=exported")
		o := p.in(t, sandbox.Bash, "s", "basename \"$PWD\"; f\nsh -c 'echo $E'; echo err >&2; cat; (exit 3)")
		if o.Text(sandbox.Stdout) != "sub\nf of a b\nexported\n" || o.Text(sandbox.Stderr) != "err\n" || o.ExitCode != 3 || o.Status != sandbox.StatusError {
			t.Errorf("got %q, %q, %+v", o.Text(sandbox.Stdout), o.Text(sandbox.Stderr), *o.Result)
		}
		if o := p.Bash(t, "echo \"${X-none}\""); o.Text("") != "none\n" {
			t.Errorf("a command without a session has %q", o.Text(""))
		}
		for _, code := range []string{"cat <<'E'\n$HOME 'q' \\n !x\nE\n", "echo \"it's\"; true # end", "false\n\n"} {
			o, plain := p.in(t, sandbox.Bash, "s", code), p.Bash(t, code)
			if o.Text("") != plain.Text("") || o.ExitCode != plain.ExitCode || o.KernelRestarted {
				t.Errorf("%q: %q and %d, without a session %q and %d", code, o.Text(""), o.ExitCode, plain.Text(""), plain.ExitCode)
			}
		}
	})
	t.Run("environment of a call", func(t *testing.T) {
		o := p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Session: "s", Code: "echo \"$CALL\"", Env: map[string]string{"CALL": "it's\n\\n", "no-name": "1"}})
		if o.Text("") != "it's\n\\n\n" {
			t.Errorf("got %q", o.Text(""))
		}
	})
	t.Run("bash survives an interrupt", func(t *testing.T) {
		for _, code := range []string{"sleep 100; echo no", "g() { while :; do :; done; }; g; echo no", "for i in 1 2; do sleep 100; done; echo no"} {
			o := p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Session: "s", Code: code, Timeout: 300 * time.Millisecond})
			if o.Status != sandbox.StatusTimeout || o.KernelRestarted || o.Text(sandbox.Stdout) != "" {
				t.Errorf("%s: %+v, %q", code, *o.Result, o.Text(""))
			}
		}
		if o := p.in(t, sandbox.Bash, "s", "echo \"$X\""); o.Text("") != "a b\n" || o.KernelRestarted {
			t.Errorf("then got %q, %+v", o.Text(""), *o.Result)
		}
	})
	t.Run("bash that ends is told", func(t *testing.T) {
		if o := p.in(t, sandbox.Bash, "s", "exit 5"); o.ExitCode != 5 || !o.KernelRestarted {
			t.Errorf("exit: %+v", *o.Result)
		}
		if o := p.in(t, sandbox.Bash, "s", "echo \"${X-none}\""); o.Text("") != "none\n" || o.KernelRestarted {
			t.Errorf("after it: %q, %+v", o.Text(""), *o.Result)
		}
		if o := p.in(t, sandbox.Bash, "s", "kill -KILL $$"); o.Status != sandbox.StatusKilled || o.ExitCode != 137 || !o.KernelRestarted {
			t.Errorf("killed: %+v", *o.Result)
		}
	})
	t.Run("side by side", func(t *testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			// It ends only when the other session has run.
			if o := p.in(t, sandbox.Python, "wait", "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"); o.Status != sandbox.StatusOK {
				t.Errorf("%+v", *o.Result)
			}
		}()
		p.in(t, sandbox.Python, "other", "open('go', 'w').close()")
		<-done
	})
	for _, session := range []string{"a b", "a/b", strings.Repeat("x", 65), "\x00"} {
		if _, err := p.Sandbox.Exec(t.Context(), sandbox.Call{Kind: sandbox.Bash, Session: session, Code: "true"}, nil); !errors.Is(err, sandbox.ErrNotStarted) {
			t.Errorf("session %q: %v", session, err)
		}
	}
	t.Run("many", func(t *testing.T) { testManySessions(t, b) })
}

// testManySessions: there is a most, the longest idle one makes room and says so, and those that run are left alone.
func testManySessions(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	const most = 8
	p.Must(t, "x = 1")
	p.in(t, sandbox.Bash, "busy", "X=busy")
	ctx, cancel := context.WithCancel(t.Context())
	up, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(ended)
		_, _ = p.Sandbox.Exec(ctx, sandbox.Call{Kind: sandbox.Bash, Session: "busy", Code: "echo up; sleep 100"}, func(sandbox.Output) {
			once.Do(func() { close(up) })
		})
	}()
	<-up
	for i := range most {
		if o := p.in(t, sandbox.Bash, "s"+strconv.Itoa(i), "X=1"); o.KernelRestarted {
			t.Errorf("session %d is new, and says that it was restarted", i)
		}
	}
	if o := p.in(t, sandbox.Bash, "s0", "echo \"${X-gone}\""); o.Text("") != "gone\n" || !o.KernelRestarted {
		t.Errorf("the longest idle one: %q, %+v", o.Text(""), *o.Result)
	}
	if o := p.in(t, sandbox.Bash, "s7", "echo \"${X-gone}\""); o.Text("") != "1\n" || o.KernelRestarted {
		t.Errorf("the newest one: %q, %+v", o.Text(""), *o.Result)
	}
	cancel()
	<-ended
	if o := p.in(t, sandbox.Bash, "busy", "echo \"$X\""); o.Text("") != "busy\n" {
		t.Errorf("the one that ran has %q", o.Text(""))
	}
	if o := p.Must(t, "x"); o.Text("") != "1" || o.KernelRestarted {
		t.Errorf("the default interpreter has %q, %+v", o.Text(""), *o.Result)
	}
}

// TestNode is for a backend whose sandboxes have node; without it the refusal must say so.
func TestNode(t *testing.T, b sandbox.Backend) {
	t.Helper()
	p := Start(t, b, nil)
	node := func(code string) *Outcome { t.Helper(); return p.in(t, sandbox.Node, "", code) }
	if _, err := p.Sandbox.Exec(t.Context(), sandbox.Call{Kind: sandbox.Node, Code: "1"}, nil); err != nil {
		if !errors.Is(err, sandbox.ErrNotStarted) || !strings.Contains(err.Error(), "no node") {
			t.Fatalf("without node the error is %v", err)
		}
		t.Skip("there is no node in these sandboxes")
	}
	cells := []cell{
		{name: "output", code: "console.log('out'); console.error('err')", stdout: "out\n", stderr: "err\n"},
		{name: "value", code: "const a = 20; let b = 1; a * 2 + b", result: "41\n"},
		{name: "state", code: "b += 1; [a, b]", result: "[ 20, 2 ]\n"},
		{name: "no value", code: "undefined"},
		{name: "top-level await", code: "const later = await new Promise(r => setTimeout(() => r('later'), 5)); later", result: "'later'\n"},
		{name: "state of an await", code: "later.length", result: "5\n"},
		{name: "a promise is a value", code: "Promise.resolve(1)", result: "Promise {"},
		{name: "require", code: "require('path').basename('/a/b')", result: "'b'\n"},
		{name: "a file of the folder", code: "fs.writeFileSync('made.txt', 'made'); fs.readFileSync('made.txt', 'utf8')", result: "'made'\n"},
		{name: "an error", code: "function f() { throw new TypeError('bad') }\nf()", stderr: "TypeError: bad\n    at f", status: sandbox.StatusError,
			exit: 1, err: "TypeError: bad"},
		{name: "syntax", code: "let = = 1", stderr: "SyntaxError", status: sandbox.StatusError, exit: 1, err: "SyntaxError: "},
		{name: "unfinished", code: "function g() {", stderr: "SyntaxError", status: sandbox.StatusError, exit: 1, err: "SyntaxError: "},
		{name: "a rejection", code: "await Promise.reject(new Error('no'))", stderr: "Error: no", status: sandbox.StatusError, exit: 1, err: "Error: no"},
		{name: "a thrown text", code: "throw 'text'", stderr: "Uncaught 'text'", status: sandbox.StatusError, exit: 1, err: "text"},
		{name: "exit", code: "process.exit(7)", status: sandbox.StatusError, exit: 7, err: "process.exit(7)"},
		{name: "exit from a callback", code: "await new Promise(() => setTimeout(() => process.exit(8)))", status: sandbox.StatusError, exit: 8,
			err: "process.exit(8)"},
		{name: "an error of a callback", code: "setTimeout(() => { throw new Error('late') }); await new Promise(() => {})", stderr: "Error: late",
			status: sandbox.StatusError, exit: 1, err: "Error: late"},
		{name: "it lives on", code: "a", result: "20\n"},
		{name: "a subprocess", code: "require('child_process').execSync('echo sub', { stdio: 'inherit' }); undefined", stdout: "sub\n"},
		{name: "WebAssembly", code: "new WebAssembly.Memory({ initial: 1 }).buffer.byteLength", result: "65536\n"},
		{name: "a heap of some size", code: "var big = []; for (let i = 0; i < 2e6; i++) big.push({ i }); big = null; 'done'", result: "'done'\n"},
	}
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) { c.check(t, node(c.code)) })
	}
	for _, code := range []string{"while (true) {}", "await new Promise(() => {})"} {
		o := p.Exec(t, sandbox.Call{Kind: sandbox.Node, Code: code, Timeout: 500 * time.Millisecond})
		if o.Status != sandbox.StatusTimeout || o.KernelRestarted {
			t.Errorf("%s: %+v", code, *o.Result)
		}
		if o := node("a"); o.Text(sandbox.Value) != "20\n" {
			t.Errorf("after %s: %q, %+v", code, o.Text(""), *o.Result)
		}
	}
	o := p.Exec(t, sandbox.Call{Kind: sandbox.Node, Code: "process.env.CALL", Env: map[string]string{"CALL": "set"}})
	if o.Text(sandbox.Value) != "'set'\n" {
		t.Errorf("the environment of a call: %q", o.Text(""))
	}
	if o := node("process.env.CALL"); o.Text("") != "" {
		t.Errorf("of the call after it: %q", o.Text(""))
	}
	t.Run("too much memory", func(t *testing.T) {
		p := Start(t, b, func(s *sandbox.Spec) { s.Limits.Memory = 256 << 20 })
		o := p.in(t, sandbox.Node, "", "const hoard = []; while (true) hoard.push(new Array(1000).fill(hoard.length))")
		if o.Status != sandbox.StatusKilled || !o.KernelRestarted || !strings.Contains(o.Text(sandbox.Stderr), "heap out of memory") {
			t.Errorf("%+v, %.300q", *o.Result, o.Text(sandbox.Stderr))
		}
		if o := p.in(t, sandbox.Node, "", "1 + 1"); o.Text(sandbox.Value) != "2\n" {
			t.Errorf("then %q, %+v", o.Text(""), *o.Result)
		}
	})
}
