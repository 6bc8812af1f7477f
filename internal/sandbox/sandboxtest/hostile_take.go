package sandboxtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// testFork: programs meet a limit of processes, and the sandbox lives on.
func testFork(t *testing.T, b sandbox.Backend) {
	// Enough memory that this is the limit which is met: in gVisor a fork of IPython costs 24 MiB, since what it shares with its parent is
	// copied in pieces of 2 MiB.
	p := Start(t, b, func(s *sandbox.Spec) { s.Limits.Processes, s.Limits.Memory = 40, 2<<30 })
	t.Run("processes", func(t *testing.T) {
		o := p.Must(t, `import os, signal, time
children = []
try:
    while len(children) < 1000:
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
            os._exit(0)
        children.append(pid)
except OSError as e: print(type(e).__name__, e.errno)
print(len(children))
for pid in children: os.kill(pid, signal.SIGKILL)
for pid in children: os.waitpid(pid, 0)`)
		lines := strings.Fields(o.Text(sandbox.Stdout))
		if len(lines) != 3 || lines[0] != "BlockingIOError" || lines[1] != "11" {
			t.Fatalf("want EAGAIN, got %q", o.Text(""))
		}
		if n, _ := strconv.Atoi(lines[2]); n < 10 || n > 40 {
			t.Errorf("%d processes with a limit of 40", n)
		}
		p.usable(t)
	})
	t.Run("threads", func(t *testing.T) {
		o := p.Must(t, `import threading
stop, threads = threading.Event(), []
try:
    while len(threads) < 1000:
        th = threading.Thread(target=stop.wait)
        th.start()
        threads.append(th)
except RuntimeError as e: print(e)
stop.set()
for th in threads: th.join()
print(len(threads) <= 40)`)
		if !strings.Contains(o.Text(""), "can't start new thread\nTrue") {
			t.Errorf("got %q", o.Text(""))
		}
	})
	t.Run("bomb", func(t *testing.T) {
		o := p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: "bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 100", Timeout: 2 * time.Second})
		if o.Status != sandbox.StatusTimeout {
			t.Errorf("%+v", *o.Result)
		}
		p.usable(t)
	})
	t.Run("raised limit", func(t *testing.T) {
		p.refused(t, map[string]string{
			"processes": "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (10000, 10000))",
			"memory":    "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
			"file":      "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))",
			"namespace": "call('unshare', 0x20000000); import resource; resource.setrlimit(resource.RLIMIT_NPROC, (10000, 10000))",
		})
	})
}

// testFlood: output without end is cut, and costs the host no more than its limit.
func testFlood(t *testing.T, b sandbox.Backend) {
	const limit = 256 << 10
	p := Start(t, b, func(s *sandbox.Spec) { s.Limits.Output = limit })
	for name, call := range map[string]sandbox.Call{
		"print":        {Kind: sandbox.Python, Code: "while True: print('x' * 1000)"},
		"one line":     {Kind: sandbox.Python, Code: "import sys\nwhile True: sys.stdout.write('x' * 65536)"},
		"descriptors":  {Kind: sandbox.Python, Code: "import os\nwhile True: os.write(1, b'\\xff\\0' * 9999); os.write(2, b'e' * 9999)"},
		"subprocesses": {Kind: sandbox.Python, Code: "import subprocess\nps = [subprocess.Popen(['yes']) for _ in range(4)]\nps[0].wait()"},
		"shell":        {Kind: sandbox.Bash, Code: "yes & yes >&2 & yes"},
		"displays":     {Kind: sandbox.Python, Code: "from IPython.display import display\nwhile True: display('y' * 1000)"},
	} {
		t.Run(name, func(t *testing.T) {
			call.Timeout = 1500 * time.Millisecond
			o := p.Exec(t, call)
			if strings.Contains(o.Error, "ModuleNotFoundError") {
				t.Skip("this root file system has no IPython")
			}
			if o.Status != sandbox.StatusTimeout || o.Truncated == 0 {
				t.Errorf("%+v", *o.Result)
			}
			got := 0
			for _, out := range o.Outputs {
				got += len(out.Text) + len(out.Data)
			}
			// A replaced byte that is no UTF-8 takes three.
			if got == 0 || got > 3*limit+4096 {
				t.Errorf("%d bytes arrived with a limit of %d", got, limit)
			}
			p.usable(t)
		})
	}
}

// testMemory: one program that wants too much gets its MemoryError, and the interpreter lives on.
func testMemory(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, func(s *sandbox.Spec) { s.Limits.Memory = 256 << 20 })
	p.Must(t, "import mmap\nkept = 1") // a library cannot be loaded where memory has just been short
	for name, code := range map[string]string{
		"at once":     "x = bytearray(400 << 20)",
		"bit by bit":  "x = []\nwhile True: x.append(bytearray(1 << 20))",
		"small":       "x = {}\ni = 0\nwhile True: x[i] = str(i) * 10; i += 1",
		"anonymously": "x = []\nwhile True: x.append(mmap.mmap(-1, 1 << 20))",
	} {
		t.Run(name, func(t *testing.T) {
			o := p.Python(t, code)
			if o.Status != sandbox.StatusError || !strings.Contains(o.Error, "MemoryError") && !strings.Contains(o.Error, "Cannot allocate memory") {
				t.Fatalf("%+v", *o.Result)
			}
			if o := p.Must(t, "x = None\nprint(kept)"); o.Text(sandbox.Stdout) != "1\n" {
				t.Errorf("the interpreter did not live on: %q", o.Text(""))
			}
		})
	}
	p.usable(t)
}

// testOutOfMemory: past the sandbox's limit it ends, as the program's failure, and the host and other sandboxes do not notice.
func testOutOfMemory(t *testing.T, b sandbox.Backend) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only cgroups limit the memory of a sandbox as a whole")
	}
	other := Start(t, b, nil)
	other.Must(t, "kept = 1")
	for name, code := range map[string]string{
		"many processes": `import os, time
for i in range(8):
    if os.fork() == 0:
        try:
            x = bytearray(100 << 20)
            for j in range(0, len(x), 4096): x[j] = 1
        finally: time.sleep(600)
time.sleep(600)`,
		"memory files": "import os, time\nwhile True:\n    f = os.memfd_create('m')\n    for _ in range(64): os.write(f, b'x' * (1 << 20))",
		"files in memory": `import os
for folder in ('/dev/shm', '/tmp'):
    with open(folder + '/big', 'wb') as f:
        try:
            while True: f.write(b'x' * (1 << 20))
        except OSError: pass
x = []
while True: x.append(b'x' * (1 << 20))`,
	} {
		t.Run(name, func(t *testing.T) {
			p := Start(t, b, func(s *sandbox.Spec) { s.Limits.Memory = 256 << 20 })
			p.Must(t, "1")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			result, err := p.Sandbox.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: code}, nil)
			if !errors.Is(err, sandbox.ErrOutOfMemory) || !errors.Is(err, sandbox.ErrDied) {
				t.Fatalf("want out of memory, got %+v, %v", result, err)
			}
			waitDone(t, p)
			other.usable(t)
		})
	}
	if o := other.Must(t, "print(kept)"); o.Text(sandbox.Stdout) != "1\n" {
		t.Errorf("the other sandbox has lost its state: %q", o.Text(""))
	}
}

// testDisk: a volume of a fixed size gives the program ENOSPC, for bytes and for files, and is usable again.
func testDisk(t *testing.T, b sandbox.Backend) {
	dir := smallVolume(t, 24<<20)
	p := Start(t, b, func(s *sandbox.Spec) { s.Mounts[0].Source = dir })
	t.Run("bytes", func(t *testing.T) {
		o := p.Python(t, "with open('big', 'wb') as f:\n    while True: f.write(b'x' * (1 << 20))")
		if o.Status != sandbox.StatusError || !strings.Contains(o.Error, "No space left") {
			t.Errorf("%+v", *o.Result)
		}
		o = p.Bash(t, "cat /dev/zero > big2; echo $?")
		if strings.HasSuffix(o.Text(sandbox.Stdout), "0\n") {
			t.Errorf("bash could write on a full volume: %q", o.Text(""))
		}
	})
	t.Run("usable again", func(t *testing.T) {
		o := p.Must(t, "import os\nos.remove('big')\nos.path.exists('big2') and os.remove('big2')\n"+
			"with open('small', 'w') as f: f.write('fits')\nprint(open('small').read())")
		if o.Text(sandbox.Stdout) != "fits\n" {
			t.Errorf("got %q", o.Text(""))
		}
		if got, err := os.ReadFile(filepath.Join(dir, "small")); err != nil || string(got) != "fits" {
			t.Errorf("on the host: %q, %v", got, err)
		}
	})
	t.Run("files", func(t *testing.T) {
		o := p.Python(t, "i = 0\nwhile True:\n    open('f%d' % i, 'w').close()\n    i += 1")
		if o.Status != sandbox.StatusError || !strings.Contains(o.Error, "No space left") {
			t.Errorf("%+v", *o.Result)
		}
		p.usable(t)
	})
	t.Run("a hole and a map", func(t *testing.T) {
		p.Bash(t, "rm -f f* big*")
		o := p.Python(t, "import mmap, os\nf = open('hole', 'w+b')\nf.truncate(100 << 20)\nm = mmap.mmap(f.fileno(), 0)\n"+
			"for i in range(0, len(m), 4096): m[i] = 1")
		if o.Status == sandbox.StatusOK {
			t.Errorf("a volume of 24 MiB took 100: %+v", *o.Result)
		}
		p.Bash(t, "rm -f hole")
		p.usable(t)
	})
}

// smallVolume is a folder on a file system of a fixed size.
func smallVolume(t *testing.T, size int64) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can mount a volume")
	}
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip("needs mkfs.ext4 (apt-get install e2fsprogs)")
	}
	base := t.TempDir()
	image, dir := filepath.Join(base, "image"), filepath.Join(base, "mnt")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close(), os.Mkdir(dir, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs, "-q", "-F", "-N", "200", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop,nosuid,nodev", image, dir).CombinedOutput(); err != nil {
		t.Skipf("needs loop devices: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// testTmp: folders in memory are bounded, so that filling one is an error of the program's and not the end of the sandbox.
func testTmp(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, func(s *sandbox.Spec) { s.Limits.Memory = 256 << 20 })
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		t.Run(dir, func(t *testing.T) {
			o := p.Python(t, "with open('"+dir+"/big', 'wb') as f:\n    while True: f.write(b'x' * (1 << 20))")
			if o.Status != sandbox.StatusError || !strings.Contains(o.Error, "No space left") {
				t.Errorf("%+v", *o.Result)
			}
			o = p.Must(t, "import os\nprint(os.path.getsize('"+dir+"/big') >> 20)\nos.remove('"+dir+"/big')")
			if n, _ := strconv.Atoi(strings.TrimSpace(o.Text(sandbox.Stdout))); n < 32 || n > 256 {
				t.Errorf("it held %q MiB", o.Text(""))
			}
			p.usable(t)
		})
	}
}
