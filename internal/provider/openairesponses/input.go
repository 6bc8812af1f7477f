package openairesponses

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

func (enc encoder) input(items []turn.Item) (oairesponses.Items, error) {
	out := oairesponses.Items{}
	for _, it := range items {
		var item oairesponses.Item
		var err error
		switch it := it.(type) {
		case turn.Message:
			item, err = message(it)
		case turn.Reasoning:
			if item = enc.reasoning(it); item == nil {
				continue
			}
		case turn.Call:
			item = &oairesponses.FunctionCall{Type: "function_call", CallID: it.CallID, Name: it.Name, Arguments: upstream.ObjectArguments(it.Arguments)}
		case turn.Result:
			item, err = enc.result(it)
		case turn.Block:
			continue // of another protocol
		default:
			err = turn.Internal(fmt.Errorf("openairesponses: a %T reached a provider", it))
		}
		if err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return out, nil
}

// message leaves out the item's id: nothing is stored up there, and ids of ours mean nothing to the server. Text alone is sent as a string,
// since several servers want an id beside an assistant's parts.
func message(m turn.Message) (oairesponses.Item, error) {
	out := &oairesponses.Message{Type: "message", Role: string(m.Role)}
	if len(m.Parts) == 0 {
		out.Content.Text = new("")
		return out, nil
	}
	if t, ok := m.Parts[0].(turn.Text); ok && len(m.Parts) == 1 {
		out.Content.Text = &t.Text
		return out, nil
	}
	for _, p := range m.Parts {
		convert := inputPart
		if m.Role == turn.Assistant {
			convert = outputPart
		}
		part, err := convert(p)
		if err != nil {
			return nil, err
		}
		out.Content.Parts = append(out.Content.Parts, part)
	}
	return out, nil
}

func outputPart(p turn.Part) (oairesponses.Part, error) {
	switch p := p.(type) {
	case turn.Text:
		return &oairesponses.OutputText{
			Type: "output_text", Text: p.Text, Annotations: []oairesponses.Annotation{}, Logprobs: []json.RawMessage{},
		}, nil
	case turn.Refusal:
		return &oairesponses.Refusal{Type: "refusal", Refusal: p.Text}, nil
	}
	return nil, turn.Unsupported("input", "an assistant message can hold only text, not %s", upstream.PartKind(p))
}

func inputPart(p turn.Part) (oairesponses.Part, error) {
	switch p := p.(type) {
	case turn.Text:
		return &oairesponses.Text{Type: "input_text", Text: p.Text}, nil
	case turn.Refusal:
		return &oairesponses.Text{Type: "input_text", Text: p.Text}, nil
	case turn.Image:
		out := &oairesponses.InputImage{Type: "input_image", ImageURL: p.URL, FileID: p.FileID, Detail: p.Detail}
		if out.Detail == "" {
			out.Detail = "auto" // vLLM refuses an image without it (vllm-project/vllm#57241)
		}
		return out, nil
	case turn.Document:
		return inputFile(p), nil
	case turn.Foreign:
		if p.Protocol == Protocol {
			return &oairesponses.Raw{Type: p.Kind, JSON: p.JSON}, nil
		}
	}
	return nil, turn.Unsupported("input", "this model's server takes no %s", upstream.PartKind(p))
}

func inputFile(d turn.Document) *oairesponses.InputFile {
	f := &oairesponses.InputFile{Type: "input_file", FileID: d.FileID, FileURL: d.URL, Filename: d.Name}
	if d.Data != nil {
		f.FileID, f.FileURL = "", ""
		f.FileData = upstream.DataURI(d)
	}
	if f.FileData == "" {
		f.Filename = "" // only inline files have one
	}
	return f
}

// reasoning goes back whole where it is sealed, under the id that it came with: OpenAI refuses it under another. Text that is not sealed is
// that of an open model. A summary alone is nothing that a model could read, and what a server of another protocol sealed (Field) neither.
func (enc encoder) reasoning(r turn.Reasoning) oairesponses.Item {
	if r.Field != "" || enc.noSealed {
		r.Encrypted = ""
	}
	if enc.noIDs {
		r.ID = ""
	}
	out := &oairesponses.Reasoning{ID: r.ID, Type: "reasoning", Summary: []*oairesponses.Text{}, EncryptedContent: r.Encrypted}
	for _, s := range r.Summary {
		out.Summary = append(out.Summary, &oairesponses.Text{Type: "summary_text", Text: s})
	}
	if r.Text != "" && !enc.noReasoningText {
		out.Content = []*oairesponses.Text{{Type: "reasoning_text", Text: r.Text}}
	}
	if out.EncryptedContent == "" && out.Content == nil {
		return nil
	}
	return out
}

// result is a string where it can be, since not every server takes parts.
func (enc encoder) result(r turn.Result) (oairesponses.Item, error) {
	out := &oairesponses.FunctionCallOutput{Type: "function_call_output", CallID: r.CallID}
	var parts oairesponses.Parts
	var text []string
	for _, p := range r.Parts {
		if _, ok := p.(turn.Image); ok && !enc.images {
			p = turn.Text{Text: "[an image that this model cannot be shown]"}
		}
		part, err := inputPart(p)
		if err != nil {
			return nil, err
		}
		if t, ok := part.(*oairesponses.Text); ok {
			text = append(text, t.Text)
		}
		parts = append(parts, part)
	}
	if len(text) == len(parts) {
		out.Output.Text = new(strings.Join(text, "\n"))
	} else {
		out.Output.Parts = parts
	}
	return out, nil
}
