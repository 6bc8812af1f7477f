package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// endTime is how long a program that waits has to end when it is interrupted.
const endTime = 2 * time.Second

// resume lets a program go on that waits for the calls of its functions. timeout is the most that it can have left.
func (l *Link) resume(ctx context.Context, call sandbox.Call, timeout time.Duration, sink func(sandbox.Output)) (*sandbox.Result, error) {
	r := proto.ResumeCall{Program: call.Program, TimedOut: call.Resume.TimedOut, Interrupt: call.Resume.Interrupt, Limits: guestLimits(l.limits)}
	if r.Interrupt {
		timeout = endTime
		r.TimeoutMS = endTime.Milliseconds()
	}
	for _, res := range call.Resume.Results {
		r.Results = append(r.Results, proto.FunctionResult{ID: res.ID, Text: clean(res.Text), Error: res.Error})
	}
	return l.run(ctx, request{session: session{kind: sandbox.Python}, frame: proto.Resume, payload: r, timeout: timeout}, sink)
}

// refusal is the error of a Refused frame.
func refusal(why string) error {
	switch why {
	case proto.RefusedWaiting:
		return fmt.Errorf("%w: %w", sandbox.ErrNotStarted, sandbox.ErrWaiting)
	case proto.RefusedGone:
		return fmt.Errorf("%w: %w", sandbox.ErrNotStarted, sandbox.ErrNoProgram)
	}
	return fmt.Errorf("%w: %s", sandbox.ErrNotStarted, clean(clip(why, 4<<10)))
}

// maxName caps the name of a function.
const maxName = 256

// decodeCalls reads a Calls frame. The guest has checked what the kernel wrote; it is not trusted to have done so.
func decodeCalls(f proto.Frame) ([]sandbox.FunctionCall, error) {
	var info proto.CallsInfo
	if err := proto.DecodeJSON(f, &info); err != nil {
		return nil, err
	}
	if n := len(info.Calls); n == 0 || n > proto.MaxCalls {
		return nil, errors.New("a program's calls are none or too many")
	}
	seen, size := map[uint32]bool{}, 0
	var calls []sandbox.FunctionCall
	for _, c := range info.Calls {
		size += len(c.Arguments)
		if seen[c.ID] || c.Name == "" || len(c.Name) > maxName || size > 2*proto.MaxArguments || !strings.HasPrefix(c.Arguments, "{") ||
			!json.Valid([]byte(c.Arguments)) {
			return nil, errors.New("a program's calls that cannot be")
		}
		seen[c.ID] = true
		calls = append(calls, sandbox.FunctionCall{ID: c.ID, Name: c.Name, Arguments: clean(c.Arguments)})
	}
	return calls, nil
}

// wait ends a call whose program waits; p.mu is held.
func (p *pending) wait(f proto.Frame) error {
	calls, err := decodeCalls(f)
	if err != nil {
		return err
	}
	p.over = true
	p.result = &sandbox.Result{Status: sandbox.StatusWaiting, Calls: calls, Truncated: p.dropped, Duration: time.Since(p.begin)}
	return nil
}
