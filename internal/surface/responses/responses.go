// Package responses is the surface of POST /v1/responses: it decodes the OpenAI Responses API into a turn.Request and encodes the
// turn.Events of the answer, streamed or whole. It runs nothing and knows no provider; package server mounts it.
//
// Nothing is stored in this release: store is accepted and answered with false, and what needs stored responses is refused by name.
// Obfuscation is only sent where a request asks for it.
package responses

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/lathe-gateway/lathe/internal/sse"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// LiveHeader is the request header that, set to 1, asks for the output of hosted code while it is printed.
const LiveHeader = "X-Lathe-Live"

// maxBody holds the largest input the vendor takes (50 MB of files in base64).
const maxBody = 64 << 20

// Config is what New needs. Turns is required.
type Config struct {
	// Turns answers the turns.
	Turns turn.Streamer
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
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	req, err := decode(body)
	if err != nil {
		return err
	}
	req.turn.Live = req.stream && r.Header.Get(LiveHeader) == "1"
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

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, turn.Errorf(turn.KindTooLarge,
			"the request is larger than %d MiB; upload files with POST /v1/files and name them by id", maxBody>>20)
	}
	if err != nil {
		return nil, &turn.Error{Kind: turn.KindInvalid, Message: "the request's body ended early; send it again", Cause: err}
	}
	return body, nil
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
	out := sse.NewWriter(w, h.SSE)
	defer out.Close()
	var failure error
	for ev, err := range h.Turns.Stream(r.Context(), req.turn) {
		if err != nil {
			failure = err
			break
		}
		if send(out, enc.push(ev)) != nil {
			return nil // the client left
		}
	}
	if failure == nil && !enc.finished {
		failure = errUnfinished
	}
	if failure != nil {
		if !out.Started() {
			return failure
		}
		if r.Context().Err() != nil {
			return nil
		}
		h.logFailure(r.Context(), failure)
		if send(out, enc.fail(failure)) != nil {
			return nil
		}
	}
	out.Send(sse.Event{Data: []byte("[DONE]")})
	return nil
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
