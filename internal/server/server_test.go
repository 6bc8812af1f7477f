package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/telemetry"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// running is a server on a port of its own.
type running struct {
	url  string
	log  *logBuffer
	stop context.CancelFunc
	done chan error
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	run := &running{log: &logBuffer{}, done: make(chan error, 1)}
	cfg.Log = slog.New(LogHandler(slog.NewTextHandler(run.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if cfg.Metrics == nil {
		cfg.Metrics = telemetry.New("test")
	}
	if cfg.API == nil {
		cfg.API = http.NewServeMux()
	}
	s := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	run.stop = cancel
	ln, err := Listen(ctx, "127.0.0.1:0", cfg.Keys)
	if err != nil {
		t.Fatal(err)
	}
	run.url = "http://" + ln.Addr().String()
	go func() { run.done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err, open := <-run.done; open && err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return run
}

// ends waits for Serve.
func (run *running) ends(t *testing.T) error {
	t.Helper()
	err := <-run.done
	close(run.done)
	return err
}

// do sends one request on a connection of its own.
func (run *running) do(t *testing.T, method, path string, headers map[string]string, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, run.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// eventually waits until ok, which something else makes true, and fails after a long time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func echo() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/who/{id}", func(w http.ResponseWriter, r *http.Request) {
		p := auth.FromContext(r.Context())
		fmt.Fprintf(w, "%s of %s asks %s", p.Name, p.Project, r.PathValue("id"))
	})
	mux.HandleFunc("POST /v1/read", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
		fmt.Fprint(w, n)
	})
	return mux
}

var someKeys = auth.NewKeys([]auth.Key{
	{Secret: "sk-alice-1234", Principal: auth.Principal{Name: "alice", Project: "research"}},
	{Secret: "sk-ops-12345", Principal: auth.Principal{Name: "ops", Project: "default", Admin: true}},
})

func errorOf(t *testing.T, body string) oai.Error {
	t.Helper()
	var e struct{ Error *oai.Error }
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil {
		t.Fatalf("not an OpenAI error: %q", body)
	}
	return *e.Error
}

func TestKeys(t *testing.T) {
	t.Parallel()
	run := start(t, Config{Keys: someKeys, API: echo()})
	resp, body := run.do(t, "GET", "/v1/who/x1", map[string]string{"Authorization": "Bearer sk-alice-1234"}, "")
	if resp.StatusCode != 200 || body != "alice of research asks x1" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	resp, body = run.do(t, "GET", "/v1/who/x1", map[string]string{"Authorization": "Bearer sk-wrong-secret"}, "")
	e := errorOf(t, body)
	if resp.StatusCode != 401 || *e.Code != "invalid_api_key" || !strings.Contains(e.Message, "keys in lathe.yaml") {
		t.Errorf("a wrong key: %d %+v", resp.StatusCode, e)
	}
	if log := run.log.String(); strings.Contains(log, "sk-") || !strings.Contains(log, "key=alice project=research") {
		t.Errorf("the log has a key, or not who called:\n%s", log)
	}
}

// TestLoopbackRule: without keys only programs on this machine are served; a page in a browser there is not one.
func TestLoopbackRule(t *testing.T) {
	t.Parallel()
	run := start(t, Config{API: echo()})
	tests := []struct {
		name    string
		headers map[string]string
		status  int
		says    string
	}{
		{"plain", nil, 200, "local of default asks me"},
		{"localhost", map[string]string{"Host": "localhost:9"}, 200, ""},
		{"ipv6", map[string]string{"Host": "[::1]"}, 200, ""},
		{"any key is ignored", map[string]string{"Authorization": "Bearer whatever"}, 200, ""},
		{"own page", map[string]string{"Origin": "http://localhost:3000"}, 200, ""},
		{"DNS rebinding", map[string]string{"Host": "evil.example:4747"}, 403, "the Host header names another one"},
		{"loopback as a prefix", map[string]string{"Host": "127.0.0.1.evil.example"}, 403, "the Host header"},
		{"foreign page", map[string]string{"Origin": "https://evil.example"}, 403, "the Origin header"},
		{"page without origin", map[string]string{"Origin": "null"}, 403, "the Origin header"},
		{"image of a foreign page", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, "a web page of another site"},
		{"proxy", map[string]string{"X-Forwarded-For": "10.0.0.1"}, 403, "a proxy forwarded it (X-Forwarded-For)"},
		{"proxy that says 127.0.0.1", map[string]string{"X-Forwarded-For": "127.0.0.1"}, 403, "a proxy"},
		{"proxy of the standard", map[string]string{"Forwarded": "for=10.0.0.1"}, 403, "a proxy"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{"/v1/who/me", "/metrics"} {
				resp, body := run.do(t, "GET", path, test.headers, "")
				if resp.StatusCode != test.status || path == "/v1/who/me" && !strings.Contains(body, test.says) {
					t.Errorf("%s: %d %q, want %d %q", path, resp.StatusCode, body, test.status, test.says)
				}
			}
		})
	}
	resp, body := run.do(t, "GET", "/v1/who/me", map[string]string{"Host": "evil.example"}, "")
	if e := errorOf(t, body); resp.StatusCode != 403 || !strings.Contains(e.Message, "add keys to lathe.yaml") {
		t.Errorf("the refusal does not say what to do: %+v", e)
	}
}

func TestMetricsNeedAnAdminOrLoopback(t *testing.T) {
	t.Parallel()
	run := start(t, Config{Keys: someKeys, API: echo()})
	away := func(key string) map[string]string {
		headers := map[string]string{"X-Forwarded-For": "10.0.0.1"}
		if key != "" {
			headers["Authorization"] = "Bearer " + key
		}
		return headers
	}
	for name, test := range map[string]struct {
		headers map[string]string
		status  int
	}{
		"loopback": {nil, 200}, "away without a key": {away(""), 401}, "away, wrong key": {away("sk-nobody-123"), 401},
		"away, no admin": {away("sk-alice-1234"), 403}, "away, admin": {away("sk-ops-12345"), 200},
	} {
		if resp, body := run.do(t, "GET", "/metrics", test.headers, ""); resp.StatusCode != test.status {
			t.Errorf("%s: %d %q, want %d", name, resp.StatusCode, body, test.status)
		}
	}
	run.do(t, "GET", "/v1/who/x", map[string]string{"Authorization": "Bearer sk-alice-1234"}, "")
	run.do(t, "GET", "/random/"+strings.Repeat("x", 50), map[string]string{"Authorization": "Bearer sk-alice-1234"}, "")
	var text string
	eventually(t, "both requests are counted", func() bool {
		_, text = run.do(t, "GET", "/metrics", nil, "")
		return strings.Contains(text, `lathe_http_requests_total{route="GET /v1/who/{id}",status="200"} 1`) &&
			strings.Contains(text, `lathe_http_requests_total{route="unknown",status="404"} 1`)
	})
	if strings.Contains(text, "xxxx") {
		t.Error("a client's path became a label")
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /upstream", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Request-Id", "theirs") })
	run := start(t, Config{API: mux})
	minted := regexp.MustCompile(`^req_[0-9a-f]{32}$`)
	for name, test := range map[string]struct {
		path, sent string
		kept       bool
	}{
		"none": {"/v1/x", "", false}, "sane": {"/v1/x", "trace-1.2:3", true}, "too long": {"/v1/x", strings.Repeat("x", 65), false},
		"forging a log line": {"/v1/x", `a" level=ERROR`, false}, "health": {"/healthz", "", false},
	} {
		resp, _ := run.do(t, "GET", test.path, map[string]string{"X-Request-Id": test.sent}, "")
		got := resp.Header.Get("X-Request-Id")
		if test.kept != (got == test.sent) || !test.kept && !minted.MatchString(got) {
			t.Errorf("%s: sent %q, got %q", name, test.sent, got)
		}
	}
	resp, _ := run.do(t, "GET", "/upstream", map[string]string{"X-Client-Request-Id": "mine-7"}, "")
	if !minted.MatchString(resp.Header.Get("X-Request-Id")) || resp.Header.Get("X-Upstream-Request-Id") != "theirs" {
		t.Errorf("an upstream's id: %v", resp.Header)
	}
	if resp.Header.Get("Openai-Version") != "2020-10-01" || resp.Header.Get("Openai-Processing-Ms") == "" {
		t.Errorf("headers of the OpenAI surfaces: %v", resp.Header)
	}
	run.do(t, "GET", "/upstream", map[string]string{"X-Client-Request-Id": "not sane at all"}, "")
	eventually(t, "the lines are logged", func() bool { return strings.Count(run.log.String(), "path=/upstream") == 2 })
	log := run.log.String()
	if !strings.Contains(log, "client_request_id=mine-7 request_id=req_") || strings.Contains(log, "not sane") {
		t.Errorf("log:\n%s", log)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	run := start(t, Config{API: echo()})
	resp, body := run.do(t, "GET", "/v2/models", nil, "")
	if e := errorOf(t, body); resp.StatusCode != 404 || *e.Code != "unknown_url" || !strings.Contains(e.Message, "GET /v2/models") {
		t.Errorf("404: %d %+v", resp.StatusCode, e)
	}
	resp, body = run.do(t, "DELETE", "/v1/who/x", nil, "")
	if e := errorOf(t, body); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" || !strings.Contains(e.Message, "use GET, HEAD") {
		t.Errorf("405: %d %v %+v", resp.StatusCode, resp.Header, e)
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /early", func(http.ResponseWriter, *http.Request) { panic("secret detail") })
	mux.HandleFunc("GET /late", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half")
		w.(http.Flusher).Flush()
		panic("too late")
	})
	run := start(t, Config{API: mux})
	resp, body := run.do(t, "GET", "/early", nil, "")
	if e := errorOf(t, body); resp.StatusCode != 500 || e.Type != "server_error" || strings.Contains(body, "secret") {
		t.Errorf("before the first byte: %d %s", resp.StatusCode, body)
	}
	got, err := http.Get(run.url + "/late")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if text, err := io.ReadAll(got.Body); err == nil {
		t.Errorf("a broken answer looks whole: %q", text)
	}
	eventually(t, "both panics are logged", func() bool {
		log := run.log.String()
		return strings.Contains(log, `panic="secret detail"`) && strings.Contains(log, `panic="too late"`) &&
			strings.Contains(log, "unfinished=true")
	})
}

func TestBodyLimits(t *testing.T) {
	t.Parallel()
	run := start(t, Config{API: echo(), MaxBody: 100, MaxUpload: 1000})
	multipart := map[string]string{"Content-Type": "multipart/form-data; boundary=x"}
	if resp, body := run.do(t, "POST", "/v1/read", nil, strings.Repeat("x", 100)); resp.StatusCode != 200 || body != "100" {
		t.Errorf("at the limit: %d %s", resp.StatusCode, body)
	}
	resp, body := run.do(t, "POST", "/v1/read", nil, strings.Repeat("x", 101))
	if e := errorOf(t, body); resp.StatusCode != 413 || e.Message != "the request has 101 bytes: at most 100 are taken here" {
		t.Errorf("past it: %d %+v", resp.StatusCode, e)
	}
	if resp, body := run.do(t, "POST", "/v1/read", multipart, strings.Repeat("x", 900)); resp.StatusCode != 200 || body != "900" {
		t.Errorf("an upload: %d %s", resp.StatusCode, body)
	}
	// Without a length the limit holds while the body is read.
	req, err := http.NewRequestWithContext(t.Context(), "POST", run.url+"/v1/read", io.MultiReader(strings.NewReader(strings.Repeat("x", 500))))
	if err != nil {
		t.Fatal(err)
	}
	chunked, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer chunked.Body.Close()
	if chunked.StatusCode != 413 {
		t.Errorf("chunked: %d", chunked.StatusCode)
	}
}

// A client that falls silent in its body is given up and told, and does not hold its connection for ever.
func TestSilentBody(t *testing.T) {
	t.Parallel()
	run := start(t, Config{API: echo(), BodyTimeout: 50 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(run.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 ") {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var broken error
	run := start(t, Config{Keys: someKeys, Ready: map[string]func(context.Context) error{
		"store":   func(context.Context) error { return nil },
		"sandbox": func(context.Context) error { mu.Lock(); defer mu.Unlock(); return broken },
	}})
	if resp, body := run.do(t, "GET", "/readyz", nil, ""); resp.StatusCode != 200 || body != `{"status":"ready"}` {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	mu.Lock()
	broken = errors.New("/var/secret/path is gone")
	mu.Unlock()
	resp, body := run.do(t, "GET", "/readyz", nil, "")
	if resp.StatusCode != 503 || body != `{"failed":["sandbox"],"status":"not ready"}` {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body := run.do(t, "GET", "/healthz", nil, ""); resp.StatusCode != 200 || body != `{"status":"ok"}` {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestDrain: at the end nothing new is accepted, what runs may finish, and what does not is cancelled with a cause.
func TestDrain(t *testing.T) {
	t.Parallel()
	entered, release, cause := make(chan string, 2), make(chan struct{}), make(chan error, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /finishes", func(w http.ResponseWriter, _ *http.Request) {
		entered <- "finishes"
		<-release
		fmt.Fprint(w, "whole")
	})
	mux.HandleFunc("GET /stays", func(_ http.ResponseWriter, r *http.Request) {
		entered <- "stays"
		<-r.Context().Done()
		cause <- context.Cause(r.Context())
	})
	run := start(t, Config{API: mux, Drain: 500 * time.Millisecond})
	answers := make(chan string, 2)
	for _, path := range []string{"/finishes", "/stays"} {
		go func() {
			resp, err := http.Get(run.url + path)
			if err != nil {
				answers <- path + ": " + err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			answers <- path + ": " + string(body)
		}()
		<-entered
	}
	run.stop()
	eventually(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(run.url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(release)
	if got := <-answers; got != "/finishes: whole" {
		t.Errorf("the running request: %s", got)
	}
	if err := <-cause; !errors.Is(err, errStopping) {
		t.Errorf("the cause of the cancellation: %v", err)
	}
	if err := run.ends(t); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestListenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for address, want := range map[string]string{
		ln.Addr().String(): "is taken: stop what listens there (another lathe?), or choose another address: --listen 127.0.0.1:0",
		"0.0.0.0:0":        "can be reached from other machines, and there are no keys: add keys to lathe.yaml, or listen on 127.0.0.1",
		":0":               "can be reached from other machines",
		"192.0.2.1:0":      "is not an address of this machine",
	} {
		ln, err := Listen(t.Context(), address, nil)
		if err == nil {
			ln.Close()
			t.Errorf("%s: listens", address)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	all, err := Listen(t.Context(), "0.0.0.0:0", someKeys)
	if err != nil {
		t.Fatalf("with keys: %v", err)
	}
	all.Close()
}

// TestClientLeaving: the handler's context ends when the client goes, after the whole body was read.
func TestClientLeaving(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /wait", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(left)
	})
	run := start(t, Config{API: mux})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", run.url+"/wait", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	<-left
	eventually(t, "the line says so", func() bool { return strings.Contains(run.log.String(), "unfinished=true") })
}

func TestErrorsOfHandlersAreLoggedWithTheRequestsID(t *testing.T) {
	t.Parallel()
	var log *slog.Logger
	mux := http.NewServeMux()
	buffer := &logBuffer{}
	log = slog.New(LogHandler(slog.NewTextHandler(buffer, nil)))
	mux.HandleFunc("GET /fails", func(w http.ResponseWriter, r *http.Request) {
		oai.WriteError(w, r, log.With("part", "x"), turn.Internal(errors.New("the disk is on fire")))
	})
	run := start(t, Config{API: mux})
	resp, body := run.do(t, "GET", "/fails", nil, "")
	if strings.Contains(body, "fire") || !strings.Contains(buffer.String(), "on fire") ||
		!strings.Contains(buffer.String(), "request_id="+resp.Header.Get("X-Request-Id")) {
		t.Errorf("client: %s\nlog: %s", body, buffer.String())
	}
}
