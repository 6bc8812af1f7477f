package messages

import (
	"encoding/json"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// encoder turns the events of one turn into the events of one message, in the order of wire/anthropic.md 1.6, and keeps the whole message.
// It does no I/O. The events it returns are not changed later.
type encoder struct {
	req   *request
	newID func(prefix string) string

	// resp is the message so far; it is whole once finished.
	resp     wire.Response
	out      []wire.Event // of the push that runs
	block    block        // the open one, nil between blocks
	refusal  string       // what the model said in refusing
	finished bool
}

// block is what is in the making. It opens itself at the first thing that is in it: an empty text is no block.
type block interface {
	push(e *encoder, ev turn.Event)
}

func newEncoder(req *request, newID func(string) string) *encoder {
	return &encoder{req: req, newID: newID, resp: wire.Response{
		ID: newID("msg_"), Type: wire.TypeMessage, Role: wire.RoleAssistant, Model: req.turn.Model, Content: wire.Blocks{},
		Usage: usage(turn.Usage{}),
	}}
}

// push returns what the client is to see of ev.
func (e *encoder) push(ev turn.Event) []wire.Event {
	e.out = nil
	switch ev := ev.(type) {
	case turn.Started:
		start := e.resp // what comes later is not in it
		e.emit(&wire.MessageStart{Type: wire.TypeMessageStart, Message: start})
		return e.out
	case turn.Finished:
		e.finish(ev)
		return e.out
	}
	if e.req.mute {
		return nil
	}
	switch ev := ev.(type) {
	case turn.MessageStarted:
		e.block = &textBlock{}
	case turn.ReasoningStarted:
		e.block = &thinkingBlock{}
	case turn.CallStarted:
		e.block = openCall(e, ev)
	case turn.HostedStarted:
		e.block = openHosted(e, ev)
	case turn.HostedResumed:
		e.block = resumeHosted(e, ev)
	case turn.BlockDone:
		e.foreign(ev.Block)
	default:
		if e.block != nil {
			e.block.push(e, ev)
		}
	}
	switch ev.(type) {
	case turn.MessageDone, turn.ReasoningDone, turn.CallDone, turn.HostedDone, turn.HostedPaused:
		e.block = nil
	}
	return e.out
}

func (e *encoder) emit(ev wire.Event) { e.out = append(e.out, ev) }

// start opens a block, as it is before any delta.
func (e *encoder) start(b wire.Block) {
	e.emit(&wire.BlockStart{Type: wire.TypeBlockStart, Index: len(e.resp.Content), ContentBlock: wire.AnyBlock{Block: b}})
}

func (e *encoder) delta(d wire.Delta) {
	e.emit(&wire.BlockDelta{Type: wire.TypeBlockDelta, Index: len(e.resp.Content), Delta: wire.AnyDelta{Delta: d}})
}

// stop closes a block; b is the whole of it.
func (e *encoder) stop(b wire.Block) {
	e.emit(&wire.BlockStop{Type: wire.TypeBlockStop, Index: len(e.resp.Content)})
	e.resp.Content = append(e.resp.Content, b)
}

// whole sends a block that comes in one piece.
func (e *encoder) whole(b wire.Block) {
	e.start(b)
	e.stop(b)
}

func (e *encoder) input(piece string) {
	e.delta(&wire.InputDelta{Type: wire.TypeInputDelta, PartialJSON: piece})
}

// foreign sends a block that only this protocol knows. Calls stream their input, as everywhere: readers take it from there.
func (e *encoder) foreign(b turn.Block) {
	if b.Protocol != protocol {
		return // of another protocol's own tools: it has no form here
	}
	whole, err := wire.DecodeBlock(b.JSON)
	if err != nil {
		return // a provider sends what it has decoded
	}
	call, ok := whole.(*wire.ToolUse)
	if !ok {
		e.whole(whole)
		return
	}
	empty := *call
	empty.Input = json.RawMessage("{}")
	e.start(&empty)
	e.input(string(call.Input))
	e.stop(call)
}

// finish ends the message. Raw is the server's own end, where it speaks this protocol.
func (e *encoder) finish(ev turn.Finished) {
	e.finished = true
	reason, details := e.stopReason(ev)
	ending := wire.Ending{StopReason: &reason, StopDetails: details}
	if reason == wire.StopSequence {
		ending.StopSequence = &ev.StopSequence
	} else {
		ending.Extra = wire.Extra{"stop_sequence": json.RawMessage("null")}
	}
	e.resp.Usage = usage(ev.Usage)
	if e.req.code != "" {
		e.resp.Usage.ServerToolUse = json.RawMessage(`{"web_search_requests":0,"web_fetch_requests":0}`)
	}
	if ev.Container != nil {
		id := ev.Container.ID
		ending.Container = &wire.Container{ID: &id, ExpiresAt: expiry(ev.Container.ExpiresAt)}
		for _, s := range ev.Container.Skills {
			ending.Container.Skills = append(ending.Container.Skills, wire.SkillRef{Type: s.Type, SkillID: s.ID, Version: s.Version})
		}
	}
	var own wire.MessageDelta
	if raw := ev.Raw.Of(protocol); raw != nil && json.Unmarshal(raw, &own) == nil {
		mergeEnding(&ending, own.Delta, ev.Reason)
		mergeUsage(&e.resp.Usage, own.Usage, ev.Rounds)
	}
	e.resp.StopReason, e.resp.StopSequence, e.resp.StopDetails = ending.StopReason, ending.StopSequence, ending.StopDetails
	e.resp.Container = ending.Container
	e.emit(&wire.MessageDelta{Type: wire.TypeMessageDelta, Delta: ending, Usage: e.resp.Usage})
	e.emit(&wire.Mark{Type: wire.TypeMessageStop})
}

func (e *encoder) stopReason(ev turn.Finished) (string, *wire.StopDetails) {
	switch {
	case e.req.mute:
		return wire.StopMaxTokens, nil
	case ev.Reason == turn.ReasonFilter || e.refusal != "" && ev.Reason == turn.ReasonStop:
		d := &wire.StopDetails{Type: "refusal", Extra: wire.Extra{"category": json.RawMessage("null")}}
		if e.refusal != "" {
			d.Explanation = &e.refusal
		} else {
			d.Extra["explanation"] = json.RawMessage("null")
		}
		return wire.StopRefusal, d
	case ev.Reason == turn.ReasonLength:
		return wire.StopMaxTokens, nil
	case ev.Reason == turn.ReasonCalls:
		return wire.StopToolUse, nil
	case ev.Reason == turn.ReasonPause:
		return wire.StopPauseTurn, nil
	case ev.StopSequence != "":
		return wire.StopSequence, nil
	}
	return wire.StopEndTurn, nil
}
