// Package openairesponses is the provider for servers that speak OpenAI's Responses API: OpenAI itself, vLLM, LM Studio, xAI. Requests are
// stateless (store: false, the whole history in input) and always streamed; what a server sends is read leniently.
//
// What the protocol has no field for: stop and seed are refused by name; the name of a message's speaker and the mark that a tool failed
// are left out. A tool without strict goes up with strict: false, since this protocol would otherwise make its optional parameters
// required. Items of the server's own hosted tools in an answer are skipped and logged: where those tools shall be used the model has
// hosted_tools: provider, and its requests are passed on untouched.
//
// It is not the surface of the same protocol (surface/responses). Only the wiring imports it.
package openairesponses

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/upstream"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// Protocol is the name of this protocol in turn.Extra, turn.Foreign and provider.Forwarder.
const Protocol = "openai-responses"

// path is where the protocol lives below the base URL.
const path = "/responses"

// Config says where the server is.
type Config = upstream.Config

// Provider is one server. It is safe for concurrent use.
type Provider struct {
	client *upstream.Client
	log    *slog.Logger
	images bool
	// thinks remembers that an answer held reasoning, noReasoningText that this server refuses reasoning that is not sealed.
	thinks, noReasoningText atomic.Bool
}

var (
	_ provider.Provider  = (*Provider)(nil)
	_ provider.Forwarder = (*Provider)(nil)
)

// New checks cfg; it does not connect.
func New(cfg Config) (*Provider, error) {
	client, err := upstream.New(cfg, upstream.Protocol{Title: "Responses", ReadError: readError})
	if err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Provider{client: client, log: log, images: cfg.Images}, nil
}

func readError(body []byte) *upstream.Said {
	if r, err := oairesponses.ParseReceived(body); err == nil {
		return (*upstream.Said)(r.Error) // nil where there is none
	}
	return nil
}

// Protocol is openai-responses.
func (p *Provider) Protocol() string { return Protocol }

// Check says whether the server can be reached.
func (p *Provider) Check(ctx context.Context) error { return p.client.Check(ctx) }

// Forward sends a client's request up as it is (see upstream.Client).
func (p *Provider) Forward(ctx context.Context, w http.ResponseWriter, in provider.Forward) error {
	return p.client.Forward(ctx, w, in)
}
