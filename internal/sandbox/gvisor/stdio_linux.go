package gvisor

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// stdio is the guest's standard input and output as one connection.
type stdio struct{ r, w *os.File }

func (s *stdio) Read(p []byte) (int, error)  { return s.r.Read(p) }
func (s *stdio) Write(p []byte) (int, error) { return s.w.Write(p) }
func (s *stdio) Close() error                { return errors.Join(s.w.Close(), s.r.Close()) }

// tail keeps the end of what is written to standard error by runsc, gVisor and the guest.
type tail struct {
	f    *os.File
	done chan struct{}

	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func newTail(f *os.File) *tail {
	t := &tail{f: f, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		_, _ = io.Copy(t, f)
	}()
	return t
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// last is what was written last, on one line, after giving the writer a moment to finish.
func (t *tail) last() string {
	select {
	case <-t.done:
	case <-time.After(200 * time.Millisecond):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(string(bytes.ToValidUTF8(t.buf, nil))), " ")
}

func (t *tail) close() {
	_ = t.f.Close()
	<-t.done
}
