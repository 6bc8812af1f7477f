package sse_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/sse"
)

// client is a ResponseWriter that keeps every write, its flush and its deadline, and can be gone.
type client struct {
	mu        sync.Mutex
	header    http.Header
	status    int
	writes    []string
	flushes   int
	deadlines []time.Time
	gone      error
}

func (c *client) Header() http.Header { return c.header }

func (c *client) WriteHeader(status int) { c.status = status }

func (c *client) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		return 0, c.gone
	}
	c.writes = append(c.writes, string(b))
	return len(b), nil
}

func (c *client) FlushError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushes++
	return c.gone
}

func (c *client) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadlines = append(c.deadlines, t)
	return nil
}

func (c *client) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.writes...)
}

func TestWriter(t *testing.T) {
	c := &client{header: http.Header{}}
	w := sse.NewWriter(c, sse.Options{})
	defer w.Close()
	if w.Started() || len(c.header) != 0 || c.status != 0 {
		t.Fatalf("before the first Send: started %v, header %v, status %d", w.Started(), c.header, c.status)
	}
	for _, ev := range []sse.Event{
		{Name: "response.created", Data: []byte(`{"a":1}`)},
		{Data: []byte("two\nlines\r\nand\rmore\n")},
		{Data: []byte("[DONE]")},
	} {
		if err := w.Send(ev); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"event: response.created\ndata: {\"a\":1}\n\n",
		"data: two\ndata: lines\ndata: and\ndata: more\ndata: \n\n",
		"data: [DONE]\n\n",
	}
	if diff := cmp.Diff(want, c.writes); diff != "" {
		t.Errorf("one write a frame (-want +got):\n%s", diff)
	}
	if c.flushes != 3 || len(c.deadlines) != 3 {
		t.Errorf("%d flushes and %d deadlines, want 3 of each", c.flushes, len(c.deadlines))
	}
	wantHeader := http.Header{
		"Content-Type":      {"text/event-stream; charset=utf-8"},
		"Cache-Control":     {"no-cache"},
		"X-Accel-Buffering": {"no"},
	}
	if diff := cmp.Diff(wantHeader, c.header); diff != "" || c.status != 200 || !w.Started() {
		t.Errorf("status %d, started %v, header (-want +got):\n%s", c.status, w.Started(), diff)
	}
	w.Close()
	w.Close()
	if err := w.Send(sse.Event{Data: []byte("late")}); !errors.Is(err, sse.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

func TestWriterKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const comment = ": keep-alive\n\n"
		c := &client{header: http.Header{}}
		w := sse.NewWriter(c, sse.Options{WriteTimeout: 3 * time.Second})
		start := time.Now()
		at := func(d time.Duration, want int, what string) {
			t.Helper()
			time.Sleep(time.Until(start.Add(d)))
			synctest.Wait()
			if got := c.seen(); len(got) != want || (want > 0 && got[want-1] != what) {
				t.Errorf("after %v: %q, want %d writes, the last %q", d, got, want, what)
			}
		}
		at(time.Minute, 0, "")
		start = time.Now()
		w.Send(sse.Event{Data: []byte("a")})
		at(9900*time.Millisecond, 1, "data: a\n\n")
		at(10*time.Second, 2, comment)
		at(19*time.Second, 2, comment)
		at(20*time.Second, 3, comment)
		time.Sleep(5 * time.Second)
		w.Send(sse.Event{Data: []byte("b")})
		at(34900*time.Millisecond, 4, "data: b\n\n")
		at(35*time.Second, 5, comment)
		if got := c.deadlines[len(c.deadlines)-1].Sub(start); got != 38*time.Second {
			t.Errorf("the last write may take until %v, want 38s", got)
		}
		w.Close()
		at(2*time.Minute, 5, comment)
	})
}

// A protocol may have an event of its own for it.
func TestWriterKeepAliveEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{header: http.Header{}}
		w := sse.NewWriter(c, sse.Options{KeepAliveEvent: &sse.Event{Name: "ping", Data: []byte("{}")}})
		defer w.Close()
		w.Send(sse.Event{Data: []byte("a")})
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"data: a\n\n", "event: ping\ndata: {}\n\n"}, c.seen()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWriterClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{header: http.Header{}}
		w := sse.NewWriter(c, sse.Options{})
		defer w.Close()
		if err := w.Send(sse.Event{Data: []byte("a")}); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("broken pipe")
		c.mu.Lock()
		c.gone = gone
		c.mu.Unlock()
		time.Sleep(11 * time.Second) // the keep-alive finds out
		synctest.Wait()
		c.mu.Lock()
		c.gone = nil
		c.mu.Unlock()
		if err := w.Send(sse.Event{Data: []byte("b")}); !errors.Is(err, gone) {
			t.Errorf("Send after a failed keep-alive: %v, want %v", err, gone)
		}
		if got := c.seen(); len(got) != 1 {
			t.Errorf("written after the client was gone: %q", got[1:])
		}
	})
}

// A client that does not read must not hold a handler for ever.
func TestWriterDeadlineOverHTTP(t *testing.T) {
	failed := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := sse.NewWriter(rw, sse.Options{WriteTimeout: 50 * time.Millisecond})
		defer w.Close()
		big := sse.Event{Data: []byte(strings.Repeat("x", 1<<20))}
		for r.Context().Err() == nil {
			if err := w.Send(big); err != nil {
				failed <- err
				return
			}
		}
		failed <- r.Context().Err()
	}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	select {
	case err := <-failed:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(time.Minute):
		t.Fatal("the handler still writes")
	}
}
