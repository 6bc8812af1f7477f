package openaichat

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// conversation builds the messages. What a model said in one turn (reasoning, text, calls) is one assistant message, since the results
// of calls must stand right behind the message that made them.
type conversation struct {
	images bool
	out    []oaichat.Message
	// open is the assistant message that is not in out yet.
	open *oaichat.Message
	// shown are images of the tool messages at the end of out: a user message with them follows the last of these.
	shown []oaichat.Part
}

func (enc encoder) messages(items []turn.Item) ([]oaichat.Message, error) {
	c := &conversation{images: enc.images, out: []oaichat.Message{}}
	for _, it := range items {
		var err error
		switch it := it.(type) {
		case turn.Message:
			err = c.message(it)
		case turn.Reasoning:
			c.reasoning(it)
		case turn.Call:
			c.call(it)
		case turn.Result:
			err = c.result(it)
		case turn.Block:
			// of another protocol
		default:
			err = turn.Internal(fmt.Errorf("openaichat: a %T reached a provider", it))
		}
		if err != nil {
			return nil, err
		}
	}
	c.close()
	return c.out, nil
}

// close puts what is open into out.
func (c *conversation) close() {
	if c.open != nil {
		c.out = append(c.out, *c.open)
		c.open = nil
	}
	if len(c.shown) > 0 {
		c.out = append(c.out, oaichat.Message{Role: "user", Content: oaichat.Content{Parts: c.shown}})
		c.shown = nil
	}
}

func (c *conversation) assistant() *oaichat.Message {
	if c.open == nil {
		c.close()
		c.open = &oaichat.Message{Role: "assistant"}
	}
	return c.open
}

func (c *conversation) message(m turn.Message) error {
	if m.Role == turn.Assistant {
		return c.answer(m)
	}
	c.close()
	content, err := content(m.Parts)
	if err != nil {
		return err
	}
	role := string(m.Role)
	if m.Role == turn.Developer {
		role = string(turn.System) // open models' templates know no developer
	}
	c.out = append(c.out, oaichat.Message{Role: role, Name: m.Name, Content: content})
	return nil
}

// answer adds an assistant's text to the open message where it belongs to the same turn: behind reasoning, or behind calls, whose
// results have to follow directly.
func (c *conversation) answer(m turn.Message) error {
	c.closeAnswered()
	text, refusal := "", ""
	for _, p := range m.Parts {
		switch p := p.(type) {
		case turn.Text:
			text += p.Text
		case turn.Refusal:
			refusal += p.Text
		default:
			return turn.Unsupported("messages", "an assistant message can hold only text, not %s", upstream.PartKind(p))
		}
	}
	a := c.assistant()
	a.Name = m.Name
	a.Refusal += refusal
	switch {
	case a.Content.Parts != nil:
		a.Content.Parts = append(a.Content.Parts, oaichat.Part{Type: oaichat.PartText, Text: text})
	case a.Content.Text != nil && *a.Content.Text != "":
		a.Content = oaichat.TextContent(*a.Content.Text + "\n" + text)
	case text != "" || refusal == "":
		a.Content = oaichat.TextContent(text)
	}
	return nil
}

// closeAnswered closes an assistant message that has its text and made no calls: what follows is another one.
func (c *conversation) closeAnswered() {
	if c.open == nil || len(c.open.ToolCalls) > 0 {
		return
	}
	if c.open.Content.String() != "" || c.open.Content.Text != nil || c.open.Refusal != "" {
		c.close()
	}
}

// reasoning goes back in the field in which it came.
func (c *conversation) reasoning(r turn.Reasoning) {
	if r.Text == "" && r.Field != "reasoning_details" {
		return // sealed reasoning of another protocol
	}
	c.closeAnswered()
	a := c.assistant()
	switch r.Field {
	case "reasoning":
		a.Reasoning += r.Text
	case "reasoning_details":
		a.ReasoningDetails = append(a.ReasoningDetails, details(r)...)
	case "thinking":
		a.Content.Parts = append(a.Content.Parts, thinkingPart(r.Text))
	default:
		a.ReasoningContent += r.Text
	}
}

func details(r turn.Reasoning) []oaichat.ReasoningDetail {
	var out []oaichat.ReasoningDetail
	for _, s := range r.Summary {
		out = append(out, oaichat.ReasoningDetail{Type: "reasoning.summary", Summary: s})
	}
	if r.Text != "" || r.Signature != "" {
		out = append(out, oaichat.ReasoningDetail{Type: "reasoning.text", Text: r.Text, Signature: r.Signature})
	}
	if r.Encrypted != "" {
		out = append(out, oaichat.ReasoningDetail{Type: "reasoning.encrypted", Data: r.Encrypted})
	}
	return out
}

// thinkingPart is Mistral's content part.
func thinkingPart(text string) oaichat.Part {
	raw, err := oaichat.Marshal(struct {
		Type     string         `json:"type"`
		Thinking []oaichat.Part `json:"thinking"`
	}{"thinking", []oaichat.Part{{Type: oaichat.PartText, Text: text}}})
	if err != nil {
		raw = json.RawMessage(`{"type":"thinking","thinking":[]}`) // strings always encode
	}
	return oaichat.Part{Type: "thinking", Raw: raw}
}

func (c *conversation) call(call turn.Call) {
	a := c.assistant()
	a.ToolCalls = append(a.ToolCalls, oaichat.ToolCall{
		ID: call.CallID, Type: oaichat.ToolFunction,
		Function: oaichat.FunctionCall{Name: call.Name, Arguments: upstream.ObjectArguments(call.Arguments)},
	})
}

// result is a tool message. That holds text only; images follow in a user message, which is where servers take them.
func (c *conversation) result(r turn.Result) error {
	if c.open != nil {
		shown := c.shown
		c.shown = nil
		c.close()
		c.shown = shown
	}
	text := []string{}
	var images []oaichat.Part
	for _, p := range r.Parts {
		switch p := p.(type) {
		case turn.Text:
			text = append(text, p.Text)
		case turn.Refusal:
			text = append(text, p.Text)
		case turn.Image:
			if !c.images {
				text = append(text, "[an image that this model cannot be shown]")
				continue
			}
			part, err := imagePart(p)
			if err != nil {
				return err
			}
			images = append(images, part)
		default:
			return turn.Unsupported("messages", "a tool result can hold only text and images, not %s", upstream.PartKind(p))
		}
	}
	if len(images) > 0 {
		note := oaichat.Part{Type: oaichat.PartText, Text: fmt.Sprintf("Images from the result of tool call %s:", r.CallID)}
		c.shown = append(append(c.shown, note), images...)
		if len(text) == 0 {
			text = append(text, "[the images follow]")
		}
	}
	c.out = append(c.out, oaichat.Message{Role: "tool", ToolCallID: r.CallID, Content: oaichat.TextContent(strings.Join(text, "\n"))})
	return nil
}

// content is a string where it can be, since many servers take parts only from users.
func content(parts []turn.Part) (oaichat.Content, error) {
	var out []oaichat.Part
	var text []string
	for _, p := range parts {
		part, err := contentPart(p)
		if err != nil {
			return oaichat.Content{}, err
		}
		if part.Type == oaichat.PartText {
			text = append(text, part.Text)
		}
		out = append(out, part)
	}
	if len(text) == len(parts) {
		return oaichat.TextContent(strings.Join(text, "\n")), nil
	}
	return oaichat.Content{Parts: out}, nil
}

func contentPart(p turn.Part) (oaichat.Part, error) {
	switch p := p.(type) {
	case turn.Text:
		return oaichat.Part{Type: oaichat.PartText, Text: p.Text}, nil
	case turn.Refusal:
		return oaichat.Part{Type: oaichat.PartText, Text: p.Text}, nil
	case turn.Image:
		return imagePart(p)
	case turn.Document:
		return filePart(p)
	case turn.Foreign:
		if p.Protocol == Protocol {
			return oaichat.Part{Type: p.Kind, Raw: p.JSON}, nil
		}
	}
	return oaichat.Part{}, turn.Unsupported("messages", "this model's server takes no %s", upstream.PartKind(p))
}

func imagePart(i turn.Image) (oaichat.Part, error) {
	if i.URL == "" {
		return oaichat.Part{}, turn.Unsupported("messages", "this model's server takes images by URL or data URI only, not the file %q", i.FileID)
	}
	detail := i.Detail
	if detail == "original" {
		detail = "high" // original is a word of Responses only
	}
	return oaichat.Part{Type: oaichat.PartImage, ImageURL: &oaichat.ImageURL{URL: i.URL, Detail: detail}}, nil
}

func filePart(d turn.Document) (oaichat.Part, error) {
	f := &oaichat.File{FileID: d.FileID, Filename: d.Name}
	switch {
	case d.Data != nil:
		f.FileID, f.FileData = "", upstream.DataURI(d)
	case d.FileID == "":
		return oaichat.Part{}, turn.Unsupported("messages", "this model's server takes no files by URL: send the file's data")
	}
	return oaichat.Part{Type: oaichat.PartFile, File: f}, nil
}
