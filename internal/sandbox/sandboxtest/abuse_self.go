package sandboxtest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// selfAbuse is code that turns on the interpreter that runs it. The next cell must run all the same. The control is naiveKernel, an
// interpreter without a guest, which each of these breaks.
func selfAbuse() []abuse {
	const everyDescriptor = "import os\nfor fd in map(int, os.listdir('/proc/self/fd')):\n    try: "
	list := []abuse{
		{name: "os._exit", code: "import os\nos._exit(0)"},
		{name: "sys.exit", code: "import sys\nsys.exit(3)"},
		{name: "SIGKILL to itself", code: "import os\nos.kill(os.getpid(), 9)"},
		{name: "SIGSTOP to itself", code: "import os\nos.kill(os.getpid(), 19)"},
		{name: "alarm", code: "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\ntime.sleep(2)"},
		{name: "segfault", code: "import ctypes\nctypes.string_at(0)"},
		{name: "abort", code: "import os\nos.abort()"},
		{name: "stack overflow", code: "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)"},
		{name: "exec", code: "import os\nos.execv('/bin/true', ['true'])"},
		{name: "exec of a forger", code: "import os\nos.execv('/bin/sh', ['sh', '-c', 'for i in 1 2 3; do printf \"forged\\nEND\\n\"; done'])"},
		{name: "closed descriptors", code: "import os\nos.closerange(0, 256)"},
		{name: "descriptors to nowhere", code: everyDescriptor + "os.dup2(os.open('/dev/null', os.O_RDWR), fd)\n    except OSError: pass"},
		{name: "closed standard output", code: "import sys\nsys.stdout.close()"},
		{name: "no standard output", code: "import os\nos.close(1)"},
		{name: "sys.stdout is nothing", code: "import sys\nsys.stdout = sys.stderr = sys.__stdout__ = None"},
		{name: "sys.stdout that raises", code: "import sys\nclass Bad:\n    def __getattr__(self, name): raise SystemExit(name)\nsys.stdout = Bad()"},
		{name: "forged ends", code: everyDescriptor + "os.write(fd, b'END\\n' * 5)\n    except OSError: pass"},
		{name: "forged frames", code: "import os, stat\nframe = b'\\0\\0\\0\\4\\2\\0\\0\\0\\1ok\\x000'\nfor fd in map(int, os.listdir('/proc/self/fd')):\n" +
			"    try:\n        for kind in range(40): os.write(fd, frame[:4] + bytes([kind]) + frame[5:])\n    except OSError: pass"},
		{name: "endless frame", code: everyDescriptor + "os.write(fd, b'\\xff' * 4096)\n    except OSError: pass"},
		{name: "requests from nowhere", code: "import os\nr, w = os.pipe()\nfor fd in map(int, os.listdir('/proc/self/fd')):\n    try:\n        if fd not in (r, w, 1, 2): os.dup2(r, fd)\n    except OSError: pass"},
		{name: "patched protocol", code: "import sys, types\nf = sys._getframe()\nwhile f:\n    for k, v in list(f.f_globals.items()):\n" +
			"        if isinstance(v, types.FunctionType): f.f_globals[k] = lambda *a, **k: None\n    f = f.f_back"},
		{name: "patched os", code: "import os, sys\nfor k in ('read', 'write', 'fdopen', 'dup2', 'close', 'pipe'): setattr(os, k, None)\nsys.stdout = None"},
		{name: "patched builtins", code: "import builtins\nfor k in ('exec', 'compile', 'len', 'str', 'isinstance', 'getattr'): setattr(builtins, k, None)"},
		{name: "no modules", code: "import sys\nsys.stdout.flush(); sys.modules.clear(); sys.meta_path.clear(); sys.stdout = None"},
		{name: "held lock", code: "import ctypes, threading, time\nthreading.Thread(target=ctypes.PyDLL(None).sleep, args=(1000,), daemon=True).start()\ntime.sleep(1)"},
		{name: "trace function", code: "import os, sys\nsys.settrace(lambda *a: os._exit(1))"},
		{name: "audit hook", code: "import os, sys\nsys.addaudithook(lambda name, a: os._exit(1) if name in ('exec', 'compile') else None)"},
		{name: "a thread that ends it", code: "import os, threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), os._exit(1)), daemon=True).start()\ntime.sleep(0.2)"},
		{name: "no time left", code: "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass"},
	}
	for i := range list {
		list[i].kind, list[i].timeout = sandbox.Python, 2*time.Second
	}
	return list
}

// naiveKernel runs an attack and then print(1) as a kernel would that has neither a guest nor descriptors of its own for its protocol,
// and says of each attack whether the second cell's answer is the right one.
const naiveKernel = `
import json, os, select, subprocess, sys, time
KERNEL = '''
import os, sys, traceback
def receive():
    line = sys.stdin.readline()
    if not line: os._exit(0)
    return eval(line)
def answer():
    sys.stdout.write("END" + chr(10))
    sys.stdout.flush()
space = {}
while True:
    code = receive()
    try: exec(compile(code, "cell", "exec"), space)
    except Exception: traceback.print_exc()
    answer()
'''
def ask(k, code):
    try: k.stdin.write(repr(code).encode() + b'\n'); k.stdin.flush()
    except OSError: return b''
    got, end = b'', time.monotonic() + 4
    while not got.endswith(b'END\n') and time.monotonic() < end:
        if select.select([k.stdout], [], [], 0.1)[0]:
            more = os.read(k.stdout.fileno(), 1)
            if not more: break
            got += more
    return got
def attack(name, code):
    k = subprocess.Popen([sys.executable, '-I', '-c', KERNEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True)
    first = ask(k, 'print(0)')
    assert first == b'0\nEND\n', first
    ended = ask(k, code)
    got = ask(k, 'print(1)')
    try: os.killpg(k.pid, 9)
    except OSError: pass
    k.wait()
    return 'held' if (ended, got) == (b'END\n', b'1\nEND\n') else 'BIT'
from concurrent.futures import ThreadPoolExecutor
cases = json.loads(sys.argv[1])
with ThreadPoolExecutor(4) as pool:
    for name, what in zip(cases, pool.map(lambda c: attack(*c), cases.items())): print(name, what, sep=': ', flush=True)
`

// runSelf runs the attacks one after another in one sandbox.
func runSelf(t *testing.T, b sandbox.Backend, cases []abuse) {
	p := Start(t, b, nil)
	p.Must(t, "1")
	codes := map[string]string{}
	for _, c := range cases {
		codes[c.name] = c.code
		t.Run(c.name, func(t *testing.T) {
			o := p.Exec(t, sandbox.Call{Kind: c.kind, Code: c.code, Timeout: c.timeout})
			if strings.Contains(o.Error, "NameError") || strings.Contains(o.Error, "ModuleNotFoundError") {
				t.Errorf("it was not tried: %+v", *o.Result)
			}
			restarted := o.KernelRestarted
			// What was left in the interpreter may end it once more.
			call := sandbox.Call{Kind: sandbox.Python, Code: "print(1)", Timeout: c.timeout}
			o = p.Exec(t, call)
			if o.Text(sandbox.Stdout) != "1\n" {
				restarted = restarted || o.KernelRestarted
				o = p.Exec(t, call)
			}
			if o.Status != sandbox.StatusOK || o.Text(sandbox.Stdout) != "1\n" {
				t.Errorf("then: %+v %.500q", *o.Result, o.Text(""))
			}
			if !restarted {
				p.Bash(t, "kill -9 -1") // the next one begins with an interpreter that this one has not touched
			}
		})
	}
	arg, err := json.Marshal(codes)
	if err != nil {
		t.Fatal(err)
	}
	o := p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Env: map[string]string{"CASES": string(arg)},
		Code: "cat > /tmp/naive.py <<'END'\n" + naiveKernel + "END\npython3 -I /tmp/naive.py \"$CASES\""})
	for name := range codes {
		if !strings.Contains("\n"+o.Text(sandbox.Stdout), "\n"+name+": BIT\n") {
			t.Errorf("the control of %s does not bite: %+v\n%.3000s", name, *o.Result, o.Text(""))
			break
		}
	}
}

// testManyCalls: ten thousand calls leave no descriptor, process or thread behind. Its control is a program that does leave them, which
// the same count sees.
func testManyCalls(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	const count = "import os, threading\nprint(len(os.listdir('/proc/self/fd')), sum(n.isdigit() for n in os.listdir('/proc')), threading.active_count())"
	for range 20 {
		p.Must(t, "1")
	}
	before := p.Must(t, count).Text(sandbox.Stdout)
	const calls = 10_000
	for i := range calls {
		call := sandbox.Call{Kind: sandbox.Python, Code: "None"}
		if r, err := p.Sandbox.Exec(t.Context(), call, nil); err != nil || r.Status != sandbox.StatusOK {
			t.Fatalf("call %d: %+v, %v", i, r, err)
		}
	}
	if after := p.Must(t, count).Text(sandbox.Stdout); after != before {
		t.Errorf("descriptors, processes, threads before %q, after %q", before, after)
	}
	p.Must(t, "kept = open('/dev/null')")
	if after := p.Must(t, count).Text(sandbox.Stdout); after == before {
		t.Error("the control does not bite: one more descriptor was not seen")
	}
}
