package responses

import (
	"encoding/json"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// messageBlock is a message in the making: parts of text and refusal, one after the other.
type messageBlock struct {
	place oairesponses.ItemPlace
	parts oairesponses.Parts // those that are done
	kind  string             // of the open part: output_text, refusal or "" for none
	text  strings.Builder    // of the open part
	// annotations wait for the end of their part: clients want them after all deltas, also where a model's server sends them in between.
	annotations []oairesponses.Annotation
}

func openMessage(e *encoder) *messageBlock {
	id := e.newID("msg_")
	return &messageBlock{place: e.open(id, &oairesponses.Message{
		ID: id, Type: "message", Status: statusInProgress, Role: string(turn.Assistant), Content: oairesponses.Content{},
	})}
}

func (b *messageBlock) push(e *encoder, ev turn.Event) {
	switch ev := ev.(type) {
	case turn.TextDelta:
		b.open(e, "output_text")
		b.text.WriteString(ev.Text)
		e.emitDelta(&oairesponses.TextDelta{
			EventHead: typ(oairesponses.TypeTextDelta), PartPlace: b.at(), Delta: ev.Text, Logprobs: []json.RawMessage{},
		}, len(ev.Text))
	case turn.RefusalDelta:
		b.open(e, "refusal")
		b.text.WriteString(ev.Text)
		e.emitDelta(&oairesponses.RefusalDelta{EventHead: typ(oairesponses.TypeRefusalDelta), PartPlace: b.at(), Delta: ev.Text}, len(ev.Text))
	case turn.Annotated:
		b.annotations = append(b.annotations, annotation(ev.Annotation))
	}
}

func (b *messageBlock) close(e *encoder, status string) oairesponses.Item {
	if b.kind == "" && len(b.parts) == 0 {
		b.open(e, "output_text") // clients read content[0] of an empty answer too
	}
	b.closePart(e)
	return &oairesponses.Message{
		ID: b.place.ItemID, Type: "message", Status: status, Role: string(turn.Assistant), Content: oairesponses.Content{Parts: b.parts},
	}
}

func (b *messageBlock) at() oairesponses.PartPlace {
	return oairesponses.PartPlace{ItemPlace: b.place, ContentIndex: len(b.parts)}
}

func (b *messageBlock) open(e *encoder, kind string) {
	if b.kind == kind {
		return
	}
	b.closePart(e)
	b.kind = kind
	e.emit(&oairesponses.PartEvent{EventHead: typ(oairesponses.TypePartAdded), PartPlace: b.at(), Part: b.part("", nil)})
}

func (b *messageBlock) part(text string, annotations []oairesponses.Annotation) oairesponses.Part {
	if b.kind == "refusal" {
		return &oairesponses.Refusal{Type: "refusal", Refusal: text}
	}
	if annotations == nil {
		annotations = []oairesponses.Annotation{}
	}
	return &oairesponses.OutputText{Type: "output_text", Text: text, Annotations: annotations, Logprobs: []json.RawMessage{}}
}

func (b *messageBlock) closePart(e *encoder) {
	if b.kind == "" {
		return
	}
	text := b.text.String()
	if b.kind == "refusal" {
		e.emit(&oairesponses.RefusalDone{EventHead: typ(oairesponses.TypeRefusalDone), PartPlace: b.at(), Refusal: text})
	} else {
		for i, a := range b.annotations {
			e.emit(&oairesponses.AnnotationAdded{
				EventHead: typ(oairesponses.TypeAnnotationAdded), PartPlace: b.at(), AnnotationIndex: i, Annotation: a,
			})
		}
		e.emit(&oairesponses.TextDone{EventHead: typ(oairesponses.TypeTextDone), PartPlace: b.at(), Text: text, Logprobs: []json.RawMessage{}})
	}
	part := b.part(text, b.annotations)
	e.emit(&oairesponses.PartEvent{EventHead: typ(oairesponses.TypePartDone), PartPlace: b.at(), Part: part})
	b.parts = append(b.parts, part)
	b.kind, b.annotations = "", nil
	b.text.Reset()
}

func annotation(a turn.Annotation) oairesponses.Annotation {
	out := oairesponses.Annotation{Type: "url_citation", URL: a.URL, Title: a.Title, StartIndex: &a.Start, EndIndex: &a.End}
	if f := a.File; f != nil {
		out.Type, out.URL, out.Title = "container_file_citation", "", ""
		out.ContainerID, out.FileID, out.Filename = f.Container, f.ID, f.Name
	}
	return out
}
