package upstreamtest

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// begin does what every protocol does alike before an answer. It says whether there is anything left to do.
func begin(ctx context.Context, w http.ResponseWriter, req *Request, a Answer) bool {
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
	id := fmt.Sprintf("req_upstream_%d", req.Number)
	w.Header().Set("X-Request-Id", id)
	if req.speaksMessages() {
		w.Header().Del("X-Request-Id")
		w.Header().Set("Request-Id", id)
		a.Body = messagesError(a.Status, a.Body, id)
	}
	if a.Status != 0 {
		w.WriteHeader(a.Status)
		fmt.Fprint(w, a.Body) // an error means that the client left
		return false
	}
	return true
}

// player is what the players of all protocols share.
type player struct {
	ctx    context.Context
	w      http.ResponseWriter
	quirks Quirks
}

// common does a step that is no part of a protocol.
func (p *player) common(s Step) {
	switch s := s.(type) {
	case Wait:
		p.wait(s)
	case Reached:
		close(s)
	case Pause:
		p.pause(time.Duration(s))
	case Raw:
		p.raw(string(s))
	case Frame:
		p.raw("data: " + string(s) + "\n\n")
	case Cut:
		p.flush()
		panic(http.ErrAbortHandler)
	}
}

func (p *player) wait(c <-chan struct{}) {
	select {
	case <-c:
	case <-p.ctx.Done():
	}
}

func (p *player) pause(d time.Duration) {
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

func (p *player) raw(s string) {
	if p.quirks.Comments {
		s = ": OPENROUTER PROCESSING\n\n" + s
	}
	fmt.Fprint(p.w, s) // an error means that the client left
	p.flush()
}

func (p *player) flush() {
	// An error means that the client left.
	_ = http.NewResponseController(p.w).Flush()
}

func join(pieces []string) string {
	out := ""
	for _, s := range pieces {
		out += s
	}
	return out
}
