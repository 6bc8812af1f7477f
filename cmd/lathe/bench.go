package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lathe-gateway/lathe/internal/bench"
	"github.com/lathe-gateway/lathe/internal/config"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/server"
	"github.com/lathe-gateway/lathe/internal/turn"
)

type benchCmd struct {
	Sandbox benchSandboxCmd `cmd:"" help:"Measure starts, calls and memory of sandboxes, beside plain Python and plain gVisor."`
	Gateway benchGatewayCmd `cmd:"" help:"Measure what the gateway adds to a request, beside Go's reverse proxy."`
}

type benchFlags struct {
	configured
	JSON    bool   `name:"json" help:"Print one flat JSON object: times in milliseconds as NAME_p50 and NAME_p99."`
	Compare string `placeholder:"FILE" help:"Show each figure's ratio to that of an earlier run, whose --json output is in FILE."`
}

// load reads the configuration for its sandbox settings only, and gives the run folders of its own.
func (f *benchFlags) load(t *terminal) (cfg *config.Config, cleanup func(), err error) {
	if cfg, err = f.configured.load(t, "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "lathe-bench-")
	if err != nil {
		return nil, nil, err
	}
	cfg.DataDir, cfg.Keys = dir, nil
	return cfg, func() { os.RemoveAll(dir) }, nil
}

func (f *benchFlags) print(t *terminal, result *bench.Result) error {
	if f.Compare != "" {
		file, err := os.Open(f.Compare)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := result.Compare(file); err != nil {
			return fmt.Errorf("--compare %s: %w", f.Compare, err)
		}
	}
	if f.JSON {
		return result.WriteJSON(t.out)
	}
	return result.WriteTable(t.out)
}

// progress goes to stderr, so that the figures on stdout stay alone.
func progress(t *terminal) func(string) {
	return func(what string) { fmt.Fprintf(t.err, "lathe: measuring %s\n", what) }
}

type benchSandboxCmd struct {
	benchFlags
}

// Run measures the sandbox.
func (c *benchSandboxCmd) Run(ctx context.Context, t *terminal) error {
	cfg, cleanup, err := c.load(t)
	if err != nil {
		return err
	}
	defer cleanup()
	state := filepath.Join(cfg.DataDir, "sandboxes")
	backend, err := newBackend(cfg, state, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer backend.Close()
	measured := bench.SandboxConfig{
		Backend: backend, StateDir: state, Progress: progress(t), Runsc: runscPath(cfg), RootFS: rootFS(cfg),
		Spec: func() (sandbox.Spec, error) { return benchSpec(cfg) },
		Open: func(ctx context.Context, pool int) (*bench.Containers, error) {
			return openBenchContainers(ctx, cfg, backend, pool)
		},
	}
	if python, err := exec.LookPath("/usr/bin/python3"); err == nil {
		measured.Python = python
	}
	result, err := bench.Sandbox(ctx, measured)
	if err != nil {
		return err
	}
	return c.print(t, result)
}

// benchSpec is a sandbox with a plain folder as its /mnt/data.
func benchSpec(cfg *config.Config) (sandbox.Spec, error) {
	id := turn.NewID("bench_")
	data := filepath.Join(cfg.DataDir, id)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return sandbox.Spec{}, err
	}
	if os.Geteuid() == 0 {
		// Programs run as this user (see package sandbox).
		if err := os.Chown(data, 1000, 1000); err != nil {
			return sandbox.Spec{}, err
		}
	}
	return sandbox.Spec{ID: id, Mounts: []sandbox.Mount{{Source: data, Target: "/mnt/data"}}, Limits: limits(cfg)}, nil
}

type benchGatewayCmd struct {
	benchFlags
}

// Run measures the gateway, its upstream and its clients in this one process, and its idle memory in a second.
func (c *benchGatewayCmd) Run(ctx context.Context, t *terminal) error {
	cfg, cleanup, err := c.load(t)
	if err != nil {
		return err
	}
	defer cleanup()
	hosted := true
	for _, f := range sandboxFindings(ctx, cfg) {
		if f.Level == levelFail {
			hosted = false
			fmt.Fprintf(t.err, "lathe: hosted calls are left out: %s: %s\n", f.Name, f.Detail)
		}
	}
	result, err := bench.Gateway(ctx, bench.GatewayConfig{
		Progress: progress(t), Sandbox: hosted,
		Start: func(ctx context.Context, upstream string) (string, func(), error) {
			return benchServer(ctx, cfg, upstream)
		},
		Idle: func(ctx context.Context) (int, func(), error) { return idleServer(ctx, cfg) },
	})
	if err != nil {
		return err
	}
	return c.print(t, result)
}

// benchServer is the whole gateway with one model, "*".
func benchServer(ctx context.Context, cfg *config.Config, upstream string) (base string, stop func(), err error) {
	own := *cfg
	own.Models = []config.Model{{Name: "*", Provider: "openai-chat", BaseURL: upstream, HostedTools: "lathe"}}
	// Log lines are made, as in service, and go nowhere.
	log := slog.New(server.LogHandler(slog.NewTextHandler(discard{}, nil)))
	a, err := wire(ctx, &own, log)
	if err != nil {
		return "", nil, err
	}
	ln, err := server.Listen(ctx, own.Listen, a.keys)
	if err != nil {
		a.close(ctx)
		return "", nil, err
	}
	serving, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.server(0).Serve(serving, ln) }()
	return "http://" + ln.Addr().String() + "/v1", func() {
		end()
		<-done //nolint:errcheck // a drain that took too long is not what is measured
		a.close(context.WithoutCancel(ctx))
	}, nil
}

// discard is not io.Discard, for which slog would not even make the line.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// idleServer starts this program again as lathe serve, with the built-in configuration, and waits until it is ready.
func idleServer(ctx context.Context, cfg *config.Config) (pid int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	file := filepath.Join(cfg.DataDir, "idle.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "data_dir: %q\nsandbox: {pool: 0}\n", filepath.Join(cfg.DataDir, "idle")), 0o600); err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "serve", "-c", file, "--listen", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
		_ = cmd.Wait()                          // how it ends is not what is measured
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "listening on") {
		stop()
		return 0, nil, errors.Join(errors.New("lathe serve did not get ready"), err)
	}
	return cmd.Process.Pid, stop, nil
}
