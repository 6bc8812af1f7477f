// Package fake is a sandbox backend for tests of other packages: it runs the real guest in this process, with the host's python3 and
// shell, as the caller's own user and without any isolation. Only tests may import it; internal/archtest holds that.
//
// It has no memory to freeze: Checkpoint keeps what pickle takes (see memory.py).
//
// It has no mounts. Calls start in the Source of the mount whose Target is /mnt/data, HOME is that of /home/user, and Call.Dir and the
// values of Call.Env that begin with a Target are translated; a path within code is not. Memory, processes and disk are limited
// weakly or not at all.
package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lathe-gateway/lathe/internal/guest"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/link"
)

var (
	_ sandbox.Backend = (*Backend)(nil)
	_ sandbox.Sandbox = (*box)(nil)
)

// Config makes a Backend. The zero value works.
type Config struct {
	// Dir holds what stands for /tmp and for mounts that a Spec does not have; "" is the system's folder for temporary files.
	Dir string
	// Python is the interpreter; "" is python3 in the PATH. Plain keeps its kernel from using IPython, which starts faster.
	Python string
	Plain  bool
	Log    *slog.Logger
}

// Backend is safe for concurrent use.
type Backend struct {
	cfg    Config
	mu     sync.Mutex
	boxes  map[*box]bool
	closed bool
}

// New makes a Backend.
func New(cfg Config) *Backend {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return &Backend{cfg: cfg, boxes: map[*box]bool{}}
}

// hostPython is the interpreter itself: python3 in the PATH may be a script that takes long to find it.
var hostPython = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// Start runs a guest. It works for any Spec.
func (b *Backend) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	python := b.cfg.Python
	if python == "" {
		var err error
		if python, err = hostPython(); err != nil {
			return nil, fmt.Errorf("%w: no python3 in the PATH: %w", sandbox.ErrUnavailable, err)
		}
	}
	tmp, err := os.MkdirTemp(b.cfg.Dir, "fake-sandbox-")
	if err != nil {
		return nil, err
	}
	hostEnd, guestEnd, err := newPipes()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(tmp))
	}
	x := &box{backend: b, env: spec.Env, tmp: tmp, mounts: spec.Mounts, link: link.New(hostEnd, spec.Limits, b.cfg.Log)}
	x.guest.Go(func() {
		defer guestEnd.Close()
		if err := guest.Serve(b.guestConfig(spec, python, x), guestEnd, guestEnd); err != nil {
			b.cfg.Log.Debug("the guest has ended", "error", err)
		}
	})
	b.mu.Lock()
	closed := b.closed
	b.boxes[x] = true
	b.mu.Unlock()
	if closed {
		return nil, errors.Join(errors.New("fake: the backend is closed"), x.Close())
	}
	if err := x.link.Ready(ctx); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

func (b *Backend) guestConfig(spec sandbox.Spec, python string, x *box) guest.Config {
	cfg := guest.Config{
		Python: python, WorkDir: x.tmp, Home: x.tmp, Tmp: x.tmp, Log: b.cfg.Log, MapPath: x.mapPath,
		Env: []string{"PATH=" + os.Getenv("PATH")},
	}
	for _, name := range []string{"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} { // without them numpy crashes on some processors
		if v, ok := os.LookupEnv(name); ok {
			cfg.Env = append(cfg.Env, name+"="+v)
		}
	}
	if b.cfg.Plain {
		cfg.Env = append(cfg.Env, "LATHE_KERNEL=plain")
	}
	for _, m := range spec.Mounts {
		switch m.Target {
		case "/mnt/data":
			cfg.WorkDir = m.Source
		case "/home/user":
			cfg.Home = m.Source
		}
	}
	return cfg
}

// mapper translates paths at and under the mounts' targets.
func mapper(mounts []sandbox.Mount) func(string) string {
	mounts = slices.Clone(mounts)
	slices.SortFunc(mounts, func(a, b sandbox.Mount) int { return len(b.Target) - len(a.Target) })
	return func(p string) string {
		for _, m := range mounts {
			if rest, ok := strings.CutPrefix(p, m.Target); ok && (rest == "" || rest[0] == '/') {
				return filepath.Join(m.Source, rest)
			}
		}
		return p
	}
}

// Reconcile has nothing to do: what a fake leaves behind is in its Dir.
func (b *Backend) Reconcile(context.Context) error { return nil }

// Check says that there is no isolation.
func (b *Backend) Check(context.Context) []sandbox.Finding {
	return []sandbox.Finding{{
		Name: "sandbox", Level: "warn", Detail: "the fake backend runs code on this machine without isolation", Mend: "use gvisor",
	}}
}

// Close ends all sandboxes.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	boxes := b.boxes
	b.boxes = map[*box]bool{}
	b.mu.Unlock()
	var errs []error
	for x := range boxes {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}

// box is one guest.
type box struct {
	backend *Backend
	env     map[string]string
	tmp     string
	ran     atomic.Bool // whether a Python call came
	mu      sync.Mutex
	mounts  []sandbox.Mount // guarded by mu
	link    *link.Link
	guest   sync.WaitGroup
	once    sync.Once
	err     error
}

func (x *box) Exec(ctx context.Context, call sandbox.Call, sink func(sandbox.Output)) (*sandbox.Result, error) {
	if call.Kind == sandbox.Python {
		x.ran.Store(true)
	}
	return x.link.Exec(ctx, link.WithEnv(call, x.env), sink)
}

// OpenTerminal has the contract of sandbox.Sandbox.OpenTerminal.
func (x *box) OpenTerminal(ctx context.Context, spec sandbox.TerminalSpec) (sandbox.Terminal, error) {
	return x.link.OpenTerminal(ctx, spec)
}

func (x *box) Done() <-chan struct{} { return x.link.Done() }

func (x *box) Close() error {
	x.once.Do(func() {
		err := x.link.Close()
		x.guest.Wait()
		x.backend.mu.Lock()
		delete(x.backend.boxes, x)
		x.backend.mu.Unlock()
		x.err = errors.Join(err, os.RemoveAll(x.tmp))
	})
	return x.err
}

// pipes is one end of a connection made of two pipes, as a real guest has it.
type pipes struct {
	io.Reader
	io.Writer
	close func() error
}

func (p pipes) Close() error { return p.close() }

func newPipes() (host, guest io.ReadWriteCloser, err error) {
	hr, gw, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	gr, hw, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, hr.Close(), gw.Close())
	}
	end := func(r, w *os.File) pipes {
		return pipes{r, w, func() error { return errors.Join(r.Close(), w.Close()) }}
	}
	return end(hr, hw), end(gr, gw), nil
}

// Prepare has nothing to do.
func (b *Backend) Prepare(context.Context, string) error { return nil }

// Bind translates paths below the target from now on; what the guest started with, /mnt/data and /home/user, it cannot replace.
func (x *box) Bind(_ context.Context, m sandbox.Mount) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mounts = append(slices.Clone(x.mounts), m)
	return nil
}

// mapPath translates paths at and under the mounts' targets.
func (x *box) mapPath(p string) string {
	x.mu.Lock()
	mounts := x.mounts
	x.mu.Unlock()
	return mapper(mounts)(p)
}

// Connect has the contract of sandbox.Sandbox.Connect. Programs here reach this machine's network without it too.
func (x *box) Connect(ctx context.Context, n *sandbox.Network) error { return x.link.Connect(ctx, n) }
