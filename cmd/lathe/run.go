package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/config"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

type runCmd struct {
	configured
	Image   string        `placeholder:"IMAGE" help:"Folder or name of an image instead of the configuration's."`
	In      []string      `name:"in" placeholder:"FILE" sep:"none" help:"Put FILE into the program's folder, /mnt/data. May be repeated."`
	Out     string        `default:"lathe-out" placeholder:"DIR" help:"Where the files that the program made are written (${default})."`
	Timeout time.Duration `placeholder:"TIME" help:"How long the program may run. Default: sandbox.exec_timeout of the configuration."`
	File    string        `arg:"" placeholder:"FILE.py" help:"The program; - reads it from standard input."`
	Args    []string      `arg:"" optional:"" passthrough:"" help:"Arguments of the program."`
}

// Exit codes for what is no exit of the program itself, as shells and timeout(1) have them.
const (
	exitTimeout = 124
	exitKilled  = 137
)

// Run runs the file in a container that lives only as long as this command.
func (c *runCmd) Run(ctx context.Context, t *terminal) error {
	code, err := c.read(t)
	if err != nil {
		return err
	}
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	if cfg.DataDir, err = os.MkdirTemp("", "lathe-run-"); err != nil {
		return err
	}
	defer os.RemoveAll(cfg.DataDir)
	if c.Image != "" {
		cfg.Sandbox.Image = c.Image
	}
	if c.Timeout > 0 {
		cfg.Sandbox.ExecTimeout = config.Duration(c.Timeout)
	}
	cfg.Models = nil // no model is asked
	a, err := wire(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer a.close(context.WithoutCancel(ctx))
	ctx = auth.WithPrincipal(ctx, auth.Principal{Name: "local", Project: "default"})
	return operatorError(c.inContainer(ctx, t, a, code))
}

// operatorError is what an operator wants to know of an error whose message is for clients: its cause.
func operatorError(err error) error {
	if e, ok := errors.AsType[*turn.Error](err); ok && e.Cause != nil {
		return e.Cause
	}
	return err
}

func (c *runCmd) read(t *terminal) (string, error) {
	if c.File == "-" {
		code, err := io.ReadAll(t.in)
		return string(code), err
	}
	code, err := os.ReadFile(c.File)
	return string(code), err
}

func (c *runCmd) inContainer(ctx context.Context, t *terminal, a *app, code string) error {
	ws, err := a.containers.Open(ctx, &turn.Hosted{Tools: []string{tool.Python}})
	if err != nil {
		return err
	}
	defer ws.Close()
	for _, path := range c.In {
		if err := putFile(ctx, a, ws.Container().ID, path); err != nil {
			return fmt.Errorf("--in %s: %w", path, err)
		}
	}
	prepare, start := c.asScript(code)
	if _, err := ws.Run(ctx, tool.Call{Tool: tool.Python, Code: prepare}, nil); err != nil {
		return err
	}
	outcome, err := ws.Run(ctx, tool.Call{Tool: tool.Python, Code: start}, func(chunk tool.Chunk) {
		to := t.out
		if chunk.Stream == "stderr" {
			to = t.err
		}
		fmt.Fprint(to, chunk.Text)
	})
	if err != nil {
		return err
	}
	if err := c.writeOut(ctx, t, a, outcome.Files); err != nil {
		return err
	}
	return exitOf(t, outcome)
}

// asScript returns two cells that run code as python3 FILE.py would: with its arguments, without printing the last expression's value, and
// with the file's name and lines in tracebacks.
func (c *runCmd) asScript(code string) (prepare, start string) {
	// A JSON string, and a list of them, is one of Python too.
	quote := func(v any) string {
		text, _ := json.Marshal(v) // strings cannot fail
		return string(text)
	}
	name := c.File
	if name == "-" {
		name = "<stdin>"
	}
	prepare = fmt.Sprintf("import linecache, sys\nsys.argv = %s\nlinecache.cache[%s] = (%d, None, %s.splitlines(True), %[2]s)\ndel linecache, sys",
		quote(append([]string{c.File}, c.Args...)), quote(name), len(code), quote(code))
	start = fmt.Sprintf(`exec(compile("".join(__import__("linecache").getlines(%s)), %[1]s, "exec"), globals())`, quote(name))
	return prepare, start
}

func putFile(ctx context.Context, a *app, containerID, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	staged, err := a.containers.Uploads().Stage(ctx, f)
	if err != nil {
		return err
	}
	_, err = a.containers.PutFile(ctx, containerID, filepath.Base(path), staged)
	return err
}

// writeOut writes files below Out as they lay below /mnt/data. Paths are the program's words: os.Root keeps them inside.
func (c *runCmd) writeOut(ctx context.Context, t *terminal, a *app, files []turn.File) error {
	if len(files) == 0 {
		return nil
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil { //nolint:gosec // results are for the user's own folder, with its usual mode
		return err
	}
	folder, err := os.OpenRoot(c.Out)
	if err != nil {
		return err
	}
	defer folder.Close()
	var failed []error
	for _, f := range files {
		name := strings.TrimPrefix(f.Path, "/mnt/data/")
		if f.Path == "" || filepath.IsAbs(name) {
			name = f.Name
		}
		if err := writeFile(ctx, a, folder, f, name); err != nil {
			failed = append(failed, fmt.Errorf("writing %s: %w", name, err))
			continue
		}
		fmt.Fprintf(t.err, "lathe: wrote %s (%d bytes)\n", filepath.Join(c.Out, name), f.Bytes)
	}
	return errors.Join(failed...)
}

func writeFile(ctx context.Context, a *app, folder *os.Root, f turn.File, name string) error {
	_, from, err := a.containers.OpenFile(ctx, f.Container, f.ID)
	if err != nil {
		return err
	}
	defer from.Close()
	if dir := filepath.Dir(name); dir != "." {
		if err := folder.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	_, err = saveIn(folder, name, from)
	return err
}

func exitOf(t *terminal, outcome *tool.Outcome) error {
	switch outcome.Status {
	case "ok":
		return nil
	case "timeout":
		fmt.Fprintln(t.err, "lathe: the program ran longer than it may and was stopped: give it more with --timeout")
		return exitCode(exitTimeout)
	case "killed":
		fmt.Fprintf(t.err, "lathe: the program was killed: %s\n", outcome.Error)
		return exitCode(exitKilled)
	}
	return exitCode(max(outcome.ExitCode, 1))
}
