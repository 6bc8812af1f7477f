// Package openaichat is the provider for every server that speaks OpenAI's Chat Completions: vLLM, Ollama, llama.cpp, LM Studio, OpenAI
// itself and the many that call themselves compatible. It reads what they send, however odd, and always streams.
//
// It is not the surface of the same protocol (surface/chat). Only the wiring imports it.
package openaichat

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/upstream"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// Protocol is the name of this protocol in turn.Extra, turn.Foreign and provider.Forwarder.
const Protocol = "openai-chat"

// path is where the protocol lives below the base URL.
const path = "/chat/completions"

// Config says where the server is.
type Config = upstream.Config

// Provider is one server. It is safe for concurrent use.
type Provider struct {
	client *upstream.Client
	images bool
	// noStreamOptions and completionTokens remember what this server has refused: stream_options, and max_tokens.
	noStreamOptions, completionTokens atomic.Bool
}

var (
	_ provider.Provider  = (*Provider)(nil)
	_ provider.Forwarder = (*Provider)(nil)
)

// New checks cfg; it does not connect.
func New(cfg Config) (*Provider, error) {
	client, err := upstream.New(cfg, upstream.Protocol{Title: "Chat Completions", ReadError: readError})
	if err != nil {
		return nil, err
	}
	return &Provider{client: client, images: cfg.Images}, nil
}

func readError(body []byte) *upstream.Said {
	if r, err := oaichat.ParseReceived(body); err == nil {
		return (*upstream.Said)(r.Error) // nil where there is none
	}
	return nil
}

// Protocol is openai-chat.
func (p *Provider) Protocol() string { return Protocol }

// Check says whether the server can be reached.
func (p *Provider) Check(ctx context.Context) error { return p.client.Check(ctx) }

// Forward sends a client's request up as it is (see upstream.Client).
func (p *Provider) Forward(ctx context.Context, w http.ResponseWriter, in provider.Forward) error {
	return p.client.Forward(ctx, w, in)
}
