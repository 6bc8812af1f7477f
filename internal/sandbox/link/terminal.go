package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

var termForm = regexp.MustCompile(`^[A-Za-z0-9._+-]{1,64}$`)

// terminal is sandbox.Terminal over a link.
type terminal struct {
	l    *Link
	p    *pending
	rest []byte // taken from p, not read yet
	hang sync.Once
}

// OpenTerminal has the contract of sandbox.Sandbox.OpenTerminal.
func (l *Link) OpenTerminal(ctx context.Context, spec sandbox.TerminalSpec) (sandbox.Terminal, error) {
	call := proto.TerminalCall{Rows: spec.Rows, Cols: spec.Cols, Limits: guestLimits(l.limits)}
	if termForm.MatchString(spec.Term) {
		call.Env = map[string]string{"TERM": spec.Term}
	}
	p, err := l.send(ctx, request{frame: proto.Terminal, payload: call, output: proto.TerminalWindow}, func() {})
	if err != nil {
		return nil, l.notStarted(err)
	}
	t := &terminal{l: l, p: p}
	overdue := time.NewTimer(startTime)
	defer overdue.Stop()
	for {
		select {
		case <-p.started:
			return t, nil
		case <-p.news:
			if p.isOver() {
				_, err := p.outcome()
				return nil, err
			}
		case <-ctx.Done():
			return nil, errors.Join(l.notStarted(ctx.Err()), t.Close())
		case <-overdue.C:
			return nil, errors.Join(l.notStarted(errors.New("the guest does not open a terminal")), t.Close())
		case <-l.done:
			return nil, l.notStarted(l.reason())
		}
	}
}

// Read has the contract of sandbox.Terminal.
func (t *terminal) Read(b []byte) (int, error) {
	for len(t.rest) == 0 {
		data, over := t.p.taken()
		if len(data) > 0 {
			t.rest = data
			// The room is given back as it is taken, not read: what waits here is bounded by it.
			if err := t.send(proto.Taken, binary.BigEndian.AppendUint32(nil, uint32(len(data)))); err != nil && !over {
				return 0, err
			}
			break
		}
		if over {
			return 0, io.EOF
		}
		select {
		case <-t.p.news:
		case <-t.l.done:
			if data, over := t.p.taken(); len(data) > 0 || over {
				t.rest = data
				if over && len(data) == 0 {
					return 0, io.EOF
				}
				break
			}
			return 0, fmt.Errorf("%w: %w", sandbox.ErrDied, t.l.reason())
		}
	}
	n := copy(b, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// Write has the contract of sandbox.Terminal.
func (t *terminal) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		chunk := b[written:min(len(b), written+proto.MaxData)]
		if err := t.send(proto.Input, append([]byte(nil), chunk...)); err != nil {
			return written, err
		}
		written += len(chunk)
	}
	return written, nil
}

// Resize has the contract of sandbox.Terminal.
func (t *terminal) Resize(rows, cols uint16) error {
	return t.send(proto.Resize, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, rows), cols))
}

func (t *terminal) send(kind proto.Type, payload []byte) error {
	if t.p.isOver() {
		return io.ErrClosedPipe
	}
	select {
	case t.l.out <- proto.Frame{Type: kind, Call: t.p.id, Payload: payload}:
		return nil
	case <-t.l.done:
		return fmt.Errorf("%w: %w", sandbox.ErrDied, t.l.reason())
	}
}

// Close has the contract of sandbox.Terminal.
func (t *terminal) Close() error {
	t.hang.Do(func() {
		t.l.tell(proto.Kill, t.p.id)
		t.l.abandon(t.p)
	})
	return nil
}

// Result has the contract of sandbox.Terminal.
func (t *terminal) Result(ctx context.Context) (*sandbox.Result, error) {
	for !t.p.isOver() {
		select {
		case <-t.p.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.l.done:
			if !t.p.isOver() {
				return nil, fmt.Errorf("%w: %w", sandbox.ErrDied, t.l.reason())
			}
		}
	}
	return t.p.outcome()
}

// taken empties the queue of a terminal, and says whether nothing more comes. The guest may send as much again.
func (p *pending) taken() (data []byte, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pc := range p.queue {
		data = append(data, pc.data...)
	}
	p.queue = nil
	p.left += int64(len(data))
	return data, p.over
}

func (p *pending) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}
