package agent

import (
	"context"
	"errors"
	"time"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// loop is the state of one turn. It belongs to the goroutine that ranges over the stream.
type loop struct {
	cfg   *Config
	req   *turn.Request
	yield func(turn.Event, error) bool
	start time.Time

	set      *tool.Set
	declared map[string]bool // the client's functions, and whether the model itself may call them
	choice   turn.ToolChoice // relaxed once obeyed; never has Allowed
	images   bool            // the model takes images in results
	base     []turn.Item     // the request's conversation as the model gets it
	added    []turn.Item     // what this turn added to it
	started  bool            // the client has seen Started

	asked   *turn.Hosted   // what runs here, with what skills add
	skills  []tool.Skill   // released at the end
	ws      tool.Workspace // nil until the first hosted call
	codeRan bool
	files   map[string]turn.File // made or changed in this turn, by path
	known   map[string]turn.File // made or changed by replayed calls
	shown   []turn.File          // displayed, and not yet cited by a message

	usage       turn.Usage
	upstream    turn.Finished // of the newest round
	rounds      int
	calls       int // hosted calls that the client has seen
	sandboxTime time.Duration
	repeats     repeats
	spentReason spent
	oneMore     bool                       // a last round without an answer has been had
	resumed     map[string]turn.HostedCall // what came of calls that were pending
	ended       turn.Reason                // why the turn ended, "" while it has not
}

// run answers the turn. Its error is not yet fit for the client.
func (l *loop) run(ctx context.Context) error {
	uploads, err := l.prepare(ctx)
	if err != nil {
		return err
	}
	if again, err := l.takeUp(ctx, uploads); err != nil {
		return err
	} else if again {
		return l.finish(turn.ReasonCalls)
	}
	for {
		r := &round{loop: l, last: l.spentReason != ""}
		if err := r.run(ctx); err != nil {
			return err
		}
		reason, over := r.ends()
		switch {
		case over && r.mute():
			if err := l.excuse(); err != nil {
				return err
			}
			return l.finish(reason)
		case over:
			return l.finish(reason)
		case l.pauses():
			return l.finish(turn.ReasonPause)
		}
		l.oneMore = l.oneMore || r.last
	}
}

// takeUp goes on with what an earlier turn left pending, and puts the conversation together as the model gets it. It says whether the turn
// is over with that.
func (l *loop) takeUp(ctx context.Context, uploads []turn.File) (over bool, err error) {
	pending, err := l.findPending(ctx)
	if err != nil {
		return false, err
	}
	if over, err = l.goOn(ctx, pending); err != nil || over {
		return over, err
	}
	l.base = l.history(uploads)
	l.spentReason = l.spend()
	return false, nil
}

// pauses says that the turn ends now, for the client to send it again.
func (l *loop) pauses() bool {
	return l.req.Hosted != nil && l.req.Hosted.Pause && l.spentReason == spentRounds
}

// excuse is the answer of a turn whose model has given none: it went on calling tools in the last round, and once more after it was told.
func (l *loop) excuse() error {
	text := "[There is no answer: " + l.spentReason.why() + ", and the model went on calling tools.]"
	m := turn.Message{Role: turn.Assistant, Parts: []turn.Part{turn.Text{Text: text}}}
	l.added = append(l.added, m)
	for _, ev := range []turn.Event{turn.MessageStarted{}, turn.TextDelta{Text: text}, turn.MessageDone{Message: m}} {
		if err := l.emit(ev); err != nil {
			return err
		}
	}
	return nil
}

// prepare checks everything that can be refused before a model is asked. It returns the files that the client gave.
func (l *loop) prepare(ctx context.Context) (uploads []turn.File, err error) {
	if err := l.prepareSkills(ctx); err != nil {
		return nil, err
	}
	h := l.asked
	if l.set, err = tool.NewSet(h, l.req.Tools); err != nil {
		return nil, err
	}
	l.declared = make(map[string]bool, len(l.req.Tools))
	for _, t := range l.req.Tools {
		l.declared[t.Name] = !t.NotDirect
	}
	if err := l.prepareChoice(); err != nil {
		return nil, err
	}
	if l.set.Len() > 0 {
		if l.cfg.Workspaces == nil {
			return nil, errNoSandbox
		}
		if uploads, err = l.cfg.Workspaces.Check(ctx, h); err != nil {
			return nil, err
		}
		l.set = l.set.Reaching(l.cfg.Workspaces.Reach(ctx, h))
	}
	l.files, l.known = map[string]turn.File{}, map[string]turn.File{}
	l.images = l.cfg.Images(l.req.Model)
	return uploads, nil
}

func (l *loop) finish(reason turn.Reason) error {
	l.ended = reason
	f := turn.Finished{
		Reason: reason, StopSequence: l.upstream.StopSequence, Raw: l.upstream.Raw, Usage: l.usage, Items: l.added,
		Rounds: l.rounds, HostedCalls: l.calls,
	}
	if l.ws != nil {
		c := l.ws.Container()
		c.Skills = skillRefs(l.skills)
		f.Container = &c
	}
	return l.emit(f)
}

// emit hands ev to the client. Every error of it is errStopped.
func (l *loop) emit(ev turn.Event) error {
	if !l.yield(ev, nil) {
		return errStopped
	}
	return nil
}

func (l *loop) close(ctx context.Context) {
	for _, s := range l.skills {
		defer s.Release()
	}
	if l.ws == nil {
		return
	}
	if err := l.ws.Close(); err != nil && !errors.Is(err, context.Canceled) {
		l.cfg.Logger.WarnContext(ctx, "closing a workspace", "container", l.ws.Container().ID, "error", err.Error())
	}
}

// request is the client's request with what has happened since: everything else of it stays.
func (l *loop) request(last bool) *turn.Request {
	up := l.req.Clone()
	up.Hosted = nil
	up.Items = append(append(make([]turn.Item, 0, len(l.base)+len(l.added)), l.base...), l.added...)
	up.Tools = nil
	for _, t := range l.req.Tools {
		if l.allowed(t.Name) && !t.NotDirect {
			up.Tools = append(up.Tools, t)
		}
	}
	if !last {
		up.Tools = append(up.Tools, l.set.Tools(func(name string) bool { return name == tool.ReadSkillName || l.allowed(name) })...)
	}
	up.ToolChoice = l.upstreamChoice(last)
	if len(up.Tools) == 0 && l.set.Len() > 0 {
		// Vendors refuse both without tools.
		up.ToolChoice, up.ParallelToolCalls = turn.ToolChoice{}, nil
	}
	return up
}
