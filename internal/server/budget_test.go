package server

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/telemetry"
)

// holding is a server whose handler reads its body and answers when it is told to.
func holding(release <-chan struct{}, bodies int64) *Server {
	log := slog.New(slog.DiscardHandler)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/read", func(w http.ResponseWriter, r *http.Request) {
		body, err := oai.ReadBody(w, r)
		if err != nil {
			oai.WriteError(w, r, log, err)
			return
		}
		<-release
		fmt.Fprint(w, len(body))
	})
	return New(Config{API: mux, Log: log, Metrics: telemetry.New("test"), MaxBody: 1 << 20, Bodies: bodies, BodyWait: 3 * time.Second})
}

// post sends n bytes, without telling their number if chunked.
func post(s *Server, n int, chunked bool) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://localhost/v1/read", strings.NewReader(strings.Repeat("x", n)))
	r.RemoteAddr = "127.0.0.1:9"
	if chunked {
		r.ContentLength = -1
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestBodiesInFlight(t *testing.T) {
	t.Parallel()
	for name, chunked := range map[string]bool{"with a length": false, "chunked": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				s := holding(release, 2<<20)
				answers := make(chan *httptest.ResponseRecorder, 4)
				send := func(n int) {
					go func() { answers <- post(s, n, chunked) }()
					synctest.Wait()
				}
				send(1 << 20)
				send(1 << 20) // all of the budget is taken
				send(1000)
				time.Sleep(2 * time.Second) // less than BodyWait
				release <- struct{}{}
				if w := <-answers; w.Code != 200 || w.Body.String() != "1048576" {
					t.Errorf("the first: %d %s", w.Code, w.Body)
				}
				synctest.Wait() // the small one has its share now
				begin := time.Now()
				send(1 << 20)
				w := <-answers
				if w.Code != 503 || w.Header().Get("Retry-After") != "5" || !strings.Contains(w.Body.String(), "no memory for one of this size") {
					t.Errorf("beyond the budget: %d %v %s", w.Code, w.Header(), w.Body)
				}
				if took := time.Since(begin); took != 3*time.Second {
					t.Errorf("it waited %v", took)
				}
				close(release)
				for range 2 {
					if w := <-answers; w.Code != 200 {
						t.Errorf("one that had its share: %d %s", w.Code, w.Body)
					}
				}
				if !s.bodies.sem.TryAcquire(2 << 20) {
					t.Error("not everything was given back")
				}
			})
		})
	}
}

// An upload goes to disk piece by piece and needs nothing of the budget.
func TestUploadsAreNotInTheBudget(t *testing.T) {
	t.Parallel()
	run := start(t, Config{API: echo(), MaxBody: 1000, MaxUpload: 1 << 20, Bodies: 1000})
	multipart := map[string]string{"Content-Type": "multipart/form-data; boundary=x"}
	if resp, body := run.do(t, "POST", "/v1/read", multipart, strings.Repeat("x", 1<<19)); resp.StatusCode != 200 || body != "524288" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestDeadlineOfABody(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	b := &timedBody{silence: time.Minute, rate: 1000, start: start}
	for _, tt := range []struct {
		at   time.Duration
		read int64
		want time.Duration
	}{
		{0, 0, time.Minute},
		{59 * time.Second, 1, time.Minute + time.Millisecond},
		{30 * time.Second, 600_000, 90 * time.Second}, // fast enough: only silence counts
		{90 * time.Second, 60_000, 2 * time.Minute},
	} {
		b.read = tt.read
		if got := b.deadline(start.Add(tt.at)).Sub(start); got != tt.want {
			t.Errorf("after %v and %d bytes: %v, want %v", tt.at, tt.read, got, tt.want)
		}
	}
}

// A client that is never silent for long, and never done, is given up too.
func TestTricklingBody(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	close(release)
	api := holding(release, 0).cfg.API
	run := start(t, Config{API: api, BodyTimeout: 300 * time.Millisecond})
	conn, err := net.Dial("tcp", strings.TrimPrefix(run.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
	ended := make(chan struct{})
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				if _, err := conn.Write([]byte("x")); err != nil {
					return
				}
			}
		}
	}()
	defer close(ended)
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 2000)
	n, err := io.ReadAtLeast(conn, answer, 12)
	if err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 400") || !strings.Contains(string(answer[:n]), "too slowly") {
		t.Errorf("got %q, %v", answer[:n], err)
	}
}
