package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// limitBody caps the body: at once where its length is given, else while it is read, when a read returns *http.MaxBytesError.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) error {
	limit := s.cfg.MaxBody
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		limit = s.cfg.MaxUpload
	}
	if r.ContentLength > limit {
		return &turn.Error{Kind: turn.KindTooLarge, Code: "request_too_large",
			Message: fmt.Sprintf("the request has %d bytes: at most %d are taken here", r.ContentLength, limit)}
	}
	if r.Body != nil && r.Body != http.NoBody {
		timed := &timedBody{ReadCloser: r.Body, rc: http.NewResponseController(w), silence: s.cfg.BodyTimeout}
		r.Body = http.MaxBytesReader(w, timed, limit)
	}
	return nil
}

// timedBody gives every read a deadline of its own and takes it off at the end: net/http watches the connection for the client's leaving
// once the body has been read, and would take a deadline for it. After a failed read it stays: net/http reads what is left of a small body
// before it sends an answer, and would wait for a silent client for ever.
type timedBody struct {
	io.ReadCloser
	rc      *http.ResponseController
	silence time.Duration
}

func (b *timedBody) Read(p []byte) (int, error) {
	// A writer without deadlines (a test's recorder) cannot block.
	_ = b.rc.SetReadDeadline(time.Now().Add(b.silence))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}
