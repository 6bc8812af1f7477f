// Package matrix tests every surface with every upstream protocol, plain and streamed: what the client hears is the same everywhere, and what
// went over both wires is in a golden file for each cell. The model's server is a stub over real HTTP; code runs in the fake backend.
package matrix

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/agent"
	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/goldentest"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/anthropic"
	"github.com/lathe-gateway/lathe/internal/provider/openaichat"
	"github.com/lathe-gateway/lathe/internal/provider/openairesponses"
	"github.com/lathe-gateway/lathe/internal/run"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/fake"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/surface/chat"
	"github.com/lathe-gateway/lathe/internal/surface/messages"
	"github.com/lathe-gateway/lathe/internal/surface/responses"
	"github.com/lathe-gateway/lathe/internal/upstreamtest"
)

type object = map[string]any

// question is what a client asks, in no protocol.
type question struct {
	text      string
	image     bool // a picture goes with the text
	tool      bool // the client has a function weather(city)
	hosted    bool // code may run
	reasoning bool
	stream    bool
}

// heard is what a client has of an answer, in no protocol.
type heard struct {
	Text, Reasoning string
	Calls           []called
	Code            []ran
	// Finish is stop, calls or length; "" after an error.
	Finish        string
	Input, Output int
	// Error is the HTTP status, or "stream" for one that came after the first byte.
	Error string
}

type called struct{ ID, Name, Arguments string }

type ran struct{ Code, Output string }

// surface is a client's protocol.
type surface struct {
	name, path string
	// protocol is the name of an upstream that takes its requests as they are.
	protocol string
	ask      func(q question) object
	// read reads an answer and gives the history that goes on from it: what ask put into the request, and the answer.
	read func(t *testing.T, asked object, body []byte, stream bool) (heard, []any)
	// answer puts the history and the results of calls into a request.
	answer func(asked object, history []any, results map[string]string) object
}

// scenario is a row of the matrix.
type scenario struct {
	name   string
	asks   question
	script []upstreamtest.Answer
	// hears is what the client must have after its last request, results what it answers calls of weather with, in their order.
	hears   heard
	results []string
	// first is what it hears before, where it answers calls.
	first *heard
	// wants are words that the upstream's last request must have.
	wants []string
}

func weather(city string) upstreamtest.Call {
	return upstreamtest.Call{Name: "weather", Pieces: []string{`{"city":`, `"` + city + `"}`}}
}

// tokens of a round and of two.
const (
	in, out = 10, 5
	pixel   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)

func scenarios() []scenario {
	return []scenario{
		{
			name: "text", asks: question{text: "hi"}, script: []upstreamtest.Answer{upstreamtest.Say("Hello ", "you")},
			hears: heard{Text: "Hello you", Finish: "stop", Input: in, Output: out}, wants: []string{`"hi"`},
		},
		{
			name: "client-tool", asks: question{text: "weather?", tool: true},
			script:  []upstreamtest.Answer{upstreamtest.Do(upstreamtest.Text("Let me see. "), weather("Rome")), upstreamtest.Say("Sunny.")},
			first:   &heard{Text: "Let me see. ", Calls: []called{{Name: "weather", Arguments: `{"city":"Rome"}`}}, Finish: "calls", Input: in, Output: out},
			results: []string{"31 degrees"}, hears: heard{Text: "Sunny.", Finish: "stop", Input: in, Output: out}, wants: []string{"31 degrees", "Rome"},
		},
		{
			name: "two-client-tools", asks: question{text: "weather?", tool: true},
			script: []upstreamtest.Answer{upstreamtest.Do(weather("Rome"), weather("Oslo")), upstreamtest.Say("Both.")},
			first: &heard{Calls: []called{{Name: "weather", Arguments: `{"city":"Rome"}`}, {Name: "weather", Arguments: `{"city":"Oslo"}`}},
				Finish: "calls", Input: in, Output: out},
			results: []string{"31 degrees", "12 degrees"}, hears: heard{Text: "Both.", Finish: "stop", Input: in, Output: out},
			wants: []string{"31 degrees", "12 degrees", "Oslo"},
		},
		{
			name: "hosted-code", asks: question{text: "compute", hosted: true},
			script: []upstreamtest.Answer{upstreamtest.RunCode("print(6*7)"), upstreamtest.Say("It is 42.")},
			hears:  heard{Text: "It is 42.", Code: []ran{{"print(6*7)", "42\n"}}, Finish: "stop", Input: 2 * in, Output: 2 * out},
			wants:  []string{"print(6*7)", "42"},
		},
		{
			name: "hosted-and-client", asks: question{text: "both", hosted: true, tool: true},
			script: []upstreamtest.Answer{{Steps: append(upstreamtest.RunCode("print(6*7)").Steps, weather("Rome"))}, upstreamtest.Say("Done.")},
			first: &heard{Code: []ran{{"print(6*7)", "42\n"}}, Calls: []called{{Name: "weather", Arguments: `{"city":"Rome"}`}}, Finish: "calls",
				Input: in, Output: out},
			results: []string{"31 degrees"}, hears: heard{Text: "Done.", Finish: "stop", Input: in, Output: out},
			wants: []string{"31 degrees", "print(6*7)", "42"},
		},
		{
			name: "image", asks: question{text: "what is it", image: true}, script: []upstreamtest.Answer{upstreamtest.Say("A dot.")},
			hears: heard{Text: "A dot.", Finish: "stop", Input: in, Output: out}, wants: []string{pixel},
		},
		{
			name: "reasoning", asks: question{text: "think", reasoning: true},
			script: []upstreamtest.Answer{upstreamtest.Do(upstreamtest.Reasoning("Hm, "), upstreamtest.Reasoning("well."), upstreamtest.Text("So."))},
			hears:  heard{Text: "So.", Reasoning: "Hm, well.", Finish: "stop", Input: in, Output: out},
		},
		{
			name: "error-before", asks: question{text: "hi"}, script: []upstreamtest.Answer{upstreamtest.FailCode(400, "prompt is too long", "context_length_exceeded")},
			hears: heard{Error: "400"},
		},
		{
			name: "error-in-stream", asks: question{text: "hi"}, script: []upstreamtest.Answer{upstreamtest.Do(upstreamtest.Text("Hel"), upstreamtest.Raw("data: {malformed\n\n"))},
			hears: heard{Text: "Hel", Error: "stream"},
		},
		{
			name: "cut-off", asks: question{text: "hi"}, script: []upstreamtest.Answer{upstreamtest.Do(upstreamtest.Text("Hel"), upstreamtest.Cut{})},
			hears: heard{Text: "Hel", Error: "stream"},
		},
	}
}

var upstreams = []string{"openai-chat", "openai-responses", "anthropic"}

// world is what the cells share: where code runs.
type world struct {
	containers *container.Manager
	store      store.Store
	answer     []byte // the newest, as it came
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3 in the PATH: code runs in it")
	}
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "lathe.db"))
	must(t, err)
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	must(t, err)
	backend := fake.New(fake.Config{Dir: t.TempDir(), Plain: true})
	limits := sandbox.Defaults()
	limits.Disk = 64 << 20
	containers, err := container.New(container.Config{
		Store: db, Blobs: blobs, Backend: backend, Dir: filepath.Join(dir, "containers"), Limits: limits, Reserve: -1, MaxLive: 4, PlainVolumes: true,
	})
	must(t, err)
	t.Cleanup(func() {
		if err := containers.Close(); err != nil {
			t.Error(err)
		}
		_ = backend.Close()
		_ = db.Close()
	})
	return &world{containers: containers, store: db}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gateway is all of Lathe over one stub that speaks protocol.
func (w *world) gateway(t *testing.T, protocol string, wrap func(provider.Provider) provider.Provider) (string, *upstreamtest.Server) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	up := upstreamtest.Start(t)
	m := provider.Model{Name: "m"}
	var err error
	switch protocol {
	case "openai-chat":
		m.Provider, err = openaichat.New(openaichat.Config{BaseURL: up.BaseURL(), Retries: -1})
	case "openai-responses":
		m.Provider, err = openairesponses.New(openairesponses.Config{BaseURL: up.BaseURL(), Retries: -1})
	case "anthropic":
		m.Provider, err = anthropic.New(anthropic.Config{BaseURL: up.URL(), Retries: -1})
	}
	must(t, err)
	m.Provider = wrap(m.Provider)
	router, err := provider.NewRouter([]provider.Model{m})
	must(t, err)
	loop := agent.New(agent.Config{Provider: router, Workspaces: w.containers, Logger: log})
	turns := run.New(run.Config{Next: loop, Steps: w.store.Steps(), Files: w.containers.Uploads(), Logger: log})
	mux := http.NewServeMux()
	mux.Handle("POST /v1/responses", responses.New(responses.Config{Turns: turns, Models: router, Logger: log}))
	mux.Handle("POST /v1/chat/completions", chat.New(chat.Config{Turns: turns, Models: router, Logger: log}))
	messages.Register(mux, messages.Config{Turns: turns, Models: router, Logger: log})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := auth.Principal{Name: "tester", Project: "p"}
		mux.ServeHTTP(w, r.WithContext(auth.WithPrincipal(r.Context(), p)))
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL, up
}

func TestMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, s := range []surface{chatSurface, responsesSurface, messagesSurface} {
		for _, protocol := range upstreams {
			for _, sc := range scenarios() {
				for _, stream := range []bool{false, true} {
					name := strings.Join([]string{s.name, protocol, sc.name, map[bool]string{false: "plain", true: "streamed"}[stream]}, ".")
					t.Run(name, func(t *testing.T) { w.cell(t, s, protocol, sc, stream) })
				}
			}
		}
	}
}

// cell asks, answers calls, and compares.
func (w *world) cell(t *testing.T, s surface, protocol string, sc scenario, stream bool) {
	url, up := w.gateway(t, protocol, func(p provider.Provider) provider.Provider { return p })
	up.Push(sc.script...)
	sc.asks.stream = stream
	asked := s.ask(sc.asks)
	var golden txtar.Archive
	golden.Comment = []byte(t.Name()[len("TestMatrix/"):] + "\n")
	got, history := w.exchange(t, s, url, asked, &golden)
	if sc.first != nil {
		compare(t, *sc.first, got)
		results := map[string]string{}
		for i, c := range got.Calls {
			if i < len(sc.results) {
				results[c.ID] = sc.results[i]
			}
		}
		got, _ = w.exchange(t, s, url, s.answer(asked, history, results), &golden)
	}
	compare(t, s.expected(sc, protocol, stream), got)
	requests := up.Requests()
	for i, r := range requests {
		var body any
		must(t, json.Unmarshal(r.Body, &body))
		golden.Files = append(golden.Files, txtar.File{Name: "upstream-" + string(rune('1'+i)) + ".json", Data: indent(t, body)})
	}
	if len(requests) != len(sc.script) {
		t.Fatalf("the model was asked %d times, not %d", len(requests), len(sc.script))
	}
	for _, word := range sc.wants {
		if !strings.Contains(string(requests[len(requests)-1].Body), word) {
			t.Errorf("the model was not told %q: %s", word, requests[len(requests)-1].Body)
		}
	}
	settle(&golden)
	goldentest.Compare(t, filepath.Join("testdata", t.Name()[len("TestMatrix/"):]+".txtar"), &golden)
}

// expected is what a client hears. One that does not stream has nothing of an answer that broke off but the error; where the request passed
// untouched that is the upstream's own broken answer.
func (s surface) expected(sc scenario, protocol string, stream bool) heard {
	switch {
	case sc.hears.Error != "stream" || stream:
		return sc.hears
	case s.protocol == protocol:
		return heard{Error: "broken"}
	}
	return heard{Error: "502"}
}

func compare(t *testing.T, want, got heard) {
	t.Helper()
	got.Calls = slices.Clone(got.Calls)
	for i := range got.Calls {
		if got.Calls[i].ID == "" {
			t.Error("a call without an id")
		}
		got.Calls[i].ID = ""
	}
	if got.Error == "stream" { // a client stops listening there
		got = heard{Text: got.Text, Error: got.Error}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the client heard (-want +got):\n%s", diff)
	}
}

// exchange sends a request and reads the answer, and puts both into the golden file.
func (w *world) exchange(t *testing.T, s surface, url string, body object, golden *txtar.Archive) (heard, []any) {
	t.Helper()
	raw, err := json.Marshal(body)
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+s.path, strings.NewReader(string(raw)))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	if s.name == "messages" {
		req.Header.Set("Anthropic-Version", "2023-06-01")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		golden.Files = append(golden.Files, txtar.File{Name: "request.json", Data: indent(t, body)})
		return heard{Error: "broken"}, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	broken := err != nil
	w.answer = answer
	streamed := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	golden.Files = append(golden.Files,
		txtar.File{Name: "request.json", Data: indent(t, body)},
		txtar.File{Name: "answer " + resp.Status + map[bool]string{true: ", broken off", false: ""}[broken], Data: pretty(t, answer, streamed)})
	if resp.StatusCode != http.StatusOK {
		return heard{Error: resp.Status[:3]}, nil
	}
	if !streamed && (broken || !json.Valid(answer)) {
		return heard{Error: "broken"}, nil
	}
	h, history := s.read(t, body, answer, streamed)
	if broken && h.Error == "" {
		h.Error = "stream"
	}
	return h, history
}
