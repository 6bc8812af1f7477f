package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/fake"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	var samples []time.Duration
	for i := range 100 {
		samples = append(samples, time.Duration(100-i)*time.Millisecond)
	}
	for q, want := range map[float64]float64{0.5: 50, 0.99: 99, 1: 100, 0: 1} {
		if got := quantile(samples, q); got != want {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	}
	if got := quantile(samples[:3], 0.99); got != 100 {
		t.Errorf("p99 of three samples is %g, want the largest", got)
	}
}

// TestGatewayKeys runs the whole benchmark against a gateway that is a reverse proxy: keys and form, not figures.
func TestGatewayKeys(t *testing.T) {
	t.Parallel()
	cfg := GatewayConfig{
		Quick: true,
		Start: func(_ context.Context, upstream string) (string, func(), error) {
			target, err := url.Parse(strings.TrimSuffix(upstream, "/v1"))
			if err != nil {
				return "", nil, err
			}
			srv := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1})
			return srv.URL + "/v1", srv.Close, nil
		},
	}
	want := []string{
		"passthrough_added_p50", "passthrough_added_p99", "reverseproxy_added_p50", "reverseproxy_added_p99",
		"passthrough_rps", "reverseproxy_rps", "first_token_added_p50", "first_token_added_p99",
	}
	if runtime.GOOS == "linux" {
		cfg.Idle = func(context.Context) (int, func(), error) { return os.Getpid(), func() {}, nil }
		want = append(want, "idle_mib")
	}
	result, err := Gateway(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := result.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var flat map[string]float64
	if err := json.Unmarshal(text.Bytes(), &flat); err != nil {
		t.Fatalf("%v: %s", err, text.String())
	}
	for _, key := range want {
		if _, ok := flat[key]; !ok {
			t.Errorf("%s is missing in %v", key, flat)
		}
	}
	if len(flat) != len(want) || flat["passthrough_rps"] <= 0 {
		t.Errorf("got %v, want the keys %v", flat, want)
	}
	text.Reset()
	if err := result.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	if table := text.String(); strings.Count(table, "\n") != 5+len(want)%2 || !strings.Contains(table, "p99") {
		t.Errorf("table:\n%s", table)
	}
}

// TestSandboxKeys runs the whole benchmark on the fake backend, whose sandboxes are processes of this machine: keys, not figures.
func TestSandboxKeys(t *testing.T) {
	t.Parallel()
	backend := fake.New(fake.Config{})
	defer backend.Close()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3: make test installs it")
	}
	var steps int
	result, err := Sandbox(t.Context(), SandboxConfig{
		Backend: backend, Python: python, Quick: true, Progress: func(string) { steps++ },
		Spec: func() (sandbox.Spec, error) {
			return sandbox.Spec{
				ID: turn.NewID("bench_"), Limits: sandbox.Defaults(), Mounts: []sandbox.Mount{{Source: t.TempDir(), Target: "/mnt/data"}},
			}, nil
		},
		Open: func(ctx context.Context, pool int) (*Containers, error) { return openContainers(t, pool), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	got := result.Figures()
	for _, key := range []string{
		"cell_p50", "cell_p99", "start_bare_p50", "start_bare_p99", "claim_p50", "claim_p99",
		"claim_output_p50", "hibernate_p50", "hibernate_p99", "resume_p50", "resume_p99", "output_mib_s", "starts_per_s", "python_c_p50", "python_c_p99",
	} {
		if got[key] <= 0 {
			t.Errorf("%s is %g", key, got[key])
		}
	}
	if _, measured := got["live_mib"]; measured || steps != 9 {
		t.Errorf("got %v after %d steps", got, steps)
	}
}

// openContainers is what cmd/lathe does, over sandboxes that see the host's folders.
func openContainers(t *testing.T, pool int) *Containers {
	t.Helper()
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "lathe.db"))
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := container.New(container.Config{
		Store: db, Blobs: blobs, Backend: fake.New(fake.Config{Dir: t.TempDir(), Plain: true}), Dir: filepath.Join(dir, "containers"),
		PlainVolumes: true, Reserve: -1, Pool: pool, MaxLive: 8, MaxMemory: 1 << 40,
	})
	if err != nil {
		t.Fatal(err)
	}
	if pool > 0 {
		m.StartPool()
	}
	return &Containers{
		Workspaces: m, Spares: m.Spares, Delete: m.Delete, Hibernate: m.Hibernate, Close: func() error { return errors.Join(m.Close(), blobs.Close(), db.Close()) },
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	r := &Result{}
	r.add("cell_p50", 3, "ms", "a cell")
	r.add("cell_p99", 9, "ms", "")
	r.add("new", 1, "MiB", "not measured then")
	if err := r.Compare(strings.NewReader(`{"cell_p50": 2, "cell_p99": 18, "gone": 1}`)); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var flat map[string]float64
	if err := json.Unmarshal(text.Bytes(), &flat); err != nil {
		t.Fatal(err)
	}
	if len(flat) != 5 || flat["cell_p50_ratio"] != 1.5 || flat["cell_p99_ratio"] != 0.5 || flat["cell_p50"] != 3 {
		t.Errorf("got %v", flat)
	}
	text.Reset()
	if err := r.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	if table := text.String(); !strings.Contains(table, "3 ms (x 1.50)") || !strings.Contains(table, "p99 9 ms (x 0.50)") {
		t.Errorf("table:\n%s", table)
	}
	if err := r.Compare(strings.NewReader("cell 3 ms")); err == nil {
		t.Error("a table was taken for JSON")
	}
}

// TestFailingProgramIsAnError: a benchmark of programs that fail would show the figures of something else.
func TestFailingProgramIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3: make test installs it")
	}
	if _, err := timeCommand(t.Context(), 1, func(int) *exec.Cmd { return exec.Command("python3", "-c", "print(2)") }); err == nil {
		t.Error("another output is taken")
	}
	if _, err := timeCommand(t.Context(), 1, func(int) *exec.Cmd { return exec.Command("python3", "-c", "print(1); exit(1)") }); err == nil {
		t.Error("a failure is taken")
	}
}

func TestFiguresHaveNoExponent(t *testing.T) {
	for value, want := range map[float64]string{0.0451: "0.0451", 4.03: "4.03", 368.6: "369", 999.7: "1000", 4031.4: "4031"} {
		if got := shown(value); got != want {
			t.Errorf("shown(%v) is %s, not %s", value, got, want)
		}
	}
}
