package turn

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind is the closed set of things that go wrong. Each surface has one table from Kind to its status, type and code.
type Kind int

// Anything that is not an *Error is KindInternal, and its text never reaches a client.
const (
	KindInternal        Kind = iota // our fault: 500
	KindInvalid                     // the request is wrong: 400
	KindUnsupported                 // the request asks for what we cannot honour, Param names it: 400
	KindUnauthenticated             // no key, or a wrong one: 401
	KindForbidden                   // the key may not do this: 403
	KindNotFound                    // unknown, or another project's: 404
	KindConflict                    // 409
	KindTooLarge                    // 413
	KindRateLimited                 // 429
	KindOverloaded                  // 503, try again
	KindUpstream                    // the model's server failed or answered nonsense: 502
	KindTimeout                     // 504
	KindCancelled                   // the client left: 499, never written
)

// Error is the one error that clients may see.
type Error struct {
	Kind Kind
	// Message is safe for the client and says what to do next.
	Message string
	// Param is the request field at fault, "" for none; Code the protocol-neutral code (model_not_found, unknown_parameter), "" for none.
	Param, Code string
	// RetryAfter is how long to wait; 0 for unknown.
	RetryAfter time.Duration
	// Status, UpstreamRequestID are what the model's server answered, 0 and "" where it was not the cause.
	Status            int
	UpstreamRequestID string
	// CodeRan says that code may have run: clients must not retry by themselves.
	CodeRan bool
	// Cause is for the log only.
	Cause error
}

// Errorf makes an Error whose message is for the client. A %w operand becomes its cause; its text is part of the message, so wrap only
// errors whose text is safe.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// Invalid is a bad value of a request field.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Kind: KindInvalid, Param: param, Code: "invalid_value", Message: fmt.Sprintf(format, args...)}
}

// Unsupported is a field or value that we cannot honour.
func Unsupported(param, format string, args ...any) *Error {
	return &Error{Kind: KindUnsupported, Param: param, Code: "unsupported_value", Message: fmt.Sprintf(format, args...)}
}

// NotFound is an id that does not exist for this project.
func NotFound(format string, args ...any) *Error {
	return &Error{Kind: KindNotFound, Message: fmt.Sprintf(format, args...)}
}

// Internal hides cause from the client.
func Internal(cause error) *Error {
	return &Error{Kind: KindInternal, Message: "internal error; the server's log has the details under this request's id", Cause: cause}
}

func (e *Error) Error() string {
	if e.Cause != nil && e.Cause.Error() != e.Message {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Cause }

// Ended says why the gateway itself has ended the request of ctx: the *Error that is ctx's cause. It is nil while ctx lives, and where the
// client has left, so that nobody reads an answer.
func Ended(ctx context.Context) *Error {
	if ctx.Err() == nil {
		return nil
	}
	e, _ := errors.AsType[*Error](context.Cause(ctx))
	return e
}

// AsError finds the *Error in err, or wraps err as internal. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Internal(err)
}
