package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// testBackground: what a finished call leaves running neither keeps it from ending nor disturbs the next.
func testBackground(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	begin := time.Now()
	for name, call := range map[string]sandbox.Call{
		"python process": {Kind: sandbox.Python, Code: "import subprocess\nsubprocess.Popen(['sleep', '300'])\nprint('done')"},
		"python writer":  {Kind: sandbox.Python, Code: "import subprocess\nsubprocess.Popen(['yes'])\nprint('\\ndone')"},
		"python thread": {Kind: sandbox.Python, Code: "import threading, time\ndef loop():\n    while True: print('t'); time.sleep(0.001)\n" +
			"threading.Thread(target=loop, daemon=True).start()\nprint('done')"},
		"bash process": {Kind: sandbox.Bash, Code: "sleep 300 & echo done"},
		"bash writer":  {Kind: sandbox.Bash, Code: "yes & echo; echo done"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Start(t, b, nil)
			if o := p.Exec(t, call); o.Status != sandbox.StatusOK || !strings.Contains(o.Text(sandbox.Stdout), "done") {
				t.Errorf("%+v with %.100q", *o.Result, o.Text(""))
			}
			if o := p.Must(t, "'next'"); o.Text(sandbox.Value) != "'next'" {
				t.Errorf("then got %.100q", o.Text(""))
			} else if strings.HasSuffix(name, "process") || strings.HasSuffix(name, "writer") {
				if got := o.Text(sandbox.Stdout); got != "" {
					t.Errorf("a program of the call before printed %.100q", got)
				}
			}
		})
	}
	if took := time.Since(begin); took > 2*patience {
		t.Errorf("it took %v", took)
	}
	t.Run("what prints later than its call", func(t *testing.T) {
		p.Must(t, "import os, subprocess, sys, time\nsubprocess.Popen(['sh', '-c', 'while sleep 0.01; do echo late; echo late >&2; done'])\nNone")
		for range 3 {
			o := p.Must(t, "time.sleep(0.2)\nprint('out'); print('err', file=sys.stderr); os.system('echo child')\nos.write(1, b'raw\\n')\nNone")
			if o.Text(sandbox.Stdout) != "out\nchild\nraw\n" || o.Text(sandbox.Stderr) != "err\n" {
				t.Errorf("%.200q", o.Text(""))
			}
		}
	})
	t.Run("a daemon lives between calls, and dies with its kernel", func(t *testing.T) {
		p.Must(t, "import subprocess\nsubprocess.Popen(['sh', '-c', '"+shellBeat+"'], start_new_session=True, stdout=-3, stderr=-3)\nNone")
		p.beats(t)
		p.Must(t, "None")
		if o := p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: "sleep 100", Timeout: 200 * time.Millisecond}); o.Status != sandbox.StatusTimeout {
			t.Errorf("%+v", *o.Result)
		}
		p.beats(t)
		p.Python(t, "import os; os._exit(1)")
		p.stopped(t)
	})
}

// testLimits: what a program meets before the sandbox itself is at its end.
func testLimits(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, func(s *sandbox.Spec) { s.Limits.Memory, s.Limits.FileSize = 512<<20, 1<<20 })
	t.Run("memory", func(t *testing.T) {
		p.Must(t, "x = 1")
		o := p.Python(t, "bytearray(600 << 20)")
		if o.Status != sandbox.StatusError || !strings.Contains(o.Error, "MemoryError") {
			t.Errorf("%+v", *o.Result)
		}
		if o := p.Must(t, "x"); o.Text(sandbox.Value) != "1" {
			t.Error("the kernel did not live on")
		}
	})
	t.Run("size of a file", func(t *testing.T) {
		o := p.Python(t, "with open('big', 'wb') as f: f.write(bytes(2 << 20))")
		if o.Status != sandbox.StatusError || !strings.Contains(o.Error, "File too large") {
			t.Errorf("%+v", *o.Result)
		}
		if got := p.size("big"); got > 1<<20 {
			t.Errorf("the file has %d bytes", got)
		}
		if o := p.Bash(t, "head -c 3000000 /dev/zero > big2"); o.Status == sandbox.StatusOK || p.size("big2") > 1<<20 {
			t.Errorf("bash: %+v and %d bytes", *o.Result, p.size("big2"))
		}
	})
	t.Run("no core files", func(t *testing.T) {
		if o := p.Bash(t, "ulimit -c"); o.Text("") != "0\n" {
			t.Errorf("got %q", o.Text(""))
		}
	})
}

// testEnvironment: variables, working directory and HOME.
func testEnvironment(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, func(s *sandbox.Spec) { s.Env = map[string]string{"EVERY": "spec", "BOTH": "spec"} })
	env := map[string]string{"ONE": "call", "BOTH": "call"}
	show := map[sandbox.Kind]string{
		sandbox.Python: "import os\nprint(*(os.environ.get(n, '-') for n in ('EVERY', 'BOTH', 'ONE')))",
		sandbox.Bash:   "echo ${EVERY--} ${BOTH--} ${ONE--}",
	}
	for kind, code := range show {
		t.Run(string(kind)+" variables", func(t *testing.T) {
			for _, step := range []struct {
				env  map[string]string
				want string
			}{{nil, "spec spec -\n"}, {env, "spec call call\n"}, {nil, "spec spec -\n"}} {
				o := p.Exec(t, sandbox.Call{Kind: kind, Code: code, Env: step.env})
				if got := o.Text(""); got != step.want {
					t.Errorf("with %v got %q, want %q", step.env, got, step.want)
				}
			}
		})
	}
	t.Run("files", func(t *testing.T) {
		p.Must(t, "open('from-python', 'w').write('p'); None")
		p.Bash(t, "mkdir sub; printf bb > sub/from-bash; printf h > ~/in-home")
		if p.size("from-python") != 1 || p.size("sub/from-bash") != 2 {
			t.Error("programs do not start in /mnt/data")
		}
		if o := p.Bash(t, "cat ~/in-home"); o.Text("") != "h" {
			t.Errorf("HOME is not kept: %q", o.Text(""))
		}
		o := p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: "basename $PWD; ls", Dir: "/mnt/data/sub"})
		if o.Text("") != "sub\nfrom-bash\n" {
			t.Errorf("Call.Dir: %q", o.Text(""))
		}
	})
	t.Run("directory of a session", func(t *testing.T) {
		p := Start(t, b, nil)
		p.Bash(t, "mkdir sub")
		o := p.Exec(t, sandbox.Call{Kind: sandbox.Python, Code: "import os\nos.path.basename(os.getcwd())", Dir: "/mnt/data/sub"})
		if o.Text(sandbox.Value) != "'sub'" {
			t.Errorf("got %q", o.Text(""))
		}
		if o := p.Must(t, "os.path.basename(os.getcwd())"); o.Text(sandbox.Value) != "'sub'" {
			t.Errorf("the session does not stay there: %q", o.Text(""))
		}
	})
	t.Run("files named like modules of Python's", func(t *testing.T) {
		p := Start(t, b, nil)
		p.Bash(t, "for m in random json types traceback tempfile code token inspect; do echo 'raise SystemExit(\"shadowed\")' > $m.py; done; "+
			"echo 'x = 7' > mine.py")
		if o := p.Must(t, "import mine\nmine.x"); o.Text(sandbox.Value) != "7" {
			t.Errorf("got %q", o.Text(""))
		}
		if o := p.Python(t, "1 / 0"); !strings.Contains(o.Text(sandbox.Stderr), "ZeroDivisionError") {
			t.Errorf("%+v with %q", *o.Result, o.Text(""))
		}
	})
	t.Run("a variable that a call hides", func(t *testing.T) {
		show := "import os\nbool(os.environ['PATH']), os.environ['PATH'] == '/bin:hidden'"
		o := p.Exec(t, sandbox.Call{Kind: sandbox.Python, Code: show, Env: map[string]string{"PATH": "/bin:hidden"}})
		if o.Text(sandbox.Value) != "(True, True)" {
			t.Errorf("got %q", o.Text(""))
		}
		if o := p.Must(t, show); o.Text(sandbox.Value) != "(True, False)" {
			t.Errorf("then got %q", o.Text(""))
		}
	})
	t.Run("what libraries are told", func(t *testing.T) {
		o := p.Bash(t, "echo $MPLBACKEND $LANG $MALLOC_ARENA_MAX $PYTHONUNBUFFERED $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS")
		if o.Text("") != "Agg C.UTF-8 2 1 1 1\n" {
			t.Errorf("got %q", o.Text(""))
		}
	})
}

// testConcurrent: calls of one kind take turns, the two kinds run side by side.
func testConcurrent(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	t.Run("turns", func(t *testing.T) {
		p.Must(t, "import time\nn = 0")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				o := p.Python(t, "was = n\ntime.sleep(0.005)\nn = was + 1\nprint('mine', n)")
				if !strings.HasPrefix(o.Text(sandbox.Stdout), "mine ") {
					t.Errorf("got %q", o.Text(""))
				}
			})
		}
		for i := range 4 {
			wg.Go(func() {
				if o := p.Bash(t, fmt.Sprintf("echo begin %d; echo end", i)); o.Text("") != fmt.Sprintf("begin %d\nend\n", i) {
					t.Errorf("got %q", o.Text(""))
				}
			})
		}
		wg.Wait()
		if o := p.Must(t, "n"); o.Text(sandbox.Value) != "8" {
			t.Errorf("8 turns made %s", o.Text(""))
		}
	})
	t.Run("side by side", func(t *testing.T) {
		var wg sync.WaitGroup
		wg.Go(func() { p.Must(t, waitFor("from-bash")+"open('from-python', 'w')\nNone") })
		o := p.Bash(t, "touch from-bash; until [ -e from-python ]; do sleep 0.02; done; echo met")
		if o.Text("") != "met\n" {
			t.Errorf("got %q", o.Text(""))
		}
		wg.Wait()
	})
}

// testLife: the end of a sandbox.
func testLife(t *testing.T, b sandbox.Backend) {
	t.Run("close", func(t *testing.T) {
		p := Start(t, b, nil)
		p.Must(t, "1")
		select {
		case <-p.Done():
			t.Fatal("done before it was closed")
		default:
		}
		for range 3 {
			if err := p.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		waitDone(t, p)
		_, err := p.Sandbox.Exec(t.Context(), sandbox.Call{Kind: sandbox.Python, Code: "1"}, nil)
		if !errors.Is(err, sandbox.ErrNotStarted) || errors.Is(err, sandbox.ErrDied) {
			t.Errorf("after close: %v", err)
		}
	})
	t.Run("close while a call runs", func(t *testing.T) {
		p := Start(t, b, nil)
		var once sync.Once
		_, err := p.Sandbox.Exec(t.Context(), sandbox.Call{Kind: sandbox.Python, Code: "print('begun')\n" + beat}, func(sandbox.Output) {
			once.Do(func() {
				p.beats(t)
				go func() { _ = p.Close() }() // its error is that of the close below
			})
		})
		if !errors.Is(err, sandbox.ErrDied) || errors.Is(err, sandbox.ErrNotStarted) {
			t.Errorf("got %v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		p.stopped(t)
	})
	t.Run("start that is cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s, err := b.Start(ctx, sandbox.Spec{ID: "cancelled", Limits: sandbox.Defaults()})
		if err == nil {
			// It may have been faster than the cancellation.
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("many", func(t *testing.T) {
		for range 3 {
			p := Start(t, b, nil)
			if o := p.Bash(t, "echo up"); o.Text("") != "up\n" {
				t.Errorf("got %q", o.Text(""))
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			waitDone(t, p)
		}
	})
}

func waitDone(t *testing.T, p *Place) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Error("Done is not closed")
	}
}
