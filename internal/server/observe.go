package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// record is what is known of a request, for its log line and its headers. One goroutine writes it: the handler's.
type record struct {
	id        string
	start     time.Time
	principal auth.Principal
}

type recordKey struct{}

func recordOf(ctx context.Context) *record {
	if rec, ok := ctx.Value(recordKey{}).(*record); ok {
		return rec
	}
	return &record{}
}

// saneID is what a client may choose as an id: it goes into logs and headers.
var saneID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// observe gives every request an id, a log line, metrics, and an answer when its handler panics. Paths of own go there, all others to api.
func (s *Server) observe(own *http.ServeMux, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &record{start: time.Now(), id: r.Header.Get("X-Request-Id")}
		if len(rec.id) > 64 || !saneID.MatchString(rec.id) {
			rec.id = turn.NewID("req_")
		}
		r = r.WithContext(anthropic.WithRequestID(context.WithValue(r.Context(), recordKey{}, rec), rec.id))
		answer := &response{ResponseWriter: w, rc: http.NewResponseController(w), record: rec}
		next, level := api, slog.LevelInfo
		_, route := s.cfg.API.Handler(r)
		if _, pattern := own.Handler(r); pattern != "" {
			next, route, level = own, pattern, slog.LevelDebug
		} else {
			answer.anthropic = anthropic.Speaks(r)
			answer.openai = !answer.anthropic
		}
		if route == "" {
			route = "unknown"
		}
		done := s.cfg.Metrics.Request(route)
		defer func() {
			done(answer.statusOr(http.StatusOK))
			s.access(r, rec, answer, level)
		}()
		defer s.recovered(answer, r)
		next.ServeHTTP(answer, r)
		if answer.status == 0 {
			answer.WriteHeader(http.StatusOK) // an answer without a body gets its headers too
		}
	})
}

// recovered turns a panic into a 500, or, where the answer has begun, into a broken connection, so that no client takes it for whole.
func (s *Server) recovered(w *response, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
		w.aborted = true
		panic(cause)
	}
	s.cfg.Log.ErrorContext(r.Context(), "panic in a handler", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if w.status != 0 {
		w.aborted = true
		panic(http.ErrAbortHandler)
	}
	writeError(w, r, slog.New(slog.DiscardHandler), turn.Internal(fmt.Errorf("panic: %v", cause)))
}

// access writes the log line of a request. It has no query, no headers but ids, and no body.
func (s *Server) access(r *http.Request, rec *record, answer *response, level slog.Level) {
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", cut(r.URL.Path, 200)),
		slog.Int("status", answer.statusOr(http.StatusOK)), slog.Int64("bytes", answer.bytes),
		slog.Float64("ms", float64(time.Since(rec.start).Microseconds())/1000),
	}
	if rec.principal.Name != "" {
		attrs = append(attrs, slog.String("key", rec.principal.Name), slog.String("project", rec.principal.Project))
	}
	if id := r.Header.Get("X-Client-Request-Id"); saneID.MatchString(id) {
		attrs = append(attrs, slog.String("client_request_id", id))
	}
	if r.Context().Err() != nil || answer.aborted {
		attrs = append(attrs, slog.Bool("unfinished", true))
	}
	s.cfg.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// handle makes a handler of one that returns its error.
func (s *Server) handle(f func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil {
			writeError(w, r, s.cfg.Log, err)
		}
	})
}

// response watches an answer: its status and size, the headers that every answer has, and a deadline a write.
type response struct {
	http.ResponseWriter
	rc     *http.ResponseController
	record *record
	// openai and anthropic say whose headers the answer gets; paths of the server's own get neither.
	openai, anthropic bool
	status            int
	bytes             int64
	aborted           bool
}

// writeTimeout is how long one write may take. The answer as a whole has no limit.
const writeTimeout = 30 * time.Second

func (w *response) statusOr(status int) int {
	if w.status != 0 {
		return w.status
	}
	return status
}

// WriteHeader adds the ids. An upstream's own request id, where the answer is passed on, moves to X-Upstream-Request-Id.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.status = status
	h := w.Header()
	if upstream := h.Get("X-Request-Id"); upstream != "" && upstream != w.record.id {
		h.Set("X-Upstream-Request-Id", upstream)
	}
	h.Set("X-Request-Id", w.record.id)
	if w.anthropic {
		h.Set("Request-Id", w.record.id)
	}
	if w.openai {
		h.Set("Openai-Version", "2020-10-01")
		h.Set("Openai-Processing-Ms", strconv.FormatInt(time.Since(w.record.start).Milliseconds(), 10))
	}
	h.Set("X-Content-Type-Options", "nosniff")
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	// A writer without deadlines (a test's recorder) cannot block.
	_ = w.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap serves http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError serves http.ResponseController, so that a flush before the first byte has the headers too.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.rc.Flush()
}

// Flush serves callers that look for an http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }
