package anthropic

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// readError reads the body of an answer that is no success; nil where it is no error of the protocol.
func readError(body []byte) *upstream.Said {
	var e wire.ErrorBody
	if json.Unmarshal(body, &e) == nil && (e.Error.Type != "" || e.Error.Message != "") {
		return said(&e)
	}
	return nil
}

// said gives an error the one code that clients of OpenAI's protocols look for; the rest have only their type.
func said(e *wire.ErrorBody) *upstream.Said {
	out := &upstream.Said{Message: e.Error.Message, Type: e.Error.Type}
	tooLong := strings.Contains(out.Message, "prompt is too long") || strings.Contains(out.Message, "exceed context limit")
	if e.Error.Type == wire.ErrInvalidRequest && tooLong {
		out.Code = "context_length_exceeded"
	}
	return out
}

// explain corrects what the status alone does not tell: an empty account is refused with 400, which is no fault of the client's.
func explain(e *turn.Error) *turn.Error {
	if e.Status == http.StatusBadRequest && strings.Contains(e.Message, "credit balance") {
		e.Kind, e.Code, e.Param = turn.KindUpstream, "upstream_payment_required", ""
		e.Message = "the gateway's account with the model's server has no credit left; the operator must see to it"
	}
	return e
}
