package oairesponses

import "encoding/json"

// Content is a string or a list of parts; a list where Text is nil.
type Content struct {
	Text  *string
	Parts Parts
}

// UnmarshalJSON takes a string, an array or null.
func (c *Content) UnmarshalJSON(data []byte) error {
	*c = Content{}
	switch {
	case isNull(data):
		return nil
	case data[0] == '"':
		return json.Unmarshal(data, &c.Text)
	case data[0] == '[':
		return json.Unmarshal(data, &c.Parts)
	}
	return errNotContent
}

// MarshalJSON is its inverse; the zero Content is an empty list.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Text != nil {
		return Marshal(*c.Text)
	}
	if c.Parts == nil {
		return []byte("[]"), nil
	}
	return Marshal([]Part(c.Parts))
}

// Part is a piece of a message's content or of a function's output: *Text, *InputImage, *InputFile, *OutputText, *Refusal or *Raw.
type Part interface{ partType() string }

// Parts is a list of them.
type Parts []Part

// UnmarshalJSON decodes each element by its type.
func (s *Parts) UnmarshalJSON(data []byte) error {
	parts, err := decodeUnion(data, newPart)
	*s = parts
	return err
}

func newPart(data []byte) (Part, error) {
	h, err := headOf(data)
	if err != nil {
		return nil, err
	}
	switch h.Type {
	case "input_text", "reasoning_text", "summary_text":
		return &Text{}, nil
	case "input_image":
		return &InputImage{}, nil
	case "input_file":
		return &InputFile{}, nil
	case "output_text":
		return &OutputText{}, nil
	case "refusal":
		return &Refusal{}, nil
	}
	return newRaw(h.Type, data), nil
}

// Text is a part of type input_text, reasoning_text or summary_text.
type Text struct {
	Type                  string          `json:"type"`
	Text                  string          `json:"text"`
	PromptCacheBreakpoint json.RawMessage `json:"prompt_cache_breakpoint,omitempty"`
}

// InputImage is a picture by URL (https or data:) or by the id of an uploaded file.
type InputImage struct {
	Type                  string          `json:"type"`
	ImageURL              string          `json:"image_url,omitempty"`
	FileID                string          `json:"file_id,omitempty"`
	Detail                string          `json:"detail,omitempty"`
	PromptCacheBreakpoint json.RawMessage `json:"prompt_cache_breakpoint,omitempty"`
}

// InputFile is a file by id, by URL or inline (file_data with filename).
type InputFile struct {
	Type                  string          `json:"type"`
	FileID                string          `json:"file_id,omitempty"`
	FileURL               string          `json:"file_url,omitempty"`
	FileData              string          `json:"file_data,omitempty"`
	Filename              string          `json:"filename,omitempty"`
	Detail                string          `json:"detail,omitempty"`
	PromptCacheBreakpoint json.RawMessage `json:"prompt_cache_breakpoint,omitempty"`
}

// OutputText is text of an answer. Annotations and Logprobs are sent even when empty, so whoever builds one sets them.
type OutputText struct {
	Type        string            `json:"type"`
	Annotations []Annotation      `json:"annotations"`
	Logprobs    []json.RawMessage `json:"logprobs"`
	Text        string            `json:"text"`
	// Parsed is no part of the protocol: openai-node adds it to what it parsed, and sends it back.
	Parsed json.RawMessage `json:"parsed,omitempty"`
}

// Refusal is the model's refusal to answer.
type Refusal struct {
	Type    string `json:"type"`
	Refusal string `json:"refusal"`
}

// Annotation is file_citation {file_id, filename, index}, url_citation {url, title, start_index, end_index}, container_file_citation
// {container_id, file_id, filename, start_index, end_index} or file_path {file_id, index}.
type Annotation struct {
	Type        string `json:"type"`
	ContainerID string `json:"container_id,omitempty"`
	FileID      string `json:"file_id,omitempty"`
	Filename    string `json:"filename,omitempty"`
	URL         string `json:"url,omitempty"`
	Title       string `json:"title,omitempty"`
	StartIndex  *int   `json:"start_index,omitempty"`
	EndIndex    *int   `json:"end_index,omitempty"`
	Index       *int   `json:"index,omitempty"`
}

func (p *Text) partType() string     { return p.Type }
func (*InputImage) partType() string { return "input_image" }
func (*InputFile) partType() string  { return "input_file" }
func (*OutputText) partType() string { return "output_text" }
func (*Refusal) partType() string    { return "refusal" }
func (r *Raw) partType() string      { return r.Type }
