// Package tunnel carries connections over the frames of package proto: the streams by which programs in a sandbox reach the proxy on the
// host. Both ends use it, the guest to open streams and the host to take them; what is said on a stream is nobody's business here.
//
// Each end treats the other as hostile. What waits for a slow reader is bounded by proto.StreamWindow a stream and proto.MaxStreams
// streams; Take never blocks, so a stream that nobody reads holds up neither other streams nor other frames; and one goroutine sends for
// all streams, a frame each in turn, so that who else writes to the same wire waits for one frame at most. internal/guest and
// internal/sandbox/link are its only users.
package tunnel

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// ErrReset is what reading and writing a stream gives that was reset by either end, or whose Mux was closed.
var ErrReset = errors.New("tunnel: the connection was reset")

// errProtocol is the beginning of every error of Take: the other end does not keep to the protocol.
var errProtocol = errors.New("tunnel: the other end breaks the protocol")

// Mux is one end of all streams of a connection. It is safe for concurrent use.
type Mux struct {
	write  func(proto.Frame) error
	accept func(*Stream)
	sender sync.WaitGroup

	mu      sync.Mutex
	streams map[uint32]*Stream
	last    uint32
	ready   []*Stream  // those that have something to send, each once
	news    *sync.Cond // ready or closed has changed
	space   *sync.Cond // streams has become smaller, or closed has changed
	closed  bool
	buf     [proto.MaxData]byte // of the sender
}

// New returns a Mux that sends with write, which may block and is called by one goroutine; the frame's payload is valid until it returns,
// and after an error nothing more is sent. accept gets the streams that the other end opens; it must not block, or use the stream before
// it has returned. It is nil at the end that opens them.
func New(write func(proto.Frame) error, accept func(*Stream)) *Mux {
	m := &Mux{write: write, accept: accept, streams: map[uint32]*Stream{}}
	m.news, m.space = sync.NewCond(&m.mu), sync.NewCond(&m.mu)
	m.sender.Go(m.send)
	return m
}

// Open begins a stream, once there are fewer than proto.MaxStreams. Its error is ErrReset after Close.
func (m *Mux) Open() (*Stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.streams) >= proto.MaxStreams && !m.closed {
		m.space.Wait()
	}
	if m.closed {
		return nil, ErrReset
	}
	for m.last++; m.last == 0 || m.streams[m.last] != nil; {
		m.last++
	}
	s := m.add(m.last)
	s.openDue = true
	m.queue(s)
	return s, nil
}

func (m *Mux) add(id uint32) *Stream {
	s := newStream(m, id)
	m.streams[id] = s
	return s
}

// Take takes a frame of the other end. It never blocks. After an error the connection is of no more use.
func (m *Mux) Take(f proto.Frame) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	s := m.streams[f.Call]
	if f.Type == proto.Open {
		switch {
		case m.accept == nil || s != nil || f.Call == 0:
			return fmt.Errorf("%w: stream %d cannot be opened", errProtocol, f.Call)
		case len(m.streams) >= proto.MaxStreams:
			return fmt.Errorf("%w: more than %d streams", errProtocol, proto.MaxStreams)
		}
		m.accept(m.add(f.Call))
		return nil
	}
	if s == nil || s.over != nil {
		return m.checkIgnored(f)
	}
	return s.take(f)
}

// checkIgnored holds even frames of streams that are done to their form.
func (m *Mux) checkIgnored(f proto.Frame) error {
	switch f.Type {
	case proto.Data, proto.Room, proto.EOF, proto.Reset:
		return nil
	}
	return fmt.Errorf("%w: frame of type %d", errProtocol, f.Type)
}

// Close resets all streams without a word to the other end, and returns when nothing more will be sent. Idempotent.
func (m *Mux) Close() {
	m.mu.Lock()
	m.closed = true
	for _, s := range m.streams {
		s.end()
	}
	clear(m.streams)
	m.ready = nil
	m.news.Broadcast()
	m.space.Broadcast()
	m.mu.Unlock()
	m.sender.Wait()
}

// queue notes that s has something to send; mu is held.
func (m *Mux) queue(s *Stream) {
	if !s.queued && !m.closed {
		s.queued = true
		m.ready = append(m.ready, s)
		m.news.Signal()
	}
}

// forget takes a stream out that is done on both sides; mu is held.
func (m *Mux) forget(s *Stream) {
	if m.streams[s.id] == s {
		delete(m.streams, s.id)
		m.space.Signal()
	}
}

// send sends frames, of each stream one in turn, until Close or an error.
func (m *Mux) send() {
	for {
		m.mu.Lock()
		var f proto.Frame
		for have := false; !have; {
			for len(m.ready) == 0 && !m.closed {
				m.news.Wait()
			}
			if m.closed {
				m.mu.Unlock()
				return
			}
			s := m.ready[0]
			m.ready[0] = nil
			m.ready = m.ready[1:]
			s.queued = false
			if f, have = s.next(m.buf[:]); have && s.due() {
				m.queue(s)
			}
		}
		m.mu.Unlock()
		if err := m.write(f); err != nil {
			return
		}
	}
}
