package responses

import (
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// reasoningBlock is reasoning in the making: text parts and summary parts, each kind with its own numbering.
type reasoningBlock struct {
	place     oairesponses.ItemPlace
	texts     []*oairesponses.Text
	summary   []*oairesponses.Text
	kind      string // of the open part: reasoning_text, summary_text or "" for none
	text      strings.Builder
	encrypted string
}

// maxID is the length that ids have at most on every API.
const maxID = 64

// openReasoning keeps the id under which the model's server knows the reasoning: sealed reasoning is refused under another one.
func openReasoning(e *encoder, ev turn.ReasoningStarted) *reasoningBlock {
	id := ev.ID
	if id == "" || len(id) > maxID || slices.ContainsFunc(e.resp.Output, func(it oairesponses.Item) bool {
		r, ok := it.(*oairesponses.Reasoning)
		return ok && r.ID == id // some servers count from the beginning in each round
	}) {
		id = e.newID("rs_")
	}
	return &reasoningBlock{
		place:   e.open(id, &oairesponses.Reasoning{ID: id, Type: "reasoning", Summary: []*oairesponses.Text{}}),
		summary: []*oairesponses.Text{},
	}
}

const (
	reasoningText = "reasoning_text"
	summaryText   = "summary_text"
)

func (b *reasoningBlock) push(e *encoder, ev turn.Event) {
	switch ev := ev.(type) {
	case turn.ReasoningDelta:
		kind := reasoningText
		if ev.Summary {
			kind = summaryText
		}
		if ev.Next {
			b.closePart(e)
		}
		b.delta(e, kind, ev.Text)
	case turn.ReasoningDone:
		// What came only as a whole is shown as one delta a part.
		if len(b.texts) == 0 && b.kind != reasoningText && ev.Reasoning.Text != "" {
			b.delta(e, reasoningText, ev.Reasoning.Text)
		}
		if len(b.summary) == 0 && b.kind != summaryText {
			for _, s := range ev.Reasoning.Summary {
				b.closePart(e)
				b.delta(e, summaryText, s)
			}
		}
		if e.req.encrypted {
			b.encrypted = seal(ev.Reasoning)
		}
	}
}

func (b *reasoningBlock) delta(e *encoder, kind, text string) {
	b.open(e, kind)
	b.text.WriteString(text)
	if kind == summaryText {
		e.emitDelta(&oairesponses.SummaryDelta{
			EventHead: typ(oairesponses.TypeSummaryDelta), SummaryPlace: b.summaryAt(), Delta: text,
		}, len(text))
		return
	}
	e.emitDelta(&oairesponses.ReasoningDelta{
		EventHead: typ(oairesponses.TypeReasoningDelta), PartPlace: b.textAt(), Delta: text,
	}, len(text))
}

func (b *reasoningBlock) close(e *encoder, status string) oairesponses.Item {
	b.closePart(e)
	item := &oairesponses.Reasoning{
		ID: b.place.ItemID, Type: "reasoning", Summary: b.summary, Content: b.texts, EncryptedContent: b.encrypted,
	}
	if status == statusIncomplete { // the service says nothing of whole reasoning
		item.Status = status
	}
	return item
}

func (b *reasoningBlock) textAt() oairesponses.PartPlace {
	return oairesponses.PartPlace{ItemPlace: b.place, ContentIndex: len(b.texts)}
}

func (b *reasoningBlock) summaryAt() oairesponses.SummaryPlace {
	return oairesponses.SummaryPlace{ItemPlace: b.place, SummaryIndex: len(b.summary)}
}

func (b *reasoningBlock) open(e *encoder, kind string) {
	if b.kind == kind {
		return
	}
	b.closePart(e)
	b.kind = kind
	if kind == summaryText {
		e.emit(&oairesponses.SummaryPartEvent{
			EventHead: typ(oairesponses.TypeSummaryPartAdded), SummaryPlace: b.summaryAt(), Part: oairesponses.Text{Type: kind},
		})
		return
	}
	e.emit(&oairesponses.PartEvent{EventHead: typ(oairesponses.TypePartAdded), PartPlace: b.textAt(), Part: &oairesponses.Text{Type: kind}})
}

func (b *reasoningBlock) closePart(e *encoder) {
	part := &oairesponses.Text{Type: b.kind, Text: b.text.String()}
	switch b.kind {
	case summaryText:
		e.emit(&oairesponses.SummaryDone{EventHead: typ(oairesponses.TypeSummaryDone), SummaryPlace: b.summaryAt(), Text: part.Text})
		e.emit(&oairesponses.SummaryPartEvent{EventHead: typ(oairesponses.TypeSummaryPartDone), SummaryPlace: b.summaryAt(), Part: *part})
		b.summary = append(b.summary, part)
	case reasoningText:
		e.emit(&oairesponses.ReasoningDone{EventHead: typ(oairesponses.TypeReasoningDone), PartPlace: b.textAt(), Text: part.Text})
		e.emit(&oairesponses.PartEvent{EventHead: typ(oairesponses.TypePartDone), PartPlace: b.textAt(), Part: part})
		b.texts = append(b.texts, part)
	}
	b.kind = ""
	b.text.Reset()
}
