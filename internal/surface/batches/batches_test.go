package batches

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/native"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/anthropic"
	"github.com/lathe-gateway/lathe/internal/provider/demo"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/upstream"
)

// vendor keeps batches as the real server does, in memory.
type vendor struct {
	mu      sync.Mutex
	batches map[string]string // id to its requests
	keys    []string
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys = append(v.keys, r.Header.Get("X-Api-Key"))
	w.Header().Set("Content-Type", "application/json")
	object := func(id, status string) string {
		return fmt.Sprintf(`{"id":%q,"type":"message_batch","processing_status":%q,"results_url":"https://vendor.example/v1/messages/batches/%s/results"}`, id, status, id)
	}
	rest, member := strings.CutPrefix(r.URL.Path, "/v1/messages/batches/")
	id, action, _ := strings.Cut(rest, "/")
	switch body, known := v.batches[id]; {
	case !member && r.Method == http.MethodPost:
		data, _ := io.ReadAll(r.Body)
		id := fmt.Sprintf("msgbatch_%d", len(v.batches)+1)
		v.batches[id] = string(data)
		_, _ = io.WriteString(w, object(id, "in_progress"))
	case !known:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"not_found_error","message":"no batch"}}`)
	case r.Method == http.MethodDelete:
		delete(v.batches, id)
		fmt.Fprintf(w, `{"id":%q,"type":"message_batch_deleted"}`, id)
	case action == "results":
		w.Header().Set("Content-Type", "application/x-jsonl")
		_, _ = io.WriteString(w, body+"\n")
	case action == "cancel":
		_, _ = io.WriteString(w, object(id, "canceling"))
	default:
		_, _ = io.WriteString(w, object(id, "ended"))
	}
}

type bench struct {
	t   *testing.T
	v   *vendor
	mux *http.ServeMux
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, v: &vendor{batches: map[string]string{}}, mux: http.NewServeMux()}
	server := httptest.NewServer(b.v)
	t.Cleanup(server.Close)
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "l.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	keeper := native.New(db.Steps(), nil)
	claude := func(name, key string, own bool) provider.Model {
		p, err := anthropic.New(anthropic.Config{BaseURL: server.URL, APIKey: upstream.Secret("k-vendor" + key), Model: "claude-up"})
		if err != nil {
			t.Fatal(err)
		}
		return provider.Model{Name: name, Upstream: "claude-up", Provider: keeper.Provider(name, p, own), Native: own}
	}
	router, err := provider.NewRouter([]provider.Model{
		claude("claude", "", false), claude("claude-2", "", true), claude("other", "-2", false), {Name: "demo", Provider: demo.New()},
	})
	if err != nil {
		t.Fatal(err)
	}
	New(Config{Models: router, Natives: keeper, Steps: db.Steps()}).Register(b.mux)
	return b
}

func (b *bench) call(project, method, target, body string) (int, string) {
	b.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Anthropic-Version", "2023-06-01")
	r.Header.Set("X-Api-Key", "clients-own")
	w := httptest.NewRecorder()
	b.mux.ServeHTTP(w, r.WithContext(auth.WithPrincipal(r.Context(), auth.Principal{Project: project})))
	return w.Code, w.Body.String()
}

func of(models ...string) string {
	var out []string
	for i, m := range models {
		out = append(out, fmt.Sprintf(`{"custom_id":"c%d","params":{"model":%q,"max_tokens":1,"messages":[]}}`, i, m))
	}
	return `{"requests":[` + strings.Join(out, ",") + `]}`
}

func TestBatchIsTheProjects(t *testing.T) {
	b := newBench(t)
	code, body := b.call("a", "POST", collection, of("claude", "claude-2"))
	if code != 200 || !strings.Contains(body, `"results_url":"http://example.com/v1/messages/batches/msgbatch_1/results"`) {
		t.Fatalf("%d %s", code, body)
	}
	if got := b.v.batches["msgbatch_1"]; strings.Count(got, `"model":"claude-up"`) != 2 || strings.Contains(got, "claude-2") {
		t.Errorf("the vendor was asked for %s", got)
	}
	if b.v.keys[0] != "k-vendor" {
		t.Errorf("the vendor saw the key %q", b.v.keys[0])
	}
	for _, c := range []struct{ method, target, want string }{
		{"GET", "/msgbatch_1", `"ended"`}, {"POST", "/msgbatch_1/cancel", `"canceling"`}, {"GET", "/msgbatch_1/results", `"custom_id":"c0"`},
		{"GET", "", `"msgbatch_1"`},
	} {
		if code, body := b.call("a", c.method, collection+c.target, ""); code != 200 || !strings.Contains(body, c.want) || strings.Contains(body, "vendor.example") {
			t.Errorf("%v: %d %s", c, code, body)
		}
		code, body := b.call("b", c.method, collection+c.target, "")
		if c.target == "" {
			if code != 200 || body != `{"data":[],"has_more":false,"first_id":null,"last_id":null}` {
				t.Errorf("another project's list: %d %s", code, body)
			}
		} else if code != 404 || !strings.Contains(body, "not_found_error") {
			t.Errorf("%v by another project: %d %s", c, code, body)
		}
	}
	if code, _ := b.call("a", "DELETE", collection+"/msgbatch_1", ""); code != 200 {
		t.Error(code)
	}
	if _, body := b.call("a", "GET", collection, ""); strings.Contains(body, "msgbatch_1") {
		t.Error("a deleted batch is listed")
	}
}

func TestPages(t *testing.T) {
	b := newBench(t)
	for range 5 {
		b.call("a", "POST", collection, of("claude"))
	}
	page := func(query string) string {
		_, body := b.call("a", "GET", collection+"?"+query, "")
		var out struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
			More bool `json:"has_more"`
		}
		if err := json.Unmarshal([]byte(body), &out); err != nil {
			t.Fatal(body)
		}
		s := ""
		for _, d := range out.Data {
			s += strings.TrimPrefix(d.ID, "msgbatch_")
		}
		return fmt.Sprint(s, " ", out.More)
	}
	for query, want := range map[string]string{
		"": "54321 false", "limit=2": "54 true", "limit=2&after_id=msgbatch_4": "32 true", "limit=2&after_id=msgbatch_3": "21 false",
		"limit=2&before_id=msgbatch_2": "43 true", "limit=9&before_id=msgbatch_4": "5 false",
	} {
		if got := page(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"limit=0", "limit=1001", "after_id=x", "after_id=msgbatch_1&before_id=msgbatch_2"} {
		if code, body := b.call("a", "GET", collection+"?"+query, ""); code != 400 {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
}

func TestRefused(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct{ body, want string }{
		"no json":          {"{", "JSON object"},
		"no requests":      {"{}", "requests"},
		"no model":         {`{"requests":[{"custom_id":"a","params":{}}]}`, "requests[0].params"},
		"unknown model":    {of("claude", "gpt"), "requests[1].params.model"},
		"another provider": {of("claude", "demo"), `requests[1].params.model: batches are passed to Anthropic, and "demo"`},
		"two accounts":     {of("claude", "other"), `"other" is another account`},
		"hosted tools": {`{"requests":[{"custom_id":"a","params":{"model":"claude","tools":[{"type":"code_execution_20260120","name":"code_execution"}]}}]}`,
			"code_execution_20260120 runs here"},
	} {
		if code, body := b.call("a", "POST", collection, c.body); code != 400 && code != 404 || !strings.Contains(body, strings.ReplaceAll(c.want, `"`, `\"`)) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if len(b.v.batches) != 0 {
		t.Error("the vendor got one of them")
	}
	own := `{"requests":[{"custom_id":"a","params":{"model":"claude-2","tools":[{"type":"code_execution_20260120","name":"code_execution"}]}}]}`
	if code, body := b.call("a", "POST", collection, own); code != 200 {
		t.Errorf("hosted tools of the provider's: %d %s", code, body)
	}
}
