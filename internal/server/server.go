// Package server is the HTTP server around the surfaces: request ids, the access log, who calls, limits, health, metrics, and the end
// (drain). It knows no protocol beyond the form of an OpenAI error. Only the wiring imports it.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/telemetry"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Config is what a Server is made of. API, Log and Metrics are required.
type Config struct {
	Log *slog.Logger
	// Keys are the clients' keys. Empty means that only loopback is served (see loopback.go).
	Keys *auth.Keys
	// API are the surfaces, each route with its method and path. Their handlers find the principal in the context.
	API *http.ServeMux
	// First is asked before the surfaces, with the principal in the context, and answers requests for what is not kept here. It says whether
	// it did; an error is for the client. Nil answers none.
	First func(w http.ResponseWriter, r *http.Request) (bool, error)
	// Ready are the things that must work for /readyz, by name.
	Ready   map[string]func(ctx context.Context) error
	Metrics *telemetry.Metrics
	// MaxBody and MaxUpload cap a request's body in bytes, MaxUpload where it is multipart/form-data; 0 means 64 MiB and 512 MiB.
	MaxBody, MaxUpload int64
	// BodyTimeout is how long a client may be silent in the middle of its request's body; 0 means a minute.
	BodyTimeout time.Duration
	// BodyRate is how many bytes a second a body must bring on average once BodyTimeout has passed; 0 means 16 KiB.
	BodyRate int64
	// Bodies caps the bytes of all bodies together that are being read or answered, those of multipart/form-data apart; 0 means 256 MiB.
	// It is MaxBody at least. BodyWait is how long a request waits for its part; 0 means 5 s.
	Bodies   int64
	BodyWait time.Duration
	// Drain is how long running requests may take after the end has been asked for; 0 means 30 s.
	Drain time.Duration
}

func (c *Config) setDefaults() {
	if c.MaxBody == 0 {
		c.MaxBody = 64 << 20
	}
	if c.MaxUpload == 0 {
		c.MaxUpload = 512 << 20
	}
	if c.BodyTimeout == 0 {
		c.BodyTimeout = time.Minute
	}
	if c.BodyRate == 0 {
		c.BodyRate = 16 << 10
	}
	if c.Bodies == 0 {
		c.Bodies = 256 << 20
	}
	c.Bodies = max(c.Bodies, c.MaxBody)
	if c.BodyWait == 0 {
		c.BodyWait = 5 * time.Second
	}
	if c.Drain == 0 {
		c.Drain = 30 * time.Second
	}
}

// Server answers HTTP. Make it with New.
type Server struct {
	cfg      Config
	handler  http.Handler
	bodies   *budget
	draining chan struct{} // closed when the end has been asked for
}

// New makes a server from cfg.
func New(cfg Config) *Server {
	cfg.setDefaults()
	s := &Server{cfg: cfg, bodies: newBudget(cfg.Bodies, cfg.BodyWait), draining: make(chan struct{})}
	s.handler = s.routes()
	return s
}

// Handler is the whole of what the server answers, for tests and benchmarks without a listener.
func (s *Server) Handler() http.Handler { return s.handler }

// Listen opens address for a server with keys. Without keys it refuses one that other machines can reach. The error says what to do.
func Listen(ctx context.Context, address string, keys *auth.Keys) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is taken: stop what listens there (another lathe?), or choose another address: --listen 127.0.0.1:0 takes any free port",
			address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s needs more rights than this user has: choose a port from 1024 up", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine: choose one that is, such as 127.0.0.1:4747", address)
	case err != nil:
		return nil, fmt.Errorf("%s cannot be listened on: %w", address, err)
	}
	if tcp, ok := ln.Addr().(*net.TCPAddr); keys.Empty() && (!ok || !tcp.IP.IsLoopback()) {
		ln.Close()
		return nil, fmt.Errorf("%s can be reached from other machines, and there are no keys: add keys to lathe.yaml, or listen on 127.0.0.1", address)
	}
	return ln, nil
}

// Serve answers on ln until ctx ends. Then it accepts nothing new, lets running requests finish for Config.Drain, cancels those that are
// left and returns when all handlers have. The error is nil after such an end.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	requests, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	srv := &http.Server{
		Handler:     s.handler,
		BaseContext: func(net.Listener) context.Context { return requests },
		// No ReadTimeout or WriteTimeout: they would end streams. Bodies and answers have deadlines a read and a write (see body.go).
		ReadHeaderTimeout: 15 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("the listener ended: %w", err)
	case <-ctx.Done():
	}
	close(s.draining)
	s.cfg.Log.InfoContext(ctx, "stopping: running requests may finish", "limit", s.cfg.Drain)
	return s.drain(ctx, srv, cancel)
}

// errStopping is also what clients are told whose requests are cancelled.
var errStopping = &turn.Error{
	Kind: turn.KindOverloaded, Code: "server_stopping", RetryAfter: 5 * time.Second, Message: "the server is stopping; send the request again",
}

func (s *Server) drain(ctx context.Context, srv *http.Server, cancel context.CancelCauseFunc) error {
	limit, done := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer done()
	if err := srv.Shutdown(limit); err == nil {
		return nil
	}
	s.cfg.Log.WarnContext(ctx, "cancelling the requests that are still running")
	cancel(errStopping)
	last, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	if err := srv.Shutdown(last); err != nil {
		_ = srv.Close() // what is said below is worse
		return errors.New("some requests did not end when they were cancelled")
	}
	return nil
}
