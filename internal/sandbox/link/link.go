// Package link is the host's end of the wire to a guest: it turns sandbox.Call into frames of package proto and frames into output and
// results. Every backend of package sandbox stands on it; it knows no backend.
//
// The guest is hostile to it. A frame that is not the protocol, or not for a call that runs, ends the link; output is counted and
// capped here again; no buffer grows beyond what a call's limit allows; and a guest that falls silent is given up.
package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// How long the guest may take beyond what a call allows. The guest itself kills 600 ms after an interrupt.
const (
	cancelTime = 900 * time.Millisecond // from the end of ctx until Exec returns
	killAfter  = 800 * time.Millisecond // from the end of ctx until the host asks for SIGKILL
	slack      = 10 * time.Second       // beyond a call's time, and for an abandoned call to end
	startTime  = 90 * time.Second       // until a call is acknowledged, the start of an interpreter included
)

// maxMessage caps the payloads that are JSON or a text of ours.
const maxMessage = 64 << 10

// Link is a connection to one guest. It is safe for concurrent use.
type Link struct {
	rw     io.ReadWriteCloser
	limits sandbox.Limits
	log    *slog.Logger
	out    chan proto.Frame
	data   chan proto.Frame // of streams; out goes before it
	sent   chan struct{}    // a frame of data has been written
	slots  slots
	hello  chan struct{} // closed by the first hello
	done   chan struct{} // closed when the link has ended
	wg     sync.WaitGroup

	mu      sync.Mutex
	info    proto.HelloInfo
	calls   map[uint32]*pending
	closing bool // Close has begun
	last    uint32
	err     error    // why the link ended
	network *network // nil without one

	changing chan struct{} // held by who connects or disconnects
}

// New greets the guest on rw and owns rw from now on. It returns at once; Ready says when the guest has answered. Calls are limited by
// limits. A guest that was restored from a checkpoint gets a new Link.
func New(rw io.ReadWriteCloser, limits sandbox.Limits, log *slog.Logger) *Link {
	l := &Link{
		rw: rw, limits: limits, log: log,
		out: make(chan proto.Frame, 16), data: make(chan proto.Frame), sent: make(chan struct{}),
		changing: make(chan struct{}, 1),
		hello:    make(chan struct{}), done: make(chan struct{}),
		calls: map[uint32]*pending{},
	}
	l.out <- proto.Frame{Type: proto.Ping}
	l.wg.Go(l.write)
	l.wg.Go(l.read)
	return l
}

// Ready returns when the guest has answered. Its error wraps sandbox.ErrNotStarted if the link ended before.
func (l *Link) Ready(ctx context.Context) error {
	select {
	case <-l.hello:
	case <-l.done:
		return fmt.Errorf("%w: the guest did not answer: %w", sandbox.ErrNotStarted, l.reason())
	case <-ctx.Done():
		return fmt.Errorf("waiting for the guest: %w", context.Cause(ctx))
	}
	for _, note := range l.info.Notes {
		l.log.WarnContext(ctx, "the guest runs with less than it should", "note", clip(note, 200))
	}
	return nil
}

// Isolated says whether the guest runs code as another user than itself. It is known once Ready has returned nil.
func (l *Link) Isolated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info.Isolated
}

// Done is closed when the link has ended, for whatever reason.
func (l *Link) Done() <-chan struct{} { return l.done }

// Close asks the guest to shut down and ends the link. Calls that run end with sandbox.ErrDied. Idempotent.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	select {
	case l.out <- proto.Frame{Type: proto.Shutdown}:
	default:
	}
	l.end(errors.New("closed"))
	l.wg.Wait()
	return nil
}

// end ends the link once, with its reason.
func (l *Link) end(reason error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = reason
	l.mu.Unlock()
	close(l.done)
	// This unblocks both goroutines. The guest takes the end of its input as a wish to shut down.
	if err := l.rw.Close(); err != nil {
		l.log.Debug("closing the connection to a guest", "error", err)
	}
}

func (l *Link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// write sends frames; a guest that does not read blocks it, and nobody else.
func (l *Link) write() {
	w := proto.NewWriter(l.rw)
	for {
		var f proto.Frame
		stream := false
		select {
		case f = <-l.out:
		default:
			select {
			case f = <-l.out:
			case f = <-l.data:
				stream = true
			case <-l.done:
				return
			}
		}
		if err := w.Write(f); err != nil {
			l.end(fmt.Errorf("write to the guest: %w", err))
			return
		}
		if stream {
			select {
			case l.sent <- struct{}{}:
			case <-l.done:
				return
			}
		}
	}
}

// read takes frames until the link ends.
func (l *Link) read() {
	r := proto.NewReader(bufio.NewReaderSize(l.rw, 64<<10), proto.MaxPayload)
	for {
		f, err := r.Next()
		if err == nil {
			err = l.take(f)
		}
		if err != nil {
			l.end(fmt.Errorf("read from the guest: %w", err))
			return
		}
	}
}

func (l *Link) take(f proto.Frame) error {
	if len(f.Payload) > maxMessage && f.Type != proto.Output && f.Type != proto.Display && f.Type != proto.Calls {
		return fmt.Errorf("frame of type %d with %d bytes", f.Type, len(f.Payload))
	}
	switch {
	case f.Type == proto.Hello:
		return l.takeHello(f)
	case f.Type >= proto.Connect:
		return l.takeNetwork(f)
	}
	l.mu.Lock()
	p, closing := l.calls[f.Call], l.closing
	l.mu.Unlock()
	if closing {
		return nil // the end of a program that Close ended is not a result
	}
	if p == nil {
		return fmt.Errorf("frame of type %d for call %d, which does not run", f.Type, f.Call)
	}
	over, err := p.take(f)
	if over || err != nil {
		l.mu.Lock()
		delete(l.calls, f.Call)
		l.mu.Unlock()
		p.free()
	}
	return err
}

func (l *Link) takeHello(f proto.Frame) error {
	var info proto.HelloInfo
	if err := proto.DecodeJSON(f, &info); err != nil {
		return err
	}
	if info.Version != proto.Version {
		return fmt.Errorf("the guest speaks version %d, not %d: it comes from another lathe", info.Version, proto.Version)
	}
	select {
	case <-l.hello:
		return errors.New("a second hello")
	default:
	}
	l.mu.Lock()
	l.info = info
	l.mu.Unlock()
	close(l.hello)
	return nil
}

// guestLimits are what the guest enforces of l: address space somewhat below the memory, so that a program gets its MemoryError before
// the sandbox is killed.
func guestLimits(l sandbox.Limits) proto.Limits {
	g := proto.Limits{
		FileSize: l.FileSize, Processes: int64(l.Processes), Output: l.Output, Threads: int(math.Ceil(l.CPUs)),
	}
	if g.FileSize == 0 {
		g.FileSize = l.Disk
	}
	if l.Memory > 0 {
		g.Memory = max(l.Memory-max(l.Memory/8, 64<<20), l.Memory/2)
	}
	return g
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
