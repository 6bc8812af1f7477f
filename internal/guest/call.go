package guest

import (
	"fmt"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// maxError caps CallResult.Error.
const maxError = 4 << 10

// call is one call of the host while it runs.
type call struct {
	id      uint32
	session sessionKey
	w       *proto.Writer
	limits  proto.Limits
	timeout time.Duration
	begun   time.Time // when supervise began
	// program is the name by which it can wait, "" for one that cannot; last says that it is to end and may not wait again.
	program string
	last    bool
	held    []piece // what was printed while it waited

	// left and dropped count output; they are guarded by the tap that the call is attached to.
	left, dropped int64

	interrupts, kills chan struct{}
	terminal          *terminal // nil for what is none
}

func newCall(w *proto.Writer, id uint32) *call {
	return &call{id: id, w: w, interrupts: make(chan struct{}, 1), kills: make(chan struct{}, 1)}
}

func (c *call) interrupt() {
	select {
	case c.interrupts <- struct{}{}:
	default:
	}
}

func (c *call) kill() {
	select {
	case c.kills <- struct{}{}:
	default:
	}
}

func (c *call) started() { _ = c.w.Write(proto.Frame{Type: proto.Started, Call: c.id}) }

func (c *call) refuse(why string) {
	_ = c.w.Write(proto.Frame{Type: proto.Refused, Call: c.id, Payload: []byte(why)})
}

func (c *call) finish(r proto.CallResult) {
	r.Truncated = c.dropped
	if len(r.Error) > maxError {
		r.Error = r.Error[:maxError]
	}
	if f, err := proto.EncodeJSON(proto.Result, c.id, r); err == nil {
		_ = c.w.Write(f)
	}
}

// write sends output up to the call's limit and counts what is beyond.
func (c *call) write(stream proto.Stream, data []byte) {
	n := min(int64(len(data)), c.left)
	c.left -= n
	c.dropped += int64(len(data)) - n
	for data = data[:n]; len(data) > 0; {
		chunk := data[:min(len(data), proto.MaxChunk)]
		data = data[len(chunk):]
		_ = c.w.Queue(proto.Frame{Type: proto.Output, Call: c.id, Payload: chunk}, byte(stream))
	}
}

// display sends a Display payload, whole or not at all.
func (c *call) display(payload []byte) {
	n := int64(len(payload))
	if n > c.left {
		c.dropped += n
		return
	}
	c.left -= n
	_ = c.w.Write(proto.Frame{Type: proto.Display, Call: c.id, Payload: payload})
}

// program is what supervise needs of what runs.
type program struct {
	// ended is closed, or sent to, when the call is over, whether it ended or died.
	ended <-chan struct{}
	// interrupt asks it to stop; kill makes it.
	interrupt, kill func()
}

// supervise returns when the program has ended, or shortly after it was killed. Cause is proto.Timeout or proto.Interrupted if that is
// why, "" if the program ended by itself. Killed says that an interrupt was not enough.
func (c *call) supervise(p program) (cause string, killed bool) {
	c.begun = time.Now()
	var timer <-chan time.Time
	if c.timeout > 0 {
		t := time.NewTimer(c.timeout)
		defer t.Stop()
		timer = t.C
	}
	grace := cancelGrace
	select {
	case <-p.ended:
		return "", false
	case <-timer:
		cause, grace = proto.Timeout, timeoutGrace
	case <-c.interrupts:
		cause = proto.Interrupted
	case <-c.kills:
		p.kill()
		return proto.Interrupted, true
	}
	p.interrupt()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.ended:
		return cause, false
	case <-t.C:
	case <-c.kills:
	}
	p.kill()
	return cause, true
}

// because is the error text of a call that was stopped.
func (c *call) because(cause string) string {
	if cause == proto.Timeout {
		return fmt.Sprintf("timed out after %v", c.timeout)
	}
	return "interrupted"
}
