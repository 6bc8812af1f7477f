package anthropic

import (
	"cmp"
	"encoding/json"
	"maps"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// decoder turns events, or a whole message, into the events of a turn. It is a pure state machine.
type decoder struct {
	// newID mints the id of a call that came without one.
	newID func() string
	// whole hands on all that the server says, for a surface of the same protocol: a message for each block of text, with what it cites, the
	// blocks of the server's own tools, and how the message ended (see own.go).
	whole bool

	seq     turn.Sequencer
	begun   bool // message_start has come
	started bool // Started has been sent
	head    turn.Started
	usage   wire.Usage // of the open message
	before  turn.Usage // of those before it
	stop    string
	ending  wire.Ending
	stopped bool // message_stop has come
	blocks  int
	calls   int
	open    *openBlock
	runes   int // of the open text, over all its blocks
}

// openBlock is a block that has started. Its kind is "" where nothing of it is handed on.
type openBlock struct {
	kind      string
	call      int             // number of a call
	input     json.RawMessage // that the call started with
	streamed  bool            // pieces of input have come
	start     int             // of a text, in runes
	citations []wire.Citation
	block     wire.Block // as it started, where the surface wants all of it
}

// Push takes the data of a frame, or a whole body.
func (d *decoder) Push(data []byte) ([]turn.Event, error) {
	ev, err := wire.WholeBody(data)
	if err != nil {
		return nil, err
	}
	return d.push(ev)
}

// push takes the next event. Events and blocks that nobody knows are skipped.
func (d *decoder) push(ev wire.Event) ([]turn.Event, error) {
	switch ev := ev.(type) {
	case *wire.MessageStart:
		return d.message(&ev.Message)
	case *wire.BlockStart:
		return d.startBlock(ev.ContentBlock.Block)
	case *wire.BlockDelta:
		return d.delta(ev.Delta.Delta), nil
	case *wire.BlockStop:
		return d.stopBlock(), nil
	case *wire.MessageDelta:
		d.count(ev.Usage)
		d.end(ev.Delta)
	case *wire.Mark:
		d.stopped = d.stopped || ev.Type == wire.TypeMessageStop
	case *wire.ErrorBody:
		return nil, said(ev)
	}
	return nil, nil
}

// message begins a message. Some servers send the event twice; a message with content is all of the answer, as it comes for the next call
// of a running program; another message in the same stream goes on where the last one ended.
func (d *decoder) message(m *wire.Response) ([]turn.Event, error) {
	if d.begun && m.ID == d.head.ID {
		d.count(m.Usage)
		if d.blocks > 0 {
			return nil, nil
		}
	}
	var out []turn.Event
	if d.begun && m.ID != d.head.ID {
		out = d.stopBlock()
		d.before, d.usage, d.stop, d.ending, d.stopped = d.before.Add(usage(d.usage)), wire.Usage{}, "", wire.Ending{}, false
	}
	d.begun = true
	d.head.ID = m.ID
	if d.head.Model == "" {
		d.head.Model, d.head.ServiceTier = m.Model, m.Usage.ServiceTier
	}
	d.count(m.Usage)
	for _, b := range m.Content {
		events, err := d.startBlock(b)
		if err != nil {
			return nil, err
		}
		out = append(append(out, events...), d.stopBlock()...)
	}
	d.end(wire.Ending{StopReason: m.StopReason, StopSequence: m.StopSequence, StopDetails: m.StopDetails, Container: m.Container})
	return out, nil
}

// count takes the newest totals: an event has only those that changed.
func (d *decoder) count(u wire.Usage) {
	take(&d.usage.InputTokens, u.InputTokens)
	take(&d.usage.CacheReadTokens, u.CacheReadTokens)
	take(&d.usage.CacheCreationTokens, u.CacheCreationTokens)
	take(&d.usage.CacheCreation, u.CacheCreation)
	take(&d.usage.OutputTokens, u.OutputTokens)
	take(&d.usage.OutputTokensDetails, u.OutputTokensDetails)
	if u.ServerToolUse != nil {
		d.usage.ServerToolUse = u.ServerToolUse
	}
	d.usage.ServiceTier = cmp.Or(u.ServiceTier, d.usage.ServiceTier)
	d.usage.InferenceGeo = cmp.Or(u.InferenceGeo, d.usage.InferenceGeo)
	if len(u.Extra) > 0 {
		extra := maps.Clone(d.usage.Extra)
		if extra == nil {
			extra = wire.Extra{}
		}
		maps.Copy(extra, u.Extra)
		d.usage.Extra = extra
	}
}

// take replaces a value by a newer one.
func take[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}

func (d *decoder) end(e wire.Ending) {
	if e.StopReason != nil {
		d.stop, d.ending = *e.StopReason, e
	}
}

// start sends Started once. It waits for the first block, since an overloaded server may fail between the two, and the call can then be
// made again.
func (d *decoder) start() []turn.Event {
	if d.started {
		return nil
	}
	d.started = true
	return []turn.Event{d.head}
}

func (d *decoder) startBlock(b wire.Block) ([]turn.Event, error) {
	out := append(d.stopBlock(), d.start()...)
	d.blocks++
	d.open = &openBlock{}
	if d.whole {
		d.open.block = b
	}
	switch b := b.(type) {
	case *wire.Text:
		if d.whole {
			d.runes = 0
			out = append(out, d.seq.OpenMessage()...)
		}
		d.open.kind, d.open.start, d.open.citations = wire.TypeText, d.runes, b.Citations
		out = append(out, d.text(b.Text)...)
	case *wire.Thinking:
		d.open.kind = wire.TypeThinking
		d.runes = 0
		out = append(out, d.seq.Reasoning(b.Thinking, "")...)
		if b.Signature != "" {
			out = append(out, d.seq.Sign(b.Signature, "")...)
		}
	case *wire.RedactedThinking:
		d.open.kind = wire.TypeRedactedThinking
		d.runes = 0
		out = append(out, d.seq.Sign("", b.Data)...)
	case *wire.ToolUse:
		if b.Type != wire.TypeToolUse {
			d.open.kind = kindForeign // of a server tool
			break
		}
		if b.Name == "" {
			return nil, upstream.Malformed("a tool call without a name", nil)
		}
		id := b.ID
		if id == "" {
			id = d.newID()
		}
		d.open.kind, d.open.call, d.open.input = wire.TypeToolUse, d.calls, b.Input
		d.calls++
		d.runes = 0
		out = append(out, withRaw(d.seq.Call(d.open.call, id, b.Name, ""), d.open)...)
	default:
		d.open.kind = kindForeign
	}
	return out, nil
}

func (d *decoder) text(s string) []turn.Event {
	d.runes += utf8.RuneCountInString(s)
	return d.seq.Text(s)
}

// delta adds to the open block. Text is taken whatever block it is in, so that none is lost.
func (d *decoder) delta(delta wire.Delta) []turn.Event {
	out := d.start()
	switch delta := delta.(type) {
	case *wire.TextDelta:
		return append(out, d.text(delta.Text)...)
	case *wire.ThinkingDelta:
		return append(out, d.seq.Reasoning(delta.Thinking, "")...)
	case *wire.SignatureDelta:
		return append(out, d.seq.Sign(delta.Signature, "")...)
	case *wire.InputDelta:
		if d.open != nil && d.open.kind == wire.TypeToolUse && delta.PartialJSON != "" {
			d.open.streamed = true
			return append(out, d.seq.Call(d.open.call, "", "", delta.PartialJSON)...)
		}
		if d.open != nil && d.open.kind == kindForeign {
			d.open.input = append(d.open.input, delta.PartialJSON...)
		}
	case *wire.CitationsDelta:
		if d.open != nil {
			d.open.citations = append(d.open.citations, delta.Citation)
		}
	case *wire.Raw:
		d.open.grow(delta)
	}
	return out
}

// stopBlock closes the open block. Text goes on in the next one: citations split an answer into many.
func (d *decoder) stopBlock() []turn.Event {
	b := d.open
	d.open = nil
	if b == nil {
		return nil
	}
	switch b.kind {
	case wire.TypeText:
		out := d.cite(b)
		if d.whole {
			out = append(out, withRaw(d.seq.Close(), b)...)
		}
		return out
	case wire.TypeThinking, wire.TypeRedactedThinking:
		events := d.seq.Close()
		for i, ev := range events {
			if r, ok := ev.(turn.ReasoningDone); ok && b.kind == wire.TypeRedactedThinking {
				r.Reasoning.Field = fieldRedacted
				events[i] = r
			}
		}
		return events
	case wire.TypeToolUse:
		var out []turn.Event
		if !b.streamed {
			whole := string(b.input)
			if whole == "" {
				whole = "{}"
			}
			out = d.seq.Call(b.call, "", "", whole)
		}
		return append(out, withRaw(d.seq.Close(), b)...)
	case kindForeign:
		return d.foreign(b)
	}
	return nil
}

// cite ties the whole of a text block to the pages that it cites. Citations of documents have no counterpart in other protocols, and come
// only where a document asks for them.
func (d *decoder) cite(b *openBlock) []turn.Event {
	var out []turn.Event
	for _, c := range b.citations {
		at := c.URL
		if at == nil {
			at = c.Source
		}
		if at == nil && !d.whole {
			continue
		}
		a := turn.Annotation{Start: b.start, End: d.runes}
		if at != nil {
			a.URL = *at
		}
		if d.whole {
			a.Raw = raw(c)
		}
		if c.Title != nil {
			a.Title = *c.Title
		}
		out = append(out, d.seq.Annotate(a)...)
	}
	return out
}

// Over says that message_stop has come.
func (d *decoder) Over() bool { return d.stopped }

// Finished says that the answer is whole.
func (d *decoder) Finished() bool { return d.stop != "" || d.stopped }

// End closes the answer. Without a reason to stop it has broken off.
func (d *decoder) End() ([]turn.Event, error) {
	if !d.Finished() {
		return nil, upstream.Incomplete()
	}
	out := append(d.start(), d.stopBlock()...)
	if s := d.ending.StopDetails; d.stop == wire.StopRefusal && s != nil && s.Explanation != nil && !d.whole {
		out = append(out, d.seq.Refusal(*s.Explanation)...)
	}
	out = append(out, d.seq.Close()...)
	f := turn.Finished{Reason: d.reason(), Usage: d.before.Add(usage(d.usage))}
	if d.ending.StopSequence != nil {
		f.StopSequence = *d.ending.StopSequence
	}
	if d.whole {
		f.Raw = raw(wire.MessageDelta{Type: wire.TypeMessageDelta, Delta: d.ending, Usage: d.usage})
	}
	return append(out, f), nil
}

func (d *decoder) reason() turn.Reason {
	switch d.stop {
	case wire.StopMaxTokens, wire.StopContextWindow:
		return turn.ReasonLength
	case wire.StopPauseTurn: // comes only with server tools
		if d.whole {
			return turn.ReasonPause
		}
		return turn.ReasonLength // the answer is not all that it was to be
	case wire.StopRefusal:
		return turn.ReasonFilter
	}
	if d.calls > 0 {
		return turn.ReasonCalls
	}
	return turn.ReasonStop
}

// count takes only what can be a number of tokens: sums and counters go wrong on others.
func count(n *int) int {
	if n == nil {
		return 0
	}
	return min(max(*n, 0), 1<<40)
}

// usage adds what the cache had and got, which this protocol counts apart.
func usage(u wire.Usage) turn.Usage {
	out := turn.Usage{Cached: count(u.CacheReadTokens), CacheWrite: count(u.CacheCreationTokens), Output: count(u.OutputTokens)}
	out.Input = count(u.InputTokens) + out.Cached + out.CacheWrite
	if u.OutputTokensDetails != nil {
		out.Reasoning = count(&u.OutputTokensDetails.ThinkingTokens)
	}
	return out
}
