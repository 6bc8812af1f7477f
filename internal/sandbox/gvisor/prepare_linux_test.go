package gvisor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
	"github.com/lathe-gateway/lathe/internal/sandbox/sandboxtest"
)

// prepared is newBackend with a prepared image.
func prepared(t *testing.T, dir string) *gvisor.Backend {
	t.Helper()
	b := openWith(t, t.TempDir(), gvisor.Config{Image: dir, Spares: 1})
	if err := b.Prepare(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	return b
}

// preparedImages are the folders of prepared images in a state directory, those being made included.
func preparedImages(t *testing.T, state string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(state, "prepared", "*"))
	hidden, err2 := filepath.Glob(filepath.Join(state, "prepared", ".*"))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return append(found, hidden...)
}

// TestSuitePrepared: a sandbox that starts from a prepared image is like any other.
func TestSuitePrepared(t *testing.T) {
	dir := bestRoot(t)
	sandboxtest.Run(t, func(t *testing.T) sandbox.Backend { return prepared(t, dir) })
}

// TestHostilePrepared leaves Fork out: gVisor copies 2 MiB around each page that a fork writes to, so the children of an interpreter with the
// data libraries take 50 MiB each, and 40 of them are more than the sandbox may have.
func TestHostilePrepared(t *testing.T) {
	dir := bestRoot(t)
	sandboxtest.Hostile(t, func(t *testing.T) sandbox.Backend { return prepared(t, dir) },
		"Tmp", "Rights", "Guest", "Processes", "Memory", "Neighbours", "Outlive")
}

// testModules makes a copy of the image that has modules to import.
func testModules(t *testing.T, modules string) string {
	t.Helper()
	img, ok := roots(t)["image"]
	if !ok {
		t.Skip("needs an image (make image)")
	}
	dir := filepath.Join(t.TempDir(), "rootfs")
	// Hard links are enough: nothing of it is written to.
	if out, err := exec.Command("cp", "-al", img, dir).CombinedOutput(); err != nil {
		t.Skipf("the image cannot be linked here: %s", out)
	}
	path := filepath.Join(dir, "usr/share/lathe/modules")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(path)
	if err := os.WriteFile(path, []byte(modules), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPrepare(t *testing.T) {
	dir := testModules(t, "# what to import\nsndhdr # colours\n\nno.such.module\nplistlib\n")
	state := t.TempDir()
	b := openBackend(t, dir, state)
	const loaded = "import sys\nprint([m in sys.modules for m in ('sndhdr', 'plistlib', 'wave')])"
	if o := sandboxtest.Start(t, b, nil).Must(t, loaded); o.Text("") != "[False, False, False]\n" {
		t.Fatalf("without a prepared image: %q", o.Text(""))
	}
	if err := b.Prepare(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	images := preparedImages(t, state)
	if len(images) != 1 {
		t.Fatalf("there are %q", images)
	}
	before, err := os.Stat(filepath.Join(images[0], "pages.img"))
	if err != nil {
		t.Fatal(err)
	}
	if o := sandboxtest.Start(t, b, nil).Must(t, loaded); o.Text("") != "[True, True, False]\n" {
		t.Errorf("with a prepared image: %q", o.Text(""))
	}
	t.Run("again", func(t *testing.T) {
		if err := b.Prepare(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(filepath.Join(images[0], "pages.img"))
		if err != nil || !os.SameFile(before, after) {
			t.Errorf("it was made again: %v", err)
		}
	})
	t.Run("the first cell", func(t *testing.T) {
		p := sandboxtest.Start(t, b, func(s *sandbox.Spec) { s.Limits.CPUs = 2 })
		o := p.Must(t, "import os\nprint(os.getcwd(), os.environ['OMP_NUM_THREADS'], 'sys' in globals(), 'sndhdr' in globals())")
		if o.Text("") != "/mnt/data 2 False False\n" {
			t.Errorf("got %q", o.Text(""))
		}
	})
	t.Run("damaged", func(t *testing.T) {
		pages := filepath.Join(images[0], "checkpoint.img")
		data, err := os.ReadFile(pages)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(pages, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if o := sandboxtest.Start(t, b, nil).Must(t, loaded); o.Text("") != "[False, False, False]\n" {
			t.Errorf("with a damaged image: %q", o.Text(""))
		}
		if left := preparedImages(t, state); len(left) != 0 {
			t.Errorf("it is kept: %q", left)
		}
		if err := b.Prepare(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if o := sandboxtest.Start(t, b, nil).Must(t, loaded); o.Text("") != "[True, True, False]\n" {
			t.Errorf("prepared anew: %q", o.Text(""))
		}
	})
	t.Run("changed", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(dir, "usr/share/lathe/modules"), []byte("wave\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := b.Prepare(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if o := sandboxtest.Start(t, b, nil).Must(t, loaded); o.Text("") != "[False, False, True]\n" {
			t.Errorf("got %q", o.Text(""))
		}
		if left := preparedImages(t, state); len(left) != 1 {
			t.Errorf("there are %q", left)
		}
	})
}

// TestPruned: what can never be used again goes with the next Prepare, and nothing else does.
func TestPruned(t *testing.T) {
	dir, state := anyRoot(t), t.TempDir()
	b := openBackend(t, dir, state)
	if err := b.Prepare(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	own := preparedImages(t, state)[0]
	data, err := os.ReadFile(filepath.Join(own, "lathe.json"))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	stay := map[string]bool{filepath.Base(own): true, "of-another-image": true}
	for name, change := range map[string][2]string{
		"of-another-image": {"path", other}, "of-a-gone-image": {"path", filepath.Join(other, "gone")},
		"of-another-runsc": {"runsc", "other"}, "of-another-guest": {"guest", "other"}, "older": {"image", "other"},
	} {
		copied := filepath.Join(state, "prepared", name)
		if err := os.CopyFS(copied, os.DirFS(own)); err != nil {
			t.Fatal(err)
		}
		changed := map[string]any{}
		for k, v := range fields {
			changed[k] = v
		}
		changed[change[0]] = change[1]
		data, err := json.Marshal(changed)
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, "lathe.json"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(state, "prepared", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.Prepare(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	for _, path := range preparedImages(t, state) {
		if !stay[filepath.Base(path)] {
			t.Errorf("%s is still there", path)
		}
		delete(stay, filepath.Base(path))
	}
	for name := range stay {
		t.Errorf("%s is gone", name)
	}
}

// TestPrepareTogether: several processes may prepare in one state directory; each finds the work of another in peace.
func TestPrepareTogether(t *testing.T) {
	dir, state := testModules(t, "wave\n"), t.TempDir() // not the host's: its root file system is made by each
	var wg sync.WaitGroup
	for range 3 {
		b := openBackend(t, dir, state)
		wg.Go(func() {
			if err := b.Prepare(t.Context(), ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if left := preparedImages(t, state); len(left) != 1 {
		t.Errorf("there are %q", left)
	}
	sandboxtest.Start(t, openBackend(t, dir, state), nil).Must(t, "1")
}

// TestPrepareKilled: a gateway that is killed while it prepares leaves nothing that counts, nor anything at all after Reconcile.
func TestPrepareKilled(t *testing.T) {
	dir, state := anyRoot(t), t.TempDir()
	for _, until := range []string{"lock", "image", "image/pages.img"} {
		t.Run(until, func(t *testing.T) {
			gateway := startGateway(t, dir, state, prepareRole)
			eventually(t, until+" is there", func() bool {
				found, _ := filepath.Glob(filepath.Join(state, "prepared", ".new-*", until))
				return len(found) > 0
			})
			if err := gateway.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = gateway.Wait()
			for _, path := range preparedImages(t, state) {
				if !strings.HasPrefix(filepath.Base(path), ".new-") {
					t.Skip("it was faster")
				}
			}
			b := openBackend(t, dir, state)
			if err := b.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := preparedImages(t, state); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if left := leftovers(t, state); len(left) > 0 && !onlyParents(left, state) {
				t.Errorf("left behind: %q", left)
			}
		})
	}
	b := openBackend(t, dir, state)
	if err := b.Prepare(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Start(t, b, nil).Must(t, "1")
}

// random prints what two sandboxes from one image must not have in common, a line each: a name and a value.
const random = `
import os, random, secrets, socket, tempfile, uuid
def say(name, *value): print(name, *value)
say('random', random.random())
say('random-own', random.Random().random())
say('shuffle', random.sample(range(10**6), 3))
say('urandom', os.urandom(8).hex())
say('getrandom', os.getrandom(8).hex())
say('secrets', secrets.token_hex(8), secrets.randbelow(10**12))
say('uuid1', uuid.uuid1())
say('uuid1-node', hex(uuid.uuid1().node))
say('uuid4', uuid.uuid4())
say('hostname', socket.gethostname())
say('uname', os.uname().nodename)
say('tempfile', tempfile.mktemp())
say('mkdtemp', tempfile.mkdtemp())
say('named', tempfile.NamedTemporaryFile().name)
import multiprocessing
say('authkey', bytes(multiprocessing.current_process().authkey).hex())
try:
    import ssl
    say('ssl', ssl.RAND_bytes(8).hex())
except ImportError: pass
try:
    import numpy
    say('numpy-old', numpy.random.random(), numpy.random.randint(10**9))
    say('numpy-new', numpy.random.default_rng().random())
    say('numpy-sequence', numpy.random.SeedSequence().entropy)
    say('numpy-state', numpy.random.get_state()[1][:3])
    say('numpy-generator', numpy.random.Generator(numpy.random.PCG64()).random())
except ImportError: pass
try:
    import sympy.core.random
    say('sympy', sympy.core.random.random())
except ImportError: pass
import subprocess
say('subprocess', subprocess.run(['python3', '-c', 'import random, ssl, uuid; print(random.random(), ssl.RAND_bytes(4).hex(), uuid.uuid1())'], capture_output=True).stdout)
say('bash', subprocess.run(['bash', '-c', 'echo $RANDOM $RANDOM $RANDOM $(mktemp -u)'], capture_output=True).stdout)
`

// TestRandomness: sandboxes from one image differ in every source of randomness and every temporary name, those from a prepared image as
// well as those from one memory. Not in this list, and documented: the seed of hash(), where the kernel's memory lies, boot_id, and
// generators that a program has made itself.
func TestRandomness(t *testing.T) {
	dir := bestRoot(t)
	modules := "random\nuuid\nssl\nsecrets\ntempfile\nmultiprocessing\nnumpy\nnumpy.random\nsympy.core.random\n"
	if dir != "" {
		dir = testModules(t, modules)
	}
	b := prepared(t, dir)
	t.Run("prepared", func(t *testing.T) {
		differ(t, sandboxtest.Start(t, b, nil), sandboxtest.Start(t, b, nil), nil)
	})
	t.Run("forked", func(t *testing.T) {
		p := sandboxtest.Start(t, b, nil)
		p.Must(t, random) // everything has been used
		image := t.TempDir()
		if err := p.Checkpoint(t.Context(), image); err != nil {
			t.Fatal(err)
		}
		var both [2]*sandboxtest.Place
		for i := range both {
			both[i] = &sandboxtest.Place{Data: p.Data, Home: p.Home}
			spec := sandbox.Spec{ID: fmt.Sprintf("fork-%d", i), Limits: sandbox.Defaults()}
			spec.Mounts = []sandbox.Mount{{Source: p.Data, Target: "/mnt/data"}, {Source: p.Home, Target: "/home/user"}}
			s, err := b.Restore(t.Context(), spec, image)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			both[i].Sandbox = s
		}
		// A program may have chosen a seed, which is part of its memory like anything else.
		differ(t, both[0], both[1], map[string]bool{
			"random": true, "shuffle": true, "numpy-old": true, "numpy-state": true, "sympy": true, "authkey": true,
		})
	})
}

// differ compares what random prints in two sandboxes. Those in same have to be what a program may have seeded.
func differ(t *testing.T, one, two *sandboxtest.Place, same map[string]bool) {
	t.Helper()
	lines := func(p *sandboxtest.Place) map[string]string {
		found := map[string]string{}
		for line := range strings.Lines(p.Must(t, random).Text(sandbox.Stdout)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			found[name] = value
		}
		return found
	}
	a, b := lines(one), lines(two)
	if len(a) < 15 || len(a) != len(b) {
		t.Fatalf("%d and %d sources", len(a), len(b))
	}
	for name, value := range a {
		if (b[name] == value) != same[name] {
			t.Errorf("%s: %s and %s", name, value, b[name])
		}
	}
}

// TestGuestRandomness: the guest itself must not use Go's own generators, whose state is in the image. What it needs comes from the kernel.
func TestGuestRandomness(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "github.com/lathe-gateway/lathe/cmd/lathe-guest")
	cmd.Dir = moduleRoot(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	own := 0
	for line := range bytes.Lines(out) {
		name := strings.TrimSpace(string(line))
		rest, ok := strings.CutPrefix(name, "github.com/lathe-gateway/lathe/")
		if !ok {
			continue
		}
		own++
		files, err := filepath.Glob(filepath.Join(moduleRoot(t), rest, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for line := range bytes.Lines(data) {
				for _, forbidden := range []string{`"math/rand`, "os.MkdirTemp", "os.CreateTemp", "maphash"} {
					if !strings.HasSuffix(f, "_test.go") && bytes.Contains(line, []byte(forbidden)) && !bytes.Contains(line, []byte("rand.Text()")) {
						t.Errorf("%s uses %s without rand.Text(): its values are the same in all sandboxes from one image", f, forbidden)
					}
				}
			}
		}
	}
	if own < 3 {
		t.Errorf("looked at %d packages only", own)
	}
}

// TestClock: a sandbox that was asleep knows what time it is.
func TestClock(t *testing.T) {
	b := prepared(t, anyRoot(t))
	p := sandboxtest.Start(t, b, nil)
	var now float64
	if _, err := fmt.Sscan(p.Must(t, "import time; print(time.time())").Text(""), &now); err != nil {
		t.Fatal(err)
	}
	if off := time.Since(time.UnixMilli(int64(now * 1000))).Abs(); off > patience {
		t.Errorf("its clock is %v off", off)
	}
}
