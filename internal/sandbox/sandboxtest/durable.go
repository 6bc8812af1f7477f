package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// Durable runs what a backend promises that keeps the whole memory of a sandbox, which the fake does not: it keeps variables only. newBackend
// is called for each group of tests; the backend is closed at the end of the group. With names, only those groups run.
func Durable(t *testing.T, newBackend func(t *testing.T) sandbox.Backend, only ...string) {
	t.Helper()
	groups := map[string]func(*testing.T, sandbox.Backend){
		"Programs": testDurablePrograms, "Fork": testDurableFork, "Moved": testDurableMoved, "Limits": testDurableLimits,
		"Gone": testDurableGone, "Damaged": testDurableDamaged, "Foreign": testDurableForeign, "Failing": testDurableFailing,
		"Hub": testHub,
	}
	for name, test := range groups {
		if len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := newBackend(t)
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Errorf("close the backend: %v", err)
				}
			})
			test(t, b)
		})
	}
}

// restored is restore for an image that must be usable.
func restored(t *testing.T, b sandbox.Backend, dir string, from *Place, edit func(*sandbox.Spec)) *Place {
	t.Helper()
	p, err := restore(t, b, dir, from, edit)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	return p
}

// refusedImage fails the test unless the image is unusable, and says so in words.
func refusedImage(t *testing.T, b sandbox.Backend, dir string, from *Place, says string, edit func(*sandbox.Spec)) {
	t.Helper()
	if _, err := restore(t, b, dir, from, edit); !errors.Is(err, sandbox.ErrUnusable) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want ErrUnusable and %q", err, says)
	}
}

// alive is what a program sets up before a checkpoint and finds afterwards. Each is a cell and an expression that is True in it later.
var alive = []struct{ name, before, after string }{
	{"import", "import decimal\ndecimal.getcontext().prec = 7", "decimal.Decimal(1) / 3 == decimal.Decimal('0.3333333')"},
	{"function and class", "class C:\n    def f(self): return [self]\nc = C()", "c.f() == [c] and type(c) is C"},
	{"generator", "def count():\n    n = 0\n    while True:\n        n += 1\n        yield n\ng = count(); next(g); next(g)", "next(g) == 3"},
	{"open file", "f = open('kept', 'w+')\nf.write('abcdef'); f.flush(); f.seek(2)", "f.read(2) == 'cd'"},
	{"unlinked file", "u = open('unlinked', 'w+')\nu.write('still'); u.flush(); u.seek(0); os.remove('unlinked')",
		"u.read() == 'still' and not os.path.exists('unlinked')"},
	{"append to a file", "log = open('/mnt/data/log', 'a')\nlog.write('1'); log.flush()", "log.write('2') and not log.flush() and open('/mnt/data/log').read() == '12'"},
	{"mapped file", "import mmap\nopen('/mnt/data/map', 'wb').write(b'x' * 4096)\nmf = open('/mnt/data/map', 'r+b'); m = mmap.mmap(mf.fileno(), 4096); mf.close()\nm[0] = 65",
		"m[0] == 65 and open('/mnt/data/map', 'rb').read(1) == b'A'"},
	{"temporary folders", "open('/tmp/t', 'w').write('t'); open('/dev/shm/s', 'w').write('s')", "open('/tmp/t').read() + open('/dev/shm/s').read() == 'ts'"},
	{"working directory", "os.makedirs('deep/er', exist_ok=True); os.chdir('deep/er')", "os.getcwd().endswith('/deep/er') and not os.chdir('../..')"},
	{"environment", "os.environ['SET'] = 'by the program'", "os.environ['SET'] == 'by the program'"},
	{"subprocess with pipes", "import subprocess\np = subprocess.Popen(['cat'], stdin=-1, stdout=-1)\np.stdin.write(b'a'); p.stdin.flush(); p.stdout.read(1)",
		"p.communicate(b'tail')[0] == b'tail' and p.returncode == 0"},
	{"thread", "import threading, queue\nq, r = queue.Queue(), queue.Queue()\ndef work():\n    while True: r.put(q.get() * 2)\n" +
		"threading.Thread(target=work, daemon=True).start()", "q.put(21) or r.get(timeout=30) == 42"},
	{"loopback", "import socket\ns = socket.create_server(('127.0.0.1', 0))\na = socket.create_connection(s.getsockname()); b, _ = s.accept()\na.sendall(b'early')",
		"b.recv(5) == b'early' and not b.sendall(b'late') and a.recv(4) == b'late'"},
	{"fifo", "os.mkfifo('/tmp/fifo'); ff = os.open('/tmp/fifo', os.O_RDWR); os.write(ff, b'in')", "os.read(ff, 2) == b'in'"},
	{"database", "import sqlite3\ndb = sqlite3.connect('/mnt/data/data.db')\ndb.execute('create table t (n)'); db.execute('insert into t values (5)')",
		"db.execute('select n from t').fetchone() == (5,) and not db.commit()"},
	{"lock", "lock = threading.Lock(); lock.acquire()", "lock.locked() and not lock.release()"},
	{"signal handler", "import signal\nhits = []\n_ = signal.signal(signal.SIGUSR1, lambda *_: hits.append(1))", "not os.kill(os.getpid(), signal.SIGUSR1) and hits == [1]"},
	{"pid", "pid = os.getpid()", "os.getpid() == pid"},
	{"clock", "import time\nwhen, tick = time.time(), time.monotonic()", "time.time() >= when and time.monotonic() >= tick"},
}

// testDurablePrograms: whatever a program had goes on.
func testDurablePrograms(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.Must(t, "import os")
	for _, a := range alive {
		p.Must(t, a.before+"\nNone")
	}
	p.Bash(t, shellBeat+" >/dev/null 2>&1 &")
	p.beats(t)
	dir := checkpoint(t, p)
	p.stopped(t)
	q := restored(t, b, dir, p, nil)
	for _, a := range alive {
		t.Run(a.name, func(t *testing.T) {
			if o := q.Python(t, a.after); o.Text(sandbox.Value) != "True" {
				t.Errorf("%s gives %s%s", a.after, o.Text(sandbox.Value), o.Text(sandbox.Stderr))
			}
		})
	}
	t.Run("background program", func(t *testing.T) { q.beats(t) })
	t.Run("interrupt", func(t *testing.T) {
		o := q.Exec(t, sandbox.Call{Kind: sandbox.Python, Code: "time.sleep(100)", Timeout: 200 * time.Millisecond})
		if o.Status != sandbox.StatusTimeout || o.KernelRestarted {
			t.Errorf("%+v", *o.Result)
		}
	})
	t.Run("once more", func(t *testing.T) {
		q.Must(t, "u.seek(0); f.seek(0); log.write('3'); log.flush(); None")
		r := restored(t, b, checkpoint(t, q), q, nil)
		if o := r.Must(t, "print(u.read(), f.read(), open('/mnt/data/log').read(), next(g), c.f() == [c])"); o.Text("") != "still abcdef 123 4 True\n" {
			t.Errorf("got %q", o.Text(""))
		}
		r.beats(t)
	})
}

// testDurableFork: sandboxes from one image go their own ways.
func testDurableFork(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.Must(t, "import os, threading, time\nx = ['both']\nopen('/tmp/both', 'w').write('t')\n"+
		"def beat():\n    while True:\n        open('"+heartbeat+"', 'a').write('x'); time.sleep(0.02)\n"+
		"threading.Thread(target=beat, daemon=True).start()")
	p.beats(t)
	dir := checkpoint(t, p)
	one := restored(t, b, dir, p, nil)
	two := restored(t, b, dir, &Place{Data: openDir(t), Home: openDir(t)}, nil)
	for name, q := range map[string]*Place{"one": one, "two": two} {
		q.Must(t, "x.append('"+name+"'); open('/tmp/"+name+"', 'w').close(); open('own', 'w').write('"+name+"'); None")
		q.beats(t)
	}
	for name, q := range map[string]*Place{"one": one, "two": two} {
		o := q.Must(t, "print(x, sorted(f for f in os.listdir('/tmp') if f in ('both', 'one', 'two')), open('own').read())")
		if want := "['both', '" + name + "'] ['both', '" + name + "'] " + name + "\n"; o.Text("") != want {
			t.Errorf("got %q, want %q", o.Text(""), want)
		}
	}
	one.Bash(t, "kill -9 -1")
	two.usable(t)
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	two.beats(t)
}

// testDurableMoved: other folders may lie behind the mounts, as long as what was open is in them.
func testDurableMoved(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.Must(t, "import os\nos.makedirs('sub')\nf = open('sub/file', 'r+' if os.path.exists('sub/file') else 'w+')\nf.write('old'); f.flush(); f.seek(0)\nos.chdir('sub')")
	dir := checkpoint(t, p)
	moved := &Place{Data: filepath.Join(openDir(t), "new"), Home: openDir(t)}
	if err := os.Rename(p.Data, moved.Data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(moved.Data, "added"), []byte("by the host"), 0o666); err != nil {
		t.Fatal(err)
	}
	q := restored(t, b, dir, moved, nil)
	if o := q.Must(t, "print(f.read(), os.listdir('.'), open('/mnt/data/added').read())"); o.Text("") != "old ['file'] by the host\n" {
		t.Errorf("got %q", o.Text(""))
	}
	if err := os.Mkdir(p.Data, 0o777); err != nil { // for the end of the test
		t.Fatal(err)
	}
}

// testDurableLimits: what may differ.
func testDurableLimits(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.Must(t, "x = bytearray(100 << 20)\nx[::4096] = b'y' * len(x[::4096])\nNone")
	dir := checkpoint(t, p)
	small := func(s *sandbox.Spec) { s.Limits.Memory, s.Limits.CPUs, s.Limits.Processes = 400<<20, 0.5, 20 }
	for name, edit := range map[string]func(*sandbox.Spec){"small": small, "large": func(s *sandbox.Spec) {
		s.Limits.Memory, s.Limits.CPUs, s.Limits.Processes = 2<<30, 2, 300
	}} {
		t.Run(name, func(t *testing.T) {
			q := restored(t, b, dir, p, edit)
			o := q.Python(t, "y = bytearray(500 << 20)\nlen(x)")
			if fits := o.Status == sandbox.StatusOK; fits == (name == "small") {
				t.Errorf("500 MiB: %+v", *o.Result)
			}
			if o := q.Must(t, "len(x), x[4096], x[1]"); o.Text(sandbox.Value) != "(104857600, 121, 0)" {
				t.Errorf("the memory is %s", o.Text(sandbox.Value))
			}
			o = q.Python(t, "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(1,)).start()\n'all'")
			if name == "small" && o.Status == sandbox.StatusOK {
				t.Error("100 threads are within a limit of 20")
			}
			q.usable(t)
		})
	}
	t.Run("less than it holds", func(t *testing.T) {
		_, err := restore(t, b, dir, p, func(s *sandbox.Spec) { s.Limits.Memory = 64 << 20 })
		if err == nil || errors.Is(err, sandbox.ErrUnusable) || !strings.Contains(err.Error(), "limit") {
			t.Errorf("got %v: with more memory it could be used", err)
		}
	})
}

// testDurableGone: what was open and is no longer there must not cost the memory.
func testDurableGone(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.Must(t, `
import mmap, os
x = 'kept'
os.makedirs('folder/below')
f = open('file', 'w+'); f.write('content'); f.flush()
g = open('folder/below/file', 'w+')
ro = open('readonly', 'w').close() or open('readonly')
open('mapped', 'wb').write(bytes(8192))
mf = open('mapped', 'r+b'); m = mmap.mmap(mf.fileno(), 8192); mf.close()
d = os.open('folder', os.O_RDONLY)
h = open(os.path.expanduser('~/home'), 'w')
os.chdir('folder/below')
None`)
	p.Bash(t, "cd /mnt/data/folder && (sleep 300 >../out &)")
	dir := checkpoint(t, p)
	for _, root := range []string{p.Data, p.Home} {
		entries, err := os.ReadDir(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(p.Data, "mapped"), []byte("short"), 0o666); err != nil {
		t.Fatal(err)
	}
	q := restored(t, b, dir, p, nil)
	if o := q.Must(t, "x, f.write('new'), g.write('new'), ro.read(), os.listdir('/mnt/data')"); o.Text(sandbox.Value) != "('kept', 3, 3, '', ['mapped'])" {
		t.Errorf("got %s", o.Text(sandbox.Value))
	}
	q.Must(t, "os.chdir('/mnt/data'); open('file', 'w').write('another'); None")
	if q.size("file") != 7 {
		t.Error("the name is not free again")
	}
	q.usable(t)
}

// testDurableDamaged: no damage goes unseen, and none of it harms the backend.
func testDurableDamaged(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.Must(t, "x = 1")
	image := checkpoint(t, p)
	entries, err := os.ReadDir(image)
	if err != nil {
		t.Fatal(err)
	}
	damages := map[string]func(data []byte) []byte{
		"a bit":       func(data []byte) []byte { data[len(data)/2] ^= 4; return data },
		"the last":    func(data []byte) []byte { data[len(data)-1] ^= 128; return data },
		"cut":         func(data []byte) []byte { return data[:len(data)/2] },
		"empty":       func([]byte) []byte { return nil },
		"longer":      func(data []byte) []byte { return append(data, 0) },
		"zero":        func(data []byte) []byte { clear(data[len(data)/3 : len(data)/2]); return data },
		"not there":   nil,
		"other order": func(data []byte) []byte { slices.Reverse(data); return data },
	}
	for _, e := range entries {
		for name, damage := range damages {
			t.Run(e.Name()+" "+name, func(t *testing.T) {
				dir := copyDir(t, image)
				path := filepath.Join(dir, e.Name())
				data, err := os.ReadFile(path)
				if err == nil && damage == nil {
					err = os.Remove(path)
				} else if err == nil {
					err = os.WriteFile(path, damage(data), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				if e.Name() == manifest && (name == "a bit" || name == "longer" || name == "the last") && restorable(t, b, dir, p) {
					return // it may have hit what nothing depends on
				}
				refusedImage(t, b, dir, p, "", nil)
			})
		}
	}
	if o := restored(t, b, copyDir(t, image), p, nil).Must(t, "x"); o.Text(sandbox.Value) != "1" {
		t.Errorf("the image itself gives %s", o.Text(sandbox.Value))
	}
}

// restorable says whether an image that was damaged where it may not matter still gives the right memory.
func restorable(t *testing.T, b sandbox.Backend, dir string, from *Place) bool {
	t.Helper()
	p, err := restore(t, b, dir, from, nil)
	return err == nil && p.Must(t, "x").Text(sandbox.Value) == "1"
}

// manifest is what backends call the file that describes an image.
const manifest = "lathe.json"

// testDurableForeign: an image of another version, and one for another kind of sandbox.
func testDurableForeign(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.Must(t, "x = 1")
	image := checkpoint(t, p)
	data, err := os.ReadFile(filepath.Join(image, manifest))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for field, tt := range map[string]struct {
		value any
		says  string
	}{
		"version": {99, "version"}, "runsc": {"v0.0.0-other", "gVisor"}, "guest": {"other", "lathe"}, "proto": {99, "lathe"},
		"image": {"other", "image"}, "layout": {"other", "laid out"},
	} {
		t.Run(field, func(t *testing.T) {
			if _, ok := fields[field]; !ok {
				t.Fatalf("the manifest has no %q", field)
			}
			dir, was := copyDir(t, image), fields[field]
			fields[field] = tt.value
			defer func() { fields[field] = was }()
			data, err := json.Marshal(fields)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, manifest), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			refusedImage(t, b, dir, p, tt.says, nil)
		})
	}
	t.Run("other mounts", func(t *testing.T) {
		refusedImage(t, b, image, p, "mounts", func(s *sandbox.Spec) {
			s.Mounts = append(s.Mounts, sandbox.Mount{Source: p.Data, Target: "/root"})
		})
		refusedImage(t, b, image, p, "mounts", func(s *sandbox.Spec) { s.Mounts[0].ReadOnly = true })
	})
}

// testDurableFailing: a checkpoint or restore that fails leaves nothing that runs.
func testDurableFailing(t *testing.T, b sandbox.Backend) {
	t.Run("no folder", func(t *testing.T) {
		p := Start(t, b, nil)
		if err := p.Checkpoint(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
			t.Error("no error")
		}
	})
	t.Run("not empty", func(t *testing.T) {
		p := Start(t, b, nil)
		dir := checkpoint(t, p)
		before, err := os.ReadFile(filepath.Join(dir, manifest))
		if err != nil {
			t.Fatal(err)
		}
		q := Start(t, b, nil)
		if err := q.Checkpoint(t.Context(), dir); err == nil {
			t.Error("an image was written over another")
		}
		if after, err := os.ReadFile(filepath.Join(dir, manifest)); err != nil || string(after) != string(before) {
			t.Errorf("the other is no longer what it was: %v", err)
		}
		restored(t, b, dir, p, nil).usable(t)
	})
	t.Run("ended", func(t *testing.T) {
		p := Start(t, b, nil)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := p.Checkpoint(t.Context(), t.TempDir()); err == nil {
			t.Error("the checkpoint of nothing")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		p := Start(t, b, nil)
		p.Must(t, "x = bytearray(b'x' * (50 << 20))")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Checkpoint(ctx, t.TempDir()); err == nil {
			t.Error("no error")
		}
		q := Start(t, b, nil)
		dir := checkpoint(t, q)
		if _, err := b.Restore(ctx, newSpec(q), dir); err == nil || errors.Is(err, sandbox.ErrUnusable) {
			t.Errorf("got %v", err)
		}
		restored(t, b, dir, q, nil).usable(t)
	})
	t.Run("a kernel that died", func(t *testing.T) {
		p := Start(t, b, nil)
		p.Python(t, "import os; os._exit(1)")
		q := restored(t, b, checkpoint(t, p), p, nil)
		q.usable(t)
	})
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}
