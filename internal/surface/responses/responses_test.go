package responses

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestErrorBeforeTheFirstEvent(t *testing.T) {
	for _, body := range []string{`{"model":"m","input":"x"}`, `{"model":"m","input":"x","stream":true}`} {
		s := &script{err: &turn.Error{Kind: turn.KindRateLimited, Message: "slow down", RetryAfter: 1500 * time.Millisecond, CodeRan: true}}
		w := post(t, testHandler(s), body, nil)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" || w.Header().Get("X-Should-Retry") != "false" {
			t.Errorf("%s: status %d, header %v", body, w.Code, w.Header())
		}
		var got struct{ Error oai.Error }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Error.Message != "slow down" {
			t.Errorf("%s: body %s, %v", body, w.Body, err)
		}
	}
}

// A plain request can still get a status when the turn fails late.
func TestPlainFailsLate(t *testing.T) {
	s := &script{
		events: []turn.Event{turn.Started{}, turn.MessageStarted{}},
		err:    &turn.Error{Kind: turn.KindUpstream, Message: "the model's server went away"},
	}
	if w := post(t, testHandler(s), `{"model":"m","input":"x"}`, nil); w.Code != http.StatusBadGateway {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// What is not a *turn.Error is ours, and its text stays here.
func TestInternalErrorsAreHidden(t *testing.T) {
	for name, s := range map[string]*script{
		"before": {err: errors.New("secret")},
		"after":  {events: []turn.Event{turn.Started{}}, err: errors.New("secret")},
		// A turn that ends without Finished must not look complete.
		"unfinished": {events: []turn.Event{turn.Started{}}},
		"nothing":    {},
	} {
		for _, body := range []string{`{"model":"m","input":"x"}`, `{"model":"m","input":"x","stream":true}`} {
			w := post(t, testHandler(s), body, nil)
			if strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), "server_error") {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			if strings.Contains(w.Body.String(), "response.completed") {
				t.Errorf("%s: looks complete: %s", name, w.Body)
			}
		}
	}
}

func TestBodyTooLarge(t *testing.T) {
	body := `{"model":"m","input":"` + strings.Repeat("x", oai.MaxBody) + `"}`
	w := post(t, testHandler(&script{}), body, nil)
	if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "/v1/files") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// Only a stream can show output while it is printed; without the header, nobody asks for it.
func TestLiveIsOptIn(t *testing.T) {
	live := http.Header{oai.LiveHeader: {"1"}}
	for _, tc := range []struct {
		body   string
		header http.Header
		want   bool
	}{
		{`{"model":"m","input":"x","stream":true}`, live, true},
		{`{"model":"m","input":"x","stream":true}`, nil, false},
		{`{"model":"m","input":"x"}`, live, false},
	} {
		s := &script{err: errors.New("enough")}
		post(t, testHandler(s), tc.body, tc.header)
		if len(s.got) != 1 || s.got[0].Live != tc.want {
			t.Errorf("%s with %v: %+v", tc.body, tc.header, s.got)
		}
	}
}

func TestObfuscation(t *testing.T) {
	events := []turn.Event{
		turn.Started{}, turn.MessageStarted{}, turn.TextDelta{Text: "hello"}, turn.MessageDone{}, turn.Finished{Reason: turn.ReasonStop},
	}
	for _, tc := range []struct {
		options string
		want    bool
	}{{`{"include_obfuscation":true}`, true}, {`{"include_obfuscation":false}`, false}, {`{}`, false}, {`null`, false}} {
		w := post(t, testHandler(&script{events: events}), `{"model":"m","input":"x","stream":true,"stream_options":`+tc.options+`}`, nil)
		if got := strings.Contains(w.Body.String(), `"obfuscation":"`); got != tc.want {
			t.Errorf("%s: obfuscation sent: %v", tc.options, got)
		}
	}
}

// endless writes until its context ends.
type endless struct{ ended chan error }

func (e *endless) Stream(ctx context.Context, _ *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) {
		defer func() { e.ended <- ctx.Err() }()
		if !yield(turn.Started{}, nil) || !yield(turn.MessageStarted{}, nil) {
			return
		}
		<-ctx.Done()
		yield(nil, ctx.Err())
	}
}

// A server that stops tells the client, which otherwise could not know a broken answer from a whole one.
func TestEndedByTheServer(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	turns := streamFunc(func(_ context.Context, yield func(turn.Event, error) bool) {
		if yield(turn.Started{}, nil) && yield(turn.MessageStarted{}, nil) {
			stopping := &turn.Error{Kind: turn.KindOverloaded, Message: "the server is stopping"}
			cancel(stopping)
			yield(nil, stopping)
		}
	})
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/responses", strings.NewReader(`{"model":"m","input":"x","stream":true}`))
	w := httptest.NewRecorder()
	testHandler(turns).ServeHTTP(w, r)
	if body := w.Body.String(); !strings.Contains(body, "event: response.failed") || !strings.Contains(body, "the server is stopping") {
		t.Errorf("got %s", body)
	}
}

// streamFunc is a turn.Streamer.
type streamFunc func(context.Context, func(turn.Event, error) bool)

func (f streamFunc) Stream(ctx context.Context, _ *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) { f(ctx, yield) }
}

func TestClientLeaves(t *testing.T) {
	e := &endless{ended: make(chan error, 1)}
	srv := httptest.NewServer(testHandler(e))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(`{"model":"m","input":"x","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	select {
	case err := <-e.ended:
		if err == nil {
			t.Error("the turn ended before its context")
		}
	case <-time.After(time.Minute):
		t.Fatal("the turn goes on without its client")
	}
}
