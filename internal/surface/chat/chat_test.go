package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/openaichat"
	"github.com/lathe-gateway/lathe/internal/surface/chat"
	"github.com/lathe-gateway/lathe/internal/turn"
	up "github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// opaque hides that a provider can forward.
type opaque struct{ provider.Provider }

// turns answers by a function.
type turns func(ctx context.Context, req *turn.Request, yield func(turn.Event, error) bool)

func (f turns) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) { f(ctx, req, yield) }
}

// world is a gateway of this surface in front of the scripted upstream: the model "fast" can be passed on, "slow" cannot.
type world struct {
	handler http.Handler
	up      *up.Server
	url     string
	client  openai.Client
	log     *strings.Builder
}

func newWorld(t *testing.T, hosted turns, answers ...up.Answer) *world {
	t.Helper()
	w := &world{up: up.Start(t, answers...), log: &strings.Builder{}}
	p, err := openaichat.New(openaichat.Config{BaseURL: w.up.BaseURL(), APIKey: "upstream-key", Model: "org/model", Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	router, err := provider.NewRouter([]provider.Model{
		{Name: "fast", Upstream: "org/model", Provider: p}, {Name: "slow", Upstream: "org/model", Provider: opaque{p}},
		{Name: "native", Upstream: "org/model", Provider: p, Native: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := chat.Config{Turns: router, Models: router, Logger: slog.New(slog.NewTextHandler(w.log, nil))}
	if hosted != nil {
		cfg.Turns = hosted
	}
	w.handler = chat.New(cfg)
	s := httptest.NewServer(w.handler)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	w.url = s.URL
	w.client = openai.NewClient(option.WithBaseURL(s.URL), option.WithAPIKey("client-key"), option.WithMaxRetries(0),
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			r.URL.Path = "/" // the handler is mounted by package server
			return next(r)
		}))
	return w
}

func params(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// withInterpreter adds our extension, which the SDK does not know.
func withInterpreter() option.RequestOption {
	return option.WithJSONSet("tools", []map[string]string{{"type": "code_interpreter"}})
}

// codeRun is a turn with one hosted call between two texts.
func codeRun(yield func(turn.Event, error) bool) {
	call := turn.HostedCall{ID: "ci_1", Tool: "python", Container: "cntr_1", Code: "print(7)", Status: turn.StatusCompleted, Outputs: []turn.Output{{Text: "7\n"}}}
	file := turn.Annotation{File: &turn.File{ID: "cfile_1", Container: "cntr_1", Name: "a.csv"}, Start: 0, End: 5}
	for _, ev := range []turn.Event{
		turn.Started{}, turn.MessageStarted{}, turn.TextDelta{Text: "Computing."}, turn.MessageDone{Message: turn.Message{Parts: []turn.Part{turn.Text{Text: "Computing."}}}},
		turn.HostedStarted{ID: "ci_1", Tool: "python", Container: "cntr_1"}, turn.HostedCodeDelta{Delta: "print("}, turn.HostedCodeDelta{Delta: "7)"},
		turn.HostedCodeDone{Code: "print(7)"}, turn.HostedRunning{}, turn.HostedOutput{Stream: "stdout", Text: "7\n"}, turn.HostedDone{Call: call},
		turn.MessageStarted{}, turn.TextDelta{Text: "a.csv"}, turn.Annotated{Annotation: file}, turn.MessageDone{},
		turn.Finished{Reason: turn.ReasonStop, Usage: turn.Usage{Input: 3, Output: 4}, Container: &turn.Container{ID: "cntr_1", ExpiresAt: 9}},
	} {
		if !yield(ev, nil) {
			return
		}
	}
}

func TestHostedWhole(t *testing.T) {
	var got *turn.Request
	w := newWorld(t, func(_ context.Context, req *turn.Request, yield func(turn.Event, error) bool) {
		got = req
		codeRun(yield)
	})
	res, err := w.client.Chat.Completions.New(t.Context(), params("fast", "7"), withInterpreter(), option.WithHeader("X-Lathe-Live", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Model != "fast" || got.Hosted == nil || got.Live {
		t.Errorf("the turn is %+v: a whole answer has no live output", got)
	}
	msg := res.Choices[0].Message
	if msg.Content != "Computing.\n\na.csv" || res.Choices[0].FinishReason != "stop" || res.Model != "fast" || res.Usage.TotalTokens != 7 {
		t.Errorf("answer %s", res.RawJSON())
	}
	want := map[string]string{
		"code_interpreter_calls": `[{"id":"ci_1","type":"code_interpreter_call","status":"completed","code":"print(7)","container_id":"cntr_1","outputs":[{"type":"logs","logs":"7\n"}]}]`,
		"container":              `{"id":"cntr_1","expires_at":9}`,
	}
	for name, raw := range want {
		if diff := cmp.Diff(raw, msg.JSON.ExtraFields[name].Raw()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if a := msg.JSON.Annotations.Raw(); !strings.Contains(a, `"file_id":"cfile_1","filename":"a.csv","start_index":12,"end_index":17`) {
		t.Errorf("annotations %s", a)
	}
	if n := len(w.up.Requests()); n != 0 {
		t.Errorf("%d requests went past the turns", n)
	}
}

func TestHostedStream(t *testing.T) {
	for _, live := range []string{"", "1"} {
		t.Run("live"+live, func(t *testing.T) {
			var got *turn.Request
			w := newWorld(t, func(_ context.Context, req *turn.Request, yield func(turn.Event, error) bool) {
				got = req
				codeRun(yield)
			})
			p := params("fast", "7")
			p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
			stream := w.client.Chat.Completions.NewStreaming(t.Context(), p, withInterpreter(), option.WithHeader("X-Lathe-Live", live))
			var acc openai.ChatCompletionAccumulator
			raw := ""
			for stream.Next() {
				if !acc.AddChunk(stream.Current()) {
					t.Fatalf("the SDK does not take %s", stream.Current().RawJSON())
				}
				raw += stream.Current().RawJSON()
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			if got.Live != (live == "1") || strings.Contains(raw, `"code_interpreter_output":{"id":"ci_1","stream":"stdout","text":"7\n"}`) != got.Live {
				t.Errorf("live is %v: %s", got.Live, raw)
			}
			if c := acc.Choices[0]; c.Message.Content != "Computing.\n\na.csv" || c.FinishReason != "stop" || acc.Usage.TotalTokens != 7 {
				t.Errorf("accumulated %+v", acc.ChatCompletion)
			}
		})
	}
}

// What the handler gets must leave it at once: each event is seen by the client before the next one is made.
func TestStreamsAtOnce(t *testing.T) {
	seen := make(chan struct{})
	w := newWorld(t, func(ctx context.Context, _ *turn.Request, yield func(turn.Event, error) bool) {
		wait := func() {
			select {
			case <-seen:
			case <-ctx.Done():
			}
		}
		_ = yield(turn.Started{}, nil) && yield(turn.HostedStarted{ID: "ci_1", Tool: "python"}, nil) && yield(turn.HostedCodeDelta{Delta: "half"}, nil)
		wait()
		_ = yield(turn.HostedCodeDelta{Delta: "whole"}, nil)
		wait()
	})
	stream := w.client.Chat.Completions.NewStreaming(t.Context(), params("fast", "7"), withInterpreter())
	defer stream.Close()
	for stream.Next() {
		raw := stream.Current().RawJSON()
		if strings.Contains(raw, `"half"`) || strings.Contains(raw, `"whole"`) {
			seen <- struct{}{}
		}
		if strings.Contains(raw, `"whole"`) {
			return
		}
	}
	t.Fatal("the pieces did not come:", stream.Err())
}

func TestForwarded(t *testing.T) {
	const answer = `{ "id":"x", "choices":[ ],  "vendor_field": 1 }`
	w := newWorld(t, nil, up.Answer{Status: 200, Body: answer, Header: http.Header{"Content-Type": {"application/json"}}}, up.RateLimited(9))
	body := `{"model": "fast", "n": 3, "audio": {"voice":"x"}, "messages": [], "vendor": {"a" : [1,2]}}`
	res := post(t, w.url, body)
	got, err := io.ReadAll(res.Body)
	if err != nil || string(got) != answer {
		t.Errorf("got %s, %v", got, err)
	}
	if want := strings.Replace(body, `"fast"`, `"org/model"`, 1); string(w.up.Last().Body) != want {
		t.Errorf("upstream got %s, want %s", w.up.Last().Body, want)
	}
	if got := w.up.Last().Header.Get("Authorization"); got != "Bearer upstream-key" {
		t.Errorf("upstream's authorization %q", got)
	}
	if res := post(t, w.url, body); res.StatusCode != 429 || res.Header.Get("Retry-After") != "9" {
		t.Errorf("an upstream's error: %d %v", res.StatusCode, res.Header)
	}
}

// What only the gateway knows cannot go to the model's server as it is: such a request goes the long way.
func TestOwnIDsAreNotForwarded(t *testing.T) {
	const hex = "0123456789abcdef0123456789abcdef"
	for name, tc := range map[string]struct {
		id   string
		ours bool
	}{
		"hidden steps":         {"call_h" + hex, true},
		"uploaded file":        {"file_" + hex, true},
		"another's call":       {"call_hello", false},
		"another's long call":  {"call_h" + hex + "0", false},
		"another's file":       {"file-" + hex, false},
		"not at the beginning": {"see file_" + hex, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			w := newWorld(t, func(_ context.Context, _ *turn.Request, yield func(turn.Event, error) bool) {
				asked = true
				codeRun(yield)
			}, up.Say("a"))
			post(t, w.url, `{"model":"fast","messages":[{"role":"tool","tool_call_id":"`+tc.id+`","content":"x"}]}`)
			if asked != tc.ours {
				t.Errorf("decoded %v, want %v", asked, tc.ours)
			}
		})
	}
}

// A model whose provider keeps its own hosted tools gets the request as it is.
func TestNativeIsForwarded(t *testing.T) {
	w := newWorld(t, nil, up.Answer{Status: 200, Body: `{}`})
	post(t, w.url, `{"model":"native","tools":[{"type":"code_interpreter"}]}`)
	if r := w.up.Last(); r == nil || !strings.Contains(string(r.Body), "code_interpreter") {
		t.Errorf("upstream got %+v", r)
	}
}

// A provider of another kind gets the turn, and the SDK a full tool loop.
func TestTranslated(t *testing.T) {
	w := newWorld(t, nil,
		up.Do(up.Reasoning("hm"), up.Text("Let me ask."), up.Call{ID: "call_a", Name: "weather", Pieces: []string{`{"city":`, `"Oslo"}`}}).With(up.Quirks{FirstIndex: 1, FinishStop: true}),
		up.Say("Rain."))
	p := params("slow", "weather?")
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "weather"})}
	stream := w.client.Chat.Completions.NewStreaming(t.Context(), p)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	msg := acc.Choices[0].Message
	if acc.Choices[0].FinishReason != "tool_calls" || len(msg.ToolCalls) != 1 || msg.ToolCalls[0].Function.Arguments != `{"city":"Oslo"}` {
		t.Fatalf("answer %+v", acc.ChatCompletion)
	}
	p.Messages = append(p.Messages, msg.ToParam(), openai.ToolMessage("wet", msg.ToolCalls[0].ID))
	res, err := w.client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if res.Choices[0].Message.Content != "Rain." {
		t.Errorf("answer %s", res.RawJSON())
	}
	up := w.up.Last().Chat()
	if m := up.Messages; len(m) != 3 || m[1].Content.String() != "Let me ask." || m[2].ToolCallID != "call_a" || up.Model != "org/model" {
		t.Errorf("upstream got %s", w.up.Last().Body)
	}
}

func TestErrorsBeforeTheFirstEvent(t *testing.T) {
	const ask = `{"model":"slow","stream":true,"messages":[{"role":"user","content":"x"}]}`
	for _, tc := range []struct {
		name, body string
		answer     up.Answer
		status     int
		code       string
		message    string
	}{
		{"syntax", `{"model":"slow","messages":[{"role":}]}`, up.Answer{}, 400, "", "at byte 37"},
		{"not an object", `[1]`, up.Answer{}, 400, "", "JSON object"},
		{"no model", `{"messages":[]}`, up.Answer{}, 400, "missing_required_parameter", `"model"`},
		{"model of the wrong type", `{"model":7}`, up.Answer{}, 400, "missing_required_parameter", `"model"`},
		{"unknown model", `{"model":"gpt-9","messages":[]}`, up.Answer{}, 404, "model_not_found", "known models: fast, slow, native"},
		{"bad field", `{"model":"slow","temperature":"hot","messages":[]}`, up.Answer{}, 400, "invalid_type", `"temperature": must be a number`},
		{"refused field", `{"model":"fast","n":2,"messages":[],"tools":[{"type":"code_interpreter"}]}`, up.Answer{}, 400, "unsupported_value", "n must be 1"},
		{"context length upstream", ask, up.FailCode(400, "too long", "context_length_exceeded"), 400, "context_length_exceeded", "too long"},
		{"upstream's key", ask, up.Fail(401, "bad key"), 502, "upstream_unauthorized", "api_key"},
		{"rate limit", ask, up.RateLimited(30), 429, "rate_limit_exceeded", "rate limit"},
		{"overloaded", ask, up.Overloaded(), 503, "overloaded_error", "529"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil, tc.answer)
			res := post(t, w.url, tc.body)
			var body struct {
				Error struct{ Message, Type, Code string }
			}
			if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != tc.status || body.Error.Code != tc.code || !strings.Contains(body.Error.Message, tc.message) {
				t.Errorf("status %d, %+v", res.StatusCode, body.Error)
			}
			if tc.status == 429 && res.Header.Get("Retry-After") != "30" {
				t.Error("Retry-After is lost")
			}
		})
	}
}

// endless is a body that does not end by itself.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestTooLarge(t *testing.T) {
	body := &endless{}
	rec := httptest.NewRecorder()
	chat.New(chat.Config{}).ServeHTTP(rec, httptest.NewRequest("POST", "/v1/chat/completions", body))
	if rec.Code != 413 || !strings.Contains(rec.Body.String(), "64 MiB") || body.read > 200<<20 {
		t.Errorf("status %d after %d bytes: %s", rec.Code, body.read, rec.Body)
	}
}

func TestErrorAfterTheFirstEvent(t *testing.T) {
	w := newWorld(t, nil, up.Do(up.Text("Hel"), up.Cut{}))
	stream := w.client.Chat.Completions.NewStreaming(t.Context(), params("slow", "x"))
	text := ""
	for stream.Next() {
		text += stream.Current().Choices[0].Delta.Content
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "broke off") || text != "Hel" {
		t.Errorf("text %q, error %v", text, err)
	}
	if n := strings.Count(w.log.String(), "stream failed"); n != 1 {
		t.Errorf("logged %d times: %s", n, w.log)
	}
}

func TestInternalErrorsStayInside(t *testing.T) {
	w := newWorld(t, func(_ context.Context, _ *turn.Request, yield func(turn.Event, error) bool) {
		yield(nil, errors.New("the secret of the house"))
	})
	res := post(t, w.url, `{"model":"fast","messages":[{"role":"user","content":"x"}],"tools":[{"type":"code_interpreter"}]}`)
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 500 || strings.Contains(string(body), "secret") || !strings.Contains(w.log.String(), "secret") {
		t.Errorf("status %d, body %s, log %s", res.StatusCode, body, w.log)
	}
}

func TestNoRetryOnceCodeRan(t *testing.T) {
	w := newWorld(t, func(_ context.Context, _ *turn.Request, yield func(turn.Event, error) bool) {
		yield(nil, &turn.Error{Kind: turn.KindUpstream, Message: "broke", CodeRan: true})
	})
	res := post(t, w.url, `{"model":"fast","messages":[{"role":"user","content":"x"}],"tools":[{"type":"code_interpreter"}]}`)
	if res.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("headers %v", res.Header)
	}
}

func TestEndedByTheServer(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := newWorld(t, func(_ context.Context, _ *turn.Request, yield func(turn.Event, error) bool) {
		yield(turn.Started{}, nil)
		stopping := &turn.Error{Kind: turn.KindOverloaded, Message: "the server is stopping"}
		cancel(stopping)
		yield(nil, stopping)
	})
	const body = `{"model":"fast","stream":true,"messages":[{"role":"user","content":"x"}],"tools":[{"type":"code_interpreter"}]}`
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
	if !strings.Contains(rec.Body.String(), `"message":"the server is stopping"`) {
		t.Errorf("got %s", rec.Body)
	}
}

func TestClientLeaves(t *testing.T) {
	ended := make(chan error, 1)
	w := newWorld(t, func(ctx context.Context, _ *turn.Request, yield func(turn.Event, error) bool) {
		yield(turn.Started{}, nil)
		<-ctx.Done()
		ended <- ctx.Err()
		yield(nil, &turn.Error{Kind: turn.KindCancelled, Message: "left", Cause: ctx.Err()})
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := w.client.Chat.Completions.NewStreaming(ctx, params("fast", "x"), withInterpreter())
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the turn goes on without its client")
	}
}

func post(t *testing.T, url, body string) *http.Response {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}
