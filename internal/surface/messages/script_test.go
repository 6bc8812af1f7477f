package messages

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/sse"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// script answers every turn with the same events, then with err if there is one. It keeps the requests that it got.
type script struct {
	events []turn.Event
	err    error
	got    []*turn.Request
}

func (s *script) Stream(_ context.Context, req *turn.Request) turn.Stream {
	s.got = append(s.got, req)
	return func(yield func(turn.Event, error) bool) {
		for _, ev := range s.events {
			if !yield(ev, nil) {
				return
			}
		}
		if s.err != nil {
			yield(nil, s.err)
		}
	}
}

// forwarder is a server that speaks this protocol. It keeps what was passed on to it.
type forwarder struct {
	turn.Streamer
	got []provider.Forward
}

func (*forwarder) Check(context.Context) error { return nil }

func (*forwarder) Protocol() string { return protocol }

func (f *forwarder) Forward(_ context.Context, w http.ResponseWriter, in provider.Forward) error {
	f.got = append(f.got, in)
	fmt.Fprint(w, "forwarded")
	return nil
}

// models are "claude", which f answers, "native", of which it runs the code too, and all others, which speak something else.
type models struct{ f *forwarder }

type stranger struct{ turn.Streamer }

func (stranger) Check(context.Context) error { return nil }

func (m models) Model(name string) (provider.Model, error) {
	switch name {
	case "claude":
		return provider.Model{Name: name, Provider: m.f}, nil
	case "native":
		return provider.Model{Name: name, Provider: m.f, Native: true}, nil
	case "nobody":
		return provider.Model{}, turn.NotFound("the model %q does not exist here", name)
	}
	return provider.Model{Name: name, Provider: stranger{}}, nil
}

// counter mints msg_1, call_2 and so on, so that answers can be compared.
func counter() func(string) string {
	n := 0
	return func(prefix string) string {
		n++
		return fmt.Sprint(prefix, n)
	}
}

func testHandler(s turn.Streamer, f *forwarder) http.Handler {
	mux := http.NewServeMux()
	Register(mux, Config{
		Turns: s, Models: models{f}, Logger: slog.New(slog.DiscardHandler), NewID: counter(), SSE: sse.Options{KeepAlive: -1},
	})
	return mux
}

func post(t *testing.T, h http.Handler, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Anthropic-Version", version2026)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// parseScript reads one event a line: its name and its JSON. MessageDone needs none: it is made from the deltas. A line "Fail {json of
// turn.Error}" is the error at the end.
func parseScript(t *testing.T, text string) *script {
	t.Helper()
	s := &script{}
	var parts []turn.Part
	for line := range strings.Lines(strings.TrimSpace(text)) {
		name, body, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "Fail" {
			e := &turn.Error{}
			mustJSON(t, body, e)
			s.err = e
			continue
		}
		ev := parseEvent(t, name, body)
		switch e := ev.(type) {
		case turn.MessageStarted:
			parts = nil
		case turn.TextDelta:
			parts = append(parts, turn.Text{Text: e.Text})
		case turn.RefusalDelta:
			parts = append(parts, turn.Refusal(e))
		case turn.MessageDone:
			ev = turn.MessageDone{Message: turn.Message{Role: turn.Assistant, Parts: parts}}
		}
		s.events = append(s.events, ev)
	}
	v := turn.Validator{}
	for _, ev := range s.events {
		if err := v.Push(ev); err != nil {
			t.Fatalf("the script is not well formed: %v", err)
		}
	}
	if err := v.End(); err != nil && s.err == nil {
		t.Fatal(err)
	}
	return s
}

func mustJSON(t *testing.T, body string, v any) {
	t.Helper()
	if body == "" {
		return
	}
	if err := json.Unmarshal([]byte(body), v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
}

func event[T turn.Event](t *testing.T, body string) turn.Event {
	t.Helper()
	var ev T
	mustJSON(t, body, &ev)
	return ev
}

func parseEvent(t *testing.T, name, body string) turn.Event {
	t.Helper()
	parse := map[string]func(*testing.T, string) turn.Event{
		"Started":          event[turn.Started],
		"MessageStarted":   event[turn.MessageStarted],
		"TextDelta":        event[turn.TextDelta],
		"RefusalDelta":     event[turn.RefusalDelta],
		"Annotated":        event[turn.Annotated],
		"MessageDone":      event[turn.MessageDone],
		"ReasoningStarted": event[turn.ReasoningStarted],
		"ReasoningDelta":   event[turn.ReasoningDelta],
		"ReasoningDone":    event[turn.ReasoningDone],
		"CallStarted":      event[turn.CallStarted],
		"CallDelta":        event[turn.CallDelta],
		"CallDone":         event[turn.CallDone],
		"HostedStarted":    event[turn.HostedStarted],
		"HostedCodeDelta":  event[turn.HostedCodeDelta],
		"HostedCodeDone":   event[turn.HostedCodeDone],
		"HostedRunning":    event[turn.HostedRunning],
		"HostedOutput":     event[turn.HostedOutput],
		"HostedDone":       event[turn.HostedDone],
		"HostedResumed":    event[turn.HostedResumed],
		"HostedPaused":     event[turn.HostedPaused],
		"BlockDone":        event[turn.BlockDone],
		"Finished":         event[turn.Finished],
	}[name]
	if parse == nil {
		t.Fatalf("unknown event %q", name)
	}
	return parse(t, body)
}
