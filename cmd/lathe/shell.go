package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/operator"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

type shellCmd struct {
	configured
	Container string `arg:"" help:"Id of a container of the running gateway: cntr_..."`
}

// Run is a terminal into a container of the gateway that runs with this configuration's data directory.
func (c *shellCmd) Run(ctx context.Context, t *terminal) error {
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	name, _ := t.env("TERM")
	in, isFile := t.in.(*os.File)
	interactive := isFile && term.IsTerminal(int(in.Fd()))
	size := operator.Size{Rows: 24, Cols: 80}
	if interactive {
		size = sizeOf(in)
	}
	client, err := operator.Dial(ctx, cfg.DataDir, c.Container, name, size)
	if err != nil {
		return err
	}
	defer client.Close()
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	if interactive {
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(int(in.Fd()), before) }()
		changed := make(chan os.Signal, 1)
		signal.Notify(changed, syscall.SIGWINCH)
		defer signal.Stop(changed)
		go func() {
			for range changed {
				_ = client.Resize(sizeOf(in)) // the connection's end shows elsewhere
			}
		}()
	}
	go func() {
		if _, err := io.Copy(client, t.in); err == nil && !interactive {
			_, _ = io.WriteString(client, "\x04") // the end of what is typed
		}
	}()
	if _, err := io.Copy(t.out, client); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("the connection to the gateway has ended: %w", err)
	}
	if client.Exit.Error != "" {
		fmt.Fprintf(t.err, "\r\nlathe: %s\r\n", client.Exit.Error)
	}
	if client.Exit.Code != 0 {
		return exitCode(client.Exit.Code)
	}
	return nil
}

func sizeOf(f *os.File) operator.Size {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || cols < 0 || rows < 0 || cols > 1<<15 || rows > 1<<15 {
		return operator.Size{Rows: 24, Cols: 80}
	}
	return operator.Size{Rows: uint16(rows), Cols: uint16(cols)}
}

// serveOperator serves the operator's socket until the app is closed.
func (a *app) serveOperator() error {
	s, err := operator.Listen(a.dir.Path(), operator.Config{Logger: a.log, OpenTerminal: openTerminal(a.containers)})
	if err != nil {
		return err
	}
	a.closers = append(a.closers, s.Close)
	return nil
}

func openTerminal(containers *container.Manager) func(context.Context, string, string, operator.Size) (operator.Terminal, func(context.Context) operator.Exit, error) {
	return func(ctx context.Context, id, term string, size operator.Size) (operator.Terminal, func(context.Context) operator.Exit, error) {
		t, err := containers.OpenTerminal(ctx, id, sandbox.TerminalSpec{Rows: size.Rows, Cols: size.Cols, Term: term})
		if err != nil {
			return nil, nil, operatorError(err)
		}
		return t, func(ctx context.Context) operator.Exit {
			r, err := t.Result(ctx)
			switch {
			case errors.Is(err, sandbox.ErrDied):
				return operator.Exit{Code: 1, Error: "the sandbox has ended; the container's files are kept"}
			case err != nil:
				return operator.Exit{Code: 1, Error: err.Error()}
			case r.Status == sandbox.StatusError || r.Status == sandbox.StatusOK:
				return operator.Exit{Code: r.ExitCode}
			}
			return operator.Exit{Code: max(r.ExitCode, 1), Error: r.Error}
		}, nil
	}
}
