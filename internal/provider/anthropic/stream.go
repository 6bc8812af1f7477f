package anthropic

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// Stream answers req. A call that fails before its first event is made again, Config.Retries times, if that may help.
func (p *Provider) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	return p.client.Stream(ctx, req.Model, func(send upstream.Send) error {
		return p.attempt(ctx, req, p.knows(req.Model), send)
	})
}

// attempt makes one call and sends its events. A model that refuses a form that older ones do not know is asked again in the older one.
func (p *Provider) attempt(ctx context.Context, req *turn.Request, known learned, send upstream.Send) error {
	out, err := encoder{known}.request(req)
	if err != nil {
		return err
	}
	names := betas(req.Extra)
	body, err := wire.Marshal(out)
	if err != nil {
		return turn.Internal(err)
	}
	answer, err := p.client.Post(ctx, messagesPath, req.Model, body, func(h http.Header) {
		if len(names) > 0 {
			h.Set("Anthropic-Beta", strings.Join(names, ","))
		}
	})
	if err != nil {
		e := turn.AsError(err)
		if next, ok := adapt(known, out, req, e); ok {
			p.learn(req.Model, next)
			return p.attempt(ctx, req, next, send)
		}
		return explain(e)
	}
	defer answer.Close()
	d := &decoder{newID: func() string { return turn.NewID("toolu_") }, whole: req.Extra.Protocol == Protocol}
	return answer.Read(d, send)
}

func (p *Provider) knows(model string) learned {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.learned[model]
}

// maxLearned bounds the memory: with a model for every name, clients choose the names.
const maxLearned = 1000

func (p *Provider) learn(model string, l learned) {
	l.noThinkingBack = false
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.learned[model]; !ok && len(p.learned) >= maxLearned {
		clear(p.learned)
	}
	p.learned[model] = l
}

// mostTokens is how the server says that a model cannot write as much: "max_tokens: 32000 > 8192, which is the maximum allowed ...".
var mostTokens = regexp.MustCompile(`max_tokens: \d+ > (\d+)`)

// adapt says how a call that the server refused is to be made instead, if there is a way that has not been tried. The server names the
// field only in its message.
func adapt(known learned, out *wire.Request, req *turn.Request, e *turn.Error) (learned, bool) {
	if e.Status != http.StatusBadRequest {
		return known, false
	}
	text := e.Message
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	thinks := out.Thinking != nil && out.Thinking.Type == "adaptive"
	switch m := mostTokens.FindStringSubmatch(text); {
	case m != nil && req.MaxOutputTokens == nil && known.maxTokens == 0:
		n, err := strconv.Atoi(m[1])
		known.maxTokens = n
		return known, err == nil && n > 0
	case says("signature", "redacted_thinking", "thinking blocks") && !known.noThinkingBack && hasThinking(out):
		known.noThinkingBack = true
	case says("effort", "output_config") && out.OutputConfig != nil && out.OutputConfig.Effort != "" && !says("adaptive"):
		known.noEffort = true
	case says("thinking") && thinks:
		known.budget = true
	case says("system", "role") && hasSystemTurn(out):
		known.noSystemTurns = true
	default:
		return known, false
	}
	return known, true
}

func hasThinking(out *wire.Request) bool {
	for _, m := range out.Messages {
		for _, b := range m.Content.Blocks {
			if kind := b.BlockType(); kind == wire.TypeThinking || kind == wire.TypeRedactedThinking {
				return true
			}
		}
	}
	return false
}

func hasSystemTurn(out *wire.Request) bool {
	for _, m := range out.Messages {
		if m.Role == wire.RoleSystem {
			return true
		}
	}
	return false
}
