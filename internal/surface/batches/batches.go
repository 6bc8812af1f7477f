// Package batches is the surface of /v1/messages/batches (wire/anthropic.md 1.10). Batches are work for the vendor's night: they are passed
// to Anthropic, under the gateway's account, and each is seen only by the project that made it. Models of other providers are refused by
// name, and so are hosted tools that run here.
package batches

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/native"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/peek"
)

const (
	protocol   = "anthropic"
	collection = "/v1/messages/batches"
	// maxRequests is the vendor's limit for one batch.
	maxRequests = 100_000
	// maxListed is how many batches of a project are remembered for its list. All others are still found by their id.
	maxListed   = 1000
	longestPage = 1000
)

// Config is what the surface needs; all of it is required but Logger.
type Config struct {
	Models  *provider.Router
	Natives *native.Keeper
	Steps   store.Steps
	Logger  *slog.Logger
}

// Handler serves the surface for the project of each request's principal.
type Handler struct {
	Config
	mu sync.Mutex // over changes of the lists
}

// New returns a Handler.
func New(cfg Config) *Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Handler{Config: cfg}
}

// Register adds the surface's routes to mux.
func (h *Handler) Register(mux *http.ServeMux) {
	for pattern, fn := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST " + collection:                  h.create,
		"GET " + collection:                   h.list,
		"GET " + collection + "/{id}":         h.member,
		"POST " + collection + "/{id}/cancel": h.member,
		"DELETE " + collection + "/{id}":      h.member,
		"GET " + collection + "/{id}/results": h.results,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := fn(w, r); err != nil {
				anthropic.WriteError(w, r, h.Logger, err)
			}
		})
	}
}

// request is one of a batch's requests. Fields that the vendor adds are refused there, not here.
type request struct {
	CustomID string          `json:"custom_id"`
	Params   json.RawMessage `json:"params"`
}

func (h *Handler) create(w http.ResponseWriter, r *http.Request) error {
	var body map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return readError(err)
	}
	var requests []request
	if err := json.Unmarshal(body["requests"], &requests); err != nil || len(requests) == 0 {
		return turn.Invalid("requests", "requests: give an array of objects, each with custom_id and params")
	}
	if len(requests) > maxRequests {
		return &turn.Error{Kind: turn.KindTooLarge, Param: "requests", Message: "requests: a batch has at most 100,000"}
	}
	maker := provider.Model{}
	for i := range requests {
		m, params, err := h.check(r.Context(), requests[i], i)
		if err != nil {
			return err
		}
		if i == 0 {
			maker = m
		} else if !sameServer(maker, m) {
			return turn.Unsupported("requests", "requests[%d].params.model: %q is another account than %q: send them as two batches", i, m.Name, maker.Name)
		}
		requests[i].Params = params
	}
	encoded, err := encode(body, requests)
	if err != nil {
		return turn.Internal(err)
	}
	to, _ := maker.Provider.(provider.Forwarder) // check has seen that it is one
	answer := &held{header: http.Header{}}
	// Models have been put in: as a stream the body passes as it is.
	if err := to.Forward(r.Context(), answer, provider.Forward{Path: collection, Header: plain(r.Header), Stream: bytes.NewReader(encoded)}); err != nil {
		return err
	}
	if id := answer.id(); answer.status < 300 && id != "" {
		// The batch exists now, whether or not the client waits for the answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
		defer cancel()
		if err := h.remember(ctx, maker.Name, id); err != nil {
			return err
		}
	}
	answer.send(w, r)
	return nil
}

// check says which model a request is for, and gives its params with the provider's own name for that.
func (h *Handler) check(ctx context.Context, req request, i int) (provider.Model, json.RawMessage, error) {
	fail := func(format string, args ...any) (provider.Model, json.RawMessage, error) {
		return provider.Model{}, nil, turn.Unsupported("requests", "requests[%d].params"+format, append([]any{i}, args...)...)
	}
	peeked, err := peek.Request(req.Params)
	if err != nil || peeked.Model == "" {
		return fail(": give an object with a model")
	}
	m, err := h.Models.Model(peeked.Model)
	if err != nil {
		return fail(".model: %s", turn.AsError(err).Message)
	}
	if f, ok := m.Provider.(provider.Forwarder); !ok || f.Protocol() != protocol {
		return fail(".model: batches are passed to Anthropic, and %q is a model of another provider: send its requests one by one", m.Name)
	}
	if hosted := slices.IndexFunc(peeked.Tools, func(kind string) bool { return strings.HasPrefix(kind, "code_execution_") }); hosted >= 0 && !m.Native {
		return fail(".tools: %s runs here for the model %q, and not in a batch: leave it out, or ask the operator for hosted_tools: provider",
			peeked.Tools[hosted], m.Name)
	}
	if err := h.Natives.Admit(ctx, req.Params); err != nil {
		return provider.Model{}, nil, err
	}
	return m, peeked.SpliceModel(req.Params, m.Upstream), nil
}

// sameServer says that two models are at the same account: a batch goes to one.
func sameServer(a, b provider.Model) bool {
	type account interface{ Account() string }
	x, ok := a.Provider.(account)
	y, both := b.Provider.(account)
	return a.Name == b.Name || ok && both && x.Account() == y.Account()
}

func encode(body map[string]json.RawMessage, requests []request) ([]byte, error) {
	raw, err := json.Marshal(requests)
	if err != nil {
		return nil, err
	}
	body["requests"] = raw
	return json.Marshal(body)
}

// maker is who has a batch of this project.
func (h *Handler) maker(r *http.Request) (provider.Forwarder, error) {
	id := r.PathValue("id")
	maker, err := h.Natives.Maker(r.Context(), id)
	if err == nil && maker == nil {
		err = turn.NotFound("there is no batch %.100q", id)
	}
	return maker, err
}

// member passes a call about one batch on.
func (h *Handler) member(w http.ResponseWriter, r *http.Request) error {
	maker, err := h.maker(r)
	if err != nil {
		return err
	}
	answer := &held{header: http.Header{}}
	r.Header = plain(r.Header)
	if err := native.Pass(answer, r, maker); err != nil {
		return err
	}
	if r.Method == http.MethodDelete && answer.status < 300 {
		if err := h.forget(r.Context(), r.PathValue("id")); err != nil {
			return err
		}
	}
	answer.send(w, r)
	return nil
}

// results are lines, as many as the batch has requests: they pass as they come.
func (h *Handler) results(w http.ResponseWriter, r *http.Request) error {
	maker, err := h.maker(r)
	if err != nil {
		return err
	}
	return native.Pass(w, r, maker)
}

// readError says what is wrong with a body that is no JSON object, or too large.
func readError(err error) error {
	if e, ok := errors.AsType[*turn.Error](err); ok {
		return e
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &turn.Error{Kind: turn.KindTooLarge, Message: "the batch is too large: send it in parts"}
	}
	return turn.Invalid("", "the body must be a JSON object with requests")
}
