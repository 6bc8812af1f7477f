package link

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// kinds are what a call may be, and the guest's words for it.
var kinds = map[sandbox.Kind]string{sandbox.Python: proto.Python, sandbox.Bash: proto.Bash, sandbox.Node: proto.Node, sandbox.Edit: proto.Edit}

// Exec has the contract of sandbox.Sandbox.Exec. Calls of one session run in the order in which they came, others side by side.
func (l *Link) Exec(ctx context.Context, call sandbox.Call, sink func(sandbox.Output)) (*sandbox.Result, error) {
	call = WithEnv(call, l.networkEnv())
	timeout := l.limits.ExecTime
	if call.Timeout > 0 && (timeout == 0 || call.Timeout < timeout) {
		timeout = call.Timeout
	}
	if kinds[call.Kind] == "" {
		return nil, fmt.Errorf("%w: unknown kind of call %q", sandbox.ErrNotStarted, call.Kind)
	}
	if !sessionForm.MatchString(call.Session) {
		return nil, fmt.Errorf("%w: the name of a session is letters, digits, _ and -, at most %d", sandbox.ErrNotStarted, proto.MaxSession)
	}
	payload := proto.StartCall{
		Kind: kinds[call.Kind], Session: call.Session, Code: call.Code, Dir: call.Dir, Env: call.Env,
		TimeoutMS: timeout.Milliseconds(), Limits: guestLimits(l.limits), Functions: call.Functions, Program: call.Program,
	}
	if call.Resume != nil {
		return l.resume(ctx, call, timeout, sink)
	}
	req := request{session: session{call.Kind, call.Session}, frame: proto.Start, payload: payload, timeout: timeout}
	if call.Kind == sandbox.Edit {
		return l.edit(ctx, req)
	}
	return l.run(ctx, req, sink)
}

// WithEnv returns call with env added to its environment: what Spec.Env promises. A name that the call sets itself keeps its value.
func WithEnv(call sandbox.Call, env map[string]string) sandbox.Call {
	if len(env) == 0 {
		return call
	}
	merged := maps.Clone(env)
	maps.Copy(merged, call.Env)
	call.Env = merged
	return call
}

// Warm starts the Python kernel, if it does not run yet, and imports modules, so that a checkpoint has them. A module that cannot be
// imported is named in the result's Error, with StatusOK.
func (l *Link) Warm(ctx context.Context, modules ...string) (*sandbox.Result, error) {
	payload := proto.WarmCall{Modules: modules, Limits: guestLimits(l.limits)}
	return l.run(ctx, request{session: session{kind: sandbox.Python}, frame: proto.Warm, payload: payload}, nil)
}

// Renewal says what Renew shall do; see proto.RenewCall.
type Renewal struct {
	Fresh   bool
	TmpSize int64
}

// Renew must be called after a restore: restored copies of one checkpoint share the state of their random generators and names of
// temporary files. Fresh says that no program of the container has run, so that even seeds that a program might have set are replaced.
func (l *Link) Renew(ctx context.Context, how Renewal) error {
	payload := proto.RenewCall{Fresh: how.Fresh, TmpSize: how.TmpSize, Limits: guestLimits(l.limits)}
	r, err := l.run(ctx, request{session: session{kind: sandbox.Python}, frame: proto.Renew, payload: payload}, nil)
	if err == nil && r.Status != sandbox.StatusOK {
		err = fmt.Errorf("renew: %s", r.Error)
	}
	return err
}

// request is a call in the guest's terms.
type request struct {
	session session
	frame   proto.Type
	payload any
	timeout time.Duration // 0 for none
	output  int64         // bytes, instead of the limits'; 0 is those
}

func (l *Link) run(ctx context.Context, req request, sink func(sandbox.Output)) (*sandbox.Result, error) {
	select {
	case <-l.done:
		return nil, l.notStarted(l.reason())
	default:
	}
	free, err := l.slots.take(ctx, l.done, req.session)
	if errors.Is(err, errEnded) {
		err = l.reason()
	}
	if err != nil {
		return nil, l.notStarted(err)
	}
	p, err := l.send(ctx, req, free)
	if err != nil {
		free()
		return nil, l.notStarted(err)
	}
	return l.follow(ctx, p, req, sink)
}

// send registers a call and hands its frame to the writer.
func (l *Link) send(ctx context.Context, req request, free func()) (*pending, error) {
	l.mu.Lock()
	l.last++
	if l.last == 0 {
		l.last = 1
	}
	output := l.limits.Output
	if req.output > 0 {
		output = req.output
	}
	p := newPending(l.last, output, free)
	l.calls[p.id] = p
	l.mu.Unlock()
	f, err := proto.EncodeJSON(req.frame, p.id, req.payload)
	if err == nil && len(f.Payload) > proto.MaxPayload {
		err = fmt.Errorf("the code has more than %d bytes", proto.MaxPayload)
	}
	if err == nil {
		select {
		case l.out <- f:
			return p, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-l.done:
			err = l.reason()
		}
	}
	l.mu.Lock()
	delete(l.calls, p.id)
	l.mu.Unlock()
	return nil, err
}

// follow passes output on until the call is over, and stops it when ctx ends.
func (l *Link) follow(ctx context.Context, p *pending, req request, sink func(sandbox.Output)) (*sandbox.Result, error) {
	cancelled, left := ctx.Done(), false
	overdue := time.NewTimer(startTime)
	defer overdue.Stop()
	var kill, leave <-chan time.Time
	started := p.started
	for {
		over := p.deliver(sink)
		switch {
		case over && left:
			r, _ := p.outcome()
			return r, ctx.Err()
		case over:
			return p.outcome()
		}
		select {
		case <-p.news:
		case <-started:
			started = nil
			switch {
			case left:
			case req.timeout > 0:
				overdue.Reset(req.timeout + slack)
			default:
				overdue.Stop()
			}
		case <-cancelled:
			cancelled, left = nil, true
			l.tell(proto.Interrupt, p.id)
			kill, leave = time.After(killAfter), time.After(cancelTime)
		case <-kill:
			l.tell(proto.Kill, p.id)
		case <-leave:
			l.abandon(p)
			// It was told to kill; whether it has is not known yet.
			return &sandbox.Result{Status: sandbox.StatusInterrupted, KernelRestarted: req.session.keeps()}, ctx.Err()
		case <-overdue.C:
			l.end(errors.New("the guest does not end the call"))
		case <-l.done:
			if p.deliver(sink) {
				return p.outcome()
			}
			return nil, l.lost(ctx, p, left)
		}
	}
}

// lost is the error of a call whose link has ended before it.
func (l *Link) lost(ctx context.Context, p *pending, left bool) error {
	select {
	case <-p.started:
		if left {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", sandbox.ErrDied, l.reason())
	default:
		return l.notStarted(l.reason())
	}
}

// abandon leaves a call that the guest has not ended in time. Its slot stays taken until it has; if it never does, the link ends.
func (l *Link) abandon(p *pending) {
	p.abandon()
	time.AfterFunc(slack, func() {
		l.mu.Lock()
		stuck := l.calls[p.id] == p
		l.mu.Unlock()
		if stuck {
			l.end(errors.New("the guest does not end an interrupted call"))
		}
	})
}

// tell sends a frame without payload, unless the guest has long stopped reading.
func (l *Link) tell(t proto.Type, call uint32) {
	select {
	case l.out <- proto.Frame{Type: t, Call: call}:
	default:
	}
}

func (l *Link) notStarted(err error) error {
	return fmt.Errorf("%w: %w", sandbox.ErrNotStarted, err)
}

// status maps the guest's word to ours; a word that it may not use is an error of the protocol.
func status(s string) (sandbox.Status, bool) {
	switch s {
	case proto.OK:
		return sandbox.StatusOK, true
	case proto.Failed:
		return sandbox.StatusError, true
	case proto.Timeout:
		return sandbox.StatusTimeout, true
	case proto.Interrupted:
		return sandbox.StatusInterrupted, true
	case proto.Killed:
		return sandbox.StatusKilled, true
	}
	return "", false
}

// clean makes text from the guest safe to store and encode.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
