package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// budget bounds the bytes of all bodies that are in memory at once: they are decoded whole, which takes several times their length, and
// live as long as their requests. Who finds too little left waits in order of arrival, for a while.
type budget struct {
	sem  *semaphore.Weighted
	all  int64
	wait time.Duration
}

func newBudget(bytes int64, wait time.Duration) *budget {
	return &budget{sem: semaphore.NewWeighted(bytes), all: bytes, wait: wait}
}

// chunk is in what steps a body of unknown length takes its share.
const chunk = 256 << 10

// share is what one request has of the budget.
type share struct {
	*budget
	ctx         context.Context //nolint:containedctx // of the request whose body it is
	taken, read int64
}

// open takes the bytes of a body whose length is known, so that two large ones do not stop each other half way; one without a length takes
// as it comes.
func (b *budget) open(r *http.Request) (*share, error) {
	s := &share{budget: b, ctx: r.Context()}
	if r.ContentLength > 0 {
		return s, s.take(r.Context(), r.ContentLength)
	}
	return s, nil
}

func (s *share) take(ctx context.Context, n int64) error {
	if !s.sem.TryAcquire(n) {
		waiting, cancel := context.WithTimeout(ctx, s.wait)
		defer cancel()
		if err := s.sem.Acquire(waiting, n); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return &turn.Error{
				Kind: turn.KindOverloaded, RetryAfter: 5 * time.Second,
				Message: "the requests that this server holds already leave no memory for one of this size; try again",
				Cause:   fmt.Errorf("%d bytes of bodies may be in flight", s.all),
			}
		}
	}
	s.taken += n
	return nil
}

// close gives everything back.
func (s *share) close() { s.sem.Release(s.taken) }

// body counts what is read against the share.
func (s *share) body(r io.ReadCloser) io.ReadCloser { return &countedBody{ReadCloser: r, share: s} }

type countedBody struct {
	io.ReadCloser
	share *share
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	s := b.share
	if s.read += int64(n); s.read > s.taken {
		if short := s.take(s.ctx, max(chunk, s.read-s.taken)); short != nil {
			return n, short
		}
	}
	return n, err
}
