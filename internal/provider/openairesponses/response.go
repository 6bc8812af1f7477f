package openairesponses

import (
	"fmt"
	"slices"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// Events that other servers send beside, or instead of, those of the wire package.
const (
	typeCancelled       = "response.cancelled"
	typeDone            = "response.done"
	typeOldReasonDelta  = "response.reasoning.delta" // older vLLM
	typeOldReasonDone   = "response.reasoning.done"
	typeOldSummaryDelta = "response.reasoning_summary.delta"
	typeOldSummaryDone  = "response.reasoning_summary.done"
	annotationURL       = "url_citation"
	reasonContentFilter = "content_filter"
	statusFailed        = "failed"
	statusCancelled     = "cancelled"
	statusIncomplete    = "incomplete"
	statusInProgress    = "in_progress"
	statusQueued        = "queued"
)

// decoder turns the events of a stream, or a whole response, into events of the turn. It is a pure state machine.
//
// Whatever came is taken where it came first: in deltas, at the end of its part, at the end of its item, or only in the response at the
// end. What came before is not taken again.
type decoder struct {
	// newID mints the id of a call that came without one.
	newID func() string

	seq     turn.Sequencer
	started bool
	head    turn.Started
	slots   []*slot         // items, in order of arrival
	current *slot           // message or reasoning whose block is open
	writing int             // calls that are not done
	calls   int             // all of them
	ids     map[string]bool // of calls
	// held is what came of other items while a call was being written: it would end the call too early.
	held  []*oairesponses.Received
	final *oairesponses.ReceivedResponse

	thought bool // there was reasoning
}

// Push takes the data of the next event, or a whole response.
func (d *decoder) Push(data []byte) ([]turn.Event, error) {
	r, err := oairesponses.ParseReceived(data)
	if err != nil {
		return nil, err
	}
	return d.push(r)
}

// Over says that the response has ended.
func (d *decoder) Over() bool { return d.final != nil }

// Finished says the same: nothing comes after the end.
func (d *decoder) Finished() bool { return d.final != nil }

// maxItems bounds an answer: finding an item among the others must stay cheap, whatever a server sends.
const maxItems = 10_000

func (d *decoder) push(r *oairesponses.Received) ([]turn.Event, error) {
	switch {
	case len(d.slots) > maxItems || r.Response != nil && len(r.Response.Output) > maxItems:
		return nil, upstream.Malformed(fmt.Sprintf("more than %d items in one answer", maxItems), nil)
	case d.final != nil:
		return nil, nil
	case r.Error != nil:
		return nil, (*upstream.Said)(r.Error)
	case r.Response != nil:
		return d.response(r.Type, r.Response)
	}
	return d.event(r), nil
}

// response takes an event about the whole response, or the response itself.
func (d *decoder) response(kind string, r *oairesponses.ReceivedResponse) ([]turn.Event, error) {
	d.head = turn.Started{ID: or(r.ID, d.head.ID), Model: or(r.Model, d.head.Model), ServiceTier: or(r.ServiceTier, d.head.ServiceTier)}
	switch kind {
	case "", oairesponses.TypeCompleted, oairesponses.TypeIncomplete, oairesponses.TypeFailed, typeCancelled, typeDone:
	default:
		return nil, nil // it goes on
	}
	switch {
	case kind == oairesponses.TypeFailed || r.Status == statusFailed:
		if r.Error != nil {
			return nil, (*upstream.Said)(r.Error)
		}
		return nil, upstream.GaveUp("status failed")
	case kind == typeCancelled || r.Status == statusCancelled:
		return nil, upstream.GaveUp("status cancelled")
	case kind == "" && (r.Status == statusInProgress || r.Status == statusQueued):
		return nil, nil // End says that it is not whole
	}
	if kind == oairesponses.TypeIncomplete {
		r.Status = statusIncomplete
	}
	out := d.finishCalls(r.Output)
	out = append(out, d.release()...)
	for i, s := range d.match(r.Output, true) {
		out = append(out, d.whole(s, &r.Output[i])...)
	}
	d.final = r
	return out, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// event takes an event about an item.
func (d *decoder) event(r *oairesponses.Received) []turn.Event {
	if d.writing > 0 && !aboutCall(r) {
		d.held = append(d.held, r)
		return nil
	}
	out := d.take(r)
	if d.writing == 0 && len(d.held) > 0 {
		out = append(out, d.release()...)
	}
	return out
}

// release plays what was held, up to the next call that is still being written.
func (d *decoder) release() []turn.Event {
	held := d.held
	d.held = nil
	var out []turn.Event
	for _, r := range held {
		out = append(out, d.event(r)...)
	}
	return out
}

func aboutCall(r *oairesponses.Received) bool {
	switch r.Type {
	case oairesponses.TypeItemAdded, oairesponses.TypeItemDone:
		return r.Item != nil && kindOf(r.Item) == kindCall
	case oairesponses.TypeArgumentsDelta, oairesponses.TypeArgumentsDone:
		return true
	}
	return false
}

func (d *decoder) take(r *oairesponses.Received) []turn.Event {
	switch r.Type {
	case oairesponses.TypeItemAdded:
		return d.added(r)
	case oairesponses.TypeItemDone:
		return d.itemDone(r)
	case oairesponses.TypeAnnotationAdded:
		return d.annotated(r)
	case oairesponses.TypePartDone, oairesponses.TypeSummaryPartDone:
		return d.partDone(r)
	case oairesponses.TypeArgumentsDelta:
		return d.arguments(d.find(kindCall, r), r.Delta)
	case oairesponses.TypeArgumentsDone:
		s := d.find(kindCall, r)
		s.name = or(s.name, r.Name)
		out := d.arguments(s, s.missing(place{partArguments, 0}, r.Text))
		if s.name == "" {
			return out // it comes with the end of the item
		}
		return append(out, d.callDone(s)...)
	}
	if p, ok := deltas[r.Type]; ok {
		return d.add(d.find(p.item(), r), place{p, r.Index}, r.Delta)
	}
	if p, ok := dones[r.Type]; ok {
		s, at := d.find(p.item(), r), place{p, r.Index}
		return d.add(s, at, s.missing(at, r.Text))
	}
	return nil
}

var (
	deltas = map[string]part{
		oairesponses.TypeTextDelta: partText, oairesponses.TypeRefusalDelta: partRefusal,
		oairesponses.TypeReasoningDelta: partReasoning, oairesponses.TypeSummaryDelta: partSummary,
		typeOldReasonDelta: partReasoning, typeOldSummaryDelta: partSummary,
	}
	dones = map[string]part{
		oairesponses.TypeTextDone: partText, oairesponses.TypeRefusalDone: partRefusal,
		oairesponses.TypeReasoningDone: partReasoning, oairesponses.TypeSummaryDone: partSummary,
		typeOldReasonDone: partReasoning, typeOldSummaryDone: partSummary,
	}
)

// start announces the answer. The events about the whole response do not: a failure that follows at once can still be tried again.
func (d *decoder) start() []turn.Event {
	if d.started {
		return nil
	}
	d.started = true
	return []turn.Event{d.head}
}

func (d *decoder) added(r *oairesponses.Received) []turn.Event {
	if r.Item == nil {
		return nil
	}
	out := append(d.start(), d.leave()...)
	s := d.open(kindOf(r.Item), r.Item.ID, r.OutputIndex)
	switch s.kind {
	case kindOther:
		s.name = r.Item.Type
	case kindCall:
		s.name, s.announced, s.pending = r.Item.Name, r.Item.CallID, r.Item.Arguments
		out = append(out, d.arguments(s, "")...)
	}
	return out
}

// leave closes the block of an item that is done.
func (d *decoder) leave() []turn.Event {
	if d.current == nil || !d.current.done {
		return nil
	}
	d.current = nil
	return d.seq.Close()
}

func (d *decoder) itemDone(r *oairesponses.Received) []turn.Event {
	if r.Item == nil {
		return nil
	}
	s := d.findDone(r)
	out := d.whole(s, r.Item)
	if s.kind == kindReasoning && d.current == s {
		out = append(out, d.leave()...)
	}
	return out
}

func (d *decoder) partDone(r *oairesponses.Received) []turn.Event {
	if r.Part == nil {
		return nil
	}
	p := partText
	switch {
	case r.Part.Type == typeRefusal:
		p = partRefusal
	case r.Part.Type == typeReasoningText:
		p = partReasoning
	case r.Type == oairesponses.TypeSummaryPartDone:
		p = partSummary
	case r.Part.Type != typeOutputText:
		return nil
	}
	s := d.find(p.item(), r)
	return d.fill(s, place{p, r.Index}, *r.Part)
}

func (d *decoder) annotated(r *oairesponses.Received) []turn.Event {
	if r.Annotation == nil {
		return nil
	}
	s := d.find(kindMessage, r)
	s.citations[r.Index]++
	return d.cite(s, r.Index, *r.Annotation)
}

// End closes the answer.
func (d *decoder) End() ([]turn.Event, error) {
	if d.final == nil {
		return nil, upstream.Incomplete()
	}
	for _, s := range d.slots {
		if s.kind == kindCall && s.name == "" {
			return nil, upstream.Malformed("a tool call without a name", nil)
		}
	}
	out := append(d.start(), d.seq.Close()...)
	return append(out, turn.Finished{Reason: d.reason(), Usage: usage(d.final.Usage)}), nil
}

func (d *decoder) reason() turn.Reason {
	switch {
	case d.final.Incomplete == reasonContentFilter:
		return turn.ReasonFilter
	case d.final.Status == statusIncomplete:
		return turn.ReasonLength
	case d.calls > 0:
		return turn.ReasonCalls
	}
	return turn.ReasonStop
}

// skipped are the types of the items that mean nothing here, each once.
func (d *decoder) skipped() []string {
	var out []string
	for _, s := range d.slots {
		if s.kind == kindOther && !slices.Contains(out, s.name) {
			out = append(out, s.name)
		}
	}
	return out
}

func usage(u oairesponses.Usage) turn.Usage {
	return turn.Usage{
		Input: upstream.Count(u.InputTokens), Cached: upstream.Count(u.InputTokensDetails.CachedTokens),
		CacheWrite: upstream.Count(u.InputTokensDetails.CacheWriteTokens),
		Output:     upstream.Count(u.OutputTokens), Reasoning: upstream.Count(u.OutputTokensDetails.ReasoningTokens),
	}
}
