// Package provider is the contract of the places where models are, and the Router that finds the one for a model's name. One folder
// per protocol stands below it; each passes the suite in providertest.
//
// To add a provider: a folder with request.go, response.go, stream.go and errors.go around one type that implements turn.Streamer, a
// test that calls providertest.Run, its name in package config, and a line in cmd/lathe/wire.go.
package provider

import (
	"context"
	"io"
	"net/http"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Provider answers turns with a model. Its Stream gets a request whose Model is the provider's own name, whose Hosted is nil and whose
// items hold no HostedCall.
type Provider interface {
	turn.Streamer
	// Check says whether the model's server can be reached, for lathe doctor.
	Check(ctx context.Context) error
}

// Forwarder is a Provider that can take a client's request of its own protocol as it is. Protocol is "openai-chat",
// "openai-responses" or "anthropic".
type Forwarder interface {
	Protocol() string
	// Forward sends body up and writes the answer's status, headers and bytes as they come. An error means that nothing has been
	// written to w yet.
	Forward(ctx context.Context, w http.ResponseWriter, in Forward) error
}

// Forward is a request to pass on untouched.
type Forward struct {
	// Method is POST where it is "".
	Method string
	// Path below the base URL: /chat/completions. Query is what stands behind it, without the question mark.
	Path, Query string
	Header      http.Header
	// Body names a model, whose value is replaced by the provider's own. Stream stands in its place where it does not: a call for something
	// that the provider has made.
	Body   []byte
	Stream io.Reader
}

// Model is one line of the configuration's models.
type Model struct {
	// Name is what clients ask for; "*" takes every other name.
	Name string
	// Upstream is the provider's own name for it; "" means the name that the client asked for.
	Upstream string
	// ProviderName is the kind of provider, for models' owned_by and for logs.
	ProviderName string
	Provider     Provider
	// Images says that tool results may carry images.
	Images bool
	// Native leaves hosted tools to the provider (hosted_tools: provider).
	Native bool
	// Created is in Unix seconds.
	Created int64
}

// apis says where the hosted tools of a provider that speaks a protocol are to be had, by their vendor's name for them.
var apis = map[string]string{"openai-responses": "/v1/responses", "anthropic": "/v1/messages"}

// HostedElsewhere refuses hosted tools where they are left to the provider and the request's protocol is not the provider's own.
func (m Model) HostedElsewhere(protocol string) error {
	f, ok := m.Provider.(Forwarder)
	if !m.Native || !ok || f.Protocol() == protocol {
		return nil
	}
	return turn.Unsupported("tools", "the hosted tools of the model %q are left to its provider (hosted_tools: provider), which has them on "+
		"%s only: send the request there, or ask the operator for hosted_tools: lathe", m.Name, apis[f.Protocol()])
}
