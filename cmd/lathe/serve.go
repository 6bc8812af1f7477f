package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/lathe-gateway/lathe/internal/server"
)

type serveCmd struct {
	configured
	Listen    string        `placeholder:"HOST:PORT" help:"Address to listen on instead of the configuration's. Port 0 takes any free one."`
	Drain     time.Duration `default:"30s" help:"How long running requests may take after SIGTERM (${default})."`
	LogFormat string        `enum:"text,json" default:"text" help:"Form of the log on stderr: text or json."`
	LogLevel  string        `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error."`
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, t *terminal) error {
	cfg, err := c.load(t, c.Listen)
	if err != nil {
		return err
	}
	// Before anything is opened: a taken address is the commonest fault, and clients that come early wait.
	ln, err := server.Listen(ctx, cfg.Listen, keysOf(cfg))
	if err != nil {
		return err
	}
	defer ln.Close()
	if err := pullMissing(ctx, cfg, t); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintln(t.err, "lathe: an image could not be pulled:", err) // what needs none works all the same
	}
	a, err := wire(ctx, cfg, newLog(t.err, c.LogFormat, c.LogLevel))
	if err != nil {
		return err
	}
	defer a.close(context.WithoutCancel(ctx))
	url := "http://" + ln.Addr().String()
	if err := a.dir.Holding(url); err != nil {
		return err
	}
	if err := a.serveOperator(); err != nil {
		return err
	}
	a.sandbox.begin()
	a.containers.StartPool()
	fmt.Fprintln(t.out, "lathe: listening on", url)
	return a.server(c.Drain).Serve(ctx, ln)
}

func newLog(w io.Writer, format, level string) *slog.Logger {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // one of the enum's words
	opts := &slog.HandlerOptions{Level: least}
	if format == "json" {
		return slog.New(server.LogHandler(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(server.LogHandler(slog.NewTextHandler(w, opts)))
}
