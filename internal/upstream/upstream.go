// Package upstream is the HTTP client toward a model's server, shared by the providers that call one: credentials, time-outs, retries,
// the mapping of errors, reading a streamed answer, passing a client's request on untouched, and what of a history all of them send alike.
//
// It knows no protocol: a provider brings the body of a call and a Decoder for the answer. Only providers import it.
package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Secret is a key that does not print.
type Secret string

const redacted = "[redacted]"

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Config says where the server is.
type Config struct {
	// BaseURL is what the vendor's SDKs take: with /v1 for OpenAI's protocols, without for Anthropic's. A user and password in it are sent as basic authentication; a query is kept.
	BaseURL string
	// APIKey is sent as a bearer token, or as the Protocol has it; "" sends none.
	APIKey Secret
	// Model is the server's own name for the model, which Forward puts in the place of the client's; "" leaves the client's.
	Model string
	// ConnectTimeout bounds the connection (10 s by default), FirstByteTimeout the time from the request to the first byte of the answer
	// (5 minutes: long prompts take a local server that long), IdleTimeout each silence after it (2 minutes).
	ConnectTimeout, FirstByteTimeout, IdleTimeout time.Duration
	// MaxAnswer is how many bytes an answer may have, streamed or not: 64 MiB by default. No honest one comes near it, and it is held in
	// memory until it is finished. What is passed on untouched has no bound.
	MaxAnswer int64
	// Retries is how often a call that failed before its first event is tried again: 2 by default, none when negative.
	Retries int
	// Images says that the model takes images in tool results.
	Images bool
	// Logger is told of retries; nil discards.
	Logger *slog.Logger
	// Sleep waits between tries, and ends early with ctx; nil is a timer. Tests replace it.
	Sleep func(ctx context.Context, d time.Duration) error
}

func (c *Config) setDefaults() {
	setDefault(&c.ConnectTimeout, 10*time.Second)
	setDefault(&c.FirstByteTimeout, 5*time.Minute)
	setDefault(&c.IdleTimeout, 2*time.Minute)
	if c.MaxAnswer == 0 {
		c.MaxAnswer = maxBody
	}
	if c.Retries == 0 {
		c.Retries = 2
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// Protocol is what a server speaks, as far as the client must know it.
type Protocol struct {
	// Title is its name in messages: Chat Completions.
	Title string
	// ReadError reads the body of an answer that is no success; it returns nil where that is no error of the protocol. Nil reads none.
	ReadError func(body []byte) *Said
	// Headers sets what every call has, the key among it (which may be ""), and reports whether that is all: otherwise, as where Headers is
	// nil, the key is sent as a bearer token.
	Headers func(h http.Header, key string) bool
	// Models is the path of the list of models, /models by default; RequestID the header with the server's id of a request, X-Request-Id by
	// default.
	Models, RequestID string
}

func (p *Protocol) setDefaults() {
	if p.Models == "" {
		p.Models = "/models"
	}
	if p.RequestID == "" {
		p.RequestID = "X-Request-Id"
	}
}

// Client calls one server. It is safe for concurrent use.
type Client struct {
	cfg      Config
	protocol Protocol
	base     url.URL // without user and password
	user     *url.Userinfo
	http     *http.Client
}

// New checks cfg; it does not connect.
func New(cfg Config, protocol Protocol) (*Client, error) {
	cfg.setDefaults()
	protocol.setDefaults()
	base, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, errors.New("base_url is no URL") // err would repeat a password in it
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("base_url %q must begin with http:// or https:// and a host, such as http://127.0.0.1:8000/v1", base.Redacted())
	}
	if protocol.ReadError == nil {
		protocol.ReadError = func([]byte) *Said { return nil }
	}
	c := &Client{cfg: cfg, protocol: protocol, base: *base, user: base.User}
	c.base.User = nil
	c.http = &http.Client{
		Transport: transport(cfg.ConnectTimeout),
		// A redirect would carry the conversation to a place that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// CloseIdle closes the connections that no call uses.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Account is the same for clients of one server with the same credentials. It says nothing of either.
func (c *Client) Account() string {
	whole := c.base
	whole.User = c.user
	sum := sha256.Sum256([]byte(whole.String() + "\x00" + string(c.cfg.APIKey)))
	return hex.EncodeToString(sum[:8])
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

// Check asks for the list of models, which every such server has. A server that answers anything but a refusal of the key can be reached.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ConnectTimeout)
	defer cancel()
	req, err := c.newRequest(ctx, http.MethodGet, c.protocol.Models, nil)
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.transportError(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden || res.StatusCode >= 500 {
		return c.statusError("", res)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxErrorBody)) // so that the connection can be used again
	return nil
}

// newRequest makes a request with the gateway's own credentials.
func (c *Client) newRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	u := c.base
	u.Path = c.base.JoinPath(path).Path
	u.RawPath = ""
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, turn.Internal(err)
	}
	c.authorize(req.Header)
	return req, nil
}

func (c *Client) authorize(h http.Header) {
	if set := c.protocol.Headers; set != nil && set(h, string(c.cfg.APIKey)) {
		return
	}
	switch {
	case c.cfg.APIKey != "":
		h.Set("Authorization", "Bearer "+string(c.cfg.APIKey))
	case c.user != nil:
		password, _ := c.user.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(c.user.Username(), password)
	}
}
