package sandboxtest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// diskAbuse wants more than a volume of 24 MiB and 200 files has.
func diskAbuse() []abuse {
	const full = `No space left|Errno 28|File too large|Errno 27|Bus error|File size limit|Broken pipe`
	own := func(name, code string) abuse {
		return abuse{name: name, kind: sandbox.Bash, code: script("import os\n" + code + "\nprint('BIT')"), held: full}
	}
	const filled = "\nfor i in range(0, 40 << 20, 1 << 20): os.pwrite(f.fileno(), b'x' * (1 << 20), i)\nos.fsync(f.fileno())"
	return []abuse{
		own("one file", "f = open('big', 'wb')"+filled),
		own("sparse beyond a file's size", "f = open('s', 'wb')\nos.truncate(f.fileno(), 2 << 30)"),
		own("sparse then filled", "f = open('s', 'wb')\nf.truncate(500 << 20)"+filled),
		own("sparse then mapped", "import mmap\nf = open('s', 'w+b')\nf.truncate(40 << 20)\nm = mmap.mmap(f.fileno(), 0)\nfor i in range(0, len(m), 4096): m[i] = 1\nm.flush()"),
		own("reserved", "f = open('r', 'wb')\nos.posix_fallocate(f.fileno(), 0, 40 << 20)"),
		own("unlinked but open", "fs = []\nfor i in range(40):\n    f = open('u', 'wb', 0); f.write(b'x' * (1 << 20)); os.remove('u'); fs.append(f)\n    assert os.fstat(f.fileno()).st_blocks > 1000, 'No space left'"),
		own("hard links for names", "for i in range(40):\n    with open('a', 'wb', 0) as f: f.write(b'x' * (1 << 20)); os.fsync(f.fileno())\n    assert os.path.getsize('a') == 1 << 20, 'No space left'\n    os.link('a', 'l%d' % i); os.remove('a')"),
		own("copied in the kernel", "open('a', 'wb').write(b'x' * (4 << 20))\nfor i in range(10):\n    with open('a', 'rb') as a, open('c%d' % i, 'wb') as c:\n        n = 0\n        while n < 4 << 20: n += os.sendfile(c.fileno(), a.fileno(), n, (4 << 20) - n)"),
		own("small appends", "f = open('a', 'ab', 0)\nfor _ in range(640):\n    assert f.write(b'x' * (1 << 16)) == 1 << 16, 'No space left'"),
		own("many files", "for i in range(300): open('f%d' % i, 'w').close()"),
		own("deep folders", "for i in range(300): os.mkdir('d'); os.chdir('d')"),
		own("wide folders", "for i in range(300): os.mkdir('d%d' % i)"),
		own("many links", "for i in range(300): os.symlink('x' * 100, 's%d' % i)"),
		{name: "a hole by a shell", kind: sandbox.Bash, held: full, code: "dd if=/dev/zero of=h bs=1M seek=500 count=40 && echo BIT"},
		{name: "several writers", kind: sandbox.Bash, held: full, code: "for i in 1 2 3 4; do head -c 10M /dev/zero > w$i & done; wait; [ $(cat w? | wc -c) = 41943040 ] && echo BIT"},
	}
}

// outputAbuse writes a MiB where 64 KiB are allowed. It got through if all of it arrived.
func outputAbuse() []abuse {
	const size = 1 << 20
	whole := func(o *Outcome) bool {
		n := 0
		for _, out := range o.Outputs {
			n += len(out.Text) + len(out.Data)
		}
		// A replaced byte that is no UTF-8 takes three; an outcome under the guard can hold no more than that.
		return o.Truncated == 0 && n >= size || n > 3*abuseOutput+4096 && o.Truncated > 0
	}
	list := []abuse{
		{name: "lines", code: "for _ in range(1 << 14): print('x' * 63)"},
		{name: "one huge line", code: "import sys\nsys.stdout.write('x' * (1 << 20)); None"},
		{name: "empty lines", code: "print('\\n' * (1 << 20))"},
		{name: "random bytes", code: "import os\nb = os.urandom(1 << 20)\nwhile b: b = b[os.write(1, b):]"},
		{name: "invalid UTF-8", code: "import os\nb = b'\\xff\\xc3(\\xed\\xa0\\x80' * (1 << 18)\nwhile b: b = b[os.write(1, b):]"},
		{name: "zero bytes", code: "import os\nb = bytes(1 << 20)\nwhile b: b = b[os.write(2, b):]"},
		{name: "terminal sequences", code: "import sys\nsys.stderr.write('\\x1b[2J\\x1b]0;t\\x07' * (1 << 17)); None"},
		{name: "the last expression", code: "'x' * (1 << 20)"},
		{name: "an exception's text", code: "import sys\ntry: raise ValueError('x' * (1 << 20))\nexcept ValueError as e: print(e)"},
		{name: "displays", code: "for _ in range(1 << 10): display('x' * 1024)"},
		{name: "a subprocess", code: "import os\nos.system('yes | head -c 1048576'); None"},
		{name: "a shell's two streams", kind: sandbox.Bash, code: "yes | head -c 600000; yes | head -c 600000 >&2"},
	}
	for i := range list {
		if list[i].kind == "" {
			list[i].kind = sandbox.Python
		}
		list[i].bit, list[i].held = whole, "^ok"
	}
	return list
}

// timeAbuse runs for six seconds whatever is done about it; a call has one, and two more to give up.
func timeAbuse() []abuse {
	const nap = "\nimport time\nend = time.monotonic() + 6\n"
	const bit = "\nprint('BIT')"
	list := []abuse{
		{name: "ignored signals", code: "import signal\nfor s in (2, 15, 1, 14): signal.signal(s, signal.SIG_IGN)" + nap + "while time.monotonic() < end: pass" + bit},
		{name: "caught interrupts", code: nap + "while time.monotonic() < end:\n    try: time.sleep(0.1)\n    except BaseException: pass" + bit},
		{name: "blocked signals", code: "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))" + nap + "while time.monotonic() < end: time.sleep(0.1)" + bit},
		{name: "in native code", code: "import ctypes\nleft = 6\nwhile left > 0: left = ctypes.PyDLL(None).sleep(left)" + bit},
		{name: "stopped", code: "import os, subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 6; kill -CONT %d' % os.getpid()], start_new_session=True)\nos.kill(os.getpid(), 19)" + bit},
		{name: "clock games", code: nap + "t = time.monotonic\ntime.time = time.monotonic = time.perf_counter = lambda: 0\n" +
			"import signal; signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(2, lambda *a: None)\nwhile t() < end: pass" + bit},
		{name: "in finally", code: nap + "try:\n    while True: time.sleep(6); break\nfinally:\n    while time.monotonic() < end:\n        try: time.sleep(6)\n        except BaseException: pass\n    print('BIT')"},
		{name: "a shell's trap", kind: sandbox.Bash, code: "trap '' INT TERM HUP; sleep 3; sleep 3; echo BIT"},
		{name: "a group of its own", kind: sandbox.Bash, code: "setsid sh -c 'trap \"\" INT TERM; sleep 6; echo BIT' & wait"},
	}
	for i := range list {
		if list[i].kind == "" {
			list[i].kind = sandbox.Python
		}
		list[i].held, list[i].timeout = "timeout", time.Second
	}
	return list
}

// runTime runs the controls of timeAbuse side by side, since each only takes time, while the guarded runs go one after another.
func (a *abusePair) runTime(t *testing.T, cases []abuse) {
	a.start(t)
	var controls sync.WaitGroup
	outcomes := make([]*Outcome, len(cases))
	room := make(chan struct{}, 3)
	for i, c := range cases {
		controls.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			o := &Outcome{}
			// A session for each, since some spoil the interpreter.
			call := sandbox.Call{Kind: c.kind, Code: c.code, Session: fmt.Sprint("case-", i)}
			r, err := a.loose.Sandbox.Exec(t.Context(), call, func(out sandbox.Output) { o.Outputs = append(o.Outputs, out) })
			if err != nil {
				t.Errorf("the control of %s: %v", c.name, err)
				return
			}
			o.Result, outcomes[i] = r, o
		})
	}
	for _, c := range cases {
		if !t.Run(c.name, func(t *testing.T) { a.guarded(t, c) }) {
			a.startTight(t)
		}
	}
	controls.Wait()
	for i, o := range outcomes {
		if o != nil && !cases[i].through(o) {
			t.Errorf("the control of %s does not bite: %+v\n%s", cases[i].name, *o.Result, o.Text(""))
		}
	}
}
