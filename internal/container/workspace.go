package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// captureTimeout bounds the look at a volume after a call, also after one whose client has left.
const captureTimeout = time.Minute

// maxCode is more than any model writes and less than a sandbox takes.
const maxCode = 4 << 20

// What the model and the client are told with the next call.
const (
	noteRestarted = "the interpreter was restarted: variables are gone, files are kept"
	noteUnusable  = "the interpreter's memory could not be resumed: variables are gone, files are kept"
)

// workspace implements tool.Workspace.
type workspace struct {
	*entry
	// outputDir and cellTime are those of turn.Hosted.
	outputDir bool
	cellTime  time.Duration

	// stray says that a program has begun to wait whose client has left.
	stray atomic.Bool

	mu     sync.Mutex
	notes  []string
	skills []tool.Skill
	closed bool
}

var _ tool.Workspace = (*workspace)(nil)

func (w *workspace) Container() turn.Container {
	w.entry.mu.Lock()
	defer w.entry.mu.Unlock()
	c := turn.Container{ID: w.key.id}
	if w.row.ExpireAfter > 0 {
		c.ExpiresAt = w.row.LastActive.Add(w.row.ExpireAfter).Unix()
	}
	return c
}

func (w *workspace) note(texts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, texts...)
}

func (w *workspace) Notes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.notes
	w.notes = nil
	return out
}

// Close gives the container back. The sandbox stays up until it has been idle for Config.IdleAfter or another one needs its place: then
// it hibernates.
func (w *workspace) Close() error {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.mu.Unlock()
	if again {
		return nil
	}
	e := w.entry
	e.mu.Lock()
	e.opens--
	if e.row.LastActive.Before(time.Now()) {
		e.row.LastActive = time.Now()
	}
	e.mu.Unlock()
	if e.m.begin() == nil {
		defer e.m.wg.Done()
		e.m.slots.eased(e.key.project)
	}
	e.m.release(e)
	return nil
}

func (w *workspace) Run(ctx context.Context, call tool.Call, sink func(tool.Chunk)) (*tool.Outcome, error) {
	e := w.entry
	if err := e.m.begin(); err != nil {
		return nil, err
	}
	defer e.m.wg.Done()
	if len(call.Code) > maxCode {
		text := "the code is larger than " + size(maxCode) + ": put data into a file"
		return &tool.Outcome{Outputs: []turn.Output{{Text: text}}, Status: string(sandbox.StatusError), Error: text}, nil
	}
	if err := w.acquire(ctx, call); err != nil {
		return nil, err
	}
	e.count(1)
	done := func() {
		e.count(-1)
		e.calls.Release(1)
	}
	e.touch(ctx)
	// The client may stay while the Manager closes.
	runCtx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.m.ctx, func() { cancel(context.Cause(e.m.ctx)) }) //nolint:contextcheck // a second one that ends the call
	defer stop()
	defer cancel(nil)
	out, err := w.run(runCtx, call, sink)
	if err == nil {
		done()
		return out, nil
	}
	if runCtx.Err() == nil {
		done()
		return nil, err
	}
	// The client must hear within a second; what the program had written becomes files all the same, before the next call.
	e.m.hold(e)
	e.m.wg.Go(func() {
		defer e.m.release(e)
		defer done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), captureTimeout)
		defer cancel()
		if w.stray.Swap(false) {
			if err := w.endProgram(ctx); err != nil && !e.hasEnded() {
				e.m.log.WarnContext(ctx, "ending a program that nobody knows of failed", "container", e.key.id, "error", err)
			}
		}
		if _, _, err := e.capture(ctx); err != nil && !e.hasEnded() {
			e.m.log.ErrorContext(ctx, "capturing files failed", "container", e.key.id, "error", err)
		}
	})
	return nil, err
}

// count notes that a call has begun, or ended.
func (e *entry) count(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running += n
}

func (e *entry) hasEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended != nil
}

// whyEnded is why no call can run any more, nil if it can.
func (e *entry) whyEnded() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended != nil {
		return e.ended
	}
	return context.Cause(e.m.ctx)
}

// run is one call whose turn it is.
func (w *workspace) run(ctx context.Context, call tool.Call, sink func(tool.Chunk)) (*tool.Outcome, error) {
	e := w.entry
	if err := e.m.checkSpace(); err != nil {
		return nil, err
	}
	if err := e.m.quotas.mayRun(ctx, e.key.project); err != nil {
		return nil, err
	}
	sc, p, refused, err := w.prepare(ctx, call)
	if err != nil || refused != nil {
		return refused, err
	}
	col := newCollector(sink)
	p.refill(col)
	began := time.Now()
	res, err := w.execProgram(ctx, call, sc, col)
	if call.Answers != nil {
		w.forgetProgram(ctx) // it has ended, or will be noted again
	}
	if errors.Is(err, sandbox.ErrNoProgram) {
		return goneProgram(), nil
	}
	if err != nil {
		return nil, err
	}
	if res.KernelRestarted {
		w.note(noteRestarted)
	}
	// The code has run: its result must not be lost because the client leaves now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), captureTimeout)
	defer cancel()
	defer e.touch(ctx)
	if res.Status == sandbox.StatusWaiting {
		out, err := w.suspend(ctx, call, res, col, p)
		if err == nil {
			out.Duration = time.Since(began)
		}
		return out, err
	}
	out := &tool.Outcome{
		Outputs: col.outputs(res.Truncated + p.Dropped), Status: string(res.Status), ExitCode: res.ExitCode, Error: res.Error,
		Duration: time.Since(began),
	}
	edited(out, call, res.Edit)
	made, err := w.made(ctx, p.OutputDir)
	if err != nil {
		return nil, w.ran(err)
	}
	out.Files = append(slices.Clone(p.Files), made...)
	w.dropOutputDir(p.OutputDir)
	if out.Edit == nil { // a picture that was viewed is there already
		shown, err := w.keepImages(ctx, out.Outputs)
		if err != nil {
			w.note(w.notKept(ctx, err))
		}
		out.Files = append(out.Files, shown...)
	}
	return out, nil
}

// execProgram is exec for a call whose program may have to wait, or to make way for it.
func (w *workspace) execProgram(ctx context.Context, call tool.Call, sc sandbox.Call, col *collector) (*sandbox.Result, error) {
	res, err := w.exec(ctx, sc, col)
	if errors.Is(err, sandbox.ErrWaiting) {
		if err := w.endProgram(ctx); err != nil {
			return nil, err
		}
		res, err = w.exec(ctx, sc, col)
	}
	if err != nil || res.Status != sandbox.StatusWaiting {
		return res, err
	}
	return w.offered(ctx, call, res, col)
}

// outputVar is the variable that names the folder for results.
const outputVar = "OUTPUT_DIR"

// prepare makes a sandbox's call of one of the model's. p has what is known of its program, which may go on or be new. refused is the
// outcome of one that cannot be run.
func (w *workspace) prepare(ctx context.Context, call tool.Call) (sc sandbox.Call, p *program, refused *tool.Outcome, err error) {
	if call.Answers != nil {
		sc, p, err = w.goesOn(ctx, call)
		if err == nil && p == nil {
			refused = goneProgram()
		}
		return sc, p, refused, err
	}
	p = &program{Call: call.ID}
	sc = sandbox.Call{Kind: sandbox.Kind(call.Tool), Code: call.Code}
	switch call.Tool {
	case tool.Python:
		sc.Timeout = w.cellTime
		if call.ID != "" && len(call.Functions) > 0 {
			sc.Program = call.ID
			for _, f := range call.Functions {
				sc.Functions = append(sc.Functions, f.Name)
			}
		}
	case tool.Edit:
		args, wrong := tool.ParseEdit(call.Code)
		if wrong != nil {
			return sc, p, &tool.Outcome{
				Outputs: []turn.Output{{Stream: sandbox.Stderr, Text: wrong.Error()}}, Status: tool.StatusError, ErrorCode: turn.ErrorInvalidInput,
			}, nil
		}
		code, err := json.Marshal(sandbox.EditCall(args))
		if err != nil {
			return sc, p, nil, err
		}
		sc.Code = string(code)
	}
	if w.outputDir {
		if p.OutputDir, err = w.makeOutputDir(ctx); err != nil {
			return sc, p, nil, err
		}
		sc.Env = map[string]string{outputVar: p.OutputDir}
	}
	return sc, p, nil, nil
}

// made makes files of what a call has left. outputDir is its own, "" for none: then only what is at its top is the call's. The error is
// why the container has ended.
func (w *workspace) made(ctx context.Context, outputDir string) ([]turn.File, error) {
	made, notes, err := w.capture(ctx)
	w.note(notes...)
	if err != nil {
		if w.hasEnded() {
			return nil, w.whyEnded()
		}
		w.note(w.notKept(ctx, err))
	}
	if outputDir != "" {
		made = slices.DeleteFunc(made, func(f turn.File) bool { return path.Dir(f.Path) != outputDir })
	}
	return made, nil
}

// notKept says to the model and the client why files of a call are not to be had. A limit that is reached is nobody's fault.
func (e *entry) notKept(ctx context.Context, err error) string {
	const still = "the files of this call could not be recorded; they are still in " + dataMount
	if known := turn.AsError(err); known.Kind == turn.KindRateLimited || known.Kind == turn.KindTooLarge {
		return still + " (" + known.Message + ")"
	}
	e.m.log.ErrorContext(ctx, "capturing files failed", "container", e.key.id, "error", err)
	return still
}

// exec runs a call, on a second sandbox if the first certainly did not start it.
func (w *workspace) exec(ctx context.Context, call sandbox.Call, col *collector) (*sandbox.Result, error) {
	for again := false; ; again = true {
		l, err := w.sandbox(ctx, true)
		if err != nil {
			return nil, err
		}
		if note := w.takeForgot(); note != "" {
			w.note(note)
		}
		var res *sandbox.Result
		if err = w.online(ctx, l); err == nil {
			res, err = w.guarded(ctx, l, call, col)
		}
		notStarted := errors.Is(err, sandbox.ErrNotStarted)
		if !notStarted {
			w.setRan(l)
		}
		if err == nil || errors.Is(err, sandbox.ErrWaiting) || errors.Is(err, sandbox.ErrNoProgram) {
			return res, err
		}
		if ctx.Err() != nil {
			if res != nil && res.Status == sandbox.StatusWaiting {
				w.stray.Store(true)
			}
			if res != nil && res.KernelRestarted {
				w.setForgot() // the next call's client must hear of it
			}
			if errors.Is(context.Cause(ctx), errClosing) && !notStarted {
				return nil, w.ran(errClosing)
			}
			return nil, context.Cause(ctx)
		}
		w.freeSandbox()
		<-l.freed
		ended := w.whyEnded()
		switch {
		case notStarted && ended != nil:
			return nil, ended
		case ended != nil:
			return nil, w.ran(ended)
		case notStarted && !again:
			continue
		case notStarted:
			return nil, &turn.Error{
				Kind: turn.KindOverloaded, RetryAfter: 5 * time.Second, Message: "the sandbox did not start the code; try again", Cause: err,
			}
		}
		if note := w.takeForgot(); note != "" {
			w.note(note)
		}
		if errors.Is(err, sandbox.ErrOutOfMemory) {
			return &sandbox.Result{Status: sandbox.StatusKilled, ExitCode: 137, Error: fmt.Sprintf(
				"the program was killed: it needed more than the %s of memory that it may use", size(w.memory()))}, nil
		}
		return nil, w.ran(&turn.Error{
			Kind: turn.KindInternal, Message: "the sandbox failed while the code ran; the container's files are kept", Cause: err,
		})
	}
}

func (e *entry) memory() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.row.MemoryLimit
}

// ran marks an error as one after which code may have run.
func (w *workspace) ran(err error) error {
	e := *turn.AsError(err)
	e.CodeRan = true
	return &e
}

func (w *workspace) Find(ctx context.Context, p string) (turn.File, bool) {
	rel, ok := inData(p)
	if !ok {
		return turn.File{}, false
	}
	s := &w.files
	s.mu.Lock()
	k, here := s.known[rel]
	looked := s.known != nil
	s.mu.Unlock()
	if here && k.id != "" {
		return w.turnFile(k.id, rel, k.size), true
	}
	f, err := w.m.Store.Files().Latest(ctx, w.key.project, w.key.id, dataMount+"/"+rel)
	if err != nil || (looked && !f.Shown) { // gone from the volume
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			w.m.log.ErrorContext(ctx, "looking up a file failed", "container", w.key.id, "error", err)
		}
		return turn.File{}, false
	}
	return turn.File{ID: f.ID, Container: w.key.id, Path: f.Path, Name: f.Name, Bytes: f.Bytes, Shown: f.Shown}, true
}
