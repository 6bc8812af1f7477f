package telemetry

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// shown returns what a scraper sees.
func shown(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func want(t *testing.T, m *Metrics, lines ...string) {
	t.Helper()
	text := shown(m)
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%s is missing in:\n%s", line, grep(text, "lathe_"))
		}
	}
}

func grep(text, word string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// pairs is a Streamer that answers with what it holds.
type pairs struct {
	events []turn.Event
	err    error
}

func (p pairs) Stream(context.Context, *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) {
		for _, ev := range p.events {
			if !yield(ev, nil) {
				return
			}
		}
		if p.err != nil {
			yield(nil, p.err)
		}
	}
}

func TestGauge(t *testing.T) {
	t.Parallel()
	m := New("test")
	value := 3.0
	m.Gauge("lathe_queue", "Who waits.", func() float64 { return value })
	want(t, m, "lathe_queue 3")
	value = 4
	want(t, m, "lathe_queue 4")
}

func TestStreamer(t *testing.T) {
	t.Parallel()
	m := New("1.2")
	known := func(model string) bool { return model == "known" }
	whole := pairs{events: []turn.Event{
		turn.Started{}, turn.HostedDone{Call: turn.HostedCall{Tool: "python", Status: turn.StatusCompleted}},
		turn.Finished{Reason: turn.ReasonStop, Rounds: 2, Usage: turn.Usage{Input: 10, Cached: 4, Output: 7, Reasoning: 3}},
	}}
	var seen int
	for range m.Streamer(whole, known).Stream(t.Context(), &turn.Request{Model: "known"}) {
		seen++
	}
	if seen != 3 {
		t.Errorf("%d pairs passed, want 3", seen)
	}
	for range m.Streamer(whole, known).Stream(t.Context(), &turn.Request{Model: "a client's words"}) {
		break
	}
	broken := pairs{events: []turn.Event{turn.Started{}}, err: errors.New("broken")}
	for range m.Streamer(broken, known).Stream(t.Context(), &turn.Request{Model: "known"}) {
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range m.Streamer(broken, known).Stream(gone, &turn.Request{Model: "known"}) {
	}
	want(t, m,
		`lathe_build_info{version="1.2"} 1`, `lathe_turns_total{model="known",outcome="stop"} 1`,
		`lathe_turns_total{model="other",outcome="left"} 1`, `lathe_turns_total{model="known",outcome="error"} 1`,
		`lathe_turns_total{model="known",outcome="cancelled"} 1`, `lathe_rounds_total 2`,
		`lathe_hosted_calls_total{status="completed",tool="python"} 1`, `lathe_tokens_total{kind="input",model="known"} 10`,
		`lathe_tokens_total{kind="cached",model="known"} 4`, `lathe_tokens_total{kind="output",model="known"} 7`,
		`lathe_tokens_total{kind="reasoning",model="known"} 3`)
	if strings.Contains(shown(m), "words") {
		t.Error("a client's words became a label")
	}
}

// idle is a backend whose sandboxes do nothing for a while.
type idle struct {
	sandbox.Backend
	fails bool
}

type box struct {
	sandbox.Sandbox
	done chan struct{}
}

func (b idle) Start(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	if b.fails {
		return nil, sandbox.ErrUnavailable
	}
	return &box{done: make(chan struct{})}, nil
}

func (b *box) Done() <-chan struct{} { return b.done }

func (b *box) Close() error { close(b.done); return nil }

func (b *box) Exec(context.Context, sandbox.Call, func(sandbox.Output)) (*sandbox.Result, error) {
	return &sandbox.Result{Status: sandbox.StatusOK, Duration: 1500 * time.Millisecond}, nil
}

func TestBackend(t *testing.T) {
	t.Parallel()
	m := New("test")
	if _, err := m.Backend(idle{fails: true}).Start(t.Context(), sandbox.Spec{}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("the error became %v", err)
	}
	sb, err := m.Backend(idle{}).Start(t.Context(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Exec(t.Context(), sandbox.Call{}, nil); err != nil {
		t.Fatal(err)
	}
	want(t, m, `lathe_sandbox_starts_total{outcome="error"} 1`, `lathe_sandbox_starts_total{outcome="ok"} 1`,
		`lathe_sandboxes_live 1`, `lathe_sandbox_seconds_total 1.5`)
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(shown(m), "\nlathe_sandboxes_live 0\n") {
		select {
		case <-deadline:
			t.Fatal("an ended sandbox still counts as live")
		case <-tick.C:
		}
	}
}
