package tunnel

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// Stream is one connection. Its methods have the contract of net.Conn; what it holds of unread bytes is at most proto.StreamWindow.
type Stream struct {
	m       *Mux
	id      uint32
	writing sync.Mutex // one Write at a time

	// Guarded by m.mu.
	news   *sync.Cond
	over   error  // why nothing can be read or written any more, nil while it can
	queued bool   // is in m.ready
	closed bool   // by Close: nobody reads it any more
	in     []byte // has come and was not read
	inEOF  bool
	allow  int    // what the other end may still send
	grant  int    // was read, and the other end does not know yet
	out    []byte // what Write waits for
	room   int    // what may be sent
	// What is to be sent, beside out and grant.
	openDue, eofDue, resetDue bool
	sentEOF                   bool
	read, written             deadline
}

var _ net.Conn = (*Stream)(nil)

func newStream(m *Mux, id uint32) *Stream {
	return &Stream{m: m, id: id, news: sync.NewCond(&m.mu), allow: proto.StreamWindow, room: proto.StreamWindow}
}

// take takes a frame of the other end; m.mu is held.
func (s *Stream) take(f proto.Frame) error {
	switch f.Type {
	case proto.Data:
		n := len(f.Payload)
		if n == 0 || n > proto.MaxData || n > s.allow || s.inEOF {
			return fmt.Errorf("%w: %d bytes on stream %d", errProtocol, n, s.id)
		}
		s.allow -= n
		if s.closed {
			s.reset()
			return nil
		}
		s.in = append(s.in, f.Payload...)
	case proto.Room:
		n, err := proto.DecodeRoom(f.Payload)
		if err != nil || s.room+n > proto.StreamWindow {
			return fmt.Errorf("%w: room on stream %d", errProtocol, s.id)
		}
		s.room += n
		if len(s.out) > 0 {
			s.m.queue(s)
		}
	case proto.EOF:
		if s.inEOF {
			return fmt.Errorf("%w: two ends of stream %d", errProtocol, s.id)
		}
		s.inEOF, s.grant = true, 0
		s.settle()
	case proto.Reset:
		s.end()
		s.m.forget(s)
	default:
		return fmt.Errorf("%w: frame of type %d", errProtocol, f.Type)
	}
	s.news.Broadcast()
	return nil
}

// due says whether next has something; m.mu is held.
func (s *Stream) due() bool {
	return s.openDue || s.resetDue || s.grant >= proto.StreamWindow/2 || len(s.out) > 0 && s.room > 0 || s.eofDue && len(s.out) == 0
}

// next makes the next frame to send, with its payload in buf; m.mu is held.
func (s *Stream) next(buf []byte) (f proto.Frame, ok bool) {
	f.Call = s.id
	switch {
	case s.openDue:
		s.openDue = false
		f.Type = proto.Open
	case s.resetDue:
		s.resetDue = false
		f.Type = proto.Reset
		s.m.forget(s)
	case s.over != nil:
		return f, false
	case s.grant >= proto.StreamWindow/2:
		f.Type, f.Payload = proto.Room, proto.EncodeRoom(uint32(s.grant))
		s.allow += s.grant
		s.grant = 0
	case len(s.out) > 0 && s.room > 0:
		n := copy(buf[:min(len(buf), s.room)], s.out)
		s.out, s.room = s.out[n:], s.room-n
		f.Type, f.Payload = proto.Data, buf[:n]
		if len(s.out) == 0 {
			s.news.Broadcast()
		}
	case s.eofDue && len(s.out) == 0:
		s.eofDue, s.sentEOF = false, true
		f.Type = proto.EOF
		s.settle()
	default:
		return f, false
	}
	return f, true
}

// settle forgets a stream that both ends have ended; what has come can still be read. m.mu is held.
func (s *Stream) settle() {
	if s.inEOF && s.sentEOF {
		s.m.forget(s)
	}
}

// end makes the stream unusable, but for reading what has come; m.mu is held.
func (s *Stream) end() {
	s.over, s.out, s.grant = ErrReset, nil, 0
	s.news.Broadcast()
}

// reset ends the stream and has the other end told. It counts until then. m.mu is held.
func (s *Stream) reset() {
	done := s.over != nil || s.inEOF && s.sentEOF
	s.in = nil
	s.end()
	if !done {
		s.resetDue = true
		s.m.queue(s)
	}
}

// Reset ends the stream at once for both ends; what it carries is lost.
func (s *Stream) Reset() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.reset()
}

func (s *Stream) Read(p []byte) (int, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, net.ErrClosed
		case s.read.passed():
			return 0, os.ErrDeadlineExceeded
		case len(s.in) > 0:
			n := copy(p, s.in)
			if s.in = s.in[n:]; len(s.in) == 0 {
				s.in = nil
			}
			if !s.inEOF && s.over == nil {
				if s.grant += n; s.due() {
					s.m.queue(s)
				}
			}
			return n, nil
		case s.over != nil:
			return 0, s.over
		case s.inEOF:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		s.news.Wait()
	}
}

// Write returns when all of p is on its way, or at the first error.
func (s *Stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.closed || s.eofDue || s.sentEOF {
		return 0, net.ErrClosed
	}
	if s.over == nil {
		s.out = p
		s.m.queue(s)
	}
	for {
		left := len(s.out)
		switch {
		case s.over != nil:
			return 0, s.over
		case left == 0:
			return len(p), nil
		case s.closed, s.written.passed():
			s.out = nil
			if s.closed {
				return len(p) - left, net.ErrClosed
			}
			return len(p) - left, os.ErrDeadlineExceeded
		}
		s.news.Wait()
	}
}

// CloseWrite tells the other end that nothing more comes. What it sends can still be read.
func (s *Stream) CloseWrite() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.closeWrite()
	return nil
}

func (s *Stream) closeWrite() {
	if s.over == nil && !s.sentEOF && !s.eofDue {
		s.eofDue = true
		s.m.queue(s)
	}
}

// Close ends the stream. What was written arrives; what the other end sends from now on resets it. Idempotent.
func (s *Stream) Close() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed, s.grant = true, 0
	s.read.set(time.Time{}, nil)
	s.written.set(time.Time{}, nil)
	if len(s.in) > 0 { // as TCP does it: the other end learns that it was not read
		s.reset()
	}
	if len(s.out) == 0 {
		s.closeWrite()
	} else {
		s.reset()
	}
	s.in = nil
	s.news.Broadcast()
	return nil
}

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	return s.set(t, &s.read, &s.written)
}

// SetReadDeadline ends reads that wait at t.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.set(t, &s.read) }

// SetWriteDeadline ends writes that wait at t.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.set(t, &s.written) }

func (s *Stream) set(t time.Time, ds ...*deadline) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	for _, d := range ds {
		d.set(t, func() {
			s.m.mu.Lock()
			defer s.m.mu.Unlock()
			s.news.Broadcast()
		})
	}
	s.news.Broadcast()
	return nil
}

// LocalAddr is the stream's number at this end.
func (s *Stream) LocalAddr() net.Addr { return addr(s.id) }

// RemoteAddr is the same number.
func (s *Stream) RemoteAddr() net.Addr { return addr(s.id) }

// addr is a stream's number.
type addr uint32

func (addr) Network() string  { return "tunnel" }
func (a addr) String() string { return "stream " + strconv.FormatUint(uint64(a), 10) }

// deadline is a point in time at which waiting ends; the zero value is never.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) set(t time.Time, wake func()) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	if !t.IsZero() && wake != nil {
		d.timer = time.AfterFunc(time.Until(t), wake)
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }
