// Package responses is the surface of POST /v1/responses: it decodes the OpenAI Responses API into a turn.Request and encodes the
// turn.Events of the answer, streamed or whole. It runs nothing and knows no provider; package server mounts it.
//
// A request whose model speaks this protocol itself, and of which no part is ours, is passed on untouched (forward.go): all that follows
// does not hold for it.
//
// Nothing is stored in this release: store is accepted and answered with false, and what needs stored responses is refused by name.
// Obfuscation is only sent where a request asks for it.
package responses

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/sse"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// Models finds the model for a name. *provider.Router is one.
type Models interface {
	Model(name string) (provider.Model, error)
}

// Config is what New needs. Turns is required.
type Config struct {
	// Turns answers the turns that are not passed on.
	Turns turn.Streamer
	// Models says which requests can be passed on, and to whom; nil passes none on.
	Models Models
	// Logger gets the errors that clients must not see; nil means slog.Default.
	Logger *slog.Logger
	// NewID mints ids, nil means turn.NewID; Now is the clock, nil means time.Now.
	NewID func(prefix string) string
	Now   func() time.Time
	// SSE are the options of streamed answers.
	SSE sse.Options
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.NewID == nil {
		c.NewID = turn.NewID
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

type handler struct{ Config }

// New returns the handler of POST /v1/responses.
func New(cfg Config) http.Handler {
	cfg.setDefaults()
	return &handler{cfg}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.serve(w, r); err != nil {
		oai.WriteError(w, r, h.Logger, err)
	}
}

// serve returns the errors that came before anything was written.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	body, err := oai.ReadBody(w, r)
	if err != nil {
		return err
	}
	if done, err := h.forward(w, r, body); done {
		return err
	}
	req, err := decode(body)
	if err != nil {
		return err
	}
	req.turn.Live = req.stream && r.Header.Get(oai.LiveHeader) == "1"
	enc := newEncoder(req, h.NewID, h.Now)
	if req.stream {
		return h.stream(w, r, req, enc)
	}
	resp, err := h.whole(r.Context(), req, enc)
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, resp)
	return nil
}

var errUnfinished = errors.New("responses: the turn ended without Finished")

func (h *handler) whole(ctx context.Context, req *request, enc *encoder) (*oairesponses.Response, error) {
	for ev, err := range h.Turns.Stream(ctx, req.turn) {
		if err != nil {
			return nil, err
		}
		enc.push(ev)
	}
	if !enc.finished {
		return nil, errUnfinished
	}
	return enc.snapshot(), nil
}

// stream writes nothing before the first event, so that a failure until then has a status of its own.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, req *request, enc *encoder) error {
	ctx := r.Context()
	out := sse.NewWriter(w, h.SSE)
	defer out.Close()
	var failure error
	for ev, err := range h.Turns.Stream(ctx, req.turn) {
		if err != nil {
			failure = err
			break
		}
		if err := send(out, enc.push(ev)); err != nil {
			h.logBroken(ctx, err)
			return nil
		}
	}
	if failure == nil && !enc.finished {
		failure = errUnfinished
	}
	if failure != nil {
		if !out.Started() {
			return failure
		}
		if ctx.Err() != nil && turn.Ended(ctx) == nil {
			return nil
		}
		h.logFailure(ctx, failure)
		if err := send(out, enc.fail(failure)); err != nil {
			h.logBroken(ctx, err)
			return nil
		}
	}
	if err := out.Send(sse.Event{Data: []byte("[DONE]")}); err != nil {
		h.logBroken(ctx, err)
	}
	return nil
}

// logBroken tells of a stream that the client cannot read to its end, unless the client is the one who left.
func (h *handler) logBroken(ctx context.Context, err error) {
	if ctx.Err() == nil {
		h.Logger.WarnContext(ctx, "stream broke off", "error", err.Error())
	}
}

func (h *handler) logFailure(ctx context.Context, err error) {
	level := slog.LevelWarn
	if turn.AsError(err).Kind == turn.KindInternal {
		level = slog.LevelError
	}
	h.Logger.Log(ctx, level, "streamed response failed", "error", err.Error())
}

func send(out *sse.Writer, events []oairesponses.Event) error {
	for _, ev := range events {
		data, err := oairesponses.Marshal(ev)
		if err != nil {
			return fmt.Errorf("responses: encode %s: %w", ev.EventType(), err)
		}
		if err := out.Send(sse.Event{Name: ev.EventType(), Data: data}); err != nil {
			return err
		}
	}
	return nil
}
