package anthropic

import (
	"encoding/json"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// kindForeign is an open block that only this protocol has: calls and results of tools that run at the server, and types that came after
// this release. A surface of the same protocol gets it whole, others do not get it.
const kindForeign = "foreign"

// raw is v as this protocol writes it; nil if that fails, which what was decoded does not.
func raw(v any) *turn.Raw {
	data, err := wire.Marshal(v)
	if err != nil {
		return nil
	}
	return &turn.Raw{Protocol: Protocol, JSON: data}
}

// withRaw gives events of a block what only the block says: who called, a tool's set, citations.
func withRaw(events []turn.Event, b *openBlock) []turn.Event {
	for i, ev := range events {
		switch ev := ev.(type) {
		case turn.CallStarted:
			ev.Raw = b.callRaw(nil)
			events[i] = ev
		case turn.CallDone:
			ev.Call.Raw = b.callRaw([]byte(ev.Call.Arguments))
			events[i] = ev
		case turn.MessageDone:
			t, ok := b.block.(*wire.Text)
			if !ok || len(ev.Message.Parts) != 1 || len(b.citations) == 0 && !anySet(t.Extra) {
				continue
			}
			part, ok := ev.Message.Parts[0].(turn.Text)
			if !ok {
				continue
			}
			part.Raw = raw(wire.Text{Type: t.Type, Text: part.Text, Citations: b.citations, Extra: t.Extra})
			ev.Message.Parts = []turn.Part{part}
			events[i] = ev
		}
	}
	return events
}

// callRaw is nil where the block says nothing but id, name and input.
func (b *openBlock) callRaw(input json.RawMessage) *turn.Raw {
	call, ok := b.block.(*wire.ToolUse)
	if !ok || call.Caller == nil && call.ToolsetName == "" && !anySet(call.Extra) {
		return nil
	}
	whole := *call
	if json.Valid(input) {
		whole.Input = input
	}
	return raw(whole)
}

// anySet is false for fields that are all null.
func anySet(extra wire.Extra) bool {
	for _, v := range extra {
		if string(v) != "null" {
			return true
		}
	}
	return false
}

// grow adds a delta of a type that has no struct to a block that has none: its texts are appended, everything else replaces.
func (b *openBlock) grow(delta *wire.Raw) {
	if b == nil {
		return
	}
	block, ok := b.block.(*wire.Raw)
	if !ok {
		return
	}
	var whole, more map[string]json.RawMessage
	if json.Unmarshal(block.JSON, &whole) != nil || json.Unmarshal(delta.JSON, &more) != nil {
		return
	}
	for name, value := range more {
		if name == "type" {
			continue
		}
		var before, after string
		if json.Unmarshal(whole[name], &before) == nil && json.Unmarshal(value, &after) == nil {
			if joined, err := wire.Marshal(before + after); err == nil {
				value = joined
			}
		}
		whole[name] = value
	}
	if data, err := wire.Marshal(whole); err == nil {
		b.block = &wire.Raw{Type: block.Type, JSON: data}
	}
}

// foreign hands a block on whole.
func (d *decoder) foreign(b *openBlock) []turn.Event {
	if !d.whole || b.block == nil {
		return nil
	}
	block := b.block
	if len(b.input) > 0 && json.Valid(b.input) {
		switch v := block.(type) {
		case *wire.ToolUse:
			whole := *v
			whole.Input = b.input
			block = &whole
		case *wire.Raw:
			b.grow(&wire.Raw{Type: v.Type, JSON: append(append([]byte(`{"input":`), b.input...), '}')})
			block = b.block
		}
	}
	data, err := wire.Marshal(block)
	if err != nil {
		return nil
	}
	return append(d.seq.Close(), turn.BlockDone{Block: turn.Block{Protocol: Protocol, Kind: block.BlockType(), JSON: data}})
}
