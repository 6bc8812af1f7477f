// Package openaichat is the provider for every server that speaks OpenAI's Chat Completions: vLLM, Ollama, llama.cpp, LM Studio, OpenAI
// itself and the many that call themselves compatible. It reads what they send, however odd, and always streams.
//
// It is not the surface of the same protocol (surface/chat). Only the wiring imports it.
package openaichat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Protocol is the name of this protocol in turn.Extra, turn.Foreign and provider.Forwarder.
const Protocol = "openai-chat"

// Secret is a key that does not print.
type Secret string

const redacted = "[redacted]"

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Config says where the server is.
type Config struct {
	// BaseURL is what OpenAI's SDKs take: with /v1. A user and password in it are sent as basic authentication; a query is kept.
	BaseURL string
	// APIKey is sent as a bearer token; "" sends none.
	APIKey Secret
	// Model is the server's own name for the model, which Forward puts in the place of the client's; "" leaves the client's.
	Model string
	// ConnectTimeout bounds the connection (10 s by default), FirstByteTimeout the time from the request to the first byte of the answer
	// (5 minutes: long prompts take a local server that long), IdleTimeout each silence after it (2 minutes).
	ConnectTimeout, FirstByteTimeout, IdleTimeout time.Duration
	// Retries is how often a call that failed before its first event is tried again: 2 by default, none when negative.
	Retries int
	// Images says that the model takes images in tool results.
	Images bool
	// Logger is told of retries; nil discards.
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	setDefault(&c.ConnectTimeout, 10*time.Second)
	setDefault(&c.FirstByteTimeout, 5*time.Minute)
	setDefault(&c.IdleTimeout, 2*time.Minute)
	if c.Retries == 0 {
		c.Retries = 2
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// Provider is one server. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	base   url.URL // without user and password
	user   *url.Userinfo
	client *http.Client
	// noStreamOptions and completionTokens remember what this server has refused: stream_options, and max_tokens.
	noStreamOptions, completionTokens atomic.Bool
	sleep                             func(context.Context, time.Duration) error
	maxAnswer                         int64 // maxBody, less in tests
}

var (
	_ provider.Provider  = (*Provider)(nil)
	_ provider.Forwarder = (*Provider)(nil)
)

// New checks cfg; it does not connect.
func New(cfg Config) (*Provider, error) {
	cfg.setDefaults()
	base, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, errors.New("base_url is no URL") // err would repeat a password in it
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("base_url %q must begin with http:// or https:// and a host, such as http://127.0.0.1:8000/v1", base.Redacted())
	}
	p := &Provider{cfg: cfg, base: *base, user: base.User, sleep: sleep, maxAnswer: maxBody}
	p.base.User = nil
	p.client = &http.Client{
		Transport: transport(cfg.ConnectTimeout),
		// A redirect would carry the conversation to a place that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p, nil
}

// transport keeps many idle connections, since all calls go to one host. It leaves encodings alone: Forward passes bytes as they are.
func transport(connect time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connect, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: connect,
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     32 << 10,
		ReadBufferSize:      32 << 10,
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Protocol is openai-chat.
func (p *Provider) Protocol() string { return Protocol }

// Check asks for the list of models, which every such server has. A server that answers anything but a refusal of the key can be reached.
func (p *Provider) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ConnectTimeout)
	defer cancel()
	req, err := p.newRequest(ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return p.transportError(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden || res.StatusCode >= 500 {
		return p.statusError("", res)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxErrorBody)) // so that the connection can be used again
	return nil
}

// newRequest makes a request with the gateway's own credentials.
func (p *Provider) newRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	u := p.base
	u.Path = p.base.JoinPath(path).Path
	u.RawPath = ""
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, turn.Internal(err)
	}
	p.authorize(req.Header)
	return req, nil
}

func (p *Provider) authorize(h http.Header) {
	switch {
	case p.cfg.APIKey != "":
		h.Set("Authorization", "Bearer "+string(p.cfg.APIKey))
	case p.user != nil:
		password, _ := p.user.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(p.user.Username(), password)
	}
}
