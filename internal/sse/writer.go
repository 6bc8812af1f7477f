package sse

import (
	"bytes"
	"errors"
	"net/http"
	"sync"
	"time"
)

// ErrClosed is returned by Send after Close.
var ErrClosed = errors.New("sse: the writer is closed")

// Options of a Writer.
type Options struct {
	// KeepAlive is the silence after which a comment is sent, so that proxies and clients keep the connection; 0 means 10 s, less
	// than 0 never.
	KeepAlive time.Duration
	// KeepAliveEvent is sent instead of a comment, for protocols that have an event of their own for it; nil means a comment.
	KeepAliveEvent *Event
	// WriteTimeout is how long one frame may take to leave; 0 means 30 s, less than 0 for ever. The answer as a whole has no limit.
	WriteTimeout time.Duration
}

func (o *Options) setDefaults() {
	if o.KeepAlive == 0 {
		o.KeepAlive = 10 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
}

// Writer sends frames as the body of one HTTP answer. Until the first Send nothing is written, so that a failure before it can still
// get a status of its own. Its methods may be called from several goroutines. Close must be called before the handler returns.
type Writer struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	opts Options
	// alive is the frame that breaks a silence.
	alive []byte

	mu      sync.Mutex
	started bool
	closed  bool
	err     error // of the first write that failed; every later one returns it
	last    time.Time
	buf     []byte
	stop    chan struct{}
	stopped chan struct{} // nil while no keep-alive goroutine runs
}

// NewWriter prepares an answer on w. It writes nothing yet.
func NewWriter(w http.ResponseWriter, opts Options) *Writer {
	opts.setDefaults()
	out := &Writer{w: w, rc: http.NewResponseController(w), opts: opts, stop: make(chan struct{}), alive: keepAliveFrame}
	if ev := opts.KeepAliveEvent; ev != nil {
		out.alive = appendFrame(nil, *ev)
	}
	return out
}

// Started says whether the status and at least one frame have been written.
func (w *Writer) Started() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.started
}

// Send writes one frame in one Write and flushes it. The first one sends status 200 and the headers too. ev.Data is not kept. An error
// means that the client is gone; it is returned by every later Send as well.
func (w *Writer) Send(ev Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	if w.err != nil {
		return w.err
	}
	if !w.started {
		w.start()
	}
	w.buf = appendFrame(w.buf[:0], ev)
	return w.write(w.buf)
}

// Close ends the keep-alives and waits for their goroutine. It does not end the answer: that is the handler's return. It may be called
// more than once.
func (w *Writer) Close() {
	w.mu.Lock()
	stopped := w.stopped
	if !w.closed {
		w.closed = true
		close(w.stop)
	}
	w.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

func (w *Writer) start() {
	w.started = true
	h := w.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.w.WriteHeader(http.StatusOK)
	if w.opts.KeepAlive > 0 {
		w.stopped = make(chan struct{})
		go w.keepAlive()
	}
}

// write sends frame whole; w.mu is held.
func (w *Writer) write(frame []byte) error {
	w.last = time.Now()
	if w.opts.WriteTimeout > 0 {
		// A ResponseWriter without deadlines (a test's recorder) cannot block either.
		if err := w.rc.SetWriteDeadline(w.last.Add(w.opts.WriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			w.err = err
			return err
		}
	}
	if _, w.err = w.w.Write(frame); w.err != nil {
		return w.err
	}
	if err := w.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		w.err = err
	}
	return w.err
}

var keepAliveFrame = []byte(": keep-alive\n\n")

// keepAlive looks at the time of the last write instead of being told of each one: frames are many, silences few.
func (w *Writer) keepAlive() {
	defer close(w.stopped)
	timer := time.NewTimer(w.opts.KeepAlive)
	defer timer.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-timer.C:
		}
		wait, ok := w.breakSilence()
		if !ok {
			return
		}
		timer.Reset(wait)
	}
}

// breakSilence sends a comment if it is due, and returns how long to wait for the next.
func (w *Writer) breakSilence() (wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.err != nil {
		return 0, false
	}
	if wait := w.opts.KeepAlive - time.Since(w.last); wait > 0 {
		return wait, true
	}
	return w.opts.KeepAlive, w.write(w.alive) == nil
}

// appendFrame never writes an id: line: openai-python's decoder mistakes comments after one for events (wire/openai.md 2.4).
func appendFrame(dst []byte, ev Event) []byte {
	if ev.Name != "" {
		dst = append(dst, "event: "...)
		dst = append(dst, ev.Name...)
		dst = append(dst, '\n')
	}
	rest := ev.Data
	for {
		dst = append(dst, "data: "...)
		i := bytes.IndexAny(rest, "\r\n")
		if i < 0 {
			break
		}
		dst = append(append(dst, rest[:i]...), '\n')
		if rest[i] == '\r' && i+1 < len(rest) && rest[i+1] == '\n' {
			i++
		}
		rest = rest[i+1:]
	}
	return append(append(dst, rest...), "\n\n"...)
}
