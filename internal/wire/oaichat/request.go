package oaichat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Request is the body of POST /v1/chat/completions. A nil or empty field was absent or null.
type Request struct {
	Model               string          `json:"model"`
	Messages            []Message       `json:"messages"`
	Tools               []Tool          `json:"tools,omitempty"`
	ToolChoice          *ToolChoice     `json:"tool_choice,omitempty"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls,omitempty"`
	Stream              bool            `json:"stream,omitempty"`
	StreamOptions       *StreamOptions  `json:"stream_options,omitempty"`
	MaxCompletionTokens *int            `json:"max_completion_tokens,omitempty"`
	MaxTokens           *int            `json:"max_tokens,omitempty"`
	Temperature         *float64        `json:"temperature,omitempty"`
	TopP                *float64        `json:"top_p,omitempty"`
	PresencePenalty     *float64        `json:"presence_penalty,omitempty"`
	FrequencyPenalty    *float64        `json:"frequency_penalty,omitempty"`
	Seed                *int64          `json:"seed,omitempty"`
	Stop                Stop            `json:"stop,omitempty"`
	ResponseFormat      *ResponseFormat `json:"response_format,omitempty"`
	ReasoningEffort     string          `json:"reasoning_effort,omitempty"`
	Verbosity           string          `json:"verbosity,omitempty"`
	User                string          `json:"user,omitempty"`
	SafetyIdentifier    string          `json:"safety_identifier,omitempty"`
	PromptCacheKey      string          `json:"prompt_cache_key,omitempty"`
	ServiceTier         string          `json:"service_tier,omitempty"`
	// Metadata has at most 16 pairs; nil is absent.
	Metadata    map[string]string `json:"metadata,omitempty"`
	N           *int              `json:"n,omitempty"`
	Logprobs    *bool             `json:"logprobs,omitempty"`
	TopLogprobs *int              `json:"top_logprobs,omitempty"`
	Modalities  []string          `json:"modalities,omitempty"`
	// MaxToolCalls is not of this protocol but of Responses: it caps the hosted calls of the turn.
	MaxToolCalls *int `json:"max_tool_calls,omitempty"`
	// Extra are all other fields as they came; they are written behind the known ones, sorted by name.
	Extra map[string]json.RawMessage `json:"-"`
}

// StreamOptions is stream_options.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage,omitempty"`
}

// ResponseFormat is response_format: text, json_object or json_schema.
type ResponseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *JSONSchema `json:"json_schema,omitempty"`
}

// JSONSchema is response_format.json_schema.
type JSONSchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// Stop is stop: a string or an array of strings; it is written as an array.
type Stop []string

// UnmarshalJSON takes both forms.
func (s *Stop) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil && !isNull(data) {
		*s = Stop{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return errors.New("must be a string or an array of strings")
	}
	*s = many
	return nil
}

// FieldError is a field of a request that has the wrong form.
type FieldError struct {
	// Field is the path: messages[2].content.
	Field  string
	Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// SyntaxError is a body that is not JSON.
type SyntaxError struct {
	// Offset is the number of bytes read before the fault.
	Offset int64
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset) }

// ParseRequest reads a request strictly. Its errors are *FieldError and *SyntaxError.
func ParseRequest(body []byte) (*Request, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		if s, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, &SyntaxError{Offset: s.Offset, Reason: s.Error()}
		}
		return nil, &SyntaxError{Reason: "the body must be a JSON object"}
	}
	r := &Request{}
	for _, f := range r.fields() {
		raw, ok := fields[f.name]
		delete(fields, f.name)
		if !ok || isNull(raw) {
			continue
		}
		if err := f.read(raw); err != nil {
			return nil, err
		}
	}
	if len(fields) > 0 {
		r.Extra = fields
	}
	return r, nil
}

type field struct {
	name   string
	target any
}

// read decodes one field. Elements of messages and tools are decoded one by one, so that an error can name its place.
func (f field) read(raw json.RawMessage) error {
	switch target := f.target.(type) {
	case *[]Message:
		return readList(f.name, raw, target)
	case *[]Tool:
		return readList(f.name, raw, target)
	}
	return inField(f.name, json.Unmarshal(raw, f.target))
}

func readList[T any](name string, raw json.RawMessage, target *[]T) error {
	var elems []json.RawMessage
	if json.Unmarshal(raw, &elems) != nil {
		return &FieldError{Field: name, Reason: "must be an array"}
	}
	list := make([]T, len(elems))
	for i, e := range elems {
		if err := inField(fmt.Sprintf("%s[%d]", name, i), json.Unmarshal(e, &list[i])); err != nil {
			return err
		}
	}
	*target = list
	return nil
}

// inField puts path before the place that err names.
func inField(path string, err error) error {
	if err == nil {
		return nil
	}
	if fe, ok := errors.AsType[*FieldError](err); ok {
		return &FieldError{Field: path + "." + fe.Field, Reason: fe.Reason}
	}
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if te.Field != "" {
			path += "." + te.Field
		}
		return &FieldError{Field: path, Reason: fmt.Sprintf("must be %s, got %s", jsonName(te.Type.Kind().String()), te.Value)}
	}
	return &FieldError{Field: path, Reason: err.Error()}
}

func jsonName(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"):
		return "an integer"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "bool":
		return "a boolean"
	case kind == "string":
		return "a string"
	case kind == "slice":
		return "an array"
	}
	return "an object"
}

// fields lists what ParseRequest knows, by name.
func (r *Request) fields() []field {
	return []field{
		{"model", &r.Model}, {"messages", &r.Messages}, {"tools", &r.Tools}, {"tool_choice", &r.ToolChoice},
		{"parallel_tool_calls", &r.ParallelToolCalls}, {"stream", &r.Stream}, {"stream_options", &r.StreamOptions},
		{"max_completion_tokens", &r.MaxCompletionTokens}, {"max_tokens", &r.MaxTokens}, {"temperature", &r.Temperature},
		{"top_p", &r.TopP}, {"presence_penalty", &r.PresencePenalty}, {"frequency_penalty", &r.FrequencyPenalty}, {"seed", &r.Seed},
		{"stop", &r.Stop}, {"response_format", &r.ResponseFormat}, {"reasoning_effort", &r.ReasoningEffort}, {"verbosity", &r.Verbosity},
		{"user", &r.User}, {"safety_identifier", &r.SafetyIdentifier}, {"prompt_cache_key", &r.PromptCacheKey},
		{"service_tier", &r.ServiceTier}, {"metadata", &r.Metadata}, {"n", &r.N}, {"logprobs", &r.Logprobs},
		{"top_logprobs", &r.TopLogprobs}, {"modalities", &r.Modalities}, {"max_tool_calls", &r.MaxToolCalls},
	}
}

// MarshalJSON writes the known fields and Extra behind them. A field of Extra that is known is left out.
func (r *Request) MarshalJSON() ([]byte, error) {
	type plain Request
	out, err := Marshal((*plain)(r))
	if err != nil || len(r.Extra) == 0 {
		return out, err
	}
	known := map[string]bool{}
	for _, f := range r.fields() {
		known[f.name] = true
	}
	buf := bytes.NewBuffer(bytes.TrimSuffix(out, []byte("}")))
	for _, name := range sortedKeys(r.Extra) {
		if known[name] {
			continue
		}
		key, err := Marshal(name)
		if err != nil {
			return nil, err
		}
		buf.WriteByte(',')
		buf.Write(key)
		buf.WriteByte(':')
		buf.Write(r.Extra[name])
	}
	buf.WriteByte('}')
	return buf.Bytes(), nil
}

func sortedKeys(m map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
