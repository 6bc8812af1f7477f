package openairesponses

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// kind is what an item is to us.
type kind int

const (
	kindOther kind = iota // means nothing here
	kindMessage
	kindReasoning
	kindCall
)

// Types of parts.
const (
	typeOutputText    = "output_text"
	typeRefusal       = "refusal"
	typeReasoningText = "reasoning_text"
)

// kindOf takes an item of an unknown type that holds text as a message, so that the text is not lost.
func kindOf(it *oairesponses.ReceivedItem) kind {
	switch it.Type {
	case "message":
		return kindMessage
	case "reasoning":
		return kindReasoning
	case "function_call":
		return kindCall
	}
	if slices.ContainsFunc(it.Content, func(p oairesponses.ReceivedPart) bool { return p.Type == typeOutputText || p.Type == typeRefusal }) {
		return kindMessage
	}
	return kindOther
}

// part is a kind of text.
type part int

const (
	partText part = iota
	partRefusal
	partReasoning
	partSummary
	partArguments
)

func (p part) item() kind {
	switch p {
	case partReasoning, partSummary:
		return kindReasoning
	case partArguments:
		return kindCall
	}
	return kindMessage
}

// place is where in an item text belongs.
type place struct {
	part  part
	index int
}

// slot is one item of the answer.
type slot struct {
	kind   kind
	id     string
	output *int             // output_index, nil where the server counts none
	done   bool             // nothing more is taken
	closed bool             // the item's own end has come
	sent   map[place][]byte // what has become events

	// Of a message.
	runes     int         // of text in the open block
	base      map[int]int // where in that text a part begins
	citations map[int]int // of a part, how many have come
	// Of reasoning.
	entered, sealed bool
	summary         int // index of the newest part
	// Of a call. The name of an item that means nothing here is its type.
	number       int // in the order of arrival
	name, callID string
	announced    string // the server's call_id
	pending      string // arguments that came with the item's beginning
}

// open makes a slot for an item that begins.
func (d *decoder) open(k kind, id string, output *int) *slot {
	for _, s := range d.slots {
		if id != "" && s.id == id && s.kind == k && !s.done {
			return s // announced twice, or after its first delta
		}
	}
	s := &slot{kind: k, id: id, output: output, sent: map[place][]byte{}, base: map[int]int{}, citations: map[int]int{}}
	if k == kindCall {
		s.number = d.calls
		d.calls++
		d.writing++
	}
	d.slots = append(d.slots, s)
	return s
}

// find is the slot of kind k that an event is about: by the item's id, else by output_index (some proxies give an item a new id in each
// event), else the newest that is not done. An event for an item that was never announced opens it.
func (d *decoder) find(k kind, r *oairesponses.Received) *slot {
	if s := d.lookup(k, r.ItemID, r.OutputIndex, false); s != nil {
		return s
	}
	return d.open(k, r.ItemID, r.OutputIndex)
}

// findDone is find for an item that is done.
func (d *decoder) findDone(r *oairesponses.Received) *slot {
	k := kindOf(r.Item)
	s := d.lookup(k, r.Item.ID, r.OutputIndex, true)
	if s != nil && s.done && s.id != r.Item.ID && string(s.sent[place{partArguments, 0}]) != r.Item.Arguments {
		s = nil // another call at the same index
	}
	if s == nil {
		s = d.open(k, r.Item.ID, r.OutputIndex)
		if k == kindOther {
			s.name = r.Item.Type
		}
	}
	return s
}

// lookup returns nil for none. With open it does not take an item whose own end has come for another one at the same place.
func (d *decoder) lookup(k kind, id string, output *int, open bool) *slot {
	fits := func(s *slot) bool {
		return s.kind == k || s.kind == kindOther && k == kindMessage
	}
	found := func(s *slot) *slot {
		s.kind = k // text in an item of an unknown type
		return s
	}
	for _, s := range slices.Backward(d.slots) {
		if id != "" && s.id == id && fits(s) {
			return found(s)
		}
	}
	for _, s := range slices.Backward(d.slots) {
		if output != nil && s.output != nil && *s.output == *output && fits(s) && !(open && s.closed) {
			return found(s)
		}
	}
	if output == nil {
		for _, s := range slices.Backward(d.slots) {
			if s.kind == k && !s.closed && (open || !s.done) {
				return s
			}
		}
	}
	return nil
}

// match finds the slots of the items of a whole response: by id, and the others by their order among those of their kind, since several
// servers give new ids at the end. With create, items that never came get slots; otherwise theirs are nil.
func (d *decoder) match(output []oairesponses.ReceivedItem, create bool) []*slot {
	out := make([]*slot, len(output))
	used := map[*slot]bool{}
	for i := range output {
		for _, s := range d.slots {
			if output[i].ID != "" && s.id == output[i].ID && s.kind == kindOf(&output[i]) {
				out[i], used[s] = s, true
			}
		}
	}
	for i := range output {
		k := kindOf(&output[i])
		for _, s := range d.slots {
			if out[i] == nil && s.kind == k && !used[s] {
				out[i], used[s] = s, true
			}
		}
		if out[i] == nil && create {
			out[i] = d.open(k, output[i].ID, nil)
			used[out[i]] = true
			if k == kindOther {
				out[i].name = output[i].Type
			}
		}
	}
	return out
}

// finishCalls ends the calls that the server did not end: what was held behind them would do it otherwise.
func (d *decoder) finishCalls(output []oairesponses.ReceivedItem) []turn.Event {
	var out []turn.Event
	for i, s := range d.match(output, false) {
		if s != nil && s.kind == kindCall && !s.done {
			out = append(out, d.whole(s, &output[i])...)
		}
	}
	for _, s := range d.slots {
		if s.kind == kindCall {
			out = append(out, d.callDone(s)...)
		}
	}
	return out
}

// missing is what of a whole text has not come yet. A text that differs from what came tells nothing new.
func (s *slot) missing(at place, whole string) string {
	rest, ok := strings.CutPrefix(whole, string(s.sent[at]))
	if !ok {
		return ""
	}
	return rest
}

// enter opens the block of a message or of reasoning.
func (d *decoder) enter(s *slot) []turn.Event {
	out := d.start()
	if d.current == s {
		return out
	}
	d.current = s
	if s.kind != kindReasoning {
		s.runes, s.base = 0, map[int]int{}
		return append(out, d.seq.Close()...)
	}
	d.thought = true
	id := s.id
	if s.entered {
		id = "" // the block under this id is closed
	}
	s.entered, s.summary = true, 0
	return append(out, d.seq.OpenReasoning(id)...)
}

// add takes a piece of text.
func (d *decoder) add(s *slot, at place, delta string) []turn.Event {
	if delta == "" {
		return nil
	}
	out := d.enter(s)
	if at.part == partSummary && at.index != s.summary {
		d.seq.SummaryPart()
		s.summary = at.index
	}
	s.sent[at] = append(s.sent[at], delta...)
	switch at.part {
	case partRefusal:
		return append(out, d.seq.Refusal(delta)...)
	case partReasoning:
		return append(out, d.seq.Reasoning(delta, "")...)
	case partSummary:
		return append(out, d.seq.ReasoningSummary(delta)...)
	}
	if _, ok := s.base[at.index]; !ok {
		s.base[at.index] = s.runes
	}
	s.runes += utf8.RuneCountInString(delta)
	return append(out, d.seq.Text(delta)...)
}

// fill takes a whole part: what of its text and citations has not come yet.
func (d *decoder) fill(s *slot, at place, p oairesponses.ReceivedPart) []turn.Event {
	out := d.add(s, at, s.missing(at, p.Text))
	if at.part != partText {
		return out
	}
	for n, a := range p.Annotations {
		if n >= s.citations[at.index] {
			s.citations[at.index]++
			out = append(out, d.cite(s, at.index, a)...)
		}
	}
	return out
}

// cite keeps citations of pages. Those of files belong to the server's own tools.
func (d *decoder) cite(s *slot, index int, a oairesponses.Annotation) []turn.Event {
	if a.Type != annotationURL || d.current != s {
		return nil
	}
	out := turn.Annotation{URL: a.URL, Title: a.Title}
	if a.StartIndex != nil && a.EndIndex != nil {
		out.Start, out.End = s.base[index]+*a.StartIndex, s.base[index]+*a.EndIndex
	}
	return d.seq.Annotate(out)
}

// whole takes a whole item.
func (d *decoder) whole(s *slot, it *oairesponses.ReceivedItem) []turn.Event {
	s.closed = true
	var out []turn.Event
	switch s.kind {
	case kindMessage:
		for i, p := range it.Content {
			at := place{partText, i}
			if p.Type == typeRefusal {
				at.part = partRefusal
			}
			out = append(out, d.fill(s, at, p)...)
		}
	case kindReasoning:
		for i, p := range it.Summary {
			out = append(out, d.fill(s, place{partSummary, i}, p)...)
		}
		for i, p := range it.Content {
			out = append(out, d.fill(s, place{partReasoning, i}, p)...)
		}
		if it.Encrypted != "" && !s.sealed && (d.current == s || !s.entered) {
			s.sealed = true
			out = append(append(out, d.enter(s)...), d.seq.Sign("", it.Encrypted)...)
		}
	case kindCall:
		s.name, s.announced = or(s.name, it.Name), or(s.announced, it.CallID)
		out = append(out, d.arguments(s, s.missing(place{partArguments, 0}, it.Arguments))...)
		return append(out, d.callDone(s)...)
	}
	s.done = true
	return out
}

// arguments takes a piece of a call. The call is announced once its name is known, with an id minted here if there is none by then or if
// another call of this answer has the same.
func (d *decoder) arguments(s *slot, delta string) []turn.Event {
	if s.done {
		return nil
	}
	out := d.start()
	d.current = nil // the sequencer closes what is open
	if s.name != "" && s.callID == "" {
		s.callID = s.announced
		if s.callID == "" || d.ids[s.callID] {
			s.callID = d.newID()
		}
		if d.ids == nil {
			d.ids = map[string]bool{}
		}
		d.ids[s.callID] = true
	}
	at := place{partArguments, 0}
	s.sent[at] = append(s.sent[at], delta...)
	return append(out, d.seq.Call(s.number, s.callID, s.name, delta)...)
}

func (d *decoder) callDone(s *slot) []turn.Event {
	if s.done {
		return nil
	}
	var out []turn.Event
	if len(s.sent[place{partArguments, 0}]) == 0 && s.pending != "" {
		out = d.arguments(s, s.pending)
	}
	s.done = true
	if d.writing--; d.writing == 0 && s.name != "" { // End refuses a call without a name
		out = append(out, d.seq.Close()...)
	}
	return out
}
