package main

import (
	"bytes"
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
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

type runCmd struct {
	configured
	Image   string        `placeholder:"IMAGE" help:"Image instead of the configuration's: a name, a folder, an OCI layout or a reference."`
	In      []string      `name:"in" placeholder:"FILE" sep:"none" help:"Put FILE into the program's folder, /mnt/data. May be repeated."`
	Out     string        `default:"lathe-out" placeholder:"DIR" help:"Where the files that the program made are written (${default})."`
	Timeout time.Duration `placeholder:"TIME" help:"How long the program may run. Default: sandbox.exec_timeout of the configuration."`
	File    string        `arg:"" placeholder:"FILE" help:"The program: .py, .sh for bash, .js .cjs .mjs for node; - reads Python from standard input."`
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
	cfg.Models, cfg.Projects = nil, nil // no model is asked, and there is no project
	if err := pullMissing(ctx, cfg, t); err != nil {
		return err
	}
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

func (c *runCmd) read(t *terminal) ([]byte, error) {
	if c.File == "-" {
		return io.ReadAll(t.in)
	}
	return os.ReadFile(c.File)
}

func (c *runCmd) inContainer(ctx context.Context, t *terminal, a *app, code []byte) error {
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
	call, err := c.putScript(ctx, a, ws.Container().ID, code)
	if err != nil {
		return err
	}
	outcome, err := ws.Run(ctx, call, func(chunk tool.Chunk) {
		to := t.out
		if chunk.Stream == "stderr" {
			to = t.err
		}
		fmt.Fprint(to, chunk.Text)
	})
	if err != nil {
		return err
	}
	for _, note := range ws.Notes() {
		fmt.Fprintf(t.err, "lathe: %s\n", note)
	}
	if err := c.writeOut(ctx, t, a, outcome.Files); err != nil {
		return err
	}
	return exitOf(t, outcome)
}

// putScript puts the program into its folder and returns the call that runs it as python3 FILE, bash FILE or node FILE would.
func (c *runCmd) putScript(ctx context.Context, a *app, containerID string, code []byte) (tool.Call, error) {
	name := "stdin.py"
	if c.File != "-" {
		name = filepath.Base(c.File)
	}
	path, err := put(ctx, a, containerID, name, bytes.NewReader(code))
	if err != nil {
		return tool.Call{}, err
	}
	words := append([]string{path}, c.Args...)
	switch filepath.Ext(name) {
	case ".js", ".cjs", ".mjs":
		list, err := json.Marshal(words)
		return tool.Call{Tool: string(sandbox.Node), Code: fmt.Sprintf(nodeRunner, list)}, err
	case ".sh":
		return tool.Call{Tool: tool.Bash, Code: "exec bash" + quoteAll(words)}, nil
	}
	return tool.Call{Tool: tool.Bash, Code: "exec python3 -u" + quoteAll(words)}, nil
}

// nodeRunner runs a program from the node kernel, since what bash starts has too little address space for many.
const nodeRunner = `const child = require("child_process").spawn(
  process.execPath, [...process.execArgv.filter(a => a.startsWith("--max-old-space-size")), ...%s], { stdio: "inherit" });
process.exit(await new Promise((done, fail) => child.on("error", fail).on("exit", (code, signal) => {
  done(signal ? 128 + require("os").constants.signals[signal] : code);
})));`

func quoteAll(words []string) string {
	var b strings.Builder
	for _, word := range words {
		b.WriteString(" '" + strings.ReplaceAll(word, "'", `'\''`) + "'")
	}
	return b.String()
}

func putFile(ctx context.Context, a *app, containerID, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = put(ctx, a, containerID, filepath.Base(path), f)
	return err
}

// put returns the path at which the program finds the file.
func put(ctx context.Context, a *app, containerID, name string, from io.Reader) (string, error) {
	staged, err := a.containers.Uploads().Stage(ctx, from)
	if err != nil {
		return "", err
	}
	f, err := a.containers.PutFile(ctx, containerID, name, staged)
	return f.Path, err
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
