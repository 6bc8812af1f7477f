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
	declared map[string]bool // the client's functions
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
	ended       turn.Reason // why the turn ended, "" while it has not
}

// run answers the turn. Its error is not yet fit for the client.
func (l *loop) run(ctx context.Context) error {
	if err := l.prepare(ctx); err != nil {
		return err
	}
	for {
		r := &round{loop: l, last: l.spentReason != ""}
		if err := r.run(ctx); err != nil {
			return err
		}
		if reason, over := r.ends(); over {
			return l.finish(reason)
		}
	}
}

// prepare checks everything that can be refused before a model is asked.
func (l *loop) prepare(ctx context.Context) error {
	if err := l.prepareSkills(ctx); err != nil {
		return err
	}
	h := l.asked
	var err error
	if l.set, err = tool.NewSet(h, l.req.Tools); err != nil {
		return err
	}
	l.declared = make(map[string]bool, len(l.req.Tools))
	for _, t := range l.req.Tools {
		l.declared[t.Name] = true
	}
	if err := l.prepareChoice(); err != nil {
		return err
	}
	var uploads []turn.File
	if l.set.Len() > 0 {
		if l.cfg.Workspaces == nil {
			return errNoSandbox
		}
		if uploads, err = l.cfg.Workspaces.Check(ctx, h); err != nil {
			return err
		}
		l.set = l.set.Reaching(l.cfg.Workspaces.Reach(ctx, h))
	}
	l.files, l.known = map[string]turn.File{}, map[string]turn.File{}
	l.images = l.cfg.Images(l.req.Model)
	l.base = l.history(uploads)
	l.spentReason = l.spend()
	return nil
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
		if l.allowed(t.Name) {
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
