// Package chat is the surface of POST /v1/chat/completions. A request without hosted tools whose model speaks this protocol is passed on
// untouched; every other one is decoded into a turn.Request, and the turn.Events of its answer are encoded, streamed or whole.
//
// The hosted code interpreter is our extension of the protocol: the tool {"type": "code_interpreter"}, and beside the answer what it did
// (package wire/oaichat, extension.go). Package server mounts it; it runs nothing itself.
package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/sse"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
	"github.com/lathe-gateway/lathe/internal/wire/peek"
)

// Protocol is this surface's name in turn.Extra, turn.Foreign and provider.Forwarder.
const Protocol = "openai-chat"

// Models finds the model for a name. *provider.Router is one.
type Models interface {
	Model(name string) (provider.Model, error)
}

// Config is what New needs. Turns and Models are required.
type Config struct {
	// Turns answers the turns that are not passed on.
	Turns turn.Streamer
	// Models says which requests can be passed on, and to whom.
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

// New returns the handler of POST /v1/chat/completions.
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
	peeked, err := peek.Request(body)
	if err != nil {
		return shapeError(body, err)
	}
	if peeked.Model == "" {
		return oai.Missing("model")
	}
	m, err := h.Models.Model(peeked.Model)
	if err != nil {
		return err
	}
	if f, ok := m.Provider.(provider.Forwarder); ok && f.Protocol() == Protocol && (m.Native || !peeked.Has(oaichat.ToolCodeInterpreter) && !namesOurs(body)) &&
		!hasSkills(body) {
		return f.Forward(r.Context(), w, provider.Forward{Path: "/chat/completions", Header: r.Header, Body: body})
	}
	if peeked.Has(oaichat.ToolCodeInterpreter) {
		if err := m.HostedElsewhere(Protocol); err != nil {
			return err
		}
	}
	req, err := decode(body)
	if err != nil {
		return err
	}
	req.turn.Live = req.stream && r.Header.Get(oai.LiveHeader) == "1"
	head := head{id: h.NewID("chatcmpl-"), created: h.Now().Unix(), model: req.turn.Model}
	if req.stream {
		return h.stream(w, r, req, head)
	}
	return h.whole(w, r, req, head)
}

// hasSkills says that a request brings skills, which no server of this protocol knows.
func hasSkills(body []byte) bool {
	if !bytes.Contains(body, []byte(`"container"`)) || !bytes.Contains(body, []byte(`"skills"`)) {
		return false
	}
	var in struct {
		Container struct {
			Skills []json.RawMessage `json:"skills"`
		} `json:"container"`
	}
	return json.Unmarshal(body, &in) != nil || len(in.Container.Skills) > 0
}

// namesOurs says that a request names something that only we have: a call behind which hidden steps are stored, or an uploaded file. The
// model's server would not understand it. An id stands in the body as a JSON string of its own.
func namesOurs(body []byte) bool {
	for _, kind := range []struct {
		prefix string
		is     func(id string) bool
	}{{`"call_h`, turn.IsHiddenCallID}, {`"file_`, isUpload}} {
		rest := body
		for {
			i := bytes.Index(rest, []byte(kind.prefix))
			if i < 0 {
				break
			}
			rest = rest[i+1:]
			if end := bytes.IndexByte(rest[:min(len(rest), maxID+1)], '"'); end >= 0 && kind.is(string(rest[:end])) {
				return true
			}
		}
	}
	return false
}

// maxID is the length of the longest id that we mint.
const maxID = 64

func isUpload(id string) bool {
	digits, ok := strings.CutPrefix(id, "file_")
	return ok && len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == ""
}

var errUnfinished = errors.New("chat: the turn ended without Finished")

func (h *handler) whole(w http.ResponseWriter, r *http.Request, req *request, head head) error {
	c := newCollector(head)
	for ev, err := range h.Turns.Stream(r.Context(), req.turn) {
		if err != nil {
			return err
		}
		c.push(ev)
	}
	if !c.finished {
		return errUnfinished
	}
	body, err := oaichat.Marshal(c.response())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	w.Write(body) // an error means that the client left
	return nil
}

// stream writes nothing before the first event, so that a failure until then has a status of its own.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, req *request, head head) error {
	out := sse.NewWriter(w, h.SSE)
	defer out.Close()
	enc := newEncoder(head, req.includeUsage, req.turn.Live)
	var failure error
	for ev, err := range h.Turns.Stream(r.Context(), req.turn) {
		if err != nil {
			failure = err
			break
		}
		frames, err := enc.push(ev)
		if err != nil {
			failure = err
			break
		}
		for _, f := range frames {
			if out.Send(f) != nil {
				return nil // the client left
			}
		}
	}
	if failure == nil && !enc.finished {
		failure = errUnfinished
	}
	if failure == nil || !out.Started() {
		return failure
	}
	if r.Context().Err() == nil || turn.Ended(r.Context()) != nil {
		h.fail(r, out, failure)
	}
	return nil
}

// fail ends a stream that has begun with an error frame. There is no [DONE] after it: the answer is not done.
func (h *handler) fail(r *http.Request, out *sse.Writer, failure error) {
	h.Logger.ErrorContext(r.Context(), "stream failed", "path", r.URL.Path, "error", turn.AsError(failure).Error())
	data, err := oaichat.Marshal(oaichat.ErrorFrame[oai.Error]{Error: oai.Body(failure)})
	if err != nil {
		return // a struct of strings always encodes
	}
	// An error means that the client left.
	_ = out.Send(sse.Event{Data: data})
}
