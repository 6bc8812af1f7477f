// Package anthropic is the provider for servers that speak Anthropic's Messages API: Anthropic itself and those that are compatible.
//
// What a turn.Request has and the protocol has not:
//   - Refused by name: penalties that are not 0, top_logprobs, json_object, a temperature above 1 or, with a reasoning effort, other than 1,
//     images and files by id, files that are neither PDF nor text, unknown service tiers.
//   - Left out: seed and verbosity (wishes, not promises), prompt_cache_key (caching is by breakpoints, see addBreakpoints), metadata (it is
//     for our own store), an image's detail, a message's name, a format's name and description, the reasoning of other models.
//   - Changed: max_tokens is 32,000 where the client set none; the reasoning effort turns thinking on, adaptive or, for models that
//     refuse that, by a budget of at most half of max_tokens; system text in the middle stands behind the user's turn, or in front for
//     models that refuse that; ids of calls get the form that the server takes.
//
// For a request of the same protocol (turn.Extra.Protocol) nothing is lost: turn.Raw and turn.Block go up and down as they are, texts keep
// their blocks, Extra's thinking, output_config and metadata replace what is made of the canonical fields, sampling is the server's to
// judge, and cache breakpoints are set here only where the client set none.
//
// What a server's model refuses is remembered for as long as the Provider lives. Tools that run at Anthropic are not asked for: that needs
// the surface of the same protocol. Only the wiring imports this package.
package anthropic

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// Protocol is the name of this protocol in turn.Extra, turn.Foreign and provider.Forwarder. Extra's betas is an array of names for the
// header anthropic-beta.
const Protocol = "anthropic"

// DefaultBaseURL is Anthropic's own.
const DefaultBaseURL = "https://api.anthropic.com"

// messagesPath is where the protocol lives below the base URL.
const messagesPath = "/v1/messages"

// Config says where the server is. BaseURL "" is DefaultBaseURL; a /v1 at its end is taken away.
type Config = upstream.Config

// Provider is one server. It is safe for concurrent use.
type Provider struct {
	client *upstream.Client
	mu     sync.Mutex
	// learned is what the server has refused, by model.
	learned map[string]learned
}

var (
	_ provider.Provider  = (*Provider)(nil)
	_ provider.Forwarder = (*Provider)(nil)
)

// New checks cfg; it does not connect.
func New(cfg Config) (*Provider, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	cfg.BaseURL = strings.TrimSuffix(strings.TrimRight(cfg.BaseURL, "/"), "/v1") // OpenAI's SDKs take it so, Anthropic's do not
	client, err := upstream.New(cfg, upstream.Protocol{
		Title: "Messages", ReadError: readError, Headers: headers, Models: "/v1/models", RequestID: "Request-Id",
	})
	if err != nil {
		return nil, err
	}
	return &Provider{client: client, learned: map[string]learned{}}, nil
}

// headers keeps the version that a client asked for. A key beside a version is all that this protocol has; without one the address may
// hold a user and password.
func headers(h http.Header, key string) bool {
	if h.Get("Anthropic-Version") == "" {
		h.Set("Anthropic-Version", wire.Version)
	}
	if key != "" {
		h.Set("X-Api-Key", key)
	}
	return key != ""
}

// Protocol is anthropic.
func (p *Provider) Protocol() string { return Protocol }

// Account tells servers and accounts apart, without naming either.
func (p *Provider) Account() string { return p.client.Account() }

// Check says whether the server can be reached.
func (p *Provider) Check(ctx context.Context) error { return p.client.Check(ctx) }

// Forward sends a client's request up as it is (see upstream.Client), anthropic-version and anthropic-beta included.
func (p *Provider) Forward(ctx context.Context, w http.ResponseWriter, in provider.Forward) error {
	return p.client.Forward(ctx, w, in)
}

// betas takes the names out of the extra fields.
func betas(extra turn.Extra) []string {
	var names []string
	if extra.Protocol == Protocol {
		_ = json.Unmarshal(extra.Fields["betas"], &names) // what is no array of names has none
	}
	return names
}
