package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/peek"
)

// writeTimeout is how long one write to a client may take.
const writeTimeout = 30 * time.Second

// forwardFirstByte is long, since an answer that is not streamed is silent until it is whole: the client decides how long it waits.
const forwardFirstByte = time.Hour

// buffer is what is read at once.
type buffer [32 << 10]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Forward sends a client's request up as it is: only the value of model in in.Body changes, and only where Config.Model is another; the client's
// credentials are replaced by the gateway's. The answer's status, headers and bytes go back as they come, errors included, but for
// redirects and for headers that are about the gateway's own account or host (notReturned).
//
// An answer that breaks off in the middle panics with http.ErrAbortHandler, so that the client sees it break off too.
func (c *Client) Forward(ctx context.Context, w http.ResponseWriter, in provider.Forward) error {
	body := in.Body
	if c.cfg.Model != "" && in.Stream == nil {
		peeked, err := peek.Request(body)
		if err != nil {
			return &turn.Error{Kind: turn.KindInvalid, Message: "the request is not valid JSON: " + err.Error()}
		}
		body = peeked.SpliceModel(body, c.cfg.Model)
	}
	watch := newWatch(ctx, max(c.cfg.FirstByteTimeout, forwardFirstByte), c.cfg.IdleTimeout)
	defer watch.close()
	var content io.Reader = bytes.NewReader(body)
	if in.Stream != nil {
		content = in.Stream
	}
	method := cmp.Or(in.Method, http.MethodPost)
	req, err := c.newRequest(watch.ctx, method, in.Path, content) //nolint:contextcheck // the watch's context is a child of ctx
	if err != nil {
		return err
	}
	if in.Query != "" {
		req.URL.RawQuery = in.Query
	}
	upHeaders(req.Header, in.Header)
	c.authorize(req.Header)
	res, err := c.http.Do(req) //nolint:bodyclose // the watch closes it
	if err != nil {
		return c.transportError(watch.ctx, err) //nolint:contextcheck // as above
	}
	watch.read(res.Body)
	if res.StatusCode >= http.StatusBadRequest {
		return c.forwardError(w, watch, res)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		// A client that followed it would go past the gateway, to an address that is often not even its own to know.
		return c.statusError("", &http.Response{StatusCode: res.StatusCode, Header: res.Header, Body: io.NopCloser(watch)})
	}
	downHeaders(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	c.copy(w, watch, res.ContentLength < 0 || strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream"))
	return nil
}

// copy writes what comes as it comes.
func (c *Client) copy(w http.ResponseWriter, watch *watch, flush bool) {
	buf, ok := buffers.Get().(*buffer)
	if !ok {
		buf = new(buffer) // the pool holds nothing else
	}
	defer buffers.Put(buf)
	rc := http.NewResponseController(w)
	// A writer without deadlines only lacks the protection against a client that does not read.
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	for {
		n, err := watch.Read(buf[:])
		if n > 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, werr := w.Write(buf[:n]); werr != nil {
				return // the client left
			}
			if flush && rc.Flush() != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// forwardError passes an error on. It is small, so it is read whole: a server that repeats the gateway's own key must not tell it to the
// client.
func (c *Client) forwardError(w http.ResponseWriter, watch *watch, res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(watch, maxBody))
	if err != nil {
		return c.transportError(watch.ctx, err)
	}
	downHeaders(w.Header(), res.Header)
	if clean := c.redact(string(body)); clean != string(body) {
		body = []byte(clean)
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(res.StatusCode)
	w.Write(body) // an error means that the client left
	return nil
}

// notForwarded are the headers that belong to one connection, and those that name or authenticate the client.
var notForwarded = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Host": true, "Expect": true,
	"Authorization": true, "X-Api-Key": true, "Api-Key": true, "X-Goog-Api-Key": true, "Cookie": true, "Openai-Organization": true, "Openai-Project": true,
	"Anthropic-Workspace-Id": true,
	"Forwarded":              true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Forwarded-Port": true, "X-Real-Ip": true,
	"X-Lathe-Live": true,
}

// upHeaders copies a client's headers.
func upHeaders(to, from http.Header) {
	named := connectionHeaders(from)
	for name, values := range from {
		if !notForwarded[name] && !named[name] {
			to[name] = values
		}
	}
	if _, ok := to["User-Agent"]; !ok {
		to["User-Agent"] = nil // keeps net/http from adding its own
	}
}

// notReturned are the headers of an answer that belong to one connection, those that tell of the gateway's own account (its session
// cookies would be shared by all clients), and those that a client would take for rules of the gateway's host.
var notReturned = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Set-Cookie": true, "Set-Cookie2": true, "Authorization": true, "X-Api-Key": true, "Api-Key": true, "Www-Authenticate": true,
	"Openai-Organization": true, "Openai-Project": true, "Anthropic-Organization-Id": true, "Anthropic-Workspace-Id": true,
	"Alt-Svc": true, "Strict-Transport-Security": true, "Public-Key-Pins": true, "Clear-Site-Data": true, "Nel": true, "Report-To": true,
}

// downHeaders copies an answer's headers. Where the gateway has given the request an id already, the server's stands beside it.
func downHeaders(to, from http.Header) {
	const id = "X-Request-Id"
	own := to.Get(id)
	named := connectionHeaders(from)
	for name, values := range from {
		if !notReturned[name] && !named[name] {
			to[name] = values
		}
	}
	if upstream := from.Get(id); own != "" && upstream != "" {
		to.Set("X-Upstream-Request-Id", upstream)
		to.Set(id, own)
	}
}

// connectionHeaders are those that Connection names; nil for none.
func connectionHeaders(h http.Header) map[string]bool {
	var out map[string]bool
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			if out == nil {
				out = map[string]bool{}
			}
			out[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	return out
}
