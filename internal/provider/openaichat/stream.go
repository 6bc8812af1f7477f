package openaichat

import (
	"context"
	"net/http"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// Stream answers req. A call that fails before its first event is made again, Config.Retries times, if that may help.
func (p *Provider) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	return p.client.Stream(ctx, req.Model, func(send upstream.Send) error { return p.attempt(ctx, req, send) })
}

// attempt makes one call and sends its events. A server that refuses a field that it does not know is asked again without it.
func (p *Provider) attempt(ctx context.Context, req *turn.Request, send upstream.Send) error {
	body, err := p.encode(req)
	if err != nil {
		return err
	}
	answer, err := p.client.Post(ctx, path, req.Model, body)
	if err != nil {
		if p.adapt(turn.AsError(err), req) {
			return p.attempt(ctx, req, send)
		}
		return err
	}
	defer answer.Close()
	return answer.Read(&decoder{newID: func() string { return turn.NewID("call_") }}, send)
}

func (p *Provider) encode(req *turn.Request) ([]byte, error) {
	enc := encoder{images: p.images, noStreamOptions: p.noStreamOptions.Load(), completionTokens: p.completionTokens.Load()}
	out, err := enc.request(req)
	if err != nil {
		return nil, err
	}
	body, err := oaichat.Marshal(out)
	if err != nil {
		return nil, turn.Internal(err)
	}
	return body, nil
}

// adapt remembers a field that this server refuses, and says whether that is new. The field is named in param or in the message; the
// status alone does not tell.
func (p *Provider) adapt(e *turn.Error, req *turn.Request) bool {
	if e.Status != http.StatusBadRequest && e.Status != http.StatusUnprocessableEntity {
		return false
	}
	names := func(field string) bool { return e.Param == field || strings.Contains(e.Error(), field) }
	switch {
	case names("stream_options"):
		return !p.noStreamOptions.Swap(true)
	case names("max_completion_tokens") && req.MaxOutputTokens != nil:
		return !p.completionTokens.Swap(true)
	}
	return false
}
