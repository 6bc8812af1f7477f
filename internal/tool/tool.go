// Package tool has the tools that run here: their names, schemas and prompt text toward the model, how their arguments are read while
// they stream, and how a result is put into words for the model. It does not run anything: a Workspace does.
package tool

import (
	"context"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Names of the hosted tools, as requests and turn.Hosted.Tools name them.
const (
	Python = "python"
	Bash   = "bash"
	Edit   = "edit"
	// ReadSkillName is added by the agent where a request has skills and neither Bash nor Edit. Clients never see it.
	ReadSkillName = "read_skill"
)

// Workspaces opens the container of a turn. package container implements it; the project is that of ctx's principal (package auth).
type Workspaces interface {
	// Check says, before anything is started, whether h can be honoured: the container, the files and the memory limit exist and are
	// this project's. Errors are *turn.Error that name the field. The files are those of h.FileIDs in that order, with their upload's ID
	// and the Path and Name under which Open will put them, so that the model can be told of them before anything is opened.
	Check(ctx context.Context, h *turn.Hosted) ([]turn.File, error)
	// Reach says which domains programs may reach in the container that Open will choose, none if there is no network.
	Reach(ctx context.Context, h *turn.Hosted) []string
	// Skills finds the skills that a turn has: those that the container of h was made with, then those that h names. An unknown one is a
	// *turn.Error that names it. The caller releases them.
	Skills(ctx context.Context, h *turn.Hosted) ([]Skill, error)
	// Open finds or makes the container that h names, puts h.FileIDs into it and starts its sandbox in the background. It returns
	// before the sandbox runs. Errors are *turn.Error.
	Open(ctx context.Context, h *turn.Hosted) (Workspace, error)
}

// Workspace is where the hosted calls of one turn run. Close it when the turn ends; the container lives on.
type Workspace interface {
	Container() turn.Container
	// Notes are things that the model and the client must be told, such as "the interpreter was restarted: variables are gone, files
	// are kept". Each is returned once.
	Notes() []string
	// Run runs one call, or goes on with one whose program waits (Call.Answers), after all that were queued for this container before it. sink gets output while it is printed, from another
	// goroutine, never after Run has returned. Cancelling ctx interrupts the program within a second and returns ctx's error.
	//
	// The program's own failure, time-out and death by memory are in the Outcome with a nil error. An error means that the sandbox
	// failed; it is a *turn.Error, already retried as DESIGN section 5 rule 6 allows.
	Run(ctx context.Context, call Call, sink func(Chunk)) (*Outcome, error)
	// Mount has skills visible to later calls of this workspace. A skill of the same name and another version is replaced for them.
	Mount(skills []Skill)
	// Waiting returns the calls that the program of a hosted call waits for, also where a gateway has been restarted since. ok is false if no
	// program of that call waits here (any more). Errors are *turn.Error.
	Waiting(ctx context.Context, id string) (wanted []Wanted, ok bool, err error)
	// Find returns the file that path (/mnt/data/...) names now, as its newest cfile_, and whether there is one.
	Find(ctx context.Context, path string) (turn.File, bool)
	Close() error
}

// Call is code to run.
type Call struct {
	Tool string // Python, Bash or Edit
	// Code is as Args.Finish returned it: for Edit the JSON object of the arguments, which ParseEdit takes.
	Code string
	// ID is the hosted call's: a program that waits is found by it.
	ID string
	// Functions are the client's tools that a Python program may call.
	Functions []Function
	// Answers, by Wanted.CallID, let the program of ID go on that waits for them; Code is then not used. Nil starts a new one.
	Answers map[string]Answer
}

// Wanted is a call of the client's tool that a program has made and waits for.
type Wanted struct {
	CallID    string `json:"call_id"` // minted by the workspace, as turn.NewHiddenCallID does
	Tool      string `json:"tool"`
	Arguments string `json:"arguments"` // a JSON object
}

// Answer is the client's result for a Wanted. Error raises it as an exception in the program.
type Answer struct {
	Text  string
	Error bool
}

// The values of Outcome.Status.
const (
	StatusOK          = "ok"
	StatusError       = "error" // exception or exit status
	StatusTimeout     = "timeout"
	StatusKilled      = "killed" // most often for want of memory
	StatusInterrupted = "interrupted"
	StatusWaiting     = "waiting" // the program has not ended: it waits for Outcome.Wanted
)

// Chunk is output as it is printed.
type Chunk struct {
	Stream string // stdout or stderr
	Text   string
}

// Outcome is what a call did.
type Outcome struct {
	// Outputs in the order in which they were made: runs of text, and images. Text is cut at the client's limit (1 MiB) with a note.
	Outputs []turn.Output
	// Files are what the call made or changed, displayed images included.
	Files []turn.File
	// Status is one of the Status constants.
	Status   string
	ExitCode int
	// Error is the exception's last line ("ZeroDivisionError: division by zero"), "" for none.
	Error    string
	Duration time.Duration
	// Edit is what a call of the edit tool did, and Path the path that it named. ErrorCode is one of turn's Error constants where it was
	// not done: then Status is error, and Outputs says why.
	Edit            *turn.Edit
	Path, ErrorCode string
	// Wanted are the calls that the program waits for, with StatusWaiting. Outputs and Files come when it ends, those from before it waited
	// included; Duration is without the time that it has waited.
	Wanted []Wanted
}
