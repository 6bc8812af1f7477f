package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/fake"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// patience is how long a test waits for what must happen; only a failure reaches it.
const patience = 60 * time.Second

// bench is a Manager with everything under it. As root its volumes are disk images, else folders.
type bench struct {
	*Manager
	t       testing.TB
	backend *flaky
}

func newBench(t testing.TB, edit func(*Config)) *bench {
	t.Helper()
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "lathe.db"))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	must(t, err)
	backend := &flaky{Backend: fake.New(fake.Config{Dir: t.TempDir(), Plain: true})}
	cfg := Config{
		Store: db, Blobs: blobs, Backend: backend, Dir: filepath.Join(dir, "containers"), Limits: sandbox.Defaults(),
		Reserve: -1, MaxLive: 8, MaxMemory: 1 << 40, Logger: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	cfg.Limits.Disk = 64 << 20
	if edit != nil {
		edit(&cfg)
	}
	m, err := New(cfg)
	must(t, err)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		must(t, backend.Close())
		left, err := filepath.Glob(filepath.Join(m.Dir, "*", "vol", "*"))
		if err != nil || (m.volumes.images && len(left) > 0) {
			t.Errorf("still mounted after Close: %q, %v", left, err)
		}
	})
	return &bench{Manager: m, t: t, backend: backend}
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// as is a context of a project.
func as(t testing.TB, project string) context.Context {
	return auth.WithPrincipal(t.Context(), auth.Principal{Name: "tester", Project: project})
}

func (b *bench) open(h turn.Hosted) tool.Workspace {
	b.t.Helper()
	w, err := b.Open(as(b.t, "p"), &h)
	must(b.t, err)
	b.t.Cleanup(func() { w.Close() })
	return w
}

func python(t testing.TB, w tool.Workspace, code string) *tool.Outcome {
	t.Helper()
	return run(t, w, tool.Python, code)
}

func bash(t testing.TB, w tool.Workspace, command string) *tool.Outcome {
	t.Helper()
	return run(t, w, tool.Bash, command)
}

func run(t testing.TB, w tool.Workspace, kind, code string) *tool.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := w.Run(ctx, tool.Call{Tool: kind, Code: code}, nil)
	if err != nil {
		t.Fatalf("run %q: %v", code, err)
	}
	return out
}

func text(out *tool.Outcome) string {
	var b strings.Builder
	for _, o := range out.Outputs {
		b.WriteString(o.Text)
	}
	return b.String()
}

func names(files []turn.File) []string {
	out := []string{}
	for _, f := range files {
		out = append(out, strings.TrimPrefix(f.Path, "/mnt/data/"))
	}
	return out
}

// content downloads a file as a client would.
func (b *bench) content(f turn.File) string {
	b.t.Helper()
	_, r, err := b.OpenFile(as(b.t, "p"), f.Container, f.ID)
	must(b.t, err)
	defer r.Close()
	data, err := io.ReadAll(r)
	must(b.t, err)
	return string(data)
}

func (b *bench) upload(name, text string) store.File {
	b.t.Helper()
	ctx := as(b.t, "p")
	st, err := b.Uploads().Stage(ctx, strings.NewReader(text))
	must(b.t, err)
	f, err := b.Uploads().Create(ctx, NewUpload{Name: name, Purpose: "user_data"}, st)
	must(b.t, err)
	return f
}

func (b *bench) putFile(id, name, text string) store.File {
	b.t.Helper()
	ctx := as(b.t, "p")
	st, err := b.Uploads().Stage(ctx, strings.NewReader(text))
	must(b.t, err)
	f, err := b.PutFile(ctx, id, name, st)
	must(b.t, err)
	return f
}

func wantKind(t testing.TB, what string, err error, kind turn.Kind, text string) {
	t.Helper()
	e := turn.AsError(err)
	if e == nil || e.Kind != kind || !strings.Contains(e.Message, text) {
		t.Errorf("%s: got %v, want kind %d and %q", what, err, kind, text)
	}
}

// eventually waits for what another goroutine brings about.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// flaky is a real backend whose sandboxes can be made to fail.
type flaky struct {
	sandbox.Backend
	mu      sync.Mutex
	up      []*flakySandbox
	started atomic.Int32
	// fail is asked before each call; an error other than nil is what Exec returns, and the sandbox ends.
	fail func() error
	// refuse is what Start and Restore return, checkpoint what Checkpoint does.
	refuse     error
	checkpoint func() error
}

type flakySandbox struct {
	sandbox.Sandbox
	b    *flaky
	spec sandbox.Spec
}

func (f *flaky) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	return f.begin(spec, func() (sandbox.Sandbox, error) { return f.Backend.Start(ctx, spec) })
}

func (f *flaky) Restore(ctx context.Context, spec sandbox.Spec, dir string) (sandbox.Sandbox, error) {
	return f.begin(spec, func() (sandbox.Sandbox, error) { return f.Backend.Restore(ctx, spec, dir) })
}

func (f *flaky) refuseWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

func (f *flaky) begin(spec sandbox.Spec, start func() (sandbox.Sandbox, error)) (sandbox.Sandbox, error) {
	f.mu.Lock()
	refuse := f.refuse
	f.mu.Unlock()
	if refuse != nil {
		return nil, refuse
	}
	s, err := start()
	if err != nil {
		return nil, err
	}
	f.started.Add(1)
	fs := &flakySandbox{Sandbox: s, b: f, spec: spec}
	f.mu.Lock()
	f.up = append(f.up, fs)
	f.mu.Unlock()
	return fs, nil
}

func (f *flaky) failWith(errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = func() error {
		if len(errs) == 0 {
			return nil
		}
		err := errs[0]
		errs = errs[1:]
		return err
	}
}

// last is the sandbox that was started last.
func (f *flaky) last() *flakySandbox {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up[len(f.up)-1]
}

func (s *flakySandbox) Exec(ctx context.Context, call sandbox.Call, sink func(sandbox.Output)) (*sandbox.Result, error) {
	s.b.mu.Lock()
	var err error
	if s.b.fail != nil {
		err = s.b.fail()
	}
	s.b.mu.Unlock()
	if err != nil {
		s.Close()
		return nil, err
	}
	return s.Sandbox.Exec(ctx, call, sink)
}

func (s *flakySandbox) Checkpoint(ctx context.Context, dir string) error {
	if s.b.checkpoint != nil {
		return errors.Join(s.b.checkpoint(), s.Close())
	}
	return s.Sandbox.Checkpoint(ctx, dir)
}

func isRoot() bool { return os.Geteuid() == 0 }

func mustSHA(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
