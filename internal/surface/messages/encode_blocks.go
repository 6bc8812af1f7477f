package messages

import (
	"encoding/json"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// textBlock is text in the making.
type textBlock struct {
	open bool
	text wire.Text
	said strings.Builder
}

func (b *textBlock) start(e *encoder) {
	if b.open {
		return
	}
	b.open = true
	b.text = wire.Text{Type: wire.TypeText}
	first := b.text
	e.start(&first)
}

func (b *textBlock) push(e *encoder, ev turn.Event) {
	switch ev := ev.(type) {
	case turn.TextDelta:
		b.start(e)
		b.said.WriteString(ev.Text)
		e.delta(&wire.TextDelta{Type: wire.TypeTextDelta, Text: ev.Text})
	case turn.RefusalDelta:
		e.refusal += ev.Text // stands in stop_details
	case turn.Annotated:
		if c, ok := b.citation(ev.Annotation); ok {
			b.start(e)
			b.text.Citations = append(b.text.Citations, c)
			e.delta(&wire.CitationsDelta{Type: wire.TypeCitationsDelta, Citation: c})
		}
	case turn.MessageDone:
		if !b.open {
			return
		}
		whole := b.text
		whole.Text = b.said.String()
		if len(ev.Message.Parts) == 1 {
			whole.Extra = extraOf(ev.Message.Parts[0])
		}
		e.stop(&whole)
	}
}

// extraOf are the fields of a text that its server wrote and that have no struct here.
func extraOf(p turn.Part) wire.Extra {
	t, ok := p.(turn.Text)
	var own wire.Text
	if !ok || t.Raw.Of(protocol) == nil || json.Unmarshal(t.Raw.JSON, &own) != nil {
		return nil
	}
	return own.Extra
}

// citation is the server's own, or a page that another protocol's model cites. A link to a file of the container has no counterpart: files
// are told with the call that made them.
func (b *textBlock) citation(a turn.Annotation) (wire.Citation, bool) {
	var c wire.Citation
	if raw := a.Raw.Of(protocol); raw != nil && json.Unmarshal(raw, &c) == nil {
		return c, true
	}
	if a.URL == "" {
		return c, false
	}
	runes := []rune(b.said.String())
	end := min(max(a.End, 0), len(runes))
	cited := string(runes[min(max(a.Start, 0), end):end])
	return wire.Citation{
		Type: "web_search_result_location", URL: &a.URL, Title: &a.Title, CitedText: cited, EncryptedIndex: new(""),
	}, true
}

// thinkingBlock is reasoning in the making.
type thinkingBlock struct {
	open bool
	said strings.Builder
}

func (b *thinkingBlock) start(e *encoder) {
	if !b.open {
		b.open = true
		e.start(&wire.Thinking{Type: wire.TypeThinking})
	}
}

func (b *thinkingBlock) push(e *encoder, ev turn.Event) {
	if !e.req.thinks {
		return
	}
	switch ev := ev.(type) {
	case turn.ReasoningDelta:
		if e.req.omitted {
			return
		}
		b.start(e)
		piece := ev.Text
		if ev.Next {
			piece = summaryBreak + piece
		}
		b.said.WriteString(piece)
		e.delta(&wire.ThinkingDelta{Type: wire.TypeThinkingDelta, Thinking: piece})
	case turn.ReasoningDone:
		r := ev.Reasoning
		if r.Field == wire.TypeRedactedThinking && !b.open {
			e.whole(&wire.RedactedThinking{Type: wire.TypeRedactedThinking, Data: r.Encrypted})
			return
		}
		b.start(e)
		signature := seal(r, e.req.omitted)
		e.delta(&wire.SignatureDelta{Type: wire.TypeSignatureDelta, Signature: signature})
		e.stop(&wire.Thinking{Type: wire.TypeThinking, Thinking: b.said.String(), Signature: signature})
	}
}

// callBlock is a call of a client's tool in the making.
type callBlock struct {
	call      wire.ToolUse
	arguments strings.Builder
}

func openCall(e *encoder, ev turn.CallStarted) *callBlock {
	b := &callBlock{}
	if raw := ev.Raw.Of(protocol); raw != nil {
		_ = json.Unmarshal(raw, &b.call) // what is not in it is set below
	}
	id := ev.CallID
	if id == "" {
		id = e.newID(ourCall) // without one the client could not answer
	}
	b.call.Type, b.call.ID, b.call.Name, b.call.Input = wire.TypeToolUse, clientCallID(id), ev.Name, json.RawMessage("{}")
	if b.call.ToolsetName == "" {
		b.call.ToolsetName = e.req.toolsets[ev.Name]
	}
	switch {
	case ev.Caller != "":
		b.call.Caller = &wire.Caller{Type: callerType(e.req.code), ToolID: clientHostedID(ev.Caller)}
	case e.req.programmatic:
		b.call.Caller = direct()
	}
	first := b.call
	e.start(&first)
	e.input("")
	return b
}

func direct() *wire.Caller { return &wire.Caller{Type: "direct"} }

// callerType is how a program is called as a caller: the newest version goes by the name of the one before it.
func callerType(code string) string {
	if code == "code_execution_20260521" {
		return "code_execution_20260120"
	}
	return code
}

func (b *callBlock) push(e *encoder, ev turn.Event) {
	switch ev := ev.(type) {
	case turn.CallDelta:
		b.arguments.WriteString(ev.Delta)
		e.input(ev.Delta)
	case turn.CallDone:
		whole := b.call
		whole.Input = inputObject(b.arguments.String())
		e.stop(&whole)
	}
}

// inputObject is a call's input as an object. Arguments that are none stand in one, as the protocol's guide has it.
func inputObject(arguments string) json.RawMessage {
	var fields map[string]json.RawMessage
	switch {
	case strings.TrimSpace(arguments) == "":
		return json.RawMessage("{}")
	case json.Unmarshal([]byte(arguments), &fields) == nil && fields != nil:
		return json.RawMessage(strings.TrimSpace(arguments))
	}
	out, err := wire.Marshal(map[string]string{"INVALID_JSON": arguments})
	if err != nil {
		return json.RawMessage("{}") // a string always encodes
	}
	return out
}
