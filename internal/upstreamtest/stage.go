package upstreamtest

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// stage is where an answer is played, whatever its protocol.
type stage struct {
	ctx    context.Context
	w      http.ResponseWriter
	quirks Quirks
}

// open waits as the answer wants it and sets its headers, idHeader among them; false says that the client has left.
func open(ctx context.Context, w http.ResponseWriter, a Answer, idHeader string, req *Request) bool {
	if a.BeforeHeaders != nil {
		select {
		case <-a.BeforeHeaders:
		case <-ctx.Done():
			return false
		}
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.Header().Set(idHeader, fmt.Sprintf("req_upstream_%d", req.Number))
	return true
}

func (p *stage) wait(c <-chan struct{}) {
	select {
	case <-c:
	case <-p.ctx.Done():
	}
}

func (p *stage) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
	}
}

func (p *stage) raw(s string) {
	if p.quirks.Comments {
		s = ": OPENROUTER PROCESSING\n\n" + s
	}
	fmt.Fprint(p.w, s) // an error means that the client left
	p.flush()
}

func (p *stage) flush() {
	// An error means that the client left.
	_ = http.NewResponseController(p.w).Flush()
}
