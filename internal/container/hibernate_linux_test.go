package container

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/memory"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// All that a program has, through the end of one gateway and the start of the next, from the raw and from the packed image.
func TestHibernationInGVisor(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m, shut, err := p.open(nil)
	must(t, err)
	b := &bench{Manager: m, t: t}
	w := b.open(turn.Hosted{})
	python(t, w, `
import os, subprocess, tempfile, threading, time
class Point:
    def __init__(self, x): self.x = x
p, gen = Point(7), (n * n for n in range(100))
next(gen), next(gen)
os.makedirs('sub'); os.chdir('sub'); os.environ['MINE'] = 'env'
f = open('log', 'w'); f.write('one '); f.flush()
unlinked = tempfile.TemporaryFile(); unlinked.write(b'secret'); unlinked.flush()
open('/tmp/scratch', 'w').write('tmp')
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(.01)
threading.Thread(target=tick, daemon=True).start()
echo = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
`)
	check := `
before = ticks
while ticks == before: time.sleep(.01)
echo.stdin.write(b'ping\n'); echo.stdin.flush()
unlinked.seek(0)
f.write('more '); f.flush()
print(p.x, next(gen), os.path.basename(os.getcwd()), os.environ['MINE'], echo.stdout.readline(), unlinked.read(), open('/tmp/scratch').read(), open('log').read())
`
	must(t, w.Close())
	must(t, shut())

	b = p.bench(t, nil)
	row := b.row(w)
	if row.State != store.StateHibernated {
		t.Fatalf("after the gateway's end: %+v", row)
	}
	eventually(t, "it is packed", func() bool { return b.row(w).Memory.Packed > 0 })
	row = b.row(w)
	t.Logf("%d bytes, packed %d", row.Memory.Bytes, row.Memory.Packed)
	w = b.wake(w)
	wantText(t, python(t, w, check), "7 4 sub env b'ping\\n' b'secret' tmp one more \n")
	wantNotes(t, w)
	b.sleep(w)
	eventually(t, "it is packed", func() bool { return b.row(w).Memory.Packed > 0 })
	must(t, b.tendMemories(t.Context(), time.Now().Add(2*time.Hour)))
	row = b.row(w)
	if _, ok := memory.Sealed(b.memoryDir(row.ID, row.Memory.ID)); ok {
		t.Fatal("the raw form is still there")
	}
	w = b.wake(w)
	wantText(t, python(t, w, check), "7 9 sub env b'ping\\n' b'secret' tmp one more more \n")
	wantNotes(t, w)
}

// What a client deletes, replaces and uploads while a container hibernates that has the files open, and while it is up.
func TestOpenFilesInGVisor(t *testing.T) {
	t.Parallel()
	b := newPlace(t).bench(t, nil)
	ctx := as(t, "p")
	w := b.open(turn.Hosted{})
	id := w.Container().ID
	out := python(t, w, `
import os, mmap
x, files = 'kept', {}
for name in ('gone', 'replaced', 'live', 'mapped'):
    files[name] = open(name, 'w+')
    files[name].write('old ' + name + ' ' * 5000)
    files[name].flush()
view = mmap.mmap(files['mapped'].fileno(), 0)`)
	for _, f := range out.Files {
		if f.Name == "live" {
			must(t, b.DeleteFile(ctx, id, f.ID))
		}
	}
	wantText(t, python(t, w, "print(sorted(os.listdir('.')))"), "['gone', 'mapped', 'replaced']\n")
	b.sleep(w)
	for _, f := range out.Files {
		if f.Name != "live" {
			must(t, b.DeleteFile(ctx, id, f.ID))
		}
	}
	b.putFile(id, "replaced", "new")
	for range 2 {
		w = b.wake(w)
		out = python(t, w, "print(x, sorted(os.listdir('.')), open('replaced').read())")
		wantText(t, out, "kept ['replaced'] new\n")
		wantNotes(t, w)
		if len(out.Files) > 0 {
			t.Errorf("files made: %q", names(out.Files))
		}
		b.sleep(w)
	}
	if rows, _, err := b.Files(ctx, id, store.Page{Limit: 10}); err != nil || len(rows) != 1 {
		t.Errorf("listed: %v, %v", rows, err)
	}
}

func TestDamagedMemoryInGVisor(t *testing.T) {
	t.Parallel()
	b := newPlace(t).bench(t, nil)
	w := b.open(turn.Hosted{})
	python(t, w, "x = 1\nopen('f', 'w').write('kept')")
	b.sleep(w)
	row := b.row(w)
	image := memory.Image(b.memoryDir(row.ID, row.Memory.ID))
	files, err := os.ReadDir(image)
	must(t, err)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "pages.") {
			path := image + "/" + f.Name()
			data, err := os.ReadFile(path)
			must(t, err)
			data[len(data)/2] ^= 1
			must(t, os.WriteFile(path, data, 0o600))
		}
	}
	w = b.wake(w)
	wantText(t, python(t, w, "print('x' in dir(), open('f').read())"), "False kept\n")
	wantNotes(t, w, noteUnusable)
}

// Forks and checkpoints with what only real memory has: threads, processes, files that were removed while open.
func TestForkInGVisor(t *testing.T) {
	t.Parallel()
	b := newPlace(t).bench(t, nil)
	ctx := as(t, "p")
	w := b.open(turn.Hosted{Session: "s"})
	id := w.Container().ID
	python(t, w, `
import os, random, subprocess, uuid
x = [1]
f = open('log', 'w'); f.write('1'); f.flush()
removed = open('removed', 'w+'); removed.write('still here'); removed.flush(); os.remove('removed')
cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
`)
	point, err := b.Checkpoint(ctx, id, "start")
	must(t, err)
	fork, err := b.Fork(ctx, id, NewFork{})
	must(t, err)
	twin := b.open(turn.Hosted{Container: fork.ID})
	check := func(w tool.Workspace, mark, want string) {
		t.Helper()
		wantText(t, python(t, w, `
x.append('`+mark+`'); f.write('`+mark+`'); f.flush()
cat.stdin.write(b'`+mark+`\n'); cat.stdin.flush()
removed.seek(0)
print(x, open('log').read(), cat.stdout.readline(), removed.read(), os.listdir('.'))`), want)
		wantNotes(t, w)
	}
	check(w, "s", "[1, 's'] 1s b's\\n' still here ['log']\n")
	check(twin, "f", "[1, 'f'] 1f b'f\\n' still here ['log']\n")
	ids := map[string]bool{}
	for _, w := range []tool.Workspace{w, twin} {
		ids[text(python(t, w, "print(uuid.uuid4(), os.urandom(8).hex())"))] = true
	}
	if len(ids) != 2 {
		t.Errorf("a fork makes the same random numbers: %v", ids)
	}
	_, err = b.Rewind(ctx, id, point.ID)
	must(t, err)
	check(w, "r", "[1, 'r'] 1r b'r\\n' still here ['log']\n")
	wantFiles(t, b, id, "log=1r")
	wantFiles(t, b, fork.ID, "log=1f")
}
