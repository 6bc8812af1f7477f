// Package messages is the surface of POST /v1/messages and /v1/messages/count_tokens: it decodes Anthropic's Messages API into a
// turn.Request and encodes the turn.Events of the answer, streamed or whole. It runs nothing and knows no provider; package server mounts
// it.
//
// A request whose model speaks this protocol itself, and of which no part is ours, is passed on untouched (forward.go): all that follows
// does not hold for it. For the others docs/anthropic.md says of every field and block what becomes of it; a test holds that page complete.
//
// Wherever a request goes to a model that speaks this protocol, what the client wrote goes along as turn.Raw, turn.Block and turn.Extra, so
// that the provider loses nothing.
package messages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/sse"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// protocol is this surface's name in turn.Extra, turn.Raw, turn.Block and provider.Forwarder.
const protocol = "anthropic"

// liveHeader, set to 1, asks for the output of hosted code while it is printed.
const liveHeader = "X-Lathe-Live"

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
	// NewID mints ids, nil means turn.NewID.
	NewID func(prefix string) string
	// SSE are the options of streamed answers. Keep-alives are the protocol's own ping events.
	SSE sse.Options
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.NewID == nil {
		c.NewID = turn.NewID
	}
	if c.SSE.KeepAliveEvent == nil {
		c.SSE.KeepAliveEvent = &sse.Event{Name: wire.TypePing, Data: []byte(`{"type":"ping"}`)}
	}
}

type handler struct{ Config }

// Register adds the surface's routes to mux.
func Register(mux *http.ServeMux, cfg Config) {
	cfg.setDefaults()
	h := &handler{cfg}
	mux.HandleFunc("POST /v1/messages", h.answering(h.create))
	mux.HandleFunc("POST /v1/messages/count_tokens", h.answering(h.countTokens))
}

// answering makes a handler of one that returns the errors which came before anything was written.
func (h *handler) answering(serve func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			anthropic.WriteError(w, r, h.Logger, err)
		}
	}
}

func (h *handler) create(w http.ResponseWriter, r *http.Request) error {
	c, err := h.open(w, r)
	if err != nil {
		return err
	}
	if done, err := h.forward(w, r, c, messagesPath); done {
		return err
	}
	if err := c.checkVersion(); err != nil {
		return err
	}
	req, err := decode(c)
	if err != nil {
		return err
	}
	c.tellIgnored(w.Header())
	req.turn.Live = req.stream && r.Header.Get(liveHeader) == "1"
	enc := newEncoder(req, h.NewID)
	if req.stream {
		return h.stream(w, r, req, enc)
	}
	resp, err := h.whole(r.Context(), req, enc)
	if err != nil {
		return err
	}
	anthropic.WriteJSON(w, http.StatusOK, resp)
	return nil
}

var errUnfinished = errors.New("messages: the turn ended without Finished")

func (h *handler) whole(ctx context.Context, req *request, enc *encoder) (*wire.Response, error) {
	for ev, err := range h.Turns.Stream(ctx, req.turn) {
		if err != nil {
			return nil, err
		}
		enc.push(ev)
	}
	if !enc.finished {
		return nil, errUnfinished
	}
	return &enc.resp, nil
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
	switch {
	case failure == nil:
		return nil
	case !out.Started():
		return failure
	case ctx.Err() != nil && turn.Ended(ctx) == nil:
		return nil // the client left
	}
	h.logFailure(ctx, failure)
	body, err := wire.Marshal(anthropic.Body(failure, anthropic.RequestID(ctx)))
	if err == nil {
		err = out.Send(sse.Event{Name: wire.TypeError, Data: body})
	}
	if err != nil {
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

func send(out *sse.Writer, events []wire.Event) error {
	for _, ev := range events {
		data, err := wire.Marshal(ev)
		if err != nil {
			return fmt.Errorf("messages: encode %s: %w", ev.EventType(), err)
		}
		if err := out.Send(sse.Event{Name: ev.EventType(), Data: data}); err != nil {
			return err
		}
	}
	return nil
}
