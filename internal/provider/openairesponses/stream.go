package openairesponses

import (
	"context"
	"net/http"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
)

// Stream answers req. A call that fails before its first event is made again, Config.Retries times, if that may help.
func (p *Provider) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	return p.client.Stream(ctx, req.Model, func(send upstream.Send) error {
		return p.attempt(ctx, req, encoder{images: p.images, thinks: p.thinks.Load(), noReasoningText: p.noReasoningText.Load()}, send)
	})
}

// attempt makes one call and sends its events. A server that refuses something that it cannot do without harm is asked again without it.
func (p *Provider) attempt(ctx context.Context, req *turn.Request, enc encoder, send upstream.Send) error {
	body, err := enc.request(req)
	if err != nil {
		return err
	}
	answer, err := p.client.Post(ctx, path, req.Model, body)
	if err != nil {
		if p.adapt(turn.AsError(err), &enc) {
			return p.attempt(ctx, req, enc, send)
		}
		return err
	}
	defer answer.Close()
	d := &decoder{newID: func() string { return turn.NewID("call_") }}
	err = answer.Read(d, send)
	if d.thought {
		p.thinks.Store(true)
	}
	for _, kind := range d.skipped() {
		p.log.WarnContext(ctx, "an item of the model's server was skipped: only models with hosted_tools: provider use its own tools",
			"model", req.Model, "item_type", kind)
	}
	return err
}

// adapt leaves out what this server refuses of reasoning, and says whether that is new. What depends on the model, of which one server may
// have many, or on the conversation is not remembered; that unsealed reasoning is refused is.
func (p *Provider) adapt(e *turn.Error, enc *encoder) bool {
	if e.Status != http.StatusBadRequest && e.Status != http.StatusUnprocessableEntity && e.Status != http.StatusNotFound {
		return false
	}
	text := strings.ToLower(e.Error())
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case !enc.noEncrypted && (strings.HasPrefix(e.Param, "include") || has("encrypted content is not supported")):
		// A model that does not reason (OpenAI), a server that seals nothing (vLLM).
		enc.noEncrypted, enc.noSealed = true, true
	case !enc.noSealed && (e.Code == "invalid_encrypted_content" || has("encrypted content") && has("could not be verified")):
		// Sealed for another account or model, earlier in the conversation.
		enc.noSealed = true
	case !enc.noIDs && has("item with id 'rs_") && has("not found"):
		// Several servers look ids up although what they belong to is there.
		enc.noIDs = true
	case !enc.noReasoningText && has("].content': array too long"):
		// OpenAI takes no reasoning that it did not seal.
		enc.noReasoningText = true
		p.noReasoningText.Store(true)
	default:
		return false
	}
	return true
}
