package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/memory"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/fake"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// sleep closes a workspace and has its container hibernate.
func (b *bench) sleep(w tool.Workspace) {
	b.t.Helper()
	must(b.t, w.Close())
	e := w.(*workspace).entry
	eventually(b.t, "the container begins to hibernate", func() bool { return e.park(time.Now()) })
	eventually(b.t, "the entry is forgotten", func() bool { return !b.uses(e.key.id) })
}

func (b *bench) row(w tool.Workspace) store.Container {
	b.t.Helper()
	row, err := b.Store.Containers().Get(b.t.Context(), "p", w.Container().ID)
	must(b.t, err)
	return row
}

// wake opens a container again.
func (b *bench) wake(w tool.Workspace) tool.Workspace {
	b.t.Helper()
	return b.open(turn.Hosted{Container: w.Container().ID})
}

func wantNotes(t testing.TB, w tool.Workspace, want ...string) {
	t.Helper()
	if got := w.Notes(); !slices.Equal(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
}

func wantText(t testing.TB, out *tool.Outcome, want string) {
	t.Helper()
	if got := text(out); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHibernation(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	python(t, w, "import math, os\nx = [1]\nos.mkdir('sub'); os.chdir('sub'); os.environ['MINE'] = 'env'\nf = open('f', 'w'); f.write('a'); f.flush()")
	e := w.(*workspace).entry
	if e.park(time.Now()) {
		t.Error("the sandbox of an open workspace hibernates")
	}
	must(t, w.Close(), w.Close())
	if e.park(time.Now().Add(-time.Minute)) {
		t.Error("a sandbox that was used a moment ago hibernates")
	}
	b.sleep(w)
	row := b.row(w)
	if row.State != store.StateHibernated || row.Memory.ID == "" || row.Memory.Bytes == 0 || row.Owner != "" {
		t.Fatalf("row %+v", row)
	}
	if got := Status(row); got != "running" {
		t.Errorf("clients see %q", got)
	}
	for i := range 3 { // again and again
		w = b.wake(w)
		wantText(t, python(t, w, "f.write('b'); f.flush(); x.append(2)\nprint(len(x), math.floor(1.5), os.path.basename(os.getcwd()), os.environ['MINE'])"),
			fmt.Sprintf("%d 1 sub env\n", i+2))
		wantNotes(t, w)
		if row := b.row(w); row.State != store.StateLive || row.Memory != (store.Memory{}) || row.Owner != b.owner {
			t.Errorf("while it is live: %+v", row)
		}
		b.sleep(w)
	}
	w = b.wake(w)
	wantText(t, python(t, w, "print(open('f').read())"), "abbb\n")
	eventually(t, "the images are removed", func() bool {
		left, err := os.ReadDir(filepath.Dir(b.memoryDir(e.key.id, "x")))
		return err == nil && len(left) == 0
	})
	fresh, err := b.Create(as(t, "p"), NewContainer{Name: "never used"})
	must(t, err)
	w = b.open(turn.Hosted{Container: fresh.ID})
	must(t, func() error { _, err := w.(*workspace).sandbox(t.Context(), true); return err }())
	b.sleep(w)
	if row := b.row(w); row.State != store.StateIdle {
		t.Errorf("what never ran code is %s", row.State)
	}
	w = b.wake(w)
	python(t, w, "1")
	wantNotes(t, w)
}

// The raw form of the image goes, and the packed one is resumed.
func TestPackedMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.RawFor = time.Hour })
	w := b.open(turn.Hosted{Session: "s"})
	python(t, w, "x = 'kept'")
	b.sleep(w)
	eventually(t, "it is packed", func() bool { return b.row(w).Memory.Packed > 0 })
	row := b.row(w)
	raw := b.memoryDir(row.ID, row.Memory.ID)
	if _, ok := memory.Sealed(raw); !ok {
		t.Error("the raw form went at once")
	}
	must(t, b.tendMemories(t.Context(), time.Now().Add(2*time.Hour)))
	if _, err := os.Stat(raw); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the raw form stays: %v", err)
	}
	w = b.wake(w)
	wantText(t, python(t, w, "print(x)"), "kept\n")
	wantNotes(t, w)
	eventually(t, "the packed image is removed", func() bool {
		r, err := b.Blobs.OpenNamed(t.Context(), "p", row.Memory.ID)
		if err == nil {
			r.Close()
		}
		return errors.Is(err, blob.ErrNotFound)
	})
}

func TestRawQuota(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.RawQuota = 1 })
	w := b.open(turn.Hosted{})
	python(t, w, "x = 'kept'")
	b.sleep(w)
	eventually(t, "the raw form goes", func() bool {
		row := b.row(w)
		_, ok := memory.Sealed(b.memoryDir(row.ID, row.Memory.ID))
		return row.Memory.Packed > 0 && !ok
	})
	wantText(t, python(t, b.wake(w), "print(x)"), "kept\n")
}

// What cannot be resumed costs the variables, and both sides are told.
func TestMemoryThatCannotBeResumed(t *testing.T) {
	t.Parallel()
	flip := func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			return errors.Join(err, errors.New("nothing to damage"))
		}
		data[len(data)/2] ^= 1
		return os.WriteFile(path, data, 0o600)
	}
	for name, damage := range map[string]func(b *bench, row store.Container) error{
		"raw image damaged": func(b *bench, row store.Container) error {
			return flip(filepath.Join(memory.Image(b.memoryDir(row.ID, row.Memory.ID)), "memory"))
		},
		"raw image gone, none packed": func(b *bench, row store.Container) error {
			_, err := b.Store.Containers().Update(b.t.Context(), "p", row.ID, func(c *store.Container) error { c.Memory.Packed = 0; return nil })
			return errors.Join(err, os.RemoveAll(b.memoryDir(row.ID, row.Memory.ID)))
		},
		"packed image damaged": func(b *bench, row store.Container) error {
			return errors.Join(os.RemoveAll(b.memoryDir(row.ID, row.Memory.ID)), flip(filepath.Join(b.Blobs.Dir(), blob.NamedKey("p", row.Memory.ID))))
		},
		"packed image of something else": func(b *bench, row store.Container) error {
			must(b.t, os.RemoveAll(b.memoryDir(row.ID, row.Memory.ID)), b.Blobs.DeleteNamed(b.t.Context(), "p", row.Memory.ID))
			_, _, err := b.Blobs.PutNamed(b.t.Context(), "p", row.Memory.ID, strings.NewReader("something else"))
			return err
		},
		"an open file gone": func(b *bench, row store.Container) error {
			vol, err := b.volumes.mount(b.t.Context(), row.ID)
			if err != nil {
				return err
			}
			return errors.Join(vol.data.Remove("open"), b.volumes.unmount(vol))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			w := b.open(turn.Hosted{})
			python(t, w, "x = 1\nopen('f', 'w').write('kept')\nf = open('open', 'w')\n")
			b.sleep(w)
			eventually(t, "it is packed", func() bool { return b.row(w).Memory.Packed > 0 })
			must(t, damage(b, b.row(w)))
			w = b.wake(w)
			wantText(t, python(t, w, "print('x' in dir(), open('f').read())"), "False kept\n")
			wantNotes(t, w, noteUnusable)
			if row := b.row(w); row.State != store.StateLive || row.Memory.ID != "" {
				t.Errorf("row %+v", row)
			}
			b.sleep(w)
			w = b.wake(w)
			python(t, w, "1")
			wantNotes(t, w)
		})
	}
}

// A host that cannot start anything for a while costs no memory.
func TestRestoreThatFailsForAWhile(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	python(t, w, "x = 'kept'")
	b.sleep(w)
	for _, err := range []error{errors.New("no room"), fmt.Errorf("%w: no runsc", sandbox.ErrUnavailable)} {
		b.backend.refuseWith(err)
		w = b.wake(w)
		_, err := w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
		wantKind(t, "resume", err, turn.KindOverloaded, "")
		must(t, w.Close())
		if row := b.row(w); row.State != store.StateHibernated || row.Memory.ID == "" {
			t.Errorf("row %+v", row)
		}
	}
	b.backend.refuseWith(nil)
	w = b.wake(w)
	wantText(t, python(t, w, "print(x)"), "kept\n")
	wantNotes(t, w)
}

func TestCheckpointThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.backend.checkpoint = func() error { return errors.New("disk on fire") }
	w := b.open(turn.Hosted{})
	python(t, w, "x = 1\nopen('f', 'w').write('kept')")
	b.sleep(w)
	if row := b.row(w); row.State != store.StateIdle || row.Memory.ID != "" {
		t.Errorf("row %+v", row)
	}
	w = b.wake(w)
	wantText(t, python(t, w, "print('x' in dir(), open('f').read())"), "False kept\n")
	wantNotes(t, w, noteRestarted)
	left, err := os.ReadDir(filepath.Dir(b.memoryDir(w.Container().ID, "x")))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Memory that is too old or too much goes, and the files stay.
func TestMemoryIsGivenUp(t *testing.T) {
	t.Parallel()
	p := newShared(t)
	b := p.manager(nil)
	hibernated := func(h turn.Hosted) tool.Workspace {
		w := b.open(h)
		python(t, w, "x = 1\nopen('f', 'w').write('kept')")
		b.sleep(w)
		eventually(t, "it is packed", func() bool { return b.row(w).Memory.Packed > 0 })
		return w
	}
	unnamed, named := hibernated(turn.Hosted{}), hibernated(turn.Hosted{Session: "s"})
	must(t, b.tendMemories(t.Context(), time.Now().Add(23*time.Hour)))
	if b.row(unnamed).State != store.StateHibernated {
		t.Error("memory of a container without a name went within a day")
	}
	must(t, b.tendMemories(t.Context(), time.Now().Add(25*time.Hour)))
	if got := b.row(unnamed).State; got != store.StateIdle {
		t.Errorf("after a day a container that nobody named is %s", got)
	}
	if got := b.row(named).State; got != store.StateHibernated {
		t.Errorf("after a day a container with a name is %s", got)
	}
	later := hibernated(turn.Hosted{Session: "t"})
	bytes := b.row(named).Memory.Bytes
	must(t, b.Close())
	b = p.manager(func(c *Config) { c.MemoryQuota = bytes + 10 })
	eventually(t, "the first written goes", func() bool {
		must(t, b.tendMemories(t.Context(), time.Now())) // which leaves alone what the Manager is at itself
		return b.row(named).State == store.StateIdle
	})
	if got := b.row(later).State; got != store.StateHibernated {
		t.Errorf("over the quota: the second written is %s", got)
	}
	w := b.wake(named)
	wantText(t, python(t, w, "print('x' in dir(), open('f').read())"), "False kept\n")
	wantNotes(t, w, noteRestarted)
	wantText(t, python(t, b.wake(later), "print(x)"), "1\n")
	must(t, b.sweep(t.Context(), time.Now().Add(time.Hour)))
}

// A file that is deleted or replaced over the API while a container hibernates that has it open.
func TestFilesOfAHibernatedContainer(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ctx := as(t, "p")
	w := b.open(turn.Hosted{})
	id := w.Container().ID
	out := python(t, w, `
x = 'kept'
files = {}
for name in ('gone', 'replaced', 'same', 'live'):
    files[name] = open(name, 'w+')
    files[name].write('old ' + name)
    files[name].flush()`)
	made := map[string]string{}
	for _, f := range out.Files {
		made[f.Name] = f.ID
	}
	must(t, b.DeleteFile(ctx, id, made["live"])) // while it runs
	b.sleep(w)
	for _, name := range []string{"gone", "replaced", "same"} {
		must(t, b.DeleteFile(ctx, id, made[name]))
		if _, err := b.File(ctx, id, made[name]); err == nil {
			t.Errorf("%s can still be seen", name)
		}
	}
	if rows, _, err := b.Files(ctx, id, store.Page{Limit: 10}); err != nil || len(rows) > 0 {
		t.Errorf("listed: %v, %v", rows, err)
	}
	if got := b.putFile(id, "replaced", "new").Path; got != "/mnt/data/replaced" {
		t.Errorf("a file that was deleted keeps its name: the new one is %s", got)
	}
	if got := b.putFile(id, "same", "old same").Path; got != "/mnt/data/same" {
		t.Errorf("the same bytes again are %s", got)
	}
	w = b.wake(w)
	wantText(t, python(t, w, "import os\nprint(x, sorted(os.listdir('.')), open('replaced').read(), open('same').read())"),
		"kept ['replaced', 'same'] new old same\n")
	wantNotes(t, w)
	b.sleep(w) // with files open that have gone since
	w = b.wake(w)
	out = python(t, w, "print(x, sorted(os.listdir('.')))")
	wantText(t, out, "kept ['replaced', 'same']\n")
	if len(out.Files) > 0 {
		t.Errorf("files made: %q", names(out.Files))
	}
}

// At the end of the process what is live hibernates, also what a turn still uses.
func TestCloseHibernates(t *testing.T) {
	t.Parallel()
	p := newShared(t)
	b := p.manager(nil)
	idle, open, busy := b.open(turn.Hosted{}), b.open(turn.Hosted{}), b.open(turn.Hosted{})
	for i, w := range []tool.Workspace{idle, open, busy} {
		python(t, w, fmt.Sprintf("x = %d", i))
	}
	must(t, idle.Close())
	running, done := make(chan struct{}), make(chan error, 1)
	begun := sync.OnceFunc(func() { close(running) })
	go func() {
		_, err := busy.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "print('now', flush=True)\nimport time\ntime.sleep(600)"},
			func(tool.Chunk) { begun() })
		done <- err
	}()
	<-running
	b.DrainTime = 50 * time.Millisecond
	must(t, b.Close())
	wantKind(t, "the running call", <-done, turn.KindOverloaded, "shutting down")
	for _, w := range []tool.Workspace{idle, open, busy} {
		w.Close()
	}

	b = p.manager(nil)
	for i, w := range []tool.Workspace{idle, open, busy} {
		if row := b.row(w); row.State != store.StateHibernated || row.Owner != "" {
			t.Errorf("%d: row %+v", i, row)
		}
		w = b.wake(w)
		wantText(t, python(t, w, "print(x)"), fmt.Sprintf("%d\n", i))
		wantNotes(t, w)
	}
}

// shared is a store, blobs and a folder, for Managers one after another or side by side.
type shared struct {
	t   testing.TB
	dir string
	cfg Config
}

func newShared(t testing.TB) *shared {
	b := newBench(t, nil)
	must(t, b.Close())
	cfg := b.Config
	return &shared{t: t, dir: b.Dir, cfg: cfg}
}

// manager is a new process, as far as a Manager can tell.
func (s *shared) manager(edit func(*Config)) *bench {
	s.t.Helper()
	cfg := s.cfg
	backend := &flaky{Backend: fake.New(fake.Config{Dir: s.t.TempDir(), Plain: true})}
	cfg.Backend = backend
	if edit != nil {
		edit(&cfg)
	}
	m, err := New(cfg)
	must(s.t, err)
	b := &bench{Manager: m, t: s.t, backend: backend}
	s.t.Cleanup(func() {
		must(s.t, m.Close(), backend.Close())
	})
	must(s.t, m.Reconcile(s.t.Context()))
	return b
}
