package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// maxErrorBody bounds what is read of an error's body, maxMessage what of its message reaches a client.
const (
	maxErrorBody = 64 << 10
	maxMessage   = 2000
)

const codeUnreachable = "upstream_unreachable"

// Said is what a server says of a failure, in the words of OpenAI's error object; Anthropic's has only Message and Type. A Decoder returns it as an error for a failure that is
// told inside the stream.
type Said struct{ Message, Type, Code, Param string }

func (s *Said) Error() string { return "the model's server says: " + s.Message }

// Incomplete is the error for an answer that ended before it was whole.
func Incomplete() *turn.Error {
	return &turn.Error{Kind: turn.KindUpstream, Code: "upstream_incomplete",
		Message: "the model's server broke off before the answer was finished: try again"}
}

// GaveUp is the error for an answer that the server itself ended without a reason that has an error of its own. why is the server's word.
func GaveUp(why string) *turn.Error {
	return &turn.Error{Kind: turn.KindUpstream, Code: "upstream_failed",
		Message: "the model's server gave up in the middle of the answer (" + clip(why) + "): try again"}
}

// Malformed is the error for an answer that breaks its protocol. what follows "the model's server sent"; cause may be nil.
func Malformed(what string, cause error) *turn.Error {
	return &turn.Error{Kind: turn.KindUpstream, Code: "upstream_malformed", Message: "the model's server sent " + what, Cause: cause}
}

// transportError is a call that got no answer, or broke off in the middle of one. ctx is the call's.
func (c *Client) transportError(ctx context.Context, err error) *turn.Error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errFirstByte):
		return &turn.Error{Kind: turn.KindTimeout, Code: "upstream_timeout", Cause: err,
			Message: fmt.Sprintf("the model's server sent nothing within %s; it may be loading the model or overloaded: try again", c.cfg.FirstByteTimeout)}
	case errors.Is(cause, errIdle):
		return &turn.Error{Kind: turn.KindTimeout, Code: "upstream_timeout", Cause: err,
			Message: fmt.Sprintf("the model's server fell silent for %s in the middle of its answer: try again", c.cfg.IdleTimeout)}
	case errors.Is(cause, context.DeadlineExceeded):
		return &turn.Error{Kind: turn.KindTimeout, Message: "the time for this request is over", Cause: cause}
	case cause != nil:
		return &turn.Error{Kind: turn.KindCancelled, Message: "the client left", Cause: cause}
	}
	return &turn.Error{Kind: turn.KindUpstream, Code: codeUnreachable, Cause: c.redactCause(err),
		Message: "the model's server cannot be reached; the operator finds the cause with: lathe doctor"}
}

// redactCause keeps the key out of the log too.
func (c *Client) redactCause(err error) error {
	if text := err.Error(); c.redact(text) != text {
		return errors.New(c.redact(text))
	}
	return err
}

// redact takes the gateway's own credentials out of a server's text.
func (c *Client) redact(s string) string {
	if key := string(c.cfg.APIKey); key != "" {
		s = strings.ReplaceAll(s, key, redacted)
	}
	if c.user != nil {
		if password, ok := c.user.Password(); ok && password != "" {
			s = strings.ReplaceAll(s, password, redacted)
		}
	}
	return s
}

// statusError reads an answer that is no success. It does not close the body.
func (c *Client) statusError(model string, res *http.Response) *turn.Error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		body = nil // the status alone must do
	}
	received := c.protocol.ReadError(body)
	e := c.classify(model, res.StatusCode, received)
	e.Status = res.StatusCode
	e.RetryAfter = retryAfter(res.Header, time.Now())
	e.UpstreamRequestID = res.Header.Get(c.protocol.RequestID)
	e.Cause = fmt.Errorf("status %d: %s", res.StatusCode, clip(c.redact(string(bytes.TrimSpace(body)))))
	return e
}

// classify is the table from what a server says to our kinds. received is nil where the body was not an error of the protocol.
func (c *Client) classify(model string, status int, received *Said) *turn.Error {
	said := ""
	e := &turn.Error{}
	if received != nil {
		said = clip(c.redact(received.Message))
		e.Param = received.Param
		if _, err := strconv.Atoi(received.Code); err != nil {
			e.Code = received.Code // a number only repeats the status
		}
	}
	answered := fmt.Sprintf("the model's server answered with status %d", status)
	if said != "" {
		answered += ": " + said
	}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		// This is about the gateway's own key: a client that saw 401 would suspect its own.
		return &turn.Error{Kind: turn.KindUpstream, Code: "upstream_unauthorized",
			Message: fmt.Sprintf("the model's server refused the gateway's own credentials (status %d); the operator must check api_key of this model", status)}
	case status == http.StatusPaymentRequired:
		return &turn.Error{Kind: turn.KindUpstream, Code: "upstream_payment_required",
			Message: "the gateway's account with the model's server has no credit left; the operator must see to it"}
	case status == http.StatusNotFound && received != nil && (received.Code != "" || received.Type != ""):
		e.Kind, e.Code, e.Param = turn.KindNotFound, "model_not_found", "model"
		e.Message = fmt.Sprintf("the model's server does not know the model %q; the operator must check model in the configuration", model)
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status < 400:
		e.Kind, e.Param = turn.KindUpstream, ""
		e.Message = fmt.Sprintf("the model's server has no %s at its base_url (status %d); the operator must check base_url", c.protocol.Title, status)
	case status == http.StatusTooManyRequests:
		e.Kind, e.Message = turn.KindRateLimited, answered
	case status == http.StatusRequestEntityTooLarge:
		e.Kind, e.Message = turn.KindTooLarge, answered
	case status == http.StatusRequestTimeout || status == http.StatusGatewayTimeout:
		e.Kind, e.Message = turn.KindTimeout, answered
	case status == http.StatusServiceUnavailable || status == 529:
		e.Kind, e.Message = turn.KindOverloaded, answered
	case status < 500 && status != http.StatusConflict:
		e.Kind, e.Message = turn.KindInvalid, said
		if said == "" {
			e.Message = answered
		}
	default:
		e.Kind, e.Message = turn.KindUpstream, answered
	}
	return e
}

// codeStatus gives the status that belongs to an error which came inside a stream, after status 200.
var codeStatus = map[string]int{
	"context_length_exceeded": 400, "invalid_request_error": 400, "rate_limit_exceeded": 429, "rate_limit_error": 429,
	"insufficient_quota": 429, "too_many_requests": 429, "invalid_prompt": 400, "server_is_overloaded": 503, "slow_down": 503, "overloaded_error": 529,
	"authentication_error": 401, "billing_error": 402, "permission_error": 403, "not_found_error": 404, "conflict_error": 409, // Anthropic's
	"request_too_large": 413, "api_error": 500, "timeout_error": 504,
}

// frameError is a failure that was told inside a stream.
func (c *Client) frameError(model string, received *Said) *turn.Error {
	status, ok := codeStatus[received.Code]
	if !ok {
		status, ok = codeStatus[received.Type]
	}
	if n, err := strconv.Atoi(received.Code); err == nil && n >= 400 && n < 600 {
		status, ok = n, true
	}
	if !ok {
		status = http.StatusInternalServerError
	}
	e := c.classify(model, status, received)
	e.Status = status
	return e
}

// retryable says whether the same call may succeed when it is made again.
func retryable(e *turn.Error) bool {
	switch {
	case e.Kind == turn.KindCancelled || e.Kind == turn.KindTimeout && e.Status == 0:
		return false // nobody waits any more, or has waited long enough
	case e.Status == 0:
		return e.Kind == turn.KindUpstream
	}
	return e.Status == http.StatusRequestTimeout || e.Status == http.StatusConflict || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// retryAfter reads Retry-After-Ms and Retry-After (seconds or a date); 0 is unknown.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "..."
}
