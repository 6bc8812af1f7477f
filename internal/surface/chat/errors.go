package chat

import (
	"errors"
	"fmt"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// shapeError is a body that does not have the form of a request. A fault in the JSON is found anew by the strict reader, which looks into
// what Peek skips.
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

func missing(param string) error {
	e := turn.Invalid(param, "missing required parameter: %q", param)
	e.Code = "missing_required_parameter"
	return e
}

func at(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
