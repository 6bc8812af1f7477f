package server

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// routes puts the parts together, outermost first: id and log, panics, then each route's own rules.
func (s *Server) routes() http.Handler {
	own := http.NewServeMux()
	own.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		oai.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	own.HandleFunc("GET /readyz", s.ready)
	own.Handle("GET /metrics", s.operators(s.cfg.Metrics.Handler()))
	return s.observe(own, http.HandlerFunc(s.api))
}

// api is every other path: who calls, how much they send, and the surfaces.
func (s *Server) api(w http.ResponseWriter, r *http.Request) {
	p, err := s.principal(r)
	if err != nil {
		writeError(w, r, s.cfg.Log, err)
		return
	}
	recordOf(r.Context()).principal = p
	r = r.WithContext(auth.WithPrincipal(r.Context(), p))
	done, err := s.limitBody(w, r)
	if err != nil {
		writeError(w, r, s.cfg.Log, err)
		return
	}
	defer done()
	if s.cfg.First != nil {
		answered, err := s.cfg.First(w, r)
		if err != nil {
			writeError(w, r, s.cfg.Log, err)
			return
		}
		if answered {
			return
		}
	}
	handler, pattern := s.cfg.API.Handler(r)
	if pattern == "" {
		s.unknown(w, r, handler)
		return
	}
	s.cfg.API.ServeHTTP(w, r) // not handler: ServeHTTP sets the path's values
}

// writeError answers in the form of the protocol that the request speaks.
func writeError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	if anthropic.Speaks(r) {
		anthropic.WriteError(w, r, log, err)
		return
	}
	oai.WriteError(w, r, log, err)
}

// unknown answers what the mux has no handler for: 405 with Allow where only the method is wrong, else 404, in the protocol's form.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request, refusal http.Handler) {
	var probe refusalProbe
	refusal.ServeHTTP(&probe, r)
	if allow := probe.Header().Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		code := "method_not_allowed"
		message := "the method " + r.Method + " is not allowed here: use " + allow
		if anthropic.Speaks(r) {
			anthropic.WriteJSON(w, http.StatusMethodNotAllowed, anthropic.ErrorBody{
				Type: "error", Error: anthropic.Error{Type: "invalid_request_error", Message: message},
				RequestID: anthropic.RequestID(r.Context()),
			})
			return
		}
		oai.WriteJSON(w, http.StatusMethodNotAllowed, map[string]oai.Error{
			"error": {Message: message, Type: "invalid_request_error", Code: &code},
		})
		return
	}
	hint := "the base URL of this server ends in /v1"
	if anthropic.Speaks(r) {
		hint = "the base URL of this server for Anthropic's clients is without /v1"
	}
	e := turn.NotFound("there is nothing at %s %s: %s", r.Method, cut(r.URL.Path, 200), hint)
	e.Code = "unknown_url"
	writeError(w, r, s.cfg.Log, e)
}

// refusalProbe takes the headers of the mux's own refusal and drops its text.
type refusalProbe struct{ header http.Header }

func (p *refusalProbe) Header() http.Header {
	if p.header == nil {
		p.header = http.Header{}
	}
	return p.header
}
func (p *refusalProbe) Write(b []byte) (int, error) { return len(b), nil }
func (p *refusalProbe) WriteHeader(int)             {}

// ready says whether requests can be served. What exactly failed is in the log: anyone may ask this.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	failed := []string{}
	select {
	case <-s.draining:
		failed = append(failed, "stopping")
	default:
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	for name, check := range s.cfg.Ready {
		if err := check(ctx); err != nil {
			failed = append(failed, name)
			s.cfg.Log.WarnContext(r.Context(), "not ready", "part", name, "error", err)
		}
	}
	if len(failed) > 0 {
		slices.Sort(failed)
		oai.WriteJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "not ready", "failed": failed})
		return
	}
	oai.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func cut(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "..."
	}
	return s
}
