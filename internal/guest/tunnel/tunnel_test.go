package tunnel

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// pair joins two ends; what the guest opens arrives on the channel.
func pair(t *testing.T) (guest, host *Mux, accepted chan *Stream) {
	t.Helper()
	accepted = make(chan *Stream, proto.MaxStreams)
	toHost, toGuest := make(chan proto.Frame), make(chan proto.Frame)
	stop := make(chan struct{})
	send := func(ch chan proto.Frame) func(proto.Frame) error {
		return func(f proto.Frame) error {
			f.Payload = bytes.Clone(f.Payload)
			select {
			case ch <- f:
				return nil
			case <-stop:
				return io.ErrClosedPipe
			}
		}
	}
	guest = New(send(toHost), nil)
	host = New(send(toGuest), func(s *Stream) { accepted <- s })
	var wg sync.WaitGroup
	take := func(m *Mux, ch chan proto.Frame) {
		for {
			select {
			case f := <-ch:
				if err := m.Take(f); err != nil {
					t.Error(err)
				}
			case <-stop:
				return
			}
		}
	}
	wg.Go(func() { take(host, toHost) })
	wg.Go(func() { take(guest, toGuest) })
	t.Cleanup(func() {
		close(stop)
		guest.Close()
		host.Close()
		wg.Wait()
		for _, m := range []*Mux{guest, host} {
			if len(m.streams) != 0 {
				t.Errorf("%d streams are left", len(m.streams))
			}
		}
	})
	return guest, host, accepted
}

func open(t *testing.T, guest *Mux, accepted chan *Stream) (here, there *Stream) {
	t.Helper()
	here, err := guest.Open()
	if err != nil {
		t.Fatal(err)
	}
	return here, <-accepted
}

func streams(m *Mux) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.streams)
}

// Many streams at once, in both directions, of many sizes: every byte arrives in order, and nothing is left.
func TestBytesArrive(t *testing.T) {
	guest, host, accepted := pair(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2 * proto.MaxStreams { // twice what is allowed at once: the rest waits
			s := <-accepted
			wg.Go(func() { // gives back what it gets
				if _, err := io.Copy(struct{ io.Writer }{s}, s); err != nil {
					t.Error(err)
				}
				_ = s.Close()
			})
		}
	})
	for i := range 2 * proto.MaxStreams {
		s, err := guest.Open()
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			data := make([]byte, r.IntN(200_000))
			for j := range data {
				data[j] = byte(r.Uint32())
			}
			go func() {
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 1+r.IntN(50_000))
					if _, err := s.Write(rest[:n]); err != nil {
						t.Error(err)
					}
					rest = rest[n:]
				}
				_ = s.CloseWrite()
			}()
			got, err := io.ReadAll(s)
			if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
				t.Errorf("stream %d: %d bytes of %d, %v", i, len(got), len(data), err)
			}
			_ = s.Close()
		})
	}
	wg.Wait()
	if g, h := streams(guest), streams(host); h != 0 || g != 0 {
		t.Errorf("%d and %d streams are left", g, h)
	}
}

// A stream that nobody reads takes its window and no more, and holds up no other.
func TestSlowReader(t *testing.T) {
	guest, _, accepted := pair(t)
	slow, unread := open(t, guest, accepted)
	wrote := make(chan int, 1)
	go func() {
		n, _ := slow.Write(make([]byte, 10*proto.StreamWindow))
		wrote <- n
	}()
	fast, other := open(t, guest, accepted)
	for range 100 {
		if _, err := fast.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(other, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	if err := slow.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if n := <-wrote; n != proto.StreamWindow {
		t.Errorf("%d bytes were taken of a stream that nobody reads", n)
	}
	if got, err := io.ReadAll(io.LimitReader(unread, proto.StreamWindow)); err != nil || len(got) != proto.StreamWindow {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestReset(t *testing.T) {
	guest, host, accepted := pair(t)
	s, there := open(t, guest, accepted)
	read := make(chan error)
	go func() {
		_, err := s.Read(make([]byte, 1))
		read <- err
	}()
	there.Reset()
	if err := <-read; !errors.Is(err, ErrReset) {
		t.Errorf("read: %v", err)
	}
	if _, err := s.Write([]byte("x")); !errors.Is(err, ErrReset) {
		t.Errorf("write: %v", err)
	}
	// What had arrived before can still be read, as in TCP.
	s, there = open(t, guest, accepted)
	if _, err := there.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	there.Reset()
	if got, err := io.ReadAll(s); string(got) != "last words" || !errors.Is(err, ErrReset) {
		t.Errorf("got %q, %v", got, err)
	}
	// Close of one side, and then data of the other.
	s, there = open(t, guest, accepted)
	_ = there.Close()
	if _, err := s.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read: %v", err)
	}
	for err := error(nil); err == nil; {
		_, err = s.Write([]byte("more"))
	}
	sync := make(chan struct{})
	go func() { // a stream behind it has been through both ends
		a, b := open(t, guest, accepted)
		_ = a.CloseWrite()
		_, _ = b.Read(make([]byte, 1))
		_ = b.Close()
		_, _ = io.ReadAll(a)
		close(sync)
	}()
	<-sync
	if h := streams(host); h != 0 {
		t.Errorf("%d streams are left", h)
	}
}

func TestClosedMux(t *testing.T) {
	guest, _, accepted := pair(t)
	s, _ := open(t, guest, accepted)
	read := make(chan error)
	go func() {
		_, err := s.Read(make([]byte, 1))
		read <- err
	}()
	guest.Close()
	if err := <-read; !errors.Is(err, ErrReset) {
		t.Errorf("read: %v", err)
	}
	if _, err := guest.Open(); !errors.Is(err, ErrReset) {
		t.Errorf("open: %v", err)
	}
	if err := guest.Take(proto.Frame{Type: proto.Data, Call: 1, Payload: []byte("late")}); err != nil {
		t.Errorf("take: %v", err)
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(func(proto.Frame) error { return nil }, func(*Stream) {})
		defer m.Close()
		if err := m.Take(proto.Frame{Type: proto.Open, Call: 7}); err != nil {
			t.Fatal(err)
		}
		s := m.streams[7]
		begin := time.Now()
		_ = s.SetReadDeadline(begin.Add(time.Second))
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("read: %v after %v", err, time.Since(begin))
		}
		_ = s.SetDeadline(begin.Add(3 * time.Second))
		if n, err := s.Write(make([]byte, proto.StreamWindow+1)); !errors.Is(err, os.ErrDeadlineExceeded) || n != proto.StreamWindow || time.Since(begin) != 3*time.Second {
			t.Errorf("write: %d, %v after %v", n, err, time.Since(begin))
		}
		_ = s.SetDeadline(time.Time{})
		go func() {
			time.Sleep(time.Second)
			_ = s.Close()
		}()
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
		if err := s.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a deadline for a closed stream: %v", err)
		}
	})
}

// What the other end may not do ends the connection.
func TestTakeRefuses(t *testing.T) {
	data := func(id uint32, n int) proto.Frame {
		return proto.Frame{Type: proto.Data, Call: id, Payload: make([]byte, n)}
	}
	open := proto.Frame{Type: proto.Open, Call: 1}
	var flood, window []proto.Frame
	for i := range proto.MaxStreams + 1 {
		flood = append(flood, proto.Frame{Type: proto.Open, Call: uint32(i + 1)})
	}
	window = append(window, open)
	for range proto.StreamWindow/proto.MaxData + 1 {
		window = append(window, data(1, proto.MaxData))
	}
	tests := map[string][]proto.Frame{
		"open twice":              {open, open},
		"open zero":               {{Type: proto.Open}},
		"too many":                flood,
		"more than there is room": window,
		"no data":                 {open, data(1, 0)},
		"too much data":           {open, data(1, proto.MaxData+1)},
		"data behind the end":     {open, {Type: proto.EOF, Call: 1}, data(1, 1)},
		"two ends":                {open, {Type: proto.EOF, Call: 1}, {Type: proto.EOF, Call: 1}},
		"room that is there":      {open, {Type: proto.Room, Call: 1, Payload: proto.EncodeRoom(1)}},
		"room without a number":   {open, {Type: proto.Room, Call: 1}},
		"another frame":           {open, {Type: proto.Output, Call: 1}},
		"another frame, unknown":  {{Type: proto.Output, Call: 1}},
	}
	for name, frames := range tests {
		t.Run(name, func(t *testing.T) {
			m := New(func(proto.Frame) error { return nil }, func(*Stream) {})
			defer m.Close()
			for i, f := range frames {
				err := m.Take(f)
				if last := i == len(frames)-1; last != (err != nil) {
					t.Fatalf("frame %d of %d: %v", i, len(frames), err)
				}
			}
		})
	}
	t.Run("open by the host", func(t *testing.T) {
		m := New(func(proto.Frame) error { return nil }, nil)
		defer m.Close()
		if m.Take(open) == nil {
			t.Error("was taken")
		}
	})
}

// An end that opens streams, has them refused, and reads nothing must not make the other one remember them without bound.
func TestRefusalsAreBounded(t *testing.T) {
	block := make(chan struct{})
	m := New(func(proto.Frame) error { <-block; return io.ErrClosedPipe }, func(s *Stream) { go s.Reset() })
	defer m.Close()
	defer close(block)
	for id := uint32(1); ; id++ {
		if err := m.Take(proto.Frame{Type: proto.Open, Call: id}); err != nil {
			break
		}
		if id > 2*proto.MaxStreams {
			t.Fatal("no end")
		}
	}
}

// FuzzTake: whatever comes, no panic, and no more is kept than the windows allow.
func FuzzTake(f *testing.F) {
	f.Add([]byte{byte(proto.Open), 1, 0, byte(proto.Data), 1, 9, byte(proto.EOF), 1, 0})
	f.Add([]byte{byte(proto.Open), 1, 0, byte(proto.Room), 1, 4, byte(proto.Reset), 1, 0, byte(proto.Data), 1, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		m := New(func(proto.Frame) error { return nil }, func(*Stream) {})
		defer m.Close()
		for len(script) >= 3 {
			fr := proto.Frame{Type: proto.Type(script[0]), Call: uint32(script[1] % 8), Payload: make([]byte, 64*int(script[2]))}
			if fr.Type == proto.Room {
				fr.Payload = proto.EncodeRoom(uint32(script[2]))
			}
			script = script[3:]
			err := m.Take(fr)
			m.mu.Lock()
			for _, s := range m.streams {
				if len(s.in) > proto.StreamWindow || s.allow < 0 || s.room > proto.StreamWindow {
					t.Fatalf("%d bytes wait, %d may come", len(s.in), s.allow)
				}
				if len(script) > 0 && script[0]%5 == 0 {
					s.reset()
				}
			}
			m.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
}
