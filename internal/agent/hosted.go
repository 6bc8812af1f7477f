package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// openCall is a call while the model writes it and, for a hosted one, while it runs.
type openCall struct {
	callID string // minted here; the upstream's ids are often the same in every conversation
	name   string // as the model knows it
	// refusal is what a call that is not run is answered with.
	refusal string
	// silent is a call that is answered here and that the client never sees.
	silent bool

	// The rest is for hosted calls only.
	id, tool, container string
	args                *tool.Args
	sent                int // bytes of the code that the client has
	code                string
	badArgs             error
	running             bool
	at                  int // of its item among the round's
}

func (c *openCall) item(s turn.Status) turn.HostedCall {
	return turn.HostedCall{ID: c.id, Tool: c.tool, Container: c.container, Code: c.code, Status: s, Outputs: []turn.Output{}}
}

// newCallID mints the id by which clients, the history and the store know a call.
func (l *loop) newCallID() string {
	if l.set.Len() > 0 {
		return turn.NewHiddenCallID()
	}
	return turn.NewID("call_")
}

func (r *round) callStarted(ctx context.Context, ev turn.CallStarted) error {
	name := ev.Name
	c := &openCall{callID: r.newCallID(), name: name}
	r.call = c
	if c.refusal = r.refusal(name, r.last); c.refusal != "" {
		return nil
	}
	hosted, ok := r.set.Hosted(name)
	if c.silent = hosted == tool.ReadSkillName; c.silent {
		return nil
	}
	r.obey(name)
	if !ok {
		return r.emit(turn.CallStarted{CallID: c.callID, Name: name, Raw: ev.Raw})
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	r.calls++
	c.id, c.tool, c.container, c.args = turn.NewID("ci_"), hosted, r.ws.Container().ID, tool.NewArgs(hosted)
	r.hosted = c
	return r.emit(turn.HostedStarted{ID: c.id, Tool: c.tool, Container: c.container})
}

func (r *round) callDelta(delta string) error {
	switch c := r.call; {
	case c.refusal != "" || c.silent:
		return nil
	case c.args == nil:
		return r.emit(turn.CallDelta{Delta: delta})
	default:
		return r.codeDelta(c, c.args.Push(delta))
	}
}

func (r *round) codeDelta(c *openCall, code string) error {
	if code == "" {
		return nil
	}
	c.sent += len(code)
	return r.emit(turn.HostedCodeDelta{Delta: code})
}

func (r *round) callDone(ctx context.Context, call turn.Call) error {
	c := r.call
	r.call = nil
	call.CallID = c.callID
	switch {
	case c.refusal != "":
		call.Name, call.Arguments = safeName(call.Name), asObject(call.Arguments)
		r.items = append(r.items, call)
		r.repeats.add(call.Name, call.Arguments, c.refusal)
		r.answer(c, c.refusal, nil, true)
		return nil
	case c.silent:
		r.readSkill(c, call)
		return nil
	case c.args == nil:
		r.clients++
		r.items = append(r.items, call)
		return r.emit(turn.CallDone{Call: call})
	}
	c.code, c.badArgs = c.args.Finish()
	if err := r.codeDelta(c, c.code[c.sent:]); err != nil {
		return err
	}
	// Servers parse the arguments of calls in the history, so it holds the form that was declared.
	if c.badArgs != nil {
		call.Arguments = asObject(call.Arguments)
	} else {
		call.Arguments = tool.Arguments(c.tool, c.code)
		if err := r.emit(turn.HostedCodeDone{Code: c.code}); err != nil {
			return err
		}
	}
	c.at = len(r.items)
	r.items = append(r.items, call)
	if r.holding {
		return r.runHosted(ctx, c)
	}
	r.holding, r.waiting = true, c
	return nil
}

// answer puts a result into the history.
func (r *round) answer(c *openCall, text string, images []turn.Part, failed bool) {
	r.answered++
	parts := append([]turn.Part{turn.Text{Text: text}}, images...)
	r.results = append(r.results, turn.Result{CallID: c.callID, Parts: parts, Error: failed})
}

// runHosted runs a call that the model has written and closes its block.
func (r *round) runHosted(ctx context.Context, c *openCall) error {
	switch {
	case r.waits:
		return r.notRun(c, turn.StatusIncomplete, turn.ErrorUnavailable,
			"Not run: a program of this turn waits for the results of its tool calls. Call again after that.")
	case r.cut():
		return r.notRun(c, turn.StatusIncomplete, turn.ErrorUnavailable, "Not run: your answer was cut off before it was complete.")
	case c.badArgs != nil:
		return r.notRun(c, turn.StatusFailed, turn.ErrorInvalidInput, "Error: "+c.badArgs.Error())
	case r.spend() == spentTime:
		return r.notRun(c, turn.StatusIncomplete, turn.ErrorTime, "Not run: "+spentTime.sentence())
	}
	done, o, err := r.perform(ctx, c, tool.Call{Tool: c.tool, Code: c.code, ID: c.id, Functions: r.functions(c.tool)})
	if err != nil {
		return err
	}
	if o.Status == tool.StatusWaiting {
		return r.paused(done, c.at, o.Wanted)
	}
	var images []turn.Part
	if r.images {
		images = tool.ImageParts(o.Outputs)
	}
	r.repeats.add(c.tool, c.code, tool.Words(o, nil)+imageDigest(o.Outputs))
	r.answer(c, done.ForModel, images, done.Failed)
	r.hosted = nil
	return r.emit(turn.HostedDone{Call: done})
}

// perform runs a call, or goes on with one. The caller closes its block.
func (l *loop) perform(ctx context.Context, c *openCall, call tool.Call) (turn.HostedCall, *tool.Outcome, error) {
	c.running = true
	done := c.item(turn.StatusCompleted)
	if err := l.emit(turn.HostedRunning{}); err != nil {
		return done, nil, err
	}
	notes := l.ws.Notes()
	o, err := l.exec(ctx, call)
	// Only the workspace's own error can say for certain that the code never started.
	if e, ok := errors.AsType[*turn.Error](err); !ok || ctx.Err() != nil || e.CodeRan {
		l.codeRan = true
	}
	if err != nil {
		return done, nil, err
	}
	notes = append(notes, l.ws.Notes()...)
	l.sandboxTime += o.Duration
	if o.Status == tool.StatusWaiting {
		return c.pending(), o, nil
	}
	l.keepFiles(o.Files)
	if o.Status == tool.StatusInterrupted {
		done.Status = turn.StatusIncomplete
		if o.Error == errTime.Error() {
			done.ErrorCode = turn.ErrorTime
		}
	}
	for _, n := range notes {
		done.Outputs = append(done.Outputs, turn.Output{Text: "[" + n + "]\n"})
	}
	done.Outputs = append(done.Outputs, o.Outputs...)
	done.Files, done.Edit = o.Files, o.Edit
	if o.ErrorCode != "" {
		done.ErrorCode = o.ErrorCode
	}
	done.ForModel = tool.Words(o, notes)
	done.Failed, done.ExitCode, done.Failure = o.Failed(), o.Exit(), o.Stopped()
	return done, o, nil
}

// open opens the container of the turn.
func (l *loop) open(ctx context.Context) error {
	if l.ws != nil {
		return nil
	}
	ws, err := l.cfg.Workspaces.Open(ctx, l.asked)
	if err != nil {
		return err
	}
	ws.Mount(l.skills)
	l.ws = ws
	return nil
}

// notRun closes the block of a call whose code was never started.
func (r *round) notRun(c *openCall, s turn.Status, code, why string) error {
	done := c.item(s)
	done.ErrorCode = code
	done.Outputs = append(done.Outputs, turn.Output{Text: why + "\n"})
	done.ForModel, done.Failed = why, true
	r.repeats.add(c.tool, c.code, why)
	r.answer(c, why, nil, true)
	r.hosted = nil
	return r.emit(turn.HostedDone{Call: done})
}

func (l *loop) keepFiles(files []turn.File) {
	for _, f := range files {
		if f.Shown {
			l.shown = append(l.shown, f)
		} else {
			l.files[f.Path] = f
		}
	}
}

// asObject returns arguments that a server can parse: themselves, if they are a JSON object, else the text as a member of one.
func asObject(arguments string) string {
	var obj map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &obj) == nil && obj != nil {
		return arguments
	}
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	out, err := json.Marshal(map[string]string{"arguments": strings.ToValidUTF8(arguments, "\uFFFD")})
	if err != nil {
		return "{}"
	}
	return string(out)
}

// safeName makes a name that the model invented fit for servers, which take only these characters and 64 of them.
func safeName(name string) string {
	name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, name)
	if name == "" {
		name = "unnamed"
	}
	return name[:min(len(name), 64)]
}

// errTime ends code that is still running when the turn's time is up.
var errTime = errors.New("the time for this answer is up")
