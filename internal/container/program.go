package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// A program that calls the client's tools waits, stopped, in the memory of its sandbox, and goes on in a later request. What is needed
// for that beside the memory is a row in the store, so that it outlives this process as a hibernated memory does.
//
// The interpreter is the waiting program's until it goes on: other Python calls of the container wait, for programPatience at most; then
// the program is ended, and its client hears that it is gone. Bash and the editor are not held up.

const (
	// pendingTime is how long the client may take; then the program gets a TimeoutError (wire/anthropic.md 2.8, whose text names 270 s).
	pendingTime = 270 * time.Second
	// programPatience is how long another call waits for a program that waits for its client.
	programPatience = 30 * time.Second
	// programStep is how often it looks.
	programStep = 100 * time.Millisecond
	// maxAnswer caps the text of one result, maxAnswers that of all results that a program gets at once: escaped, it must fit a frame.
	maxAnswer  = 1 << 20
	maxAnswers = 2 << 20
	// maxUnknown is how often a program may call what there is not before it is ended.
	maxUnknown = 10
)

// program is one that waits, as the store has it.
type program struct {
	Call  string    `json:"call"` // the hosted call's id
	Since time.Time `json:"since"`
	// OutputDir is its $OUTPUT_DIR, "" for none.
	OutputDir string        `json:"output_dir,omitempty"`
	Calls     []programCall `json:"calls"`
	// Outputs and Files are from before it waited, Dropped the bytes that were not kept.
	Outputs []turn.Output `json:"outputs,omitempty"`
	Files   []turn.File   `json:"files,omitempty"`
	Dropped int64         `json:"dropped,omitempty"`
}

// programCall is a call that it waits for, with the number by which its interpreter knows it.
type programCall struct {
	tool.Wanted
	ID uint32 `json:"id"`
}

// programs is what an entry knows of the program that waits in its container.
type programs struct {
	mu      sync.Mutex
	loaded  bool
	waiting *program // nil for none
}

func programStepID(container string) string { return "prog_" + container }

// program returns the program that waits, nil for none.
func (e *entry) program(ctx context.Context) (*program, error) {
	e.programs.mu.Lock()
	defer e.programs.mu.Unlock()
	if e.programs.loaded {
		return e.programs.waiting, nil
	}
	id := programStepID(e.key.id)
	rows, err := e.m.Store.Steps().Get(ctx, e.key.project, id)
	if err != nil {
		return nil, fmt.Errorf("program of %s: %w", e.key.id, err)
	}
	if row, ok := rows[id]; ok {
		var p program
		if err := json.Unmarshal(row.Body, &p); err != nil {
			return nil, fmt.Errorf("program of %s: %w", e.key.id, err)
		}
		e.programs.waiting = &p
	}
	e.programs.loaded = true
	return e.programs.waiting, nil
}

// setProgram notes that p waits, or with nil that none does.
func (e *entry) setProgram(ctx context.Context, p *program) error {
	e.programs.mu.Lock()
	defer e.programs.mu.Unlock()
	if p == nil && e.programs.loaded && e.programs.waiting == nil {
		return nil
	}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	now := time.Now()
	row := store.Step{ID: programStepID(e.key.id), Project: e.key.project, Body: body, CreatedAt: now, ExpiresAt: now.Add(24 * time.Hour)}
	if p == nil {
		row.ExpiresAt = now.Add(-time.Second)
	}
	if err := e.m.Store.Steps().Put(ctx, row); err != nil {
		return fmt.Errorf("program of %s: %w", e.key.id, err)
	}
	e.programs.loaded, e.programs.waiting = true, p
	return nil
}

// forgetProgram is setProgram(nil) where a failure costs nothing but a look in vain later.
func (e *entry) forgetProgram(ctx context.Context) {
	if err := e.setProgram(context.WithoutCancel(ctx), nil); err != nil {
		e.m.log.WarnContext(ctx, "forgetting a program failed", "container", e.key.id, "error", err)
	}
}

func (w *workspace) Waiting(ctx context.Context, id string) ([]tool.Wanted, bool, error) {
	p, err := w.program(ctx)
	if err != nil {
		return nil, false, turn.Internal(err)
	}
	if p == nil || p.Call != id {
		return nil, false, nil
	}
	var wanted []tool.Wanted
	for _, c := range p.Calls {
		wanted = append(wanted, c.Wanted)
	}
	return wanted, true, nil
}

// acquire takes the container for a call. A new Python call gives a program that waits the time to go on.
func (w *workspace) acquire(ctx context.Context, call tool.Call) error {
	for {
		if err := w.calls.Acquire(ctx, 1); err != nil {
			return context.Cause(ctx)
		}
		if call.Tool != tool.Python || call.Answers != nil {
			return nil
		}
		p, err := w.program(ctx)
		if err == nil && (p == nil || time.Since(p.Since) >= programPatience) {
			return nil
		}
		w.calls.Release(1)
		if err != nil {
			return turn.Internal(err)
		}
		select {
		case <-time.After(programStep):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.m.ctx.Done():
			return w.whyEnded()
		}
	}
}

// endProgram ends a program that waits in the sandbox which is up, and whose client will not be back.
func (w *workspace) endProgram(ctx context.Context) error {
	l, err := w.current()
	if err != nil {
		return err
	}
	if l != nil {
		r, err := l.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Resume: &sandbox.Resume{Interrupt: true}}, nil)
		if err != nil && !errors.Is(err, sandbox.ErrNoProgram) {
			return err
		}
		if r != nil && r.KernelRestarted {
			w.note(noteRestarted)
		}
	}
	w.note("a program of an earlier call, which waited for results of its tool calls, was ended")
	return w.setProgram(ctx, nil)
}

// goesOn is the sandbox's call by which a program goes on. p is nil if it does not wait here any more.
func (w *workspace) goesOn(ctx context.Context, call tool.Call) (sc sandbox.Call, p *program, err error) {
	p, err = w.program(ctx)
	if err != nil || p == nil || p.Call != call.ID {
		return sc, nil, err
	}
	r := &sandbox.Resume{TimedOut: time.Since(p.Since) > pendingTime}
	size := 0
	for _, c := range p.Calls {
		a, ok := call.Answers[c.CallID]
		switch size += len(a.Text); {
		case r.TimedOut:
			continue
		case !ok:
			return sc, nil, turn.Invalid("messages", "the program of %s waits for the result of %s too", call.ID, c.CallID)
		case len(a.Text) > maxAnswer, size > maxAnswers:
			a = tool.Answer{Error: true, Text: fmt.Sprintf("the result of %s is too large: a program gets %d bytes at most", c.Tool, maxAnswer)}
		}
		r.Results = append(r.Results, sandbox.FunctionResult{ID: c.ID, Text: a.Text, Error: a.Error})
	}
	return sandbox.Call{Kind: sandbox.Python, Program: p.Call, Resume: r}, p, nil
}

// goneProgram is the outcome of a call whose program was to go on and is no more.
func goneProgram() *tool.Outcome {
	return &tool.Outcome{Status: tool.StatusError, ErrorCode: turn.ErrorUnavailable, Outputs: []turn.Output{{
		Stream: sandbox.Stderr, Text: "The program that waited for these results is gone, and its variables may be; files are kept. " +
			"Run the code again if it is still needed.\n",
	}}}
}

// refill gives a collector what a program had put out before it waited.
func (p *program) refill(c *collector) {
	sink := c.sink
	c.sink = nil // the client has had that
	for _, o := range p.Outputs {
		c.push(sandbox.Output{Stream: o.Stream, Text: o.Text, MIME: o.MIME, Data: o.Data})
	}
	c.sink = sink
}

// offered has calls of what is no function of the request answered with errors: only a program that writes to its interpreter's own
// channel, or goes on in a request with other tools, makes them.
func (w *workspace) offered(ctx context.Context, call tool.Call, res *sandbox.Result, col *collector) (*sandbox.Result, error) {
	for range maxUnknown {
		unknown := ""
		for _, c := range res.Calls {
			if !slices.ContainsFunc(call.Functions, func(f tool.Function) bool { return f.Name == c.Name }) {
				unknown = c.Name
			}
		}
		if unknown == "" {
			return res, nil
		}
		r := &sandbox.Resume{}
		for _, c := range res.Calls {
			r.Results = append(r.Results, sandbox.FunctionResult{ID: c.ID, Error: true, Text: fmt.Sprintf("the tool %.100s is not available any more", unknown)})
		}
		var err error
		if res, err = w.exec(ctx, sandbox.Call{Kind: sandbox.Python, Program: call.ID, Resume: r}, col); err != nil {
			return nil, err
		}
	}
	if res.Status == sandbox.StatusWaiting {
		if err := w.endProgram(ctx); err != nil {
			return nil, err
		}
		res = &sandbox.Result{Status: sandbox.StatusError, ExitCode: 1, Error: "the program called tools that do not exist"}
	}
	return res, nil
}

// suspend notes that the program of a call waits. p is what is known of it so far.
func (w *workspace) suspend(ctx context.Context, call tool.Call, res *sandbox.Result, col *collector, p *program) (*tool.Outcome, error) {
	made, err := w.made(ctx, p.OutputDir)
	if err != nil {
		return nil, w.ran(err)
	}
	next := &program{
		Call: call.ID, Since: time.Now(), OutputDir: p.OutputDir, Outputs: col.outputs(0), Dropped: p.Dropped + res.Truncated,
		Files: append(slices.Clone(p.Files), made...),
	}
	out := &tool.Outcome{Status: tool.StatusWaiting}
	for _, c := range res.Calls {
		i := slices.IndexFunc(call.Functions, func(f tool.Function) bool { return f.Name == c.Name })
		want := tool.Wanted{CallID: turn.NewHiddenCallID(), Tool: call.Functions[i].Tool, Arguments: c.Arguments}
		next.Calls = append(next.Calls, programCall{want, c.ID})
		out.Wanted = append(out.Wanted, want)
	}
	if err := w.setProgram(ctx, next); err != nil {
		return nil, w.ran(errors.Join(err, w.endProgram(ctx)))
	}
	return out, nil
}
