package container

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

var background = context.Background() // of what outlives a test

// place is the data directory of a gateway, and what it runs sandboxes with.
type place struct {
	Dir, Runsc, Guest string
	// Pool is how many spares an owner has while it runs calls.
	Pool int
}

var buildGuest = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "guest")
	build := exec.Command("go", "build", "-o", path, "github.com/lathe-gateway/lathe/cmd/lathe-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the guest: %w: %s", err, out)
	}
	return path, nil
})

// newPlace skips a test where gVisor is not built.
func newPlace(t *testing.T) place {
	t.Helper()
	root, err := os.Getwd()
	must(t, err)
	runsc := filepath.Join(root, "..", "..", "bin", "runsc")
	if _, err := os.Stat(runsc); err != nil {
		t.Skip("needs bin/runsc: run `make build`")
	}
	guest, err := buildGuest()
	must(t, err)
	return place{Dir: t.TempDir(), Runsc: runsc, Guest: guest}
}

// open is what cmd/lathe does at its start.
func (p place) open(edit func(*Config)) (*Manager, func() error, error) {
	guest, err := os.ReadFile(p.Guest)
	if err != nil {
		return nil, nil, err
	}
	db, err := sqlite.Open(background, filepath.Join(p.Dir, "lathe.db"))
	if err != nil {
		return nil, nil, err
	}
	blobs, err := blob.Open(filepath.Join(p.Dir, "blobs"))
	if err != nil {
		return nil, nil, err
	}
	backend, err := gvisor.New(gvisor.Config{Runsc: p.Runsc, StateDir: filepath.Join(p.Dir, "sandboxes"), Guest: guest})
	if err != nil {
		return nil, nil, err
	}
	cfg := Config{
		Store: db, Blobs: blobs, Backend: backend, Dir: filepath.Join(p.Dir, "containers"), Limits: sandbox.Defaults(), Reserve: -1, MaxLive: 8,
	}
	cfg.Limits.Disk = 64 << 20
	if edit != nil {
		edit(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		return nil, nil, err
	}
	return m, func() error { return errors.Join(m.Close(), backend.Close(), blobs.Close(), db.Close()) }, m.Reconcile(background)
}

func (p place) bench(t *testing.T, edit func(*Config)) *bench {
	t.Helper()
	m, shut, err := p.open(edit)
	must(t, err)
	t.Cleanup(func() {
		if err := shut(); err != nil {
			t.Errorf("close: %v", err)
		}
		nothingLeft(t, m.Dir)
	})
	return &bench{Manager: m, t: t}
}

// nothingLeft checks that there is no mount below a folder, nor, soon, a loop device. The kernel frees a device when the last mount
// namespace lets go of it, and tests beside this one start processes with namespaces of their own.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	mounts, err := mountsBelow(dir)
	must(t, err)
	if len(mounts) > 0 {
		t.Errorf("still mounted: %q", mounts)
	}
	eventually(t, "the loop devices are free", func() bool { return len(loopsBelow(dir)) == 0 })
}

// What a hostile program leaves in its folder is neither followed nor waited for.
func TestHostileVolume(t *testing.T) {
	t.Parallel()
	b := newPlace(t).bench(t, func(c *Config) { c.Limits.Disk = 256 << 20 })
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "of the host")
	w := b.open(turn.Hosted{})
	out := python(t, w, `
import os, socket, errno
os.symlink('`+secret+`', 'link')
os.symlink('/', 'rootlink')
os.symlink('../../../../../../../..`+secret+`', 'uplink')
os.symlink('.', 'self')
os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('sock')
for kind in (0o020000, 0o060000):
    try:
        os.mknod('device', kind | 0o666, os.makedev(1, 3))
        print('made a device')
    except OSError as e:
        print(errno.errorcode[e.errno])
with open('sparse', 'wb') as f:
    f.truncate(200 << 20)
d = '.'
for i in range(100):
    d += '/d'
    os.mkdir(d)
open('plain', 'w').write('fine')
os.link('plain', 'hard')
os.chmod('plain', 0)
os.mkdir('locked'); open('locked/in', 'w').write('x'); os.chmod('locked', 0)
None
`)
	if out.Status != "ok" || strings.Contains(text(out), "made a device") {
		t.Fatalf("program: %+v", out)
	}
	want := []string{"hard", "locked/in", "plain", "sparse"}
	if !isRoot() { // what the program made unreadable is so for us too
		want = []string{"sparse"}
	}
	if got := names(out.Files); !slices.Equal(got, want) {
		t.Errorf("files %q, notes %q", got, w.Notes())
	}
	for _, f := range out.Files {
		if f.Name == "plain" && b.content(f) != "fine" {
			t.Errorf("%s has %q", f.Name, b.content(f))
		}
	}
	id := w.Container().ID
	for _, name := range []string{"link", "rootlink", "self"} {
		if f := b.putFile(id, name, "uploaded"); f.Name == name {
			t.Errorf("an upload took the place of %s", name)
		}
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "of the host" {
		t.Errorf("the host's file has %q, %v", data, err)
	}
	must(t, b.Delete(as(t, "p"), id), w.Close())
	if left, err := filepath.Glob(filepath.Join(b.Dir, "cntr_*")); err != nil || len(left) > 0 {
		t.Errorf("left after Delete: %v, %v", left, err)
	}
}

// A program that swaps what we are about to open, as fast as it can, for as long as we look.
func TestHostileRaces(t *testing.T) {
	t.Parallel()
	b := newPlace(t).bench(t, func(c *Config) { c.Limits.ExecTime = 20 * time.Second })
	outside := t.TempDir()
	write(t, filepath.Join(outside, "f"), "of the host")
	w := b.open(turn.Hosted{})
	out := bash(t, w, `cat > swap.py <<'SWAP'
import os, shutil, time
def gone(p):
    try: shutil.rmtree(p) if os.path.isdir(p) and not os.path.islink(p) else os.unlink(p)
    except OSError: pass
end = time.time() + 6
while time.time() < end:
    gone('t'); os.mkdir('t'); open('t/f', 'w').write('inside')
    gone('t'); os.mkfifo('t')
    gone('t'); os.symlink('`+outside+`', 't')
    gone('u'); open('u', 'w').write('inside')
    gone('u'); os.symlink('`+outside+`/f', 'u')
    gone('u'); os.mkfifo('u')
SWAP
nohup python3 swap.py >/dev/null 2>&1 & echo started`)
	if text(out) != "started\n" {
		t.Fatalf("program: %+v", out)
	}
	e := w.(*workspace).entry
	var seen []turn.File
	for deadline := time.Now().Add(4 * time.Second); time.Now().Before(deadline); {
		done := make(chan struct{})
		go func() {
			defer close(done)
			made, _, err := e.capture(t.Context())
			if err != nil {
				t.Errorf("capture: %v", err)
			}
			seen = append(seen, made...)
			ctx := as(t, "p")
			st, err := b.Uploads().Stage(ctx, strings.NewReader("uploaded"))
			if err == nil {
				_, err = b.PutFile(ctx, w.Container().ID, "u", st)
			}
			if err != nil && turn.AsError(err).Kind != turn.KindConflict {
				t.Errorf("put: %v", err)
			}
		}()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("the gateway hangs")
		}
	}
	for _, f := range seen {
		if strings.Contains(b.content(f), "of the host") {
			t.Fatalf("%s was read through a link", f.Path)
		}
	}
	if data, err := os.ReadFile(filepath.Join(outside, "f")); err != nil || string(data) != "of the host" {
		t.Errorf("the host's file has %q, %v", data, err)
	}
}

// The real thing, end to end: state, files of both folders, the disk limit, a restart with its files.
func TestContainerInGVisor(t *testing.T) {
	t.Parallel()
	b := newPlace(t).bench(t, nil)
	w := b.open(turn.Hosted{})
	out := python(t, w, `
import os
x = 1
open('a.csv', 'w').write('1,2')
open(os.path.expanduser('~/kept'), 'w').write('home')
print(os.getcwd(), os.path.expanduser('~'), os.environ['INPUT_DIR'], os.environ['OUTPUT_DIR'], os.getuid(), os.stat('/mnt/data').st_uid)
`)
	who := "1000 1000"
	if !isRoot() { // the user namespace has one id
		who = "0 0"
	}
	if text(out) != "/mnt/data /home/user /mnt/data /mnt/data "+who+"\n" || len(out.Files) != 1 {
		t.Errorf("first call: %q, files %v", text(out), out.Files)
	}
	// Bug pinned: with the volume mounted noexec, compiled programs and native modules died of SIGSEGV.
	out = bash(t, w, "cp /bin/true here && ./here && cp /bin/true ~/there && ~/there && echo both run; rm here")
	if text(out) != "both run\n" {
		t.Errorf("programs in the volume: %+v", out)
	}
	if b.volumes.images {
		out = bash(t, w, "head -c 200M /dev/zero > big; echo $?; rm big")
		if !strings.HasSuffix(text(out), "1\n") {
			t.Errorf("past the disk limit: %q", text(out))
		}
	}
	e := w.(*workspace).entry
	must(t, w.Close())
	e.park(time.Now())
	eventually(t, "the entry is forgotten", func() bool { return len(b.all()) == 0 })
	nothingLeft(t, b.Dir)
	w = b.open(turn.Hosted{Container: e.key.id})
	out = python(t, w, "import os\nprint(x, open('a.csv').read(), open(os.path.expanduser('~/kept')).read())")
	wantText(t, out, "1 1,2 home\n")
	wantNotes(t, w)
}

// A file system whose mount lives on in another mount namespace must not be mounted a second time from its image.
func TestRemountWhileAnotherNamespaceHoldsTheVolume(t *testing.T) {
	t.Parallel()
	v := newVolumes(t.Context(), t.TempDir(), 64<<20, false)
	if !v.images {
		t.Skipf("needs disk images: %v", v.why)
	}
	id := turn.NewID("cntr_")
	vol, err := v.mount(t.Context(), id)
	must(t, err)
	holder := exec.Command("sleep", "600")
	holder.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	must(t, holder.Start())
	for i := range 3 {
		write(t, filepath.Join(vol.path, "data", fmt.Sprint(i)), "x")
		must(t, v.unmount(vol))
		vol, err = v.mount(t.Context(), id)
		must(t, err)
		files, err := os.ReadDir(filepath.Join(vol.path, "data"))
		must(t, err)
		if len(files) != i+1 || len(loopsBelow(v.dir)) != 1 {
			t.Fatalf("after %d remounts: files %v, devices %v", i+1, files, loopsBelow(v.dir))
		}
	}
	must(t, holder.Process.Kill())
	holder.Wait()
	must(t, v.unmount(vol))
	nothingLeft(t, v.dir)
}

// announced is a line of the owner process.
type announced struct{ Container, File, Text string }

// TestMain also is the process that TestKill9 kills.
func TestMain(m *testing.M) {
	if spec := os.Getenv("LATHE_TEST_OWNER"); spec != "" {
		if err := own(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// own runs calls in three containers until it is killed, and says what became of each.
func own(spec string) error {
	var p place
	if err := json.Unmarshal([]byte(spec), &p); err != nil {
		return err
	}
	m, _, err := p.open(func(c *Config) { c.Pool = p.Pool })
	if err != nil {
		return err
	}
	m.StartPool()
	for tick := time.NewTicker(10 * time.Millisecond); m.Spares() < p.Pool; {
		<-tick.C
	}
	var mu sync.Mutex
	say := json.NewEncoder(os.Stdout)
	errs := make(chan error)
	for c := range 3 {
		go func() {
			ctx := auth.WithPrincipal(background, auth.Principal{Project: "p"})
			w, err := m.Open(ctx, &turn.Hosted{Session: fmt.Sprintf("session %d", c)})
			for i := 0; err == nil; i++ {
				body := fmt.Sprintf("%d of %d", i, c)
				code := fmt.Sprintf("open('f%d', 'w').write(%q)\nopen('last', 'w').write(%[2]q)\nNone", i, body)
				var out *tool.Outcome
				if out, err = w.Run(ctx, tool.Call{Tool: tool.Python, Code: code}, nil); err != nil {
					break
				}
				mu.Lock()
				for _, f := range out.Files {
					if f.Name != "last" && f.Name != fmt.Sprintf("f%d", i) {
						continue // of a call that was killed with an earlier owner, perhaps before it had written
					}
					err = errors.Join(err, say.Encode(announced{f.Container, f.ID, body}))
				}
				mu.Unlock()
			}
			errs <- err
		}()
	}
	return <-errs
}

// killedOwner lets a process run calls until it has announced n files, some of each container, and kills it in the middle of what it does.
func killedOwner(t *testing.T, p place, n int) []announced {
	t.Helper()
	spec, err := json.Marshal(p)
	must(t, err)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), "LATHE_TEST_OWNER="+string(spec))
	owner.Stderr = os.Stderr
	lines, err := owner.StdoutPipe()
	must(t, err)
	must(t, owner.Start())
	var all []announced
	containers := map[string]bool{}
	for read := bufio.NewScanner(lines); (len(all) < n || len(containers) < 3) && read.Scan(); {
		var a announced
		must(t, json.Unmarshal(read.Bytes(), &a))
		all = append(all, a)
		containers[a.Container] = true
	}
	must(t, owner.Process.Kill())
	owner.Wait()
	if len(all) < n || len(containers) < 3 {
		t.Fatalf("the owner ended by itself after %d files", len(all))
	}
	return all
}

func TestKill9(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.Pool = 2
	all := append(killedOwner(t, p, 30), killedOwner(t, p, 30)...)
	stray := turn.NewID("cntr_")
	write(t, filepath.Join(p.Dir, "containers", stray, "vol", "data", "f"), "of a row that was never made")
	write(t, filepath.Join(p.Dir, "containers", "notes.txt"), "not ours")

	b := p.bench(t, nil)
	nothingLeft(t, b.Dir)
	if _, err := os.Stat(filepath.Join(b.Dir, stray)); err == nil {
		t.Error("a folder without a row is still there")
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "notes.txt")); err != nil {
		t.Error("a file that is not ours was removed")
	}
	for _, a := range all {
		if got := b.content(turn.File{Container: a.Container, ID: a.File}); got != a.Text {
			t.Errorf("file %s has %q, want %q", a.File, got, a.Text)
		}
	}
	folders, err := filepath.Glob(filepath.Join(b.Dir, "cntr_*"))
	must(t, err)
	must(t, b.Store.Containers().All(t.Context(), func(c store.Container) error {
		folders = slices.DeleteFunc(folders, func(dir string) bool { return filepath.Base(dir) == c.ID })
		if c.State != store.StateIdle {
			t.Errorf("container %s is %s", c.ID, c.State)
		}
		return nil
	}))
	if len(folders) > 0 {
		t.Errorf("folders without a container, such as those of spares: %q", folders)
	}
	for c := range 3 {
		checkSurvivor(t, b, c, all)
	}
}

// checkSurvivor goes on with a container whose owner was killed.
func checkSurvivor(t *testing.T, b *bench, c int, all []announced) {
	t.Helper()
	w := b.open(turn.Hosted{Session: fmt.Sprintf("session %d", c)})
	id := w.Container().ID
	if !slices.ContainsFunc(all, func(a announced) bool { return a.Container == id }) {
		t.Errorf("session %d has a new container", c)
	}
	out := python(t, w, "print(open('last').read())")
	if !strings.HasSuffix(text(out), fmt.Sprintf(" of %d\n", c)) {
		t.Errorf("session %d: the volume has %q", c, text(out))
	}
	if notes := w.Notes(); len(notes) != 1 || notes[0] != noteRestarted {
		t.Errorf("session %d: notes %q", c, notes)
	}
	if f, ok := w.Find(t.Context(), "/mnt/data/last"); !ok || b.content(f)+"\n" != text(out) {
		t.Errorf("session %d: last is %+v, %v", c, f, ok)
	}
}
