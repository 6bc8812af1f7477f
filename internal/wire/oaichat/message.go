package oaichat

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Message is one message of a request.
type Message struct {
	Role string `json:"role"`
	Name string `json:"name,omitempty"`
	// Content is written in every message, null when empty.
	Content    Content    `json:"content"`
	Refusal    string     `json:"refusal,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	// ReasoningContent, Reasoning and ReasoningDetails are what DeepSeek and vLLM, Groq and newer vLLM, and OpenRouter call a model's
	// reasoning.
	ReasoningContent string            `json:"reasoning_content,omitempty"`
	Reasoning        string            `json:"reasoning,omitempty"`
	ReasoningDetails []ReasoningDetail `json:"reasoning_details,omitempty"`
	// CodeInterpreterCalls and Container are our extension, as clients got them in an answer and send them back.
	CodeInterpreterCalls []CodeInterpreterCall `json:"code_interpreter_calls,omitempty"`
	Container            *Container            `json:"container,omitempty"`
	// Audio and FunctionCall are older or other forms that are only recognised.
	Audio        json.RawMessage `json:"audio,omitempty"`
	FunctionCall json.RawMessage `json:"function_call,omitempty"`
}

// Content is content: null, a string, or parts.
type Content struct {
	// Text is set for a string, Parts for an array; both nil is null.
	Text  *string
	Parts []Part
}

// TextContent is content that is a string.
func TextContent(s string) Content { return Content{Text: &s} }

// String is the text of all parts.
func (c Content) String() string {
	if c.Text != nil {
		return *c.Text
	}
	out := ""
	for _, p := range c.Parts {
		out += p.Text
	}
	return out
}

// UnmarshalJSON takes the three forms.
func (c *Content) UnmarshalJSON(data []byte) error {
	*c = Content{}
	switch {
	case isNull(data):
		return nil
	case data[0] == '"':
		c.Text = new(string)
		return json.Unmarshal(data, c.Text)
	case data[0] == '[':
		var elems []json.RawMessage
		if err := json.Unmarshal(data, &elems); err != nil {
			return err
		}
		c.Parts = make([]Part, len(elems))
		for i, e := range elems {
			if err := json.Unmarshal(e, &c.Parts[i]); err != nil {
				return inField(fmt.Sprintf("content[%d]", i), err)
			}
		}
		return nil
	}
	return &FieldError{Field: "content", Reason: "must be a string, an array of parts or null"}
}

// MarshalJSON writes the form that is set.
func (c Content) MarshalJSON() ([]byte, error) {
	switch {
	case c.Parts != nil:
		return Marshal(c.Parts)
	case c.Text != nil:
		return Marshal(*c.Text)
	}
	return []byte("null"), nil
}

// Part is a content part.
type Part struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *ImageURL `json:"image_url,omitempty"`
	File     *File     `json:"file,omitempty"`
	Refusal  string    `json:"refusal,omitempty"`
	// Raw is the part as it came. A part of a type other than text, image_url, file and refusal is written from it.
	Raw json.RawMessage `json:"-"`
}

// Part types that this package knows.
const (
	PartText    = "text"
	PartImage   = "image_url"
	PartFile    = "file"
	PartRefusal = "refusal"
)

// ImageURL is the image of a part; Detail is "", low, high or auto.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

// UnmarshalJSON also takes a bare string, which several clients send.
func (i *ImageURL) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &i.URL)
	}
	type plain ImageURL
	return json.Unmarshal(data, (*plain)(i))
}

// File is the file of a part: an id, or a name and a data URI.
type File struct {
	FileID   string `json:"file_id,omitempty"`
	FileData string `json:"file_data,omitempty"`
	Filename string `json:"filename,omitempty"`
}

// UnmarshalJSON keeps the whole part in Raw. A bare string is a text part.
func (p *Part) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		p.Type = PartText
		return json.Unmarshal(data, &p.Text)
	}
	type plain Part
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	switch head.Type {
	case PartText, PartImage, PartFile, PartRefusal:
		if err := json.Unmarshal(data, (*plain)(p)); err != nil {
			return err
		}
	case "":
		return errors.New("a content part needs a type")
	default:
		p.Type = head.Type
	}
	p.Raw = append(json.RawMessage(nil), data...)
	return nil
}

// MarshalJSON writes unknown parts as they came.
func (p Part) MarshalJSON() ([]byte, error) {
	type plain Part
	switch p.Type {
	case PartText: // text is written even when it is empty
		return Marshal(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{p.Type, p.Text})
	case PartImage, PartFile, PartRefusal:
		return Marshal(plain(p))
	}
	if p.Raw == nil {
		return Marshal(plain(p))
	}
	return p.Raw, nil
}

// ToolCall is a call in a message. Type is function; other types are only recognised.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function FunctionCall `json:"function"`
}

// FunctionCall is the function that a ToolCall calls.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// UnmarshalJSON takes arguments that are an object too: several clients replay what they parsed.
func (f *FunctionCall) UnmarshalJSON(data []byte) error {
	var in struct {
		Name      string        `json:"name"`
		Arguments flexArguments `json:"arguments"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	f.Name, f.Arguments = in.Name, string(in.Arguments)
	return nil
}

// ReasoningDetail is one entry of OpenRouter's reasoning_details.
type ReasoningDetail struct {
	Type      string `json:"type"` // reasoning.text, reasoning.summary or reasoning.encrypted
	Text      string `json:"text,omitempty"`
	Summary   string `json:"summary,omitempty"`
	Data      string `json:"data,omitempty"`
	Signature string `json:"signature,omitempty"`
}
