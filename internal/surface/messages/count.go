package messages

import (
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// countTokens answers POST /v1/messages/count_tokens: by the model's server where it speaks this protocol, else by an estimate.
func (h *handler) countTokens(w http.ResponseWriter, r *http.Request) error {
	c, err := h.open(w, r)
	if err != nil {
		return err
	}
	if done, err := h.forward(w, r, c, countPath); done {
		return err
	}
	if err := c.checkVersion(); err != nil {
		return err
	}
	if h.Models != nil && !c.found && c.peeked.Model != "" {
		_, err := h.Models.Model(c.peeked.Model)
		return err
	}
	req, err := decodeCount(c)
	if err != nil {
		return err
	}
	c.tellIgnored(w.Header())
	anthropic.WriteJSON(w, http.StatusOK, struct {
		InputTokens int `json:"input_tokens"`
	}{estimate(req.turn)})
	return nil
}

// decodeCount decodes a request that has no max_tokens.
func decodeCount(c *call) (*request, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(c.body, &fields); err != nil || fields == nil {
		return nil, shapeError(err)
	}
	if _, ok := fields["max_tokens"]; ok {
		return nil, invalid("max_tokens", "Extra inputs are not permitted")
	}
	fields["max_tokens"] = json.RawMessage("1000000000") // above every budget of thinking
	body, err := wire.Marshal(fields)
	if err != nil {
		return nil, turn.Internal(err)
	}
	with := *c
	with.body = body
	return decode(&with)
}

// The estimate. Four bytes a token is the usual rule for English and code, and near the truth for other scripts in UTF-8, where most
// tokenizers need more tokens a character. An image is what Anthropic charges for one of about a megapixel.
const (
	bytesPerToken  = 4
	tokensPerItem  = 4
	tokensPerImage = 1600
)

// estimate counts about as many tokens as a model would.
func estimate(req *turn.Request) int {
	bytes, tokens := 0, tokensPerItem
	for _, it := range req.Items {
		tokens += tokensPerItem
		switch it := it.(type) {
		case turn.Message:
			b, t := estimateParts(it.Parts)
			bytes, tokens = bytes+b, tokens+t
		case turn.Result:
			b, t := estimateParts(it.Parts)
			bytes, tokens = bytes+b, tokens+t
		case turn.Call:
			bytes += len(it.Name) + len(it.Arguments)
		case turn.HostedCall:
			bytes += len(it.Code)
			for _, o := range it.Outputs {
				bytes += len(o.Text)
			}
			if it.Edit != nil {
				bytes += len(it.Edit.Content)
			}
		}
	}
	for _, t := range req.Tools {
		tokens += tokensPerItem
		bytes += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	if req.Format != nil {
		bytes += len(req.Format.Schema)
	}
	return tokens + (bytes+bytesPerToken-1)/bytesPerToken
}

func estimateParts(parts []turn.Part) (bytes, tokens int) {
	for _, p := range parts {
		switch p := p.(type) {
		case turn.Text:
			bytes += len(p.Text)
		case turn.Image:
			tokens += tokensPerImage
		case turn.Document:
			if utf8.Valid(p.Data) {
				bytes += len(p.Data)
			} else {
				tokens += len(p.Data) / 30 // a page of a PDF has about 60 KB and 2,000 tokens
			}
		case turn.Foreign:
			bytes += len(p.JSON)
		}
	}
	return bytes, tokens
}
