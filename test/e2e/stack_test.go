// Package e2e tests the whole way of a request in one process: HTTP, surface, run, agent, provider, container, guest. The model's server
// is a stub over real HTTP, or the demo model. Code runs in the fake backend: the real guest and the host's Python without isolation;
// isolation has its tests in internal/sandbox/gvisor.
package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/agent"
	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/anthropic"
	"github.com/lathe-gateway/lathe/internal/provider/demo"
	"github.com/lathe-gateway/lathe/internal/provider/openaichat"
	"github.com/lathe-gateway/lathe/internal/provider/openairesponses"
	"github.com/lathe-gateway/lathe/internal/run"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/fake"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/surface/chat"
	containersapi "github.com/lathe-gateway/lathe/internal/surface/containers"
	"github.com/lathe-gateway/lathe/internal/surface/files"
	"github.com/lathe-gateway/lathe/internal/surface/messages"
	"github.com/lathe-gateway/lathe/internal/surface/models"
	"github.com/lathe-gateway/lathe/internal/surface/responses"
	"github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// patience bounds what must happen, for a slow machine.
const patience = 60 * time.Second

// lathe is the program without its configuration, over a stub.
type lathe struct {
	t          *testing.T
	url        string
	up         *upstreamtest.Server
	containers *container.Manager
	// stop ends it as SIGTERM does; the end of the test does so too.
	stop func()
}

func newLathe(t *testing.T, edit func(*agent.Config)) *lathe {
	t.Helper()
	return newLatheIn(t, t.TempDir(), edit)
}

// newLatheIn is newLathe over a data directory, which may be that of one that was stopped.
func newLatheIn(t *testing.T, dir string, edit func(*agent.Config)) *lathe {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3 in the PATH: code runs in it")
	}
	log := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "lathe.db"))
	must(t, err)
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	must(t, err)
	backend := fake.New(fake.Config{Dir: t.TempDir(), Plain: true})
	limits := sandbox.Defaults()
	limits.Disk = 64 << 20
	containers, err := container.New(container.Config{
		Store: db, Blobs: blobs, Backend: backend, Dir: filepath.Join(dir, "containers"), Limits: limits, Reserve: -1, MaxLive: 4,
		PlainVolumes: true, Logger: log,
	})
	must(t, err)
	must(t, containers.Reconcile(t.Context()))
	up := upstreamtest.Start(t)
	up.Answer(upstreamtest.ByName)
	stub, err := openaichat.New(openaichat.Config{BaseURL: up.BaseURL(), Retries: -1})
	must(t, err)
	native, err := openairesponses.New(openairesponses.Config{BaseURL: up.BaseURL(), Retries: -1, APIKey: "upstream-key"})
	must(t, err)
	claude, err := anthropic.New(anthropic.Config{BaseURL: up.URL(), Retries: -1})
	must(t, err)
	router, err := provider.NewRouter([]provider.Model{
		{Name: "demo", Provider: demo.New()}, {Name: "claude", Upstream: "claude-real", Provider: claude, Images: true}, {Name: provider.Rest, Provider: stub},
		{Name: "responses", Provider: native}, {Name: "translated", Provider: opaque{native}}, {Name: "native", Provider: native, Native: true},
	})
	must(t, err)
	cfg := agent.Config{Provider: router, Workspaces: containers, Logger: log}
	if edit != nil {
		edit(&cfg)
	}
	turns := run.New(run.Config{Next: agent.New(cfg), Steps: db.Steps(), Files: containers.Uploads(), Logger: log})
	mux := http.NewServeMux()
	mux.Handle("POST /v1/responses", responses.New(responses.Config{Turns: turns, Models: router, Logger: log}))
	mux.Handle("POST /v1/chat/completions", chat.New(chat.Config{Turns: turns, Models: router, Logger: log}))
	messages.Register(mux, messages.Config{Turns: turns, Models: router, Logger: log})
	containersapi.New(containers, log).Register(mux)
	files.New(containers, log).Register(mux)
	catalogue := models.New(models.Config{Router: router, Logger: log})
	mux.Handle("GET /v1/models", catalogue)
	mux.Handle("GET /v1/models/{id...}", catalogue)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := cmp.Or(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.Header.Get("X-Api-Key"))
		p := auth.Principal{Name: "tester", Project: key}
		mux.ServeHTTP(w, r.WithContext(auth.WithPrincipal(r.Context(), p)))
	}))
	stop := sync.OnceFunc(func() {
		server.CloseClientConnections()
		server.Close()
		if err := containers.Close(); err != nil {
			t.Error(err)
		}
		backend.Close()
		db.Close()
	})
	t.Cleanup(stop)
	return &lathe{t: t, url: server.URL, up: up, containers: containers, stop: stop}
}

// opaque hides that a provider can take requests untouched.
type opaque struct{ provider.Provider }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const project = "p"

// as is the context of the clients' project.
func (l *lathe) as() context.Context {
	return auth.WithPrincipal(l.t.Context(), auth.Principal{Name: "tester", Project: project})
}

type object = map[string]any

func (l *lathe) open(ctx context.Context, path string, body object) *http.Response {
	l.t.Helper()
	raw, err := json.Marshal(body)
	must(l.t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+path, bytes.NewReader(raw))
	must(l.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+project)
	req.Header.Set("X-Lathe-Live", "1")
	resp, err := http.DefaultClient.Do(req)
	must(l.t, err)
	l.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// post sends a request that must succeed and decodes the answer into T.
func post[T any](l *lathe, path string, body object) T {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	resp := l.open(ctx, path, body)
	raw, err := io.ReadAll(resp.Body)
	must(l.t, err)
	if resp.StatusCode != http.StatusOK {
		l.t.Fatalf("status %d: %s", resp.StatusCode, raw)
	}
	var out T
	if err := json.Unmarshal(raw, &out); err != nil {
		l.t.Fatalf("%v: %s", err, raw)
	}
	return out
}

// frames calls each with the type and the data of every SSE frame, until it returns false or the stream ends.
func frames(t *testing.T, r io.Reader, each func(event string, data []byte) bool) {
	t.Helper()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	event := ""
	for lines.Scan() {
		line := lines.Text()
		if e, ok := strings.CutPrefix(line, "event: "); ok {
			event = e
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok && d != "[DONE]" && !each(event, []byte(d)) {
			return
		}
	}
}

// output is an item of a Responses answer, of all types.
type output struct {
	Type        string
	ID          string
	Status      string
	Code        string
	ContainerID string `json:"container_id"`
	CallID      string `json:"call_id"`
	Name        string
	Outputs     []struct{ Type, Logs, URL string }
	Content     []struct {
		Text        string
		Annotations []citation
	}
}

type citation struct {
	Type        string
	ContainerID string `json:"container_id"`
	FileID      string `json:"file_id"`
	Filename    string
	Start       int `json:"start_index"`
	End         int `json:"end_index"`
}

// response is a Responses answer; Raw keeps its items as a client would send them back.
type response struct {
	Status string
	Raw    []json.RawMessage `json:"output"`
	Usage  struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
	}
}

func (r response) items(t *testing.T) []output {
	t.Helper()
	var out []output
	for _, raw := range r.Raw {
		var o output
		must(t, json.Unmarshal(raw, &o))
		out = append(out, o)
	}
	return out
}

func (r response) calls(t *testing.T) []output {
	var out []output
	for _, o := range r.items(t) {
		if o.Type == "code_interpreter_call" {
			out = append(out, o)
		}
	}
	return out
}

func (r response) text(t *testing.T) (string, []citation) {
	text, cited := "", []citation(nil)
	for _, o := range r.items(t) {
		for _, c := range o.Content {
			text += c.Text
			cited = append(cited, c.Annotations...)
		}
	}
	return text, cited
}

func logs(o output) string {
	s := ""
	for _, x := range o.Outputs {
		s += x.Logs
	}
	return s
}

func interpreter(container any) []object {
	return []object{{"type": "code_interpreter", "container": container}}
}

var auto = object{"type": "auto"}

const withOutputs = "code_interpreter_call.outputs"

func block(code string) string { return "```python\n" + code + "\n```\n" }

func runCode(code string) upstreamtest.Answer { return upstreamtest.RunCode(code) }
