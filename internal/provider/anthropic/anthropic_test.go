package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/providertest"
	"github.com/lathe-gateway/lathe/internal/turn"
	up "github.com/lathe-gateway/lathe/internal/upstreamtest"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
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

func TestSuite(t *testing.T) {
	withTools := ask()
	withTools.Tools = []turn.Tool{{Name: "f", Parameters: json.RawMessage(`{"type":"object"}`)}}
	start := func(t *testing.T, a up.Answer) (*up.Server, *Provider) {
		s := up.Start(t)
		s.Answer(func(*up.Request) up.Answer { return a })
		p, _ := newProvider(t, Config{BaseURL: s.URL()})
		return s, p
	}
	for name, quirks := range map[string]up.Quirks{
		"well behaved": {}, "plain": {Plain: true}, "spliced": {Spliced: true},
		"odd": {DuplicateStart: true, Padded: true, Pings: true, Unknown: true, Comments: true, NoIDs: true, ArgumentsObject: true, NoDone: true, FinishStop: true},
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, providertest.Suite{
				Requests: map[string]*turn.Request{"text": ask(), "tools": withTools},
				New: func(t *testing.T) provider.Provider {
					_, p := start(t, up.Do(up.Reasoning("hm"), up.Redacted("D"), up.Text("Hi "), up.Cite{Text: "you", URL: "https://x", Title: "T"},
						up.Call{Name: "f", Pieces: []string{"{", "}"}}, up.Call{Name: "f"}).With(quirks))
					return p
				},
				Failing: func(t *testing.T) provider.Provider {
					_, p := start(t, up.Fail(http.StatusInternalServerError, "no"))
					return p
				},
				Endless: func(t *testing.T) (provider.Provider, <-chan struct{}) {
					s, p := start(t, up.Answer{})
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
		})
	}
}

// spoken joins what a stream says: calls as [name(arguments)], reasoning as <text|signature|sealed>.
func spoken(events []turn.Event) string {
	var b strings.Builder
	for _, ev := range events {
		switch ev := ev.(type) {
		case turn.TextDelta:
			b.WriteString(ev.Text)
		case turn.ReasoningDone:
			fmt.Fprintf(&b, "<%s|%s|%s>", ev.Reasoning.Text, ev.Reasoning.Signature, ev.Reasoning.Encrypted)
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
		{"400 is not tried again", []up.Answer{up.Fail(400, "x"), ok}, Config{}, 1, "", turn.KindInvalid, nil},
		{"overloaded right behind message_start", []up.Answer{up.Do(up.Wait(closed()), overloaded()), ok}, Config{}, 2, "fine|stop", 0, nil},
		{"overloaded in the middle", []up.Answer{up.Do(up.Text("a"), overloaded()), ok}, Config{}, 1, "", turn.KindOverloaded, nil},
		{"cut right behind message_start", []up.Answer{up.Do(up.Wait(closed()), up.Cut{}), ok}, Config{}, 2, "fine|stop", 0, nil},
		{"cut in the middle", []up.Answer{up.Do(up.Text("a"), up.Cut{}), ok}, Config{}, 1, "", turn.KindUpstream, nil},
		{"no retries", []up.Answer{up.Fail(500, "x"), ok}, Config{Retries: -1}, 1, "", turn.KindUpstream, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t, tc.answers...)
			tc.cfg.BaseURL = s.URL()
			p, waits := newProvider(t, tc.cfg)
			events, err := providertest.Collect(t, p.Stream(t.Context(), ask()))
			if n := len(s.Requests()); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
			if tc.want != "" && (err != nil || spoken(events) != tc.want) {
				t.Errorf("got %q and %v, want %q", spoken(events), err, tc.want)
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

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func overloaded() up.Step {
	return up.Frame(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}   }`)
}

func refuse(message string) up.Answer { return up.Fail(http.StatusBadRequest, message) }

// What a model refuses is left out at once and in later calls, also where the refusals come one after another.
func TestModelsOfAllAges(t *testing.T) {
	base := func() *turn.Request {
		r := effort("high")
		r.Items = append(r.Items, says(turn.System, "be brief"))
		return r
	}
	for _, tc := range []struct {
		name    string
		refused []string // messages
		check   func(r *wire.Request) bool
	}{
		{"4.6: no system turns", []string{"messages.1.role: Input should be 'user' or 'assistant'"}, func(r *wire.Request) bool {
			return r.Thinking.Type == "adaptive" && len(r.Messages) == 1 && len(r.System.Blocks) == 1
		}},
		{"4.5: a budget", []string{"adaptive thinking is not supported on this model", "messages.1: role 'system' is not supported on this model"}, func(r *wire.Request) bool {
			return r.Thinking.Type == "enabled" && *r.Thinking.BudgetTokens == 16_000 && r.OutputConfig == nil && len(r.Messages) == 1
		}},
		{"an effort that is too much", []string{"This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium."}, func(r *wire.Request) bool {
			return r.Thinking.Type == "adaptive" && r.OutputConfig == nil && len(r.Messages) == 2
		}},
		{"3: few tokens", []string{
			"max_tokens: 32000 > 4096, which is the maximum allowed number of output tokens for m",
			"thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', 'enabled'",
		}, func(r *wire.Request) bool {
			return *r.MaxTokens == 4096 && *r.Thinking.BudgetTokens == 2048
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t)
			for _, m := range tc.refused {
				s.Push(refuse(m))
			}
			s.Push(up.Say("a"), up.Say("b"))
			p, _ := newProvider(t, Config{BaseURL: s.URL()})
			for _, want := range []string{"a|stop", "b|stop"} {
				events, err := providertest.Collect(t, p.Stream(t.Context(), base()))
				if err != nil || spoken(events) != want {
					t.Fatalf("got %q and %v", spoken(events), err)
				}
				if got := s.Last().Messages(); !tc.check(got) {
					t.Errorf("%s", s.Last().Body)
				}
			}
			if n := len(s.Requests()); n != len(tc.refused)+2 {
				t.Errorf("%d requests", n)
			}
		})
	}
	t.Run("what cannot be helped is the client's", func(t *testing.T) {
		s := up.Start(t, refuse("thinking is not supported"), refuse("thinking is not supported"), refuse("thinking is not supported"))
		p, _ := newProvider(t, Config{BaseURL: s.URL()})
		_, err := providertest.Collect(t, p.Stream(t.Context(), effort("low")))
		if e := turn.AsError(err); err == nil || e.Kind != turn.KindInvalid || len(s.Requests()) != 2 {
			t.Errorf("%v after %d requests", err, len(s.Requests()))
		}
	})
}

// A conversation that began with another model has signatures that are none here. They are left out of this call, not for good.
func TestForeignSignatures(t *testing.T) {
	s := up.Start(t, up.Say("for the request that the stub refuses"), up.Say("a"), up.Say("b"))
	p, _ := newProvider(t, Config{BaseURL: s.URL()})
	talk := func(signature string) *turn.Request {
		return ask(says(turn.User, "go"), turn.Reasoning{Text: "hm", Signature: signature}, says(turn.Assistant, "a"), says(turn.User, "b"))
	}
	for _, signature := range []string{"of another", "sig_0_0"} {
		if _, err := providertest.Collect(t, p.Stream(t.Context(), talk(signature))); err != nil {
			t.Fatal(err)
		}
	}
	var kinds []string
	for _, r := range s.Requests() {
		for _, m := range r.Messages().Messages {
			for _, b := range m.Content.Blocks {
				kinds = append(kinds, b.BlockType())
			}
		}
		kinds = append(kinds, "/")
	}
	if got := strings.Join(kinds, " "); got != "text thinking text text / text text text / text thinking text text /" {
		t.Errorf("%s", got)
	}
}

func TestErrors(t *testing.T) {
	const key = "sk-ant-very-secret"
	typed := func(status int, kind, message string) up.Answer {
		return up.Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: fmt.Sprintf(
			`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_in_body"}`, kind, message)}
	}
	for _, tc := range []struct {
		name   string
		answer up.Answer
		kind   turn.Kind
		code   string
		parts  []string // of the message
	}{
		{"401 is the operator's", typed(401, "authentication_error", "invalid x-api-key: "+key), turn.KindUpstream, "upstream_unauthorized", []string{"api_key"}},
		{"403", typed(403, "permission_error", "no"), turn.KindUpstream, "upstream_unauthorized", []string{"api_key"}},
		{"402", typed(402, "billing_error", "pay"), turn.KindUpstream, "upstream_payment_required", []string{"credit"}},
		{"400 for an empty account", typed(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."), turn.KindUpstream, "upstream_payment_required", []string{"operator"}},
		{"404 model", typed(404, "not_found_error", "model: m"), turn.KindNotFound, "model_not_found", []string{`"m"`}},
		{"404 path", up.Answer{Status: 404, Body: "404 page not found"}, turn.KindUpstream, "", []string{"base_url"}},
		{"redirect", up.Answer{Status: 307, Header: http.Header{"Location": {"http://example.com/"}}}, turn.KindUpstream, "", []string{"base_url"}},
		{"too long", typed(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), turn.KindInvalid, "context_length_exceeded", []string{"210000"}},
		{"a field", typed(400, "invalid_request_error", "top_k: must be positive, "+key), turn.KindInvalid, "", []string{"top_k: must be positive, [redacted]"}},
		{"413", typed(413, "request_too_large", "big"), turn.KindTooLarge, "", []string{"big"}},
		{"429", typed(429, "rate_limit_error", "slow down"), turn.KindRateLimited, "", []string{"slow down"}},
		{"504", typed(504, "timeout_error", "late"), turn.KindTimeout, "", []string{"late"}},
		{"529", up.Overloaded(), turn.KindOverloaded, "", []string{"overloaded"}},
		{"500 without JSON", up.Answer{Status: 500, Body: "<html>oops</html>"}, turn.KindUpstream, "", []string{"500"}},
		{"200 with an error", typed(200, "overloaded_error", "busy"), turn.KindOverloaded, "", []string{"busy"}},
		{"200 with nothing", up.Answer{Status: 200}, turn.KindUpstream, "upstream_incomplete", nil},
		{"malformed", up.Do(up.Frame(`{"type":"message_start","message":[`)), turn.KindUpstream, "upstream_malformed", []string{"Messages"}},
		{"a frame that is no object", up.Do(up.Frame(`[1,2]`)), turn.KindUpstream, "upstream_malformed", nil},
		{"a call without a name", up.Do(up.Call{}), turn.KindUpstream, "upstream_malformed", nil},
		{"overloaded in the stream", up.Do(up.Text("a"), overloaded()), turn.KindOverloaded, "", []string{"Overloaded"}},
		{"refused in the stream", up.Do(up.Text("a"), up.Frame(`{"type":"error","error":{"type":"invalid_request_error","message":"`+key+` is bad"}}`)), turn.KindInvalid, "", []string{"[redacted] is bad"}},
		{"key refused in the stream", up.Do(up.Text("a"), up.Frame(`{"type":"error","error":{"type":"authentication_error","message":"x"}}`)), turn.KindUpstream, "upstream_unauthorized", nil},
		{"an unknown error in the stream", up.Do(up.Text("a"), up.Frame(`{"type":"error","error":{"type":"moon_error","message":"x"}}`)), turn.KindUpstream, "", nil},
		{"no end", up.Say("a").With(up.Quirks{NoFinish: true}), turn.KindUpstream, "upstream_incomplete", nil},
		{"cut", up.Do(up.Text("a"), up.Cut{}), turn.KindUpstream, "upstream_incomplete", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t, tc.answer)
			var log bytes.Buffer
			cfg := Config{BaseURL: s.URL(), APIKey: key, Retries: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			p, _ := newProvider(t, cfg)
			_, err := providertest.Collect(t, p.Stream(t.Context(), ask()))
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
			if all := err.Error() + log.String() + fmt.Sprintf("%+v %+v", cfg, p); strings.Contains(all, key) {
				t.Errorf("the key leaks: %s", all)
			}
			if e.UpstreamRequestID != "req_upstream_0" {
				t.Errorf("upstream request id %q", e.UpstreamRequestID)
			}
		})
	}
}

func TestRequestOnTheWire(t *testing.T) {
	s := up.Start(t, up.Say("a"), up.Say("b"))
	for _, base := range []string{s.URL(), s.URL() + "/v1/"} {
		p, _ := newProvider(t, Config{BaseURL: base, APIKey: "k"})
		req := ask(says(turn.User, "<hi>"))
		req.Extra = turn.Extra{Protocol: Protocol, Fields: map[string]json.RawMessage{"betas": json.RawMessage(`["a-1","b-2"]`)}}
		if _, err := providertest.Collect(t, p.Stream(t.Context(), req)); err != nil {
			t.Fatal(err)
		}
		r := s.Last()
		h := r.Header
		if r.Path != "/v1/messages" || h.Get("X-Api-Key") != "k" || h.Get("Authorization") != "" || h.Get("Anthropic-Version") != "2023-06-01" ||
			h.Get("Anthropic-Beta") != "a-1,b-2" || h.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v", r.Path, h)
		}
		want := `{"model":"m","max_tokens":32000,"messages":[{"role":"user","content":[{"type":"text","text":"<hi>"}]}],"stream":true}`
		if string(r.Body) != want {
			t.Errorf("got  %s\nwant %s", r.Body, want)
		}
	}
}

func TestForward(t *testing.T) {
	s := up.Start(t, up.Say("a", "b").With(up.Quirks{Padded: true}), up.Overloaded())
	p, _ := newProvider(t, Config{BaseURL: s.URL(), APIKey: "k", Model: "claude-real"})
	const body = `{ "max_tokens": 5, "model" : "nick",  "stream": true, "messages":[{"role":"user","content":"x"}],"new_field":[ 1 ] }`
	for _, status := range []int{200, 529} {
		w := httptest.NewRecorder()
		err := p.Forward(t.Context(), w, provider.Forward{Path: "/v1/messages", Body: []byte(body), Header: http.Header{
			"Anthropic-Version": {"2026-10-21"}, "Anthropic-Beta": {"x-1"}, "Authorization": {"Bearer client"}, "X-Api-Key": {"client"}, "Anthropic-Workspace-Id": {"w"},
		}})
		if err != nil || w.Code != status || w.Header().Get("Request-Id") == "" {
			t.Fatalf("%v, status %d, %v", err, w.Code, w.Header())
		}
		if status == 200 && (!strings.Contains(w.Body.String(), "event: message_start\ndata: ") || !strings.Contains(w.Body.String(), `  }`)) {
			t.Errorf("not the upstream's bytes: %s", w.Body)
		}
		r := s.Last()
		if got, want := string(r.Body), strings.Replace(body, `"nick"`, `"claude-real"`, 1); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		h := r.Header
		if h.Get("Anthropic-Version") != "2026-10-21" || h.Get("Anthropic-Beta") != "x-1" || h.Get("Authorization") != "" || h.Get("X-Api-Key") != "k" || h.Get("Anthropic-Workspace-Id") != "" {
			t.Errorf("%v", h)
		}
	}
}

func TestCheck(t *testing.T) {
	s := up.Start(t)
	p, _ := newProvider(t, Config{BaseURL: s.URL()})
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	s.Stop()
	if err := p.Check(t.Context()); err == nil {
		t.Error("a server that is not there can be reached")
	}
}

func TestNew(t *testing.T) {
	if _, err := New(Config{}); err != nil {
		t.Error(err)
	}
	for _, url := range []string{"127.0.0.1:8000", "ftp://host", "http://", "http://user:hunter2@host:port/v1"} {
		if _, err := New(Config{BaseURL: url}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestCancelledWhileWaiting(t *testing.T) {
	s := up.Start(t, up.Overloaded())
	ctx, cancel := context.WithCancelCause(t.Context())
	cfg := Config{BaseURL: s.URL(), Sleep: func(ctx context.Context, _ time.Duration) error {
		cancel(errors.New("left"))
		return context.Cause(ctx)
	}}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := providertest.Collect(t, p.Stream(ctx, ask())); turn.AsError(err).Kind != turn.KindCancelled {
		t.Errorf("got %v", err)
	}
}
