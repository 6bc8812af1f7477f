package openaichat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/providertest"
	"github.com/lathe-gateway/lathe/internal/turn"
	up "github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// newProvider makes a provider that does not really wait before it tries again.
func newProvider(t *testing.T, cfg Config) (*Provider, *[]time.Duration) {
	t.Helper()
	waits := &[]time.Duration{}
	cfg.Sleep = func(ctx context.Context, d time.Duration) error {
		*waits = append(*waits, d)
		return context.Cause(ctx)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.CloseIdle)
	return p, waits
}

func ask(text string) *turn.Request {
	return &turn.Request{Model: "m", Items: []turn.Item{turn.Message{Role: turn.User, Parts: []turn.Part{turn.Text{Text: text}}}}}
}

func TestSuite(t *testing.T) {
	withTools := ask("hi")
	withTools.Tools = []turn.Tool{{Name: "f", Parameters: json.RawMessage(`{"type":"object"}`)}}
	start := func(t *testing.T, a up.Answer) (*up.Server, *Provider) {
		s := up.Start(t)
		s.Answer(func(*up.Request) up.Answer { return a })
		p, _ := newProvider(t, Config{BaseURL: s.BaseURL()})
		return s, p
	}
	providertest.Run(t, providertest.Suite{
		Requests: map[string]*turn.Request{"text": ask("hi"), "tools": withTools},
		New: func(t *testing.T) provider.Provider {
			_, p := start(t, up.Do(up.Reasoning("hm"), up.Text("Hi "), up.Text("you"), up.Call{Name: "f", Pieces: []string{"{", "}"}}))
			return p
		},
		Failing: func(t *testing.T) provider.Provider {
			_, p := start(t, up.Fail(http.StatusInternalServerError, "no"))
			return p
		},
		Endless: func(t *testing.T) (provider.Provider, <-chan struct{}) {
			s, p := start(t, up.Do(up.Text("a"), up.Wait(make(chan struct{}))))
			gone := make(chan struct{})
			s.Answer(func(r *up.Request) up.Answer {
				go func() {
					<-r.Gone()
					close(gone)
				}()
				return up.Do(up.Text("a"), up.Wait(make(chan struct{})))
			})
			return p, gone
		},
	})
}

// text joins what a stream says, its calls as name(arguments).
func text(events []turn.Event) string {
	var b strings.Builder
	for _, ev := range events {
		switch ev := ev.(type) {
		case turn.TextDelta:
			b.WriteString(ev.Text)
		case turn.CallDone:
			fmt.Fprintf(&b, "[%s(%s)]", ev.Call.Name, ev.Call.Arguments)
		case turn.Finished:
			fmt.Fprintf(&b, "|%s", ev.Reason)
		}
	}
	return b.String()
}

func TestRetries(t *testing.T) {
	ok := up.Say("fine")
	for _, tc := range []struct {
		name     string
		answers  []up.Answer
		cfg      Config
		requests int
		want     string    // "" for an error
		kind     turn.Kind // of the error
		waits    []time.Duration
	}{
		{"500 then fine", []up.Answer{up.Fail(500, "x"), ok}, Config{}, 2, "fine|stop", 0, nil},
		{"429 with Retry-After", []up.Answer{up.RateLimited(3), ok}, Config{}, 2, "fine|stop", 0, []time.Duration{3 * time.Second}},
		{"429 with a long Retry-After is the client's", []up.Answer{up.RateLimited(60), ok}, Config{}, 1, "", turn.KindRateLimited, nil},
		{"529", []up.Answer{up.Overloaded(), up.Overloaded(), ok}, Config{}, 3, "fine|stop", 0, nil},
		{"503 for ever", []up.Answer{up.Fail(503, "x"), up.Fail(503, "x"), up.Fail(503, "x"), ok}, Config{}, 3, "", turn.KindOverloaded, nil},
		{"408 and 409", []up.Answer{up.Fail(408, "x"), up.Fail(409, "x"), ok}, Config{}, 3, "fine|stop", 0, nil},
		{"400 is not tried again", []up.Answer{up.Fail(400, "x"), ok}, Config{}, 1, "", turn.KindInvalid, nil},
		{"cut before anything", []up.Answer{up.Do(up.Cut{}), ok}, Config{}, 2, "fine|stop", 0, nil},
		{"an empty stream", []up.Answer{up.Do().With(up.Quirks{NoFinish: true}), ok}, Config{}, 2, "fine|stop", 0, nil},
		{"an error frame before anything", []up.Answer{up.Do(up.Frame(`{"error":{"message":"x","code":503}}`)), ok}, Config{}, 2, "fine|stop", 0, nil},
		{"cut after the first event", []up.Answer{up.Do(up.Text("a"), up.Cut{}), ok}, Config{}, 1, "", turn.KindUpstream, nil},
		{"no retries", []up.Answer{up.Fail(500, "x"), ok}, Config{Retries: -1}, 1, "", turn.KindUpstream, nil},
		{"refuses stream_options", []up.Answer{ok.With(up.Quirks{RefuseStreamOptions: true}), ok}, Config{}, 2, "fine|stop", 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t, tc.answers...)
			tc.cfg.BaseURL = s.BaseURL()
			p, waits := newProvider(t, tc.cfg)
			events, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
			if n := len(s.Requests()); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
			if tc.want != "" && (err != nil || text(events) != tc.want) {
				t.Errorf("got %q and %v, want %q", text(events), err, tc.want)
			}
			if tc.want == "" && (err == nil || turn.AsError(err).Kind != tc.kind) {
				t.Errorf("got %+v, want kind %d", turn.AsError(err), tc.kind)
			}
			if tc.waits != nil {
				if diff := cmp.Diff(tc.waits, *waits); diff != "" {
					t.Errorf("waits:\n%s", diff)
				}
			}
		})
	}
}

// A server that never comes to an end is given up before it fills the memory, whatever it sends.
func TestEndless(t *testing.T) {
	for name, answer := range map[string]up.Answer{
		"text":      up.Do(slices.Repeat([]up.Step{up.Text("xxxxxxxxx")}, 1000)...),
		"reasoning": up.Do(slices.Repeat([]up.Step{up.Reasoning("xxxxxxxx")}, 1000)...),
		"arguments": up.Do(up.Call{Name: "f", Pieces: slices.Repeat([]string{"xxxxxxxxx"}, 1000)}),
		"comments":  up.Do(slices.Repeat([]up.Step{up.Raw(": still here\n\n")}, 10_000)...),
		"one body":  {Status: 200, Body: `{"choices":[` + strings.Repeat(`{"message":{"content":"a"}},`, 10_000)},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := newProvider(t, Config{BaseURL: up.Start(t, answer, answer, answer).BaseURL(), MaxAnswer: 64 << 10})
			_, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
			if e := turn.AsError(err); e == nil || e.Code != "upstream_endless" {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestRefusedFieldsAreRemembered(t *testing.T) {
	s := up.Start(t,
		up.FailCode(400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "unsupported_parameter"),
		up.Say("a"), up.Say("b"))
	p, _ := newProvider(t, Config{BaseURL: s.BaseURL()})
	req := ask("hi")
	req.MaxOutputTokens = new(100)
	for _, want := range []string{"a|stop", "b|stop"} {
		events, err := providertest.Collect(t, p.Stream(t.Context(), req))
		if err != nil || text(events) != want {
			t.Errorf("got %q and %v", text(events), err)
		}
	}
	for i, r := range s.Requests() {
		c := r.Chat()
		if (i == 0) != (c.MaxTokens != nil) || (i > 0) != (c.MaxCompletionTokens != nil) {
			t.Errorf("request %d: %s", i, r.Body)
		}
	}
}

func TestErrors(t *testing.T) {
	const key = "sk-very-secret"
	for _, tc := range []struct {
		name   string
		answer up.Answer
		kind   turn.Kind
		code   string
		parts  []string // of the message
	}{
		{"401 is the operator's", up.FailCode(401, "Incorrect API key provided: "+key, "invalid_api_key"), turn.KindUpstream, "upstream_unauthorized", []string{"api_key"}},
		{"403", up.Fail(403, "no"), turn.KindUpstream, "upstream_unauthorized", []string{"api_key"}},
		{"402", up.Fail(402, "Insufficient Balance"), turn.KindUpstream, "upstream_payment_required", []string{"credit"}},
		{"404 model", up.FailCode(404, "The model `m` does not exist.", "model_not_found"), turn.KindNotFound, "model_not_found", []string{`"m"`}},
		{"404 path", up.Answer{Status: 404, Body: "404 page not found"}, turn.KindUpstream, "", []string{"base_url"}},
		{"404 path of FastAPI", up.Answer{Status: 404, Body: `{"detail":"Not Found"}`}, turn.KindUpstream, "", []string{"base_url"}},
		{"redirect", up.Answer{Status: 307, Header: http.Header{"Location": {"http://example.com/"}}}, turn.KindUpstream, "", []string{"base_url"}},
		{"context length", up.FailCode(400, "too long by far", "context_length_exceeded"), turn.KindInvalid, "context_length_exceeded", []string{"too long by far"}},
		{"vLLM's top-level error", up.Answer{Status: 400, Body: `{"object":"error","message":"bad thing","type":"BadRequestError","param":null,"code":400}`},
			turn.KindInvalid, "", []string{"bad thing"}},
		{"422", up.Answer{Status: 422, Body: `{"detail":"Extra inputs are not permitted"}`}, turn.KindInvalid, "", []string{"Extra inputs"}},
		{"429", up.FailCode(429, "slow down, "+key, "insufficient_quota"), turn.KindRateLimited, "insufficient_quota", []string{"slow down", "[redacted]"}},
		{"413", up.Fail(413, "big"), turn.KindTooLarge, "", []string{"big"}},
		{"529", up.Overloaded(), turn.KindOverloaded, "overloaded_error", nil},
		{"500 without JSON", up.Answer{Status: 500, Body: "<html>oops</html>"}, turn.KindUpstream, "", []string{"500"}},
		{"200 with an error", up.Answer{Status: 200, Body: `{"error":{"message":"busy","code":503}}`}, turn.KindOverloaded, "", []string{"busy"}},
		{"200 with nothing", up.Answer{Status: 200}, turn.KindUpstream, "upstream_incomplete", nil},
		{"malformed", up.Do(up.Frame(`{"choices":[{`)), turn.KindUpstream, "upstream_malformed", nil},
		{"a frame that is no object", up.Do(up.Frame(`[1,2]`)), turn.KindUpstream, "upstream_malformed", nil},
		{"error frame", up.Do(up.Text("a"), up.Frame(`{"error":{"message":"`+key+` broke","type":"server_error"}}`)), turn.KindUpstream, "", []string{"[redacted] broke"}},
		{"error frame that is a string", up.Do(up.Text("a"), up.Frame(`{"error":"it broke"}`)), turn.KindUpstream, "", []string{"it broke"}},
		{"no finish_reason", up.Say("a").With(up.Quirks{NoFinish: true}), turn.KindUpstream, "upstream_incomplete", nil},
		{"finish_reason error", up.Do(up.Text("a"), up.Finish("error")), turn.KindUpstream, "upstream_failed", nil},
		{"a call without a name", up.Do(up.Call{Pieces: []string{"{}"}}), turn.KindUpstream, "upstream_malformed", nil},
		{"cut", up.Do(up.Text("a"), up.Cut{}), turn.KindUpstream, "upstream_incomplete", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t, tc.answer)
			var log bytes.Buffer
			cfg := Config{BaseURL: s.BaseURL(), APIKey: key, Retries: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			p, _ := newProvider(t, cfg)
			_, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
			if err == nil {
				t.Fatal("no error")
			}
			e := turn.AsError(err)
			if e.Kind != tc.kind || e.Code != tc.code {
				t.Errorf("kind %d code %q (%v), want %d %q", e.Kind, e.Code, err, tc.kind, tc.code)
			}
			for _, part := range tc.parts {
				if !strings.Contains(e.Message, part) {
					t.Errorf("message %q lacks %q", e.Message, part)
				}
			}
			if all := err.Error() + log.String() + fmt.Sprintf("%+v", cfg); strings.Contains(all, key) {
				t.Errorf("the key leaks: %s", all)
			}
			if e.UpstreamRequestID != "req_upstream_0" {
				t.Errorf("upstream request id %q", e.UpstreamRequestID)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	s := up.Start(t)
	s.Stop()
	p, waits := newProvider(t, Config{BaseURL: strings.Replace(s.BaseURL(), "http://", "http://user:hunter2@", 1)})
	_, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
	if e := turn.AsError(err); err == nil || e.Kind != turn.KindUpstream || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	if len(*waits) != 2 {
		t.Errorf("%d retries, want 2", len(*waits))
	}
	if err := p.Check(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("check: %v", err)
	}
}

func TestTimeouts(t *testing.T) {
	never := make(chan struct{})
	for _, tc := range []struct {
		name   string
		answer up.Answer
		cfg    Config
		want   string
	}{
		{"headers", up.Answer{BeforeHeaders: never}, Config{FirstByteTimeout: 50 * time.Millisecond}, "sent nothing"},
		{"first byte", up.Do(up.Wait(never)), Config{FirstByteTimeout: 50 * time.Millisecond}, "sent nothing"},
		{"idle", up.Do(up.Text("a"), up.Wait(never)), Config{IdleTimeout: 50 * time.Millisecond}, "silent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t, tc.answer)
			tc.cfg.BaseURL = s.BaseURL()
			p, _ := newProvider(t, tc.cfg)
			_, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
			if e := turn.AsError(err); err == nil || e.Kind != turn.KindTimeout || !strings.Contains(e.Message, tc.want) {
				t.Errorf("got %v", err)
			}
			if n := len(s.Requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// A consumer that is slow, because code runs or its client reads slowly, is not the server's silence.
func TestSlowConsumerIsNotIdle(t *testing.T) {
	s := up.Start(t, up.Say(strings.Split(strings.Repeat("a", 50), "")...))
	p, _ := newProvider(t, Config{BaseURL: s.BaseURL(), IdleTimeout: 200 * time.Millisecond})
	n := 0
	for _, err := range p.Stream(t.Context(), ask("hi")) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			<-time.After(400 * time.Millisecond) // longer than the timeout: the point of the test
		}
	}
}

// After the finish_reason nothing that the connection does is an error.
func TestCutAfterFinish(t *testing.T) {
	const last = `{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`
	for name, steps := range map[string][]up.Step{
		"cut":    {up.Frame(last), up.Cut{}},
		"silent": {up.Frame(last), up.Wait(make(chan struct{}))},
	} {
		t.Run(name, func(t *testing.T) {
			s := up.Start(t, up.Do(steps...))
			p, _ := newProvider(t, Config{BaseURL: s.BaseURL(), IdleTimeout: 50 * time.Millisecond})
			events, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
			if err != nil || text(events) != "a|stop" {
				t.Errorf("got %q and %v", text(events), err)
			}
		})
	}
}

func TestConnectionIsUsedAgain(t *testing.T) {
	s := up.Start(t)
	s.Answer(func(*up.Request) up.Answer { return up.Say("a") })
	p, _ := newProvider(t, Config{BaseURL: s.BaseURL()})
	for range 5 {
		if _, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi"))); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Connections(); n != 1 {
		t.Errorf("%d connections for 5 calls", n)
	}
}

func TestCheck(t *testing.T) {
	s := up.Start(t)
	p, _ := newProvider(t, Config{BaseURL: s.BaseURL() + "/"})
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:8000/v1", "ftp://host/v1", "http://", "http://user:hunter2@host:port/v1"} {
		if _, err := New(Config{BaseURL: url}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestRequestOnTheWire(t *testing.T) {
	s := up.Start(t, up.Say("a"))
	p, _ := newProvider(t, Config{BaseURL: s.BaseURL() + "?api-version=1", APIKey: "k"})
	if _, err := providertest.Collect(t, p.Stream(t.Context(), ask("<hi>"))); err != nil {
		t.Fatal(err)
	}
	r := s.Last()
	if r.Header.Get("Authorization") != "Bearer k" || r.Path != "/v1/chat/completions" || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", r.Path, r.Header)
	}
	want := `{"model":"m","messages":[{"role":"user","content":"<hi>"}],"stream":true,"stream_options":{"include_usage":true}}`
	if string(r.Body) != want {
		t.Errorf("got  %s\nwant %s", r.Body, want)
	}
}
