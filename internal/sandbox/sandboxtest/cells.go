package sandboxtest

import (
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// cell is a call and what is to come of it; "" is not looked at, "-" must be empty.
type cell struct {
	name, code             string
	stdout, stderr, result string // contained in the stream
	status                 sandbox.Status
	exit                   int
	err                    string // contained in Result.Error
}

func (c cell) check(t *testing.T, o *Outcome) {
	t.Helper()
	for _, s := range []struct{ stream, want string }{
		{sandbox.Stdout, c.stdout}, {sandbox.Stderr, c.stderr}, {sandbox.Value, c.result},
	} {
		got := o.Text(s.stream)
		if s.want == "-" && got != "" || s.want != "-" && !strings.Contains(got, s.want) {
			t.Errorf("%s is %q, want %q", s.stream, got, s.want)
		}
	}
	if c.status == "" {
		c.status = sandbox.StatusOK
	}
	if o.Status != c.status || o.ExitCode != c.exit || !strings.Contains(o.Error, c.err) || c.err == "" && o.Error != "" {
		t.Errorf("ended %s, exit %d, error %q; want %s, exit %d, error %q", o.Status, o.ExitCode, o.Error, c.status, c.exit, c.err)
	}
	if o.KernelRestarted {
		t.Error("the kernel was restarted")
	}
}

// testPython: one interpreter, its state, and what a cell says at its end. All cells run in one kernel, one after another.
func testPython(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	cells := []cell{
		{name: "assign", code: "x = 20", stdout: "-", stderr: "-", result: "-"},
		{name: "state is kept", code: "x += 1\nx * 2", result: "42", stdout: "-"},
		{name: "None has no result", code: "None", result: "-"},
		{name: "a statement has no result", code: "y = x", result: "-"},
		{name: "only the last expression", code: "1\n2", result: "2", stdout: "-"},
		{name: "underscore is the last result", code: "_ + 1", result: "3"},
		{name: "a string's repr", code: "'it' + '\\n'", result: `'it\n'`},
		{name: "both streams", code: "import sys\nprint('to out')\nprint('to err', file=sys.stderr)", stdout: "to out\n", stderr: "to err\n"},
		{name: "without a newline", code: "print('no newline', end='')", stdout: "no newline"},
		{name: "os.write", code: "import os\nos.write(1, b'raw'); None", stdout: "raw"},
		{name: "a subprocess", code: "import subprocess\nsubprocess.run(['sh', '-c', 'echo sub; echo suberr >&2']).returncode",
			stdout: "sub\n", stderr: "suberr\n", result: "0"},
		{name: "os.system", code: "import os\nos.system('echo from sh')", stdout: "from sh\n", result: "0"},
		{name: "unicode", code: "print('Zürich 東京 🙂')", stdout: "Zürich 東京 🙂\n"},
		{name: "a lone surrogate", code: "print('\\ud800')", stdout: "\\ud800"},
		{name: "top-level await", code: "import asyncio\nawait asyncio.sleep(0, 'awaited')", result: "'awaited'"},
		{name: "asyncio.run", code: "asyncio.run(asyncio.sleep(0, 'ran'))", result: "'ran'"},
		{name: "exception", code: "def divide(a):\n    return a / 0  # the line\ndivide(1)", stdout: "-", status: sandbox.StatusError, exit: 1,
			stderr: "return a / 0  # the line", err: "ZeroDivisionError: division by zero"},
		{name: "unknown name", code: "undefined_name", stderr: "NameError", status: sandbox.StatusError, exit: 1,
			err: "NameError: name 'undefined_name' is not defined"},
		{name: "syntax", code: "1 +", stderr: "SyntaxError", status: sandbox.StatusError, exit: 1, err: "SyntaxError"},
		{name: "output before an exception", code: "print('before')\nraise ValueError('bad')", stdout: "before\n", stderr: "ValueError: bad",
			status: sandbox.StatusError, exit: 1, err: "ValueError: bad"},
		{name: "an exception that cannot be printed", code: "class OddError(Exception):\n    def __str__(self): raise RuntimeError\nraise OddError",
			status: sandbox.StatusError, exit: 1, err: "Error"}, // IPython 9 reports the second exception, others the first
		{name: "exit", code: "import sys\nprint('leaving')\nsys.exit()\nprint('not this')", stdout: "leaving\n", stderr: "-"},
		{name: "exit with a status", code: "sys.exit(3)", stderr: "-", status: sandbox.StatusError, exit: 3, err: "SystemExit: 3"},
		{name: "exit with a text", code: "sys.exit('no luck')", stderr: "no luck", status: sandbox.StatusError, exit: 1, err: "no luck"},
		{name: "exit()", code: "exit()\nprint('not this')", stdout: "-", stderr: "-"},
		{name: "input", code: "input('name? ')", status: sandbox.StatusError, exit: 1, err: "EOFError: input() is not available"},
		{name: "stdin is empty", code: "import sys\nsys.stdin.read()", result: "''"},
		{name: "a program that reads stdin", code: "subprocess.run(['cat']).returncode", result: "0"},
		{name: "a fork that falls out of the cell", code: "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('parent' if pid else 'child')",
			stdout: "parent\n"},
		{name: "multiprocessing", code: "import multiprocessing\nwith multiprocessing.Pool(2) as pool: r = pool.map(abs, [-1, -2])\nr",
			result: "[1, 2]"},
		{name: "a pickled class of the session", code: "class C: pass\nimport pickle\ntype(pickle.loads(pickle.dumps(C()))).__name__", result: "'C'"},
		{name: "an empty cell", code: "", stdout: "-", stderr: "-", result: "-"},
		{name: "state is still kept", code: "x", result: "21"},
	}
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) { c.check(t, p.Python(t, c.code)) })
	}
}

// testBash: every command has a shell of its own.
func testBash(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	commands := []cell{
		{name: "output", code: "echo out; echo err >&2", stdout: "out\n", stderr: "err\n"},
		{name: "exit status", code: "exit 7", status: sandbox.StatusError, exit: 7, err: "exit status 7"},
		{name: "status of the last command", code: "false", status: sandbox.StatusError, exit: 1, err: "exit status 1"},
		{name: "unknown command", code: "true\nno-such-command", stderr: "line 2: no-such-command", status: sandbox.StatusError, exit: 127,
			err: "exit status 127"},
		{name: "syntax", code: "if then", stderr: "syntax error", status: sandbox.StatusError, exit: 2, err: "exit status 2"},
		{name: "pipes and quotes", code: "printf '%s\\n' \"b c\" a | sort", stdout: "a\nb c\n"},
		{name: "here document", code: "cat <<'E'\n$HOME\nE\n", stdout: "$HOME\n"},
		{name: "no arguments", code: "echo $# \"$0\"", stdout: "0 bash\n"},
		{name: "set -e", code: "set -e\nfalse\necho not this", stdout: "-", status: sandbox.StatusError, exit: 1, err: "exit status 1"},
		{name: "no state", code: "echo \"${LEFT-none}\"; LEFT=1", stdout: "none\n"},
		{name: "still no state", code: "echo \"${LEFT-none}\"", stdout: "none\n"},
		{name: "a long command", code: "true " + strings.Repeat("x", 300<<10) + "\necho long", stdout: "long\n"},
		{name: "stdin is empty", code: "cat; echo end", stdout: "end\n"},
		{name: "an empty command", code: "", stdout: "-", stderr: "-"},
	}
	for _, c := range commands {
		t.Run(c.name, func(t *testing.T) { c.check(t, p.Bash(t, c.code)) })
	}
	t.Run("killed by a signal", func(t *testing.T) {
		o := p.Bash(t, "kill -KILL $$")
		if o.Status != sandbox.StatusKilled || o.ExitCode != 137 || !strings.Contains(o.Error, "SIGKILL") {
			t.Errorf("%+v", *o.Result)
		}
	})
}
