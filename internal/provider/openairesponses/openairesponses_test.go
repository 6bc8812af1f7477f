package openairesponses

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/providertest"
	"github.com/lathe-gateway/lathe/internal/turn"
	up "github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// newProvider makes a provider that does not really wait before it tries again.
func newProvider(t *testing.T, cfg Config) *Provider {
	t.Helper()
	cfg.Sleep = func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.CloseIdle)
	return p
}

func ask(text string) *turn.Request {
	return &turn.Request{Model: "m", Items: []turn.Item{said(turn.User, text)}}
}

func TestSuite(t *testing.T) {
	withTools := ask("hi")
	withTools.Tools = []turn.Tool{{Name: "f", Parameters: json.RawMessage(`{"type":"object"}`)}}
	start := func(t *testing.T, a up.Answer) (*up.Server, *Provider) {
		s := up.Start(t)
		s.Answer(func(*up.Request) up.Answer { return a })
		return s, newProvider(t, Config{BaseURL: s.BaseURL()})
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
}

// show joins what a stream says: (reasoning), text, [calls], |reason.
func show(events []turn.Event) string {
	var b strings.Builder
	for _, ev := range events {
		switch ev := ev.(type) {
		case turn.ReasoningDone:
			fmt.Fprintf(&b, "(%s%s)", ev.Reasoning.Text, strings.Join(ev.Reasoning.Summary, "/"))
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

// Whatever form a server chooses, the same comes out.
func TestQuirks(t *testing.T) {
	for name, q := range map[string]up.Quirks{
		"by the protocol": {}, "first index": {FirstIndex: 1}, "no index": {NoIndex: true}, "same index": {SameIndex: true},
		"no ids": {NoIDs: true}, "numeric ids": {NumericIDs: true}, "late names": {LateIDs: true}, "arguments object": {ArgumentsObject: true},
		"interleaved": {Interleave: true}, "no [DONE]": {NoDone: true}, "plain": {Plain: true}, "comments": {Comments: true},
		"no deltas": {NoDeltas: true}, "only the end": {OnlyEnd: true}, "new ids at the end": {NewIDs: true}, "summary": {ReasoningField: "summary"},
		"everything odd": {NoIndex: true, LateIDs: true, NoDone: true, NoDeltas: true, NewIDs: true, Comments: true, Usage: up.UsageNone},
	} {
		t.Run(name, func(t *testing.T) {
			s := up.Start(t, up.Do(
				up.Reasoning("h"), up.Reasoning("m"), up.Text("Hi "), up.Text("you"),
				up.Call{Name: "f", Pieces: []string{`{"x"`, `:1}`}}, up.Call{Name: "g", Pieces: []string{`{"y"`, `:2}`}}, up.Tokens(3, 4),
			).With(q))
			p := newProvider(t, Config{BaseURL: s.BaseURL()})
			events, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
			if want := `(hm)Hi you[f({"x":1})][g({"y":2})]|tool_calls`; err != nil || show(events) != want {
				t.Fatalf("got %q and %v, want %q", show(events), err, want)
			}
			ids := map[string]bool{}
			for _, ev := range events {
				if c, ok := ev.(turn.CallDone); ok {
					ids[c.Call.CallID] = true
				}
			}
			if len(ids) != 2 || ids[""] {
				t.Errorf("ids %v", ids)
			}
			want := turn.Usage{Input: 3, Output: 4}
			if q.Usage == up.UsageNone {
				want = turn.Usage{}
			}
			if f := events[len(events)-1].(turn.Finished); f.Usage != want {
				t.Errorf("usage %+v", f.Usage)
			}
		})
	}
}

func TestRetries(t *testing.T) {
	ok := up.Say("fine")
	failed := up.Do(up.Finish("error"))
	for _, tc := range []struct {
		name     string
		answers  []up.Answer
		requests int
		want     string    // "" for an error
		kind     turn.Kind // of the error
	}{
		{"500 then fine", []up.Answer{up.Fail(500, "x"), ok}, 2, "fine|stop", 0},
		{"failed before anything", []up.Answer{failed, failed.With(up.Quirks{FlatError: true}), ok}, 3, "fine|stop", 0},
		{"cut before anything", []up.Answer{up.Do(up.Cut{}), ok}, 2, "fine|stop", 0},
		{"ended before anything", []up.Answer{up.Do().With(up.Quirks{NoFinish: true}), ok}, 2, "fine|stop", 0},
		{"an error frame without a type", []up.Answer{up.Do(up.Frame(up.Overloaded().Body)), ok}, 2, "fine|stop", 0},
		{"failed after the first event", []up.Answer{up.Do(up.Text("a"), up.Finish("error")), ok}, 1, "", turn.KindUpstream},
		{"cut after the first event", []up.Answer{up.Do(up.Text("a"), up.Cut{}), ok}, 1, "", turn.KindUpstream},
		{"400", []up.Answer{up.FailCode(400, "x", "context_length_exceeded"), ok}, 1, "", turn.KindInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t, tc.answers...)
			events, err := providertest.Collect(t, newProvider(t, Config{BaseURL: s.BaseURL()}).Stream(t.Context(), ask("hi")))
			if n := len(s.Requests()); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
			if tc.want != "" && (err != nil || show(events) != tc.want) {
				t.Errorf("got %q and %v, want %q", show(events), err, tc.want)
			}
			if tc.want == "" && (err == nil || turn.AsError(err).Kind != tc.kind) {
				t.Errorf("got %+v, want kind %d", turn.AsError(err), tc.kind)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	const key = "sk-very-secret"
	for _, tc := range []struct {
		name   string
		answer up.Answer
		kind   turn.Kind
		code   string
		part   string // of the message
	}{
		{"401 is the operator's", up.FailCode(401, "Incorrect API key provided: "+key, "invalid_api_key"), turn.KindUpstream, "upstream_unauthorized", "api_key"},
		{"404 path", up.Answer{Status: 404, Body: `{"detail":"Not Found"}`}, turn.KindUpstream, "", "no Responses at its base_url"},
		{"404 model", up.FailCode(404, "no such model", "model_not_found"), turn.KindNotFound, "model_not_found", `"m"`},
		{"a flat error body", up.Answer{Status: 400, Body: `{"object":"error","message":"bad thing","type":"BadRequestError","param":null,"code":400}`},
			turn.KindInvalid, "", "bad thing"},
		{"429", up.FailCode(429, "slow down, "+key, "insufficient_quota"), turn.KindRateLimited, "insufficient_quota", "slow down, [redacted]"},
		{"200 with an error", up.Answer{Status: 200, Body: `{"error":{"message":"busy","code":503}}`}, turn.KindOverloaded, "", "busy"},
		{"200 with nothing", up.Answer{Status: 200}, turn.KindUpstream, "upstream_incomplete", ""},
		{"200 with a response that goes on", up.Answer{Status: 200, Body: `{"object":"response","status":"in_progress","output":[]}`}, turn.KindUpstream, "upstream_incomplete", ""},
		{"malformed", up.Do(up.Frame(`{"type":`)), turn.KindUpstream, "upstream_malformed", "Responses"},
		{"no object", up.Do(up.Frame(`[1,2]`)), turn.KindUpstream, "upstream_malformed", "Responses"},
		{"the code says what it is", up.Do(up.Text("a"), up.Frame(`{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"later `+key+`"}}}`)),
			turn.KindRateLimited, "rate_limit_exceeded", "later [redacted]"},
		{"the prompt was refused", up.Do(up.Frame(`{"type":"error","code":"invalid_prompt","message":"no","param":null}`)), turn.KindInvalid, "invalid_prompt", "no"},
		{"failed without a reason", up.Do(up.Frame(`{"type":"response.failed","response":{}}`)), turn.KindUpstream, "upstream_failed", "failed"},
		{"cancelled", up.Do(up.Frame(`{"type":"response.completed","response":{"status":"cancelled"}}`)), turn.KindUpstream, "upstream_failed", "cancelled"},
		{"a call without a name", up.Do(up.Call{Pieces: []string{"{}"}}), turn.KindUpstream, "upstream_malformed", "name"},
		{"no end", up.Say("a").With(up.Quirks{NoFinish: true}), turn.KindUpstream, "upstream_incomplete", ""},
		{"cut", up.Do(up.Text("a"), up.Cut{}), turn.KindUpstream, "upstream_incomplete", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t, tc.answer)
			var log bytes.Buffer
			p := newProvider(t, Config{BaseURL: s.BaseURL(), APIKey: key, Retries: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			_, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
			if err == nil {
				t.Fatal("no error")
			}
			e := turn.AsError(err)
			if e.Kind != tc.kind || e.Code != tc.code || !strings.Contains(e.Message, tc.part) || e.UpstreamRequestID != "req_upstream_0" {
				t.Errorf("kind %d, code %q, request %q: %v", e.Kind, e.Code, e.UpstreamRequestID, err)
			}
			if strings.Contains(err.Error()+log.String(), key) {
				t.Errorf("the key leaks: %v %s", err, log.String())
			}
		})
	}
}

// The answer ends with its last event, however long the server keeps the connection.
func TestEndOfAnswer(t *testing.T) {
	s := up.Start(t, up.Do(up.Text("a"), up.Frame(`{"type":"response.completed","response":{"status":"completed","output":[]}}`), up.Wait(make(chan struct{}))))
	p := newProvider(t, Config{BaseURL: s.BaseURL(), IdleTimeout: time.Hour})
	events, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
	if err != nil || show(events) != "a|stop" {
		t.Errorf("got %q and %v", show(events), err)
	}
}

func TestConnectionIsUsedAgain(t *testing.T) {
	s := up.Start(t)
	s.Answer(func(*up.Request) up.Answer { return up.Say("a") })
	p := newProvider(t, Config{BaseURL: s.BaseURL()})
	for range 5 {
		if _, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi"))); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Connections(); n != 1 {
		t.Errorf("%d connections for 5 calls", n)
	}
}

// A model that reasoned once is asked for sealed reasoning from then on; one that refuses it is asked without it, each time.
func TestSealedReasoning(t *testing.T) {
	refusal := up.FailCode(400, "Encrypted content is not supported with this model.", "")
	s := up.Start(t, up.Do(up.Reasoning("hm"), up.Text("a")), up.Say("b"), refusal, up.Say("c"))
	p := newProvider(t, Config{BaseURL: s.BaseURL()})
	for _, want := range []string{"(hm)a|stop", "b|stop", "c|stop"} {
		if events, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi"))); err != nil || show(events) != want {
			t.Errorf("got %q and %v, want %q", show(events), err, want)
		}
	}
	for i, want := range []int{0, 1, 1, 0} {
		if got := s.Requests()[i].Responses().Include; len(got) != want {
			t.Errorf("request %d includes %q", i, got)
		}
	}
}

// OpenAI takes no reasoning that it did not seal, such as that of another model earlier in the conversation.
func TestReasoningTextRefused(t *testing.T) {
	refusal := up.Fail(400, "Invalid 'input[1].content': array too long. Expected an array with maximum length 0, but got an array with length 1 instead.")
	refusal.Body = strings.Replace(refusal.Body, `"param":null`, `"param":"input[1].content"`, 1)
	s := up.Start(t, refusal, up.Say("a"), up.Say("b"))
	p := newProvider(t, Config{BaseURL: s.BaseURL()})
	req := ask("hi")
	req.Items = append(req.Items, turn.Reasoning{Text: "hm"}, said(turn.Assistant, "Hi"), said(turn.User, "and?"))
	for _, want := range []string{"a|stop", "b|stop"} {
		if events, err := providertest.Collect(t, p.Stream(t.Context(), req)); err != nil || show(events) != want {
			t.Errorf("got %q and %v", show(events), err)
		}
	}
	for i, want := range []int{4, 3, 3} {
		if got := s.Requests()[i].Responses().Input.Items; len(got) != want {
			t.Errorf("request %d has %d items", i, len(got))
		}
	}
}

// What the server's own tools did is not shown, and the operator is told.
func TestSkippedItemsAreLogged(t *testing.T) {
	s := up.Start(t, up.Do(up.Frame(`{"type":"response.output_item.done","output_index":0,"item":{"type":"web_search_call","id":"ws_1"}}`), up.Text("a")))
	var log bytes.Buffer
	p := newProvider(t, Config{BaseURL: s.BaseURL(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	events, err := providertest.Collect(t, p.Stream(t.Context(), ask("hi")))
	if err != nil || show(events) != "a|stop" || !strings.Contains(log.String(), "item_type=web_search_call") {
		t.Errorf("got %q and %v; log %s", show(events), err, log.String())
	}
}

func TestForward(t *testing.T) {
	s := up.Start(t, up.Answer{Status: 200, Body: `{ "odd": 1 }`})
	p := newProvider(t, Config{BaseURL: s.BaseURL(), APIKey: "k", Model: "org/m"})
	w := httptest.NewRecorder()
	err := p.Forward(t.Context(), w, provider.Forward{Path: "/responses", Body: []byte(`{ "model":"m", "previous_response_id":"resp_1", "new":1}`)})
	r := s.Last()
	if err != nil || w.Body.String() != `{ "odd": 1 }` || string(r.Body) != `{ "model":"org/m", "previous_response_id":"resp_1", "new":1}` ||
		r.Path != "/v1/responses" || r.Header.Get("Authorization") != "Bearer k" || p.Protocol() != "openai-responses" {
		t.Errorf("%v: %s %s %v, answered %s", err, r.Path, r.Body, r.Header, w.Body)
	}
}

func TestCheck(t *testing.T) {
	s := up.Start(t)
	p := newProvider(t, Config{BaseURL: s.BaseURL()})
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
	s.Stop()
	if err := p.Check(t.Context()); err == nil {
		t.Error("a server that is gone can be reached")
	}
	if _, err := New(Config{BaseURL: "ftp://host"}); err == nil {
		t.Error("ftp is taken")
	}
}

// Reasoning that a server cannot read is not worth failing for.
func TestSealedReasoningRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal up.Answer
		want    string // the reasoning item in the second request
	}{
		"of another account": {up.FailCode(400, "The encrypted content for item rs_1 could not be verified. Reason: x", "invalid_encrypted_content"), ""},
		"seals nothing":      {up.Fail(400, "Encrypted content is not supported."), ""},
		"looks ids up": {up.Fail(404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
			`{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := up.Start(t, tc.refusal, up.Say("a"))
			req := ask("hi")
			req.Items = append(req.Items, turn.Reasoning{ID: "rs_1", Encrypted: "gAAA"}, said(turn.Assistant, "Hi"), said(turn.User, "and?"))
			events, err := providertest.Collect(t, newProvider(t, Config{BaseURL: s.BaseURL()}).Stream(t.Context(), req))
			body := string(s.Last().Body)
			if err != nil || show(events) != "a|stop" || !strings.Contains(body, tc.want) || tc.want == "" && strings.Contains(body, `"type":"reasoning"`) {
				t.Errorf("got %q and %v; asked %s", show(events), err, body)
			}
		})
	}
}

func TestTooManyItems(t *testing.T) {
	item := `{"type":"response.output_item.added","output_index":%d,"item":{"type":"message"}}` + "\n"
	var streamed, whole strings.Builder
	for i := range maxItems + 2 {
		fmt.Fprintf(&streamed, item, i)
		whole.WriteString(`{"type":"message"},`)
	}
	for name, data := range map[string]string{
		"streamed": streamed.String(), "whole": `{"object":"response","status":"completed","output":[` + whole.String() + `{}]}`,
	} {
		if _, _, err := decodeLines(data); err == nil || turn.AsError(err).Code != "upstream_malformed" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode: whatever a server sends, the events are well formed and nothing panics.
func FuzzDecode(f *testing.F) {
	f.Add(`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"a"}}
{"type":"response.output_text.delta","output_index":0,"delta":"x"}
{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","name":"f","arguments":{}}]}}`)
	f.Add(`{"type":"response.reasoning_summary_text.delta","summary_index":-1,"delta":"x"}
{"type":"response.output_text.annotation.added","annotation":{"type":"url_citation","start_index":1e300,"end_index":-5}}
{"object":"response","output":[{"type":"reasoning","encrypted_content":"x"},{"type":"message","content":"y"}]}`)
	f.Fuzz(func(t *testing.T, data string) {
		_, _, err := decodeLines(data)
		if err != nil && strings.Contains(err.Error(), "while block is") {
			t.Error(err)
		}
	})
}
