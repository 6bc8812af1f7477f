package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lathe-gateway/lathe/internal/server"
)

type serveCmd struct {
	configured
	Listen    string        `placeholder:"HOST:PORT" help:"Address to listen on instead of the configuration's. Port 0 takes any free one."`
	Drain     time.Duration `default:"30s" help:"How long running requests may take after SIGTERM (${default})."`
	LogFormat string        `enum:"text,json" default:"text" help:"Form of the log on stderr: text or json."`
	LogLevel  slog.Level    `default:"info" help:"Least level that is logged: debug, info, warn or error."`
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, t *terminal) error {
	cfg, err := c.load(t, c.Listen)
	if err != nil {
		return err
	}
	log := newLog(t.err, c.LogFormat, c.LogLevel)
	a, err := wire(ctx, cfg, log)
	if err != nil {
		return err
	}
	err = c.serve(ctx, t, a)
	// Sandboxes end with the process, orderly if there is time.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	a.close(closing)
	return err
}

func (c *serveCmd) serve(ctx context.Context, t *terminal, a *app) error {
	srv := server.New(server.Config{
		Log: a.log, Keys: a.keys, API: a.api, Metrics: a.metrics, Drain: c.Drain,
		Ready: map[string]func(context.Context) error{"store": a.store.Ping, "sandbox": a.sandboxReady},
	})
	ln, err := srv.Listen(ctx, a.cfg.Listen)
	if err != nil {
		return err
	}
	url := "http://" + ln.Addr().String()
	if err := a.dir.Holding(url); err != nil {
		ln.Close()
		return err
	}
	for _, note := range a.notes() {
		fmt.Fprintln(t.err, "lathe:", note)
	}
	fmt.Fprintln(t.out, "lathe: listening on", url)
	return srv.Serve(ctx, ln)
}

func newLog(w io.Writer, format string, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(server.LogHandler(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(server.LogHandler(slog.NewTextHandler(w, opts)))
}

// root says whether this process is the superuser.
func root() bool { return os.Geteuid() == 0 }
