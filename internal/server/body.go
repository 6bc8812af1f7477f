package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// limitBody caps the body: at once where its length is given, else while it is read, when a read returns *http.MaxBytesError. done gives
// back what the body has of the budget, when the request has been answered.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	limit, upload := s.cfg.MaxBody, false
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		limit, upload = s.cfg.MaxUpload, true
	}
	done = func() {}
	if r.ContentLength > limit {
		return done, &turn.Error{Kind: turn.KindTooLarge, Code: "request_too_large",
			Message: fmt.Sprintf("the request has %d bytes: at most %d are taken here", r.ContentLength, limit)}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return done, nil
	}
	if !upload { // the parts of a form go to disk
		share, err := s.bodies.open(r)
		if err != nil {
			return done, err
		}
		done = share.close
		r.Body = share.body(r.Body)
	}
	timed := &timedBody{
		ReadCloser: r.Body, rc: http.NewResponseController(w), silence: s.cfg.BodyTimeout, rate: s.cfg.BodyRate, start: time.Now(),
	}
	r.Body = http.MaxBytesReader(w, timed, limit)
	return done, nil
}

// timedBody gives every read a deadline of its own and takes it off at the end: net/http watches the connection for the client's leaving
// once the body has been read, and would take a deadline for it. After a failed read it stays: net/http reads what is left of a small body
// before it sends an answer, and would wait for a silent client for ever.
type timedBody struct {
	io.ReadCloser
	rc      *http.ResponseController
	silence time.Duration
	// rate is the least mean of bytes a second after the first silence: a byte now and then does not hold a connection for hours.
	rate  int64
	start time.Time
	read  int64
}

// deadline is by when the next bytes must have come.
func (b *timedBody) deadline(now time.Time) time.Time {
	fair := b.start.Add(b.silence + time.Duration(float64(b.read)/float64(b.rate)*float64(time.Second)))
	if next := now.Add(b.silence); next.Before(fair) {
		return next
	}
	return fair
}

func (b *timedBody) Read(p []byte) (int, error) {
	// A writer without deadlines (a test's recorder) cannot block.
	_ = b.rc.SetReadDeadline(b.deadline(time.Now()))
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.rc.SetReadDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = &turn.Error{Kind: turn.KindInvalid, Code: "request_timeout", Cause: err,
			Message: fmt.Sprintf("the request's body came too slowly: nothing for %v, or less than %d KiB a second; send it again", b.silence, b.rate>>10)}
	}
	return n, err
}
