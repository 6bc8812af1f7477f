package upstreamtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/lathe-gateway/lathe/internal/wire/anthropic"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// messages speaks Anthropic's Messages, and is as strict as its server is.
type messages struct{}

func (messages) serve(ctx context.Context, w http.ResponseWriter, req *Request, a Answer) {
	id := fmt.Sprintf("req_upstream_%d", req.Number)
	in := &anthropic.Request{}
	fault := "the body is no JSON of this protocol"
	if json.Unmarshal(req.Body, in) == nil {
		fault = refusal(in)
	}
	if fault != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, errorBody(anthropic.ErrInvalidRequest, fault, id))
		return
	}
	p := &messagesPlayer{
		player: player{ctx: ctx, w: w, quirks: a.Quirks}, id: fmt.Sprintf("msg_stub_%d", req.Number), request: req.Number, model: in.Model,
		usage: oaichat.Usage{PromptTokens: 10, CompletionTokens: 5},
	}
	if in.Stream == nil || !*in.Stream || a.Quirks.Plain {
		p.whole(a.Steps)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	p.flush()
	p.play(a.Steps)
}

func (r *Request) sinceUserMessage() (text string, results []string) {
	for _, m := range r.Messages().Messages {
		if m.Role != anthropic.RoleUser {
			continue
		}
		said, answers := userContent(m.Content)
		if len(answers) == 0 {
			text, results = said, nil
			continue
		}
		results = append(results, answers...)
	}
	return text, results
}

// userContent is what a user's message says itself, and the results in it.
func userContent(c anthropic.Content) (said string, results []string) {
	if c.Text != nil {
		return *c.Text, nil
	}
	for _, b := range c.Blocks {
		switch b := b.(type) {
		case *anthropic.Text:
			said += b.Text
		case *anthropic.ToolResult:
			text, _ := userContent(b.Content)
			results = append(results, text)
		}
	}
	return said, results
}

// messagesError writes an error of this package's, which is in OpenAI's form, as this protocol has it. Other bodies stay.
func messagesError(status int, body, id string) string {
	var in oaichat.ErrorFrame[errorJSON]
	var typed struct{ Type string }
	ours := json.Unmarshal([]byte(body), &in) == nil && json.Unmarshal([]byte(body), &typed) == nil && typed.Type == ""
	if !ours || in.Error.Message == "" {
		return body
	}
	kind := map[int]string{
		400: anthropic.ErrInvalidRequest, 401: anthropic.ErrAuthentication, 402: anthropic.ErrBilling, 403: anthropic.ErrPermission,
		404: anthropic.ErrNotFound, 409: anthropic.ErrConflict, 413: anthropic.ErrTooLarge, 429: anthropic.ErrRateLimit, 503: anthropic.ErrAPI, 504: anthropic.ErrTimeout,
		529: anthropic.ErrOverloaded,
	}[status]
	if kind == "" {
		kind = anthropic.ErrAPI
	}
	return errorBody(kind, in.Error.Message, id)
}

func errorBody(kind, message, id string) string {
	return encode(anthropic.ErrorBody{Type: anthropic.TypeError, Error: anthropic.Error{Type: kind, Message: message}, RequestID: id})
}

func encode(v any) string {
	raw, err := anthropic.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("upstreamtest: a call's pieces must be JSON together: %v", err))
	}
	return string(raw)
}

// messagesPlayer plays one answer.
type messagesPlayer struct {
	player
	id      string
	request int
	model   string
	usage   oaichat.Usage
	finish  string
	begun   bool
	blocks  int
	open    string // kind of the open block
	calls   int
	thought int
}

func (p *messagesPlayer) play(steps []Step) {
	if p.quirks.Spliced {
		p.splice(steps)
		return
	}
	for _, s := range steps {
		if p.ctx.Err() != nil {
			return
		}
		p.do(s)
	}
	p.end()
}

func (p *messagesPlayer) do(s Step) {
	switch s := s.(type) {
	case Text:
		p.in(&anthropic.Text{Type: anthropic.TypeText})
		p.delta(&anthropic.TextDelta{Type: anthropic.TypeTextDelta, Text: string(s)})
	case Cite:
		p.stop()
		p.in(&anthropic.Text{Type: anthropic.TypeText, Citations: []anthropic.Citation{}})
		p.delta(&anthropic.CitationsDelta{Type: anthropic.TypeCitationsDelta, Citation: anthropic.Citation{
			Type: "web_search_result_location", URL: &s.URL, Title: &s.Title, CitedText: "quoted", EncryptedIndex: new("E")}})
		p.delta(&anthropic.TextDelta{Type: anthropic.TypeTextDelta, Text: s.Text})
		p.stop()
	case Reasoning:
		p.in(&anthropic.Thinking{Type: anthropic.TypeThinking})
		p.delta(&anthropic.ThinkingDelta{Type: anthropic.TypeThinkingDelta, Thinking: string(s)})
	case Redacted:
		p.in(&anthropic.RedactedThinking{Type: anthropic.TypeRedactedThinking, Data: string(s)})
		p.stop()
	case Call:
		p.call(s)
	case Finish:
		p.finish = string(s)
	case Usage:
		p.usage = oaichat.Usage(s)
	case Wait:
		p.begin()
		p.wait(s)
	case Frame:
		p.raw("data: " + messagesError(http.StatusServiceUnavailable, string(s), "") + "\n\n")
	default:
		p.common(s)
	}
}

// begin sends message_start.
func (p *messagesPlayer) begin() {
	if p.begun {
		return
	}
	p.begun = true
	start := &anthropic.MessageStart{Type: anthropic.TypeMessageStart, Message: p.message()}
	p.event(start)
	if p.quirks.DuplicateStart {
		p.event(start)
	}
}

func (p *messagesPlayer) message() anthropic.Response {
	m := anthropic.Response{
		ID: p.id, Type: anthropic.TypeMessage, Role: anthropic.RoleAssistant, Model: p.model, Content: anthropic.Blocks{}, Usage: p.counts(),
	}
	m.Usage.OutputTokens = new(1)
	return m
}

// counts are the usage as this protocol has it: what the cache had and got does not count as input.
func (p *messagesPlayer) counts() anthropic.Usage {
	if p.quirks.Usage == UsageNone {
		return anthropic.Usage{}
	}
	out := anthropic.Usage{InputTokens: new(p.usage.PromptTokens), OutputTokens: new(p.usage.CompletionTokens)}
	if d := p.usage.PromptTokensDetails; d != nil {
		*out.InputTokens -= d.CachedTokens + d.CacheWriteTokens
		out.CacheReadTokens, out.CacheCreationTokens = new(d.CachedTokens), new(d.CacheWriteTokens)
	}
	if d := p.usage.CompletionTokensDetails; d != nil {
		out.OutputTokensDetails = &anthropic.OutputTokensDetails{ThinkingTokens: d.ReasoningTokens}
	}
	return out
}

// in opens a block unless one of its kind is open.
func (p *messagesPlayer) in(b anthropic.Block) {
	p.begin()
	if p.open == b.BlockType() {
		return
	}
	p.stop()
	if p.quirks.Unknown {
		p.event(&anthropic.Raw{Type: "hum", JSON: json.RawMessage(`{"type":"hum"}`)})
		p.start(&anthropic.Raw{Type: "riddle", JSON: json.RawMessage(`{"type":"riddle","of":["many","parts"]}`)})
		p.delta(&anthropic.Raw{Type: "riddle_delta", JSON: json.RawMessage(`{"type":"riddle_delta","riddle":"?"}`)})
		p.stop()
	}
	p.start(b)
}

func (p *messagesPlayer) start(b anthropic.Block) {
	p.open = b.BlockType()
	p.event(&anthropic.BlockStart{Type: anthropic.TypeBlockStart, Index: p.blocks, ContentBlock: anthropic.AnyBlock{Block: b}})
}

func (p *messagesPlayer) delta(d anthropic.Delta) {
	p.event(&anthropic.BlockDelta{Type: anthropic.TypeBlockDelta, Index: p.blocks, Delta: anthropic.AnyDelta{Delta: d}})
}

// stop closes the open block; thinking gets its signature.
func (p *messagesPlayer) stop() {
	if p.open == "" {
		return
	}
	if p.open == anthropic.TypeThinking && !p.quirks.NoSignature {
		p.delta(&anthropic.SignatureDelta{Type: anthropic.TypeSignatureDelta, Signature: p.signature()})
	}
	p.open = ""
	p.event(&anthropic.BlockStop{Type: anthropic.TypeBlockStop, Index: p.blocks})
	p.blocks++
}

func (p *messagesPlayer) signature() string {
	p.thought++
	return fmt.Sprintf("sig_%d_%d", p.request, p.thought-1)
}

func (p *messagesPlayer) use(c Call) *anthropic.ToolUse {
	out := &anthropic.ToolUse{Type: anthropic.TypeToolUse, ID: c.ID, Name: c.Name, Input: json.RawMessage("{}")}
	if out.ID == "" && !p.quirks.NoIDs {
		out.ID = fmt.Sprintf("toolu_stub_%d_%d", p.request, p.calls)
	}
	p.calls++
	return out
}

func (p *messagesPlayer) call(c Call) {
	p.stop()
	b := p.use(c)
	if p.quirks.ArgumentsObject && len(c.Pieces) > 0 {
		b.Input, c.Pieces = json.RawMessage(join(c.Pieces)), nil
	}
	p.in(b)
	for n, piece := range c.Pieces {
		if p.ctx.Err() != nil {
			return
		}
		if n == c.Held && c.Between != nil {
			if c.Reached != nil {
				close(c.Reached)
			}
			p.wait(c.Between)
		}
		if n > 0 {
			p.pause(c.Delay)
		}
		p.delta(&anthropic.InputDelta{Type: anthropic.TypeInputDelta, PartialJSON: piece})
	}
	p.stop()
}

// stopReason translates the words of Chat Completions, so that scenarios serve both.
func (p *messagesPlayer) stopReason() string {
	switch {
	case p.finish == "length":
		return anthropic.StopMaxTokens
	case p.finish == "content_filter":
		return anthropic.StopRefusal
	case p.finish != "":
		return p.finish
	case p.calls > 0 && !p.quirks.FinishStop:
		return anthropic.StopToolUse
	}
	return anthropic.StopEndTurn
}

func (p *messagesPlayer) end() {
	if p.ctx.Err() != nil {
		return
	}
	p.begin()
	p.stop()
	if p.quirks.NoFinish {
		return
	}
	end := anthropic.Ending{StopReason: new(p.stopReason())}
	p.event(&anthropic.MessageDelta{Type: anthropic.TypeMessageDelta, Delta: end, Usage: p.counts()})
	if !p.quirks.NoDone {
		p.event(&anthropic.Mark{Type: anthropic.TypeMessageStop})
	}
}

func (p *messagesPlayer) event(ev anthropic.Event) {
	if p.quirks.Pings && p.begun && ev.EventType() != anthropic.TypeMessageStart {
		p.frame(&anthropic.Mark{Type: anthropic.TypePing})
	}
	p.frame(ev)
}

func (p *messagesPlayer) frame(ev anthropic.Event) {
	data := encode(ev)
	if p.quirks.Padded {
		data = strings.TrimSuffix(data, "}") + strings.Repeat(" ", 1+len(data)%13) + "}"
	}
	p.raw("event: " + ev.EventType() + "\ndata: " + data + "\n\n")
}

// body is the answer as one message.
func (p *messagesPlayer) body(steps []Step) anthropic.Response {
	m := p.message()
	for _, s := range steps {
		switch s := s.(type) {
		case Text:
			if n := len(m.Content); n > 0 {
				if last, ok := m.Content[n-1].(*anthropic.Text); ok {
					last.Text += string(s)
					continue
				}
			}
			m.Content = append(m.Content, &anthropic.Text{Type: anthropic.TypeText, Text: string(s)})
		case Cite:
			m.Content = append(m.Content, &anthropic.Text{Type: anthropic.TypeText, Text: s.Text})
		case Reasoning:
			m.Content = append(m.Content, &anthropic.Thinking{Type: anthropic.TypeThinking, Thinking: string(s), Signature: p.signature()})
		case Redacted:
			m.Content = append(m.Content, &anthropic.RedactedThinking{Type: anthropic.TypeRedactedThinking, Data: string(s)})
		case Call:
			b := p.use(s)
			if len(s.Pieces) > 0 {
				b.Input = json.RawMessage(join(s.Pieces))
			}
			m.Content = append(m.Content, b)
		default:
			p.begun = true // nothing of a stream may be written
			p.do(s)
		}
	}
	m.StopReason, m.Usage = new(p.stopReason()), p.counts()
	return m
}

func (p *messagesPlayer) whole(steps []Step) {
	p.w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(p.w, encode(p.body(steps))) // an error means that the client left
}

func (p *messagesPlayer) splice(steps []Step) {
	p.frame(&anthropic.MessageStart{Type: anthropic.TypeMessageStart, Message: p.body(steps)})
	p.frame(&anthropic.Mark{Type: anthropic.TypeMessageStop})
}
