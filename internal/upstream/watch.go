package upstream

import (
	"context"
	"errors"
	"io"
	"time"
)

// Causes with which a watch ends a call.
var (
	errFirstByte = errors.New("upstream: no first byte in time")
	errIdle      = errors.New("upstream: silent for too long")
)

// watch ends a call that takes too long: first bounds the time to the first byte, idle each wait for a later one. Time in which nobody
// reads does not count.
type watch struct {
	ctx    context.Context // of the call; ended with errFirstByte or errIdle as its cause
	cancel context.CancelCauseFunc
	timer  *time.Timer
	idle   time.Duration
	body   io.ReadCloser
	begun  bool
}

func newWatch(ctx context.Context, first, idle time.Duration) *watch {
	w := &watch{idle: idle}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(first, func() { w.cancel(errFirstByte) })
	return w
}

// read makes w a reader of body, which must belong to a request with w.ctx.
func (w *watch) read(body io.ReadCloser) { w.body = body }

func (w *watch) Read(p []byte) (int, error) {
	if w.begun {
		w.timer.Reset(w.idle)
	}
	n, err := w.body.Read(p)
	if n > 0 && !w.begun {
		w.begun = true
		w.timer.Stop()
		w.timer = time.AfterFunc(w.idle, func() { w.cancel(errIdle) })
	}
	w.timer.Stop()
	return n, err
}

// close frees the connection. It is kept for the next call where the body was read to its end.
func (w *watch) close() {
	w.timer.Stop()
	if w.body != nil {
		w.body.Close()
	}
	w.cancel(nil)
}

// drain reads what little may follow the protocol's own last frame, so that the connection can be used again. A server that keeps the
// stream open costs a quarter of a second at most.
func (w *watch) drain() {
	w.idle = 250 * time.Millisecond
	buf := make([]byte, 512)
	for range 8 {
		if _, err := w.Read(buf); err != nil {
			return
		}
	}
}
