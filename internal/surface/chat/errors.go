package chat

import (
	"errors"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// shapeError is a body that does not have the form of a request. A fault in the JSON is found anew by the strict reader, which looks into
// what package peek skips.
func shapeError(body []byte, err error) error {
	if _, strict := oaichat.ParseRequest(body); strict != nil {
		err = strict
	}
	if f, ok := errors.AsType[*oaichat.FieldError](err); ok {
		e := turn.Invalid(f.Field, "invalid value for %q: %s", f.Field, f.Reason)
		e.Code = "invalid_type"
		return e
	}
	return &turn.Error{Kind: turn.KindInvalid, Message: "the body is not valid JSON: " + err.Error()}
}
