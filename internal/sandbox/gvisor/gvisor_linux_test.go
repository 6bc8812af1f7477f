package gvisor_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/image"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
	"github.com/lathe-gateway/lathe/internal/sandbox/sandboxtest"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if config := os.Getenv(childEnv); config != "" {
		child(config)
		return
	}
	os.Exit(m.Run())
}

func TestSuite(t *testing.T) {
	dir := bestRoot(t)
	sandboxtest.Run(t, func(t *testing.T) sandbox.Backend { return newBackend(t, dir) })
}

func TestHostile(t *testing.T) {
	dir := bestRoot(t)
	sandboxtest.Hostile(t, func(t *testing.T) sandbox.Backend { return newBackend(t, dir) })
}

func TestDurable(t *testing.T) {
	dir := anyRoot(t)
	sandboxtest.Durable(t, func(t *testing.T) sandbox.Backend { return openWith(t, t.TempDir(), gvisor.Config{Image: dir, Spares: 1}) })
}

// TestHostileOnHost tries what depends on the root file system with the host's Python too.
func TestHostileOnHost(t *testing.T) {
	if bestRoot(t) == "" {
		t.Skip("TestHostile has just done so: there is no image")
	}
	if _, ok := roots(t)["host"]; !ok {
		t.Skip("needs /usr/bin/python3")
	}
	sandboxtest.Hostile(t, func(t *testing.T) sandbox.Backend { return newBackend(t, "") },
		"Files", "Processes", "Rights", "Setuid", "ReadOnly", "Memory")
}

// bestRoot is the image, or "" for the host's Python where there is none.
func bestRoot(t *testing.T) string {
	t.Helper()
	return roots(t)["image"]
}

// roots are the root file systems to try: the host's Python, and the image where it has been built.
func roots(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		found["host"] = ""
	}
	img, err := image.Find("", []string{cmp.Or(os.Getenv("LATHE_IMAGE_DIR"), "/var/lib/lathe/images")})
	if err == nil && os.Getenv(guestEnv) == "" {
		found["image"] = img.Root
	}
	if len(found) == 0 {
		t.Skip("needs /usr/bin/python3, or an image (make image)")
	}
	return found
}

// anyRoot is the cheaper one of roots.
func anyRoot(t *testing.T) string {
	t.Helper()
	found := roots(t)
	if dir, ok := found["host"]; ok {
		return dir
	}
	return found["image"]
}

// newBackend is a Backend with a state directory of its own. At the end of the test nothing of it may be left.
func newBackend(t *testing.T, dir string) *gvisor.Backend {
	t.Helper()
	return openBackend(t, dir, t.TempDir())
}

func openBackend(t *testing.T, dir, state string) *gvisor.Backend {
	t.Helper()
	return openWith(t, state, gvisor.Config{Image: dir})
}

func openWith(t *testing.T, state string, cfg gvisor.Config) *gvisor.Backend {
	t.Helper()
	cfg.Runsc, cfg.StateDir, cfg.Guest = findRunsc(t), state, buildGuest(t)
	b, err := gvisor.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := leftovers(t, state); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	return b
}

// moduleRoot is the folder of go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == "/" {
			t.Fatal("no go.mod above the test")
		}
	}
}

func findRunsc(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(runscEnv); path != "" {
		return path
	}
	path := filepath.Join(moduleRoot(t), "bin", "runsc")
	if _, err := os.Stat(path); err != nil {
		t.Skip("needs bin/runsc: run `make build`")
	}
	return path
}

// What TestOrdinaryUser tells the program that it starts.
const (
	runscEnv = "LATHE_TEST_RUNSC"
	guestEnv = "LATHE_TEST_GUEST"
)

var guest = sync.OnceValues(func() ([]byte, error) {
	if path := os.Getenv(guestEnv); path != "" {
		return os.ReadFile(path)
	}
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "guest")
	build := exec.Command("go", "build", "-o", path, "github.com/lathe-gateway/lathe/cmd/lathe-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest: %w: %s", err, out)
	}
	return os.ReadFile(path)
})

func buildGuest(t testing.TB) []byte {
	t.Helper()
	g, err := guest()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// leftovers are the processes, mounts, cgroups and files that a state directory has left.
func leftovers(t *testing.T, state string) []string {
	t.Helper()
	var left []string
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		cmdline, err := os.ReadFile(p)
		if err == nil && bytes.Contains(cmdline, []byte("--root="+state+"/")) {
			left = append(left, p+" "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+state+"/") {
			left = append(left, line)
		}
	}
	for _, dir := range gvisor.CgroupDirs(state) {
		if _, err := os.Stat(dir); err == nil {
			left = append(left, dir)
		}
	}
	for _, dir := range []string{"runsc", "bundles", "mnt"} {
		entries, _ := os.ReadDir(filepath.Join(state, dir))
		for _, e := range entries {
			left = append(left, filepath.Join(state, dir, e.Name()))
		}
	}
	return left
}

// TestUnavailable: what is missing is told with what to do, and can be mended without a restart.
func TestUnavailable(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct{ name, runsc, dir, want string }{
		{"no runsc", missing, "", "make build"},
		{"runsc not configured", "", "", "make build"},
		{"no image", "/bin/true", missing, "make image"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := gvisor.New(gvisor.Config{Runsc: tt.runsc, Image: tt.dir, StateDir: t.TempDir(), Guest: []byte("x")})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			_, err = b.Start(t.Context(), sandbox.Spec{ID: "a", Limits: sandbox.Defaults()})
			if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			failed := false
			for _, f := range b.Check(t.Context()) {
				if f.Level != "ok" && f.Mend == "" {
					t.Errorf("no mend for %+v", f)
				}
				failed = failed || f.Level == "fail" && strings.Contains(f.Mend, tt.want)
			}
			if !failed {
				t.Errorf("no finding says %q", tt.want)
			}
		})
	}
	b, err := gvisor.New(gvisor.Config{Runsc: "/bin/false", StateDir: t.TempDir(), Guest: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Start(t.Context(), sandbox.Spec{ID: "a", Limits: sandbox.Defaults()}); err == nil {
		t.Error("a sandbox without gVisor")
	}
	_, err = gvisor.New(gvisor.Config{StateDir: "relative"})
	if err == nil || !strings.Contains(err.Error(), "absolute") || !strings.Contains(err.Error(), "make build") {
		t.Errorf("not all faults are told: %v", err)
	}
}

func TestCheck(t *testing.T) {
	for name, dir := range roots(t) {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, dir)
			p := sandboxtest.Start(t, b, nil)
			found := b.Check(t.Context())
			p.Must(t, "import json, sqlite3") // checking leaves what runs alone
			names := map[string]sandbox.Finding{}
			for _, f := range found {
				t.Logf("%s: %s: %s (%s)", f.Level, f.Name, f.Detail, f.Mend)
				names[f.Name] = f
			}
			for _, want := range []string{"system", "user", "runsc", "image", "cgroups", "sandbox"} {
				if _, ok := names[want]; !ok {
					t.Errorf("no finding %q", want)
				}
			}
			if f := names["sandbox"]; f.Level != "ok" {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestNewImage: a gateway goes on with the newest image when the one that it started with has been removed.
func TestNewImage(t *testing.T) {
	images := t.TempDir()
	link := filepath.Join(images, "python")
	version := func(name string) string {
		dir := filepath.Join(images, name, "rootfs/usr/bin")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "python3"), nil, 0o755),
			os.Symlink(name, link+".new"), os.Rename(link+".new", link)); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(images, name)
	}
	first := version("python-1")
	b := newBackend(t, link)
	sandboxtest.Start(t, b, nil)
	version("python-2")
	if err := os.RemoveAll(first); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Start(t, b, nil)
}

// TestProcessor: the limit is in force. Without it the kernel would have no reason to hold the sandbox back.
func TestProcessor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only cgroups limit the processor")
	}
	state := t.TempDir()
	p := sandboxtest.Start(t, openBackend(t, anyRoot(t), state), func(s *sandbox.Spec) { s.ID, s.Limits.CPUs = "slow", 0.2 })
	p.Must(t, "import time\nend = time.time() + 1\nwhile time.time() < end: pass")
	var stat []byte
	for _, dir := range gvisor.CgroupDirs(state) {
		if data, err := os.ReadFile(filepath.Join(dir, "slow", "cpu.stat")); err == nil {
			stat = append(stat, data...)
		}
	}
	for _, dir := range gvisor.CgroupDirs(state) {
		if data, err := os.ReadFile(filepath.Join(dir, "slow", "cpu.cfs_burst_us")); err == nil && string(data) != "20000\n" {
			t.Errorf("it may save %q microseconds", data)
		}
	}
	if !bytes.Contains(stat, []byte("nr_throttled ")) || bytes.Contains(stat, []byte("nr_throttled 0\n")) {
		t.Errorf("it was never held back:\n%s", stat)
	}
}

// TestTerminal: the processes of a sandbox are in sessions of their own, so that no terminal's signal reaches them.
func TestTerminal(t *testing.T) {
	state := t.TempDir()
	sandboxtest.Start(t, openBackend(t, anyRoot(t), state), nil).Must(t, "1")
	own, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, l := range leftovers(t, state) {
		rest, ok := strings.CutPrefix(l, "/proc/")
		pid, _, _ := strings.Cut(rest, "/")
		n, err := strconv.Atoi(pid)
		if !ok || err != nil {
			continue
		}
		sid, err := unix.Getsid(n)
		if err != nil {
			continue // it has just ended
		}
		// proc_pid_stat(5): the terminal is the fifth field after the name in parentheses.
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if sid == own || len(fields) < 5 || fields[4] != "0" {
			t.Errorf("session %d, terminal %q: %s", sid, fields, l)
		}
		seen++
	}
	if seen < 2 {
		t.Errorf("only %d processes", seen)
	}
}

func TestStartTwice(t *testing.T) {
	b := newBackend(t, anyRoot(t))
	sandboxtest.Start(t, b, func(s *sandbox.Spec) { s.ID = "same" })
	_, err := b.Start(t.Context(), sandbox.Spec{ID: "same", Limits: sandbox.Defaults()})
	if err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("got %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Start(t.Context(), sandbox.Spec{ID: "late", Limits: sandbox.Defaults()}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}

// TestLateMount: what the host mounts below a sandbox's folder later is seen inside.
func TestLateMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root can mount")
	}
	shared := t.TempDir()
	if err := syscall.Mount(shared, shared, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(shared, syscall.MNT_DETACH) })
	if err := syscall.Mount("", shared, "", syscall.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(shared, "late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	p := sandboxtest.Start(t, newBackend(t, anyRoot(t)), func(s *sandbox.Spec) { s.Mounts[0].Source = shared })
	p.Must(t, "1")
	if err := syscall.Mount("tmpfs", late, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(late, syscall.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(late, "file"), []byte("seen"), 0o644); err != nil {
		t.Fatal(err)
	}
	if o := p.Must(t, "print(open('late/file').read())"); o.Text("") != "seen\n" {
		t.Errorf("got %q", o.Text(""))
	}
}

// TestNode is on the host's own programs, among which there may be a node; the image `python` has none.
func TestNode(t *testing.T) { sandboxtest.TestNode(t, newBackend(t, "")) }

// TestNames: each sandbox has a host name of its own, and it resolves.
func TestNames(t *testing.T) {
	for name, dir := range roots(t) {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, dir)
			const show = "import socket\nprint(socket.gethostname(), socket.gethostbyname(socket.gethostname()), socket.gethostbyname('localhost'))"
			one := sandboxtest.Start(t, b, nil).Must(t, show).Text("")
			two := sandboxtest.Start(t, b, nil).Must(t, show).Text("")
			for _, said := range []string{one, two} {
				if fields := strings.Fields(said); len(fields) != 3 || fields[1] != "127.0.0.1" || fields[2] != "127.0.0.1" {
					t.Errorf("got %q", said)
				}
			}
			if one == two {
				t.Errorf("both are %q", one)
			}
		})
	}
}

// TestWritableHub: what is bound below a hub may be written to where both are, and nothing comes back to where it came from.
func TestWritableHub(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: others can only link and copy")
	}
	b := newBackend(t, anyRoot(t))
	hub := func(s *sandbox.Spec) { s.Mounts = append(s.Mounts, sandbox.Mount{Target: "/skills", Hub: true}) }
	one, two := sandboxtest.Start(t, b, hub), sandboxtest.Start(t, b, hub)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := one.Bind(t.Context(), sandbox.Mount{Source: dir, Target: "/skills/rw"}); err != nil {
		t.Fatal(err)
	}
	if err := one.Bind(t.Context(), sandbox.Mount{Source: dir, Target: "/skills/ro", ReadOnly: true}); err == nil {
		t.Error("a read-only folder below what is not: gVisor cannot read it")
	}
	o := one.Bash(t, "echo written > /skills/rw/file; cat /skills/rw/file; mkdir /skills/more || echo refused")
	if o.Text(sandbox.Stdout) != "written\nrefused\n" {
		t.Errorf("got %q", o.Text(""))
	}
	if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "written\n" {
		t.Errorf("%q, %v", data, err)
	}
	if o := two.Bash(t, "ls -A /skills"); o.Text("") != "" {
		t.Errorf("another sandbox sees %q", o.Text(""))
	}
}

// TestFilters: runsc has the seccomp filters that our sandboxes want (runsc/filters). With other flags, or another gVisor, it would compile
// them at each start.
func TestFilters(t *testing.T) {
	state := t.TempDir()
	b, err := gvisor.New(gvisor.Config{Runsc: findRunsc(t), Image: anyRoot(t), StateDir: state, Guest: buildGuest(t), Debug: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sandboxtest.Start(t, b, nil).Must(t, "1")
	logs, err := filepath.Glob(filepath.Join(state, "debug", "*.boot.txt"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%q, %v", logs, err)
	}
	data, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte("Loaded precompiled seccomp")) {
		t.Error("gVisor's kernel compiles its filters itself")
	}
}
