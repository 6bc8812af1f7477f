// Package sandbox is the contract of the places where untrusted code runs: a Backend starts Sandboxes, a Sandbox runs calls. It knows
// no container, store or protocol. Implementations are gvisor and, for tests, fake; both pass the suite in sandboxtest.
//
// To add a backend: a folder beside gvisor that implements Backend and Sandbox, a test that calls sandboxtest.Run, and a line in
// cmd/lathe/wire.go.
package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// Backend starts sandboxes on this machine. It is safe for concurrent use.
type Backend interface {
	// Start returns a new sandbox whose guest answers. ctx bounds the start only. Where the image has been prepared it begins with the
	// interpreter up and the libraries imported, and with randomness of its own.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Restore returns a sandbox that goes on where the one that wrote dir with Checkpoint ended, as often as it is called. spec may differ
	// in its ID, in the sources of its mounts, and in Limits.Memory, CPUs and Processes; folders in memory keep the size that they had. dir
	// is only read, and may be removed afterwards. An error that wraps ErrUnusable means that this memory can never be restored here. A
	// file that programs had open and that is gone from a writable mount is an empty one without a name then, where the backend can.
	Restore(ctx context.Context, spec Spec, dir string) (Sandbox, error)
	// Prepare makes what Start needs to be fast with an image (see Spec.Image): a sandbox is started, its interpreter imports the
	// image's libraries, and its memory is kept in the state directory. It does nothing where that exists for this image and this
	// version of backend and guest, and removes what no longer fits. Start does not wait for it.
	Prepare(ctx context.Context, image string) error
	// Reconcile removes everything that earlier processes with the same state directory left behind (sandboxes, mounts, cgroups,
	// folders), whatever way they ended. Call it once, before the first Start.
	Reconcile(ctx context.Context) error
	// Check says what this backend can do on this machine, for lathe doctor and /readyz. It may start a sandbox.
	Check(ctx context.Context) []Finding
	// Close ends all sandboxes.
	Close() error
}

// Sandbox is one running guest. Exec calls may come from several goroutines but are run one after another by their kind of session.
type Sandbox interface {
	// Exec runs one call and returns when it has ended. sink gets output as it is made, in order, from one goroutine, and never after
	// Exec has returned; it may be nil. When ctx ends the program is interrupted, then killed, and Exec returns within a second with
	// ctx's error; the sandbox stays usable, and so does the interpreter's state if the interrupt was enough. A Result that comes with
	// ctx's error says whether it was (KernelRestarted); without one the program had not started.
	//
	// What the program did to itself is in the Result with a nil error. An error wraps ErrNotStarted if the guest never acknowledged
	// the call (it may be retried elsewhere), ErrDied if the sandbox ended while it ran.
	Exec(ctx context.Context, call Call, sink func(Output)) (*Result, error)
	// OpenTerminal starts a shell on a terminal of its own, beside all calls. ctx bounds the start only. An error wraps ErrNotStarted.
	OpenTerminal(ctx context.Context, spec TerminalSpec) (Terminal, error)
	// Checkpoint writes the sandbox's memory into dir, an empty folder, and ends the sandbox. The caller sees to it that no call runs; what
	// programs left running in the background goes on after Restore. The files are complete then but not synced, and belong together.
	// After an error the sandbox may have ended, and dir is worth nothing.
	Checkpoint(ctx context.Context, dir string) error
	// Connect gives the sandbox a network, which it has not from the start. Programs find it as an HTTP proxy in the environment of later
	// calls; there is no other way out. A second Connect replaces the first and resets its connections. Checkpoint ends the network, and
	// a restored sandbox has none until it is connected again.
	Connect(ctx context.Context, n *Network) error
	// Bind makes a host directory visible while the sandbox runs, at m.Target below a mount of the Spec that is a Hub, in the place of one
	// that was bound there before. It lasts as long as the sandbox, is no part of a Checkpoint, and must be asked for again in the
	// Spec of a Restore. All is read-only below a Hub that is; what shall be read-only needs such a Hub. Where the backend can only link
	// or copy (without root) what changes in the source later may not be seen, and the Hub must be ReadOnly.
	Bind(ctx context.Context, m Mount) error
	// Done is closed when the sandbox has ended for whatever reason.
	Done() <-chan struct{}
	// Close ends it and frees everything it used. Idempotent.
	Close() error
}

// TerminalSpec is what a terminal begins with.
type TerminalSpec struct {
	Rows, Cols uint16
	// Term is TERM, "" for none.
	Term string
}

// Terminal is a shell of an operator's. Read gives what it shows, unchanged, and io.EOF when the shell has ended and all has been read;
// a program that writes faster than is read waits. Write types. Read and Write may each be called by one goroutine at a time. Close
// hangs up: what the shell started ends. Idempotent.
type Terminal interface {
	io.ReadWriteCloser
	Resize(rows, cols uint16) error
	// Result is how the shell ended. It waits for that.
	Result(ctx context.Context) (*Result, error)
}

// Errors that callers tell apart with errors.Is.
var (
	// ErrNotStarted: the program certainly did not run.
	ErrNotStarted = errors.New("sandbox: the call was not started")
	// ErrWaiting, with ErrNotStarted: a program waits in the interpreter (Result.Calls); it must go on first.
	ErrWaiting = errors.New("sandbox: a program waits for its calls")
	// ErrNoProgram, with ErrNotStarted: the program that was to go on does not wait here.
	ErrNoProgram = errors.New("sandbox: no such program waits")
	// ErrDied: the sandbox ended, and the program with it.
	ErrDied = errors.New("sandbox: ended while the call ran")
	// ErrOutOfMemory comes with ErrDied where the host's memory limit ended the sandbox: that is the program's failure.
	ErrOutOfMemory = errors.New("sandbox: out of memory")
	// ErrUnavailable: this machine cannot run sandboxes of this backend; the text says why and what to do.
	ErrUnavailable = errors.New("sandbox: not available on this machine")
	// ErrUnusable: the memory image was written by another version of the backend, the guest or the image, or is damaged.
	ErrUnusable = errors.New("sandbox: memory image cannot be used")
)

// Spec is what a sandbox is made of.
type Spec struct {
	// ID names it within the state directory: letters, digits, "_" and "-", at most 64.
	ID string
	// Image is the folder of the image (see package image), "" for the backend's default.
	Image string
	// Mounts are host directories of the container. All are declared here: what comes later (Bind) must lie below a Hub. A mount whose
	// target lies below a Hub is bound there before the guest starts.
	Mounts []Mount
	Limits Limits
	// Env is added to the environment of every call.
	Env map[string]string
}

// Network is what a sandbox reaches outside of itself, by way of the host: see Sandbox.Connect.
type Network struct {
	// Serve answers one connection of a program as an HTTP proxy and closes it. ctx ends when the sandbox or its network does. It is
	// called for at most 256 connections at a time.
	Serve func(ctx context.Context, conn net.Conn)
	// Roots are the certificates in PEM that this machine trusts, Trust those that were made for the sandbox. Programs trust both beside those
	// of the image.
	Roots, Trust string
	// Env is added to the environment of calls; what the call and the Spec say counts before it.
	Env map[string]string
}

// Mount binds a host directory into the sandbox, always nosuid and nodev.
type Mount struct {
	Source, Target string
	ReadOnly       bool
	// Hub says that others may be bound below this one, which is an empty folder of the backend's: Source is not used.
	Hub bool
}

// Kind is what runs a call.
type Kind string

// Python and Node are long-lived interpreters with state between calls. Bash runs each command in a shell of its own, or, in a named
// session, in one that keeps its directory, variables and functions. What the image does not have is refused with ErrNotStarted.
// Edit views or changes one file as the program's user: its code is the JSON object of EditCall, and its result is in Result.Edit.
const (
	Python Kind = "python"
	Bash   Kind = "bash"
	Node   Kind = "node"
	Edit   Kind = "edit"
)

// EditCall is the code of a call of kind Edit. Command is view, create, str_replace or insert; Path may have variables of the
// environment. The other members are those that the command needs.
type EditCall struct {
	Command    string  `json:"command"`
	Path       string  `json:"path"`
	ViewRange  []int   `json:"view_range,omitempty"` // first and last line; -1 is the end
	FileText   *string `json:"file_text,omitempty"`
	OldStr     *string `json:"old_str,omitempty"`
	NewStr     *string `json:"new_str,omitempty"`
	InsertLine *int    `json:"insert_line,omitempty"` // the line to insert after
	InsertText *string `json:"insert_text,omitempty"`
}

// EditResult is what a call of kind Edit did. Lines are counted from 1.
type EditResult struct {
	// Error is file_not_found, invalid_tool_input or unavailable where it was not done, "" where it was; Message says why, for a model.
	Error, Message string
	// FileType is text, image or pdf, for a view. Content is a text's, without line numbers; MIME and Data are an image's or a PDF's.
	FileType, Content, MIME         string
	Data                            []byte
	StartLine, NumLines, TotalLines int
	// Updated says that create replaced a file.
	Updated bool
	// Hunk is the unified difference of str_replace and insert, with three lines of context; nil where it is too large.
	OldStart, OldLines, NewStart, NewLines int
	Hunk                                   []string
}

// Call is one piece of code.
type Call struct {
	Kind Kind
	// Session names one of several of a kind, each with a process and state of its own: letters, digits, "_" and "-", at most 64. They run
	// side by side. A few live at once; for another one the longest idle is ended, whose next call says so (KernelRestarted).
	Session string
	Code    string
	// Dir is the working directory where a session starts; "" is /mnt/data.
	Dir string
	Env map[string]string
	// Timeout overrides Limits.ExecTime if it is shorter and not 0.
	Timeout time.Duration
	// Functions are async functions that a program of the default Python session can call (see Result.Calls). Program names the program
	// then, so that Resume finds it.
	Functions []string
	Program   string
	// Resume lets the program called Program go on, in place of Code. Its time goes on where it stopped.
	Resume *Resume
}

// Resume is what a program gets that waits for the calls of its functions.
type Resume struct {
	// Results are those of all calls of Result.Calls. TimedOut raises TimeoutError from each instead.
	Results  []FunctionResult
	TimedOut bool
	// Interrupt ends whatever program waits, by KeyboardInterrupt or by force.
	Interrupt bool
}

// FunctionResult answers a FunctionCall; Error raises it as an exception.
type FunctionResult struct {
	ID    uint32
	Text  string
	Error bool
}

// FunctionCall is a program's call of one of Call.Functions. Arguments is a JSON object. Both are the program's: hostile.
type FunctionCall struct {
	ID              uint32
	Name, Arguments string
}

// Output is one piece of what a program put out, in order.
type Output struct {
	// Stream is stdout, stderr, result (the last expression's text) or display.
	Stream string
	Text   string
	// MIME and Data are set for a display that is not text: image/png.
	MIME string
	Data []byte
}

// The values of Output.Stream.
const (
	Stdout  = "stdout"
	Stderr  = "stderr"
	Value   = "result"
	Display = "display"
)

// Status is how a program ended.
type Status string

// StatusKilled is death by a signal, most often for want of memory; Result.Error says which.
const (
	StatusOK          Status = "ok"
	StatusError       Status = "error" // exception or exit status
	StatusTimeout     Status = "timeout"
	StatusInterrupted Status = "interrupted"
	StatusKilled      Status = "killed"
	StatusWaiting     Status = "waiting" // for Result.Calls
)

// Result is how a call ended. Its output has gone to the sink.
type Result struct {
	Status   Status
	ExitCode int
	// Error is the exception's name and text, or what killed the program.
	Error string
	// Truncated is how many bytes of output were dropped beyond Limits.Output.
	Truncated int64
	// KernelRestarted says that the interpreter had to be killed: its variables are gone.
	KernelRestarted bool
	Duration        time.Duration
	// Calls are what the program waits for, with StatusWaiting: it is stopped, and goes on with Call.Resume, also after Checkpoint and
	// Restore. No other call runs in the default Python session until then; other sessions and kinds are free.
	Calls []FunctionCall
	// Edit is the result of a call of kind Edit with StatusOK.
	Edit *EditResult
}

// Finding is one line of lathe doctor.
type Finding struct {
	Name string
	// Level is ok, warn (works, but weaker) or fail.
	Level  string
	Detail string
	// Mend is what to do about it, "" where nothing is wrong.
	Mend string
}
