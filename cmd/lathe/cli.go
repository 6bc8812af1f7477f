package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/lathe-gateway/lathe/internal/config"
)

// version is set by the Makefile.
var version = "devel"

// terminal is what a command has of the world: its streams and the environment.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	env      func(name string) (string, bool)
}

type commands struct {
	Serve   serveCmd   `cmd:"" help:"Serve the APIs until SIGTERM or Ctrl-C."`
	Run     runCmd     `cmd:"" help:"Run a file (Python, bash, Node) in a sandbox of its own: its output and exit code are passed on, its files written out."`
	Shell   shellCmd   `cmd:"" help:"Open a terminal into a container of the running gateway."`
	Image   imageCmd   `cmd:"" help:"List, build, pull, prepare and remove images of sandboxes."`
	Doctor  doctorCmd  `cmd:"" help:"Say what this machine can do, and the mend for each thing that it cannot."`
	Config  configCmd  `cmd:"" help:"Check the configuration, or show it as it takes effect."`
	Skill   skillCmd   `cmd:"" help:"Make, judge and pack skills, and move them to and from a gateway."`
	Import  importCmd  `cmd:"" help:"Take over what another gateway has."`
	Bench   benchCmd   `cmd:"" help:"Measure this machine: the sandbox, or the gateway."`
	Demo    demoCmd    `cmd:"" hidden:"" help:"Ask a running server one question and show the answer as it streams."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

const description = `A self-hosted gateway for language models that gives every model hands: hosted code interpreter, containers and files,
with the code in a gVisor sandbox on this machine.

Start with:  lathe doctor, then lathe serve`

// exitInterrupted is what shells give for a program that Ctrl-C ended.
const exitInterrupted = 130

// exitCode is an error that only ends the program: what is to be said has been said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// execute runs one command line and returns the exit code: 0, 1 for a failure, 2 for a command line that makes no sense, or what the
// command says.
func execute(args []string, t *terminal) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)

	exited := -1
	parser, err := kong.New(&commands{}, kong.Name("lathe"), kong.Description(description), kong.Writers(t.out, t.err),
		kong.Exit(func(code int) { exited = code; panic(errExited) }), kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}), kong.Bind(t))
	if err != nil {
		fmt.Fprintln(t.err, "lathe:", err)
		return 2
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if args[0] == "help" { // as git and go have it
		args = append(slices.Clone(args[1:]), "--help")
	}
	parsed, err := parse(parser, args)
	if errors.Is(err, errExited) {
		return exited
	}
	if err != nil {
		fmt.Fprintf(t.err, "lathe: %s\nlathe: `%s --help` says what there is\n", err, helpFor(err))
		return 2
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	if err := parsed.Run(); err != nil {
		if code, ok := errors.AsType[exitCode](err); ok {
			return int(code)
		}
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return exitInterrupted
		}
		report(t.err, err)
		return 1
	}
	return 0
}

// errExited stops kong where it wants to end the process, after it has printed help.
var errExited = errors.New("exited")

func parse(parser *kong.Kong, args []string) (parsed *kong.Context, err error) {
	defer func() {
		if cause := recover(); cause == errExited { //nolint:errorlint // a panic value of ours, not a chain
			err = errExited
		} else if cause != nil {
			panic(cause)
		}
	}()
	return parser.Parse(args)
}

func helpFor(err error) string {
	if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil && e.Context.Selected() != nil {
		return "lathe " + strings.TrimPrefix(e.Context.Selected().FullPath(), "lathe ")
	}
	return "lathe"
}

// report prints an error for a person: each line of faults on its own.
func report(w io.Writer, err error) {
	if faults, ok := errors.AsType[config.Faults](err); ok {
		for _, f := range faults {
			fmt.Fprintln(w, f)
		}
		if len(faults) == 1 {
			fmt.Fprintln(w, "lathe: the configuration has a fault")
		} else {
			fmt.Fprintf(w, "lathe: the configuration has %d faults\n", len(faults))
		}
		return
	}
	fmt.Fprintln(w, "lathe:", err)
}

// configured are the flags of every command that reads the configuration.
type configured struct {
	Config string `short:"c" placeholder:"FILE" help:"Configuration. Default: lathe.yaml of this folder if there is one, else built-in defaults with the demo model."`
}

const defaultConfig = "lathe.yaml"

func (c *configured) load(t *terminal, listen string) (*config.Config, error) {
	path := c.Config
	if path == "" {
		if _, err := os.Stat(defaultConfig); err == nil {
			path = defaultConfig
		}
	}
	return config.Load(config.Source{Path: path, Env: t.env, Listen: listen, Root: os.Geteuid() == 0})
}

type versionCmd struct{}

// Run prints the version and what it was built from.
func (versionCmd) Run(t *terminal) error { //nolint:unparam // kong wants an error
	fmt.Fprintf(t.out, "lathe %s", version)
	if info, ok := debug.ReadBuildInfo(); ok {
		fmt.Fprintf(t.out, " (%s)", info.GoVersion)
	}
	fmt.Fprintln(t.out)
	return nil
}
