package oairesponses

import (
	"encoding/json"
	"fmt"
)

// Request is the body of POST /v1/responses (wire/openai.md 1.1), whole. A nil field was absent or null.
type Request struct {
	Model              string            `json:"model,omitempty"`
	Input              Input             `json:"input,omitzero"`
	Instructions       *string           `json:"instructions,omitempty"`
	Tools              Tools             `json:"tools,omitempty"`
	ToolChoice         *ToolChoice       `json:"tool_choice,omitempty"`
	ParallelToolCalls  *bool             `json:"parallel_tool_calls,omitempty"`
	MaxToolCalls       *int              `json:"max_tool_calls,omitempty"`
	MaxOutputTokens    *int              `json:"max_output_tokens,omitempty"`
	Stream             bool              `json:"stream,omitempty"`
	StreamOptions      *StreamOptions    `json:"stream_options,omitempty"`
	Include            []string          `json:"include,omitempty"`
	Store              *bool             `json:"store,omitempty"`
	PreviousResponseID *string           `json:"previous_response_id,omitempty"`
	Conversation       json.RawMessage   `json:"conversation,omitempty"` // an id, or {id}
	Background         *bool             `json:"background,omitempty"`
	Truncation         string            `json:"truncation,omitempty"`
	Text               *TextConfig       `json:"text,omitempty"`
	Reasoning          *ReasoningConfig  `json:"reasoning,omitempty"`
	Temperature        *float64          `json:"temperature,omitempty"`
	TopP               *float64          `json:"top_p,omitempty"`
	TopLogprobs        *int              `json:"top_logprobs,omitempty"`
	PresencePenalty    *float64          `json:"presence_penalty,omitempty"`  // Open Responses only
	FrequencyPenalty   *float64          `json:"frequency_penalty,omitempty"` // Open Responses only
	Metadata           map[string]string `json:"metadata,omitempty"`
	Prompt             json.RawMessage   `json:"prompt,omitempty"`
	User               string            `json:"user,omitempty"`
	SafetyIdentifier   string            `json:"safety_identifier,omitempty"`
	PromptCacheKey     string            `json:"prompt_cache_key,omitempty"`
	ServiceTier        string            `json:"service_tier,omitempty"`

	PromptCacheRetention json.RawMessage `json:"prompt_cache_retention,omitempty"`
	PromptCacheOptions   json.RawMessage `json:"prompt_cache_options,omitempty"`
	ContextManagement    json.RawMessage `json:"context_management,omitempty"`
	Moderation           json.RawMessage `json:"moderation,omitempty"`
	AccessPrograms       json.RawMessage `json:"access_programs,omitempty"`
	Image                json.RawMessage `json:"image,omitempty"`
}

// Input is one user message's text, or items; items where Text is nil.
type Input struct {
	Text  *string
	Items Items
}

// IsZero says that there is no input.
func (in Input) IsZero() bool { return in.Text == nil && in.Items == nil }

// UnmarshalJSON takes a string, an array or null.
func (in *Input) UnmarshalJSON(data []byte) error {
	*in = Input{}
	switch {
	case isNull(data):
		return nil
	case data[0] == '"':
		return json.Unmarshal(data, &in.Text)
	case data[0] == '[':
		return json.Unmarshal(data, &in.Items)
	}
	return fmt.Errorf("oairesponses: input wants a string or an array of items")
}

// MarshalJSON is its inverse.
func (in Input) MarshalJSON() ([]byte, error) {
	if in.Text != nil {
		return Marshal(*in.Text)
	}
	return Marshal([]Item(in.Items))
}

// StreamOptions mirrors stream_options.
type StreamOptions struct {
	IncludeObfuscation *bool `json:"include_obfuscation,omitempty"`
}

// TextConfig mirrors text.
type TextConfig struct {
	Format    *TextFormat `json:"format,omitempty"`
	Verbosity string      `json:"verbosity,omitempty"`
}

// TextFormat is text, json_object or json_schema {name, schema, strict, description}.
type TextFormat struct {
	Type        string          `json:"type"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// ReasoningConfig mirrors reasoning. Effort and Summary are null, not absent, when unset: that is how the response echoes them.
type ReasoningConfig struct {
	Effort          *string `json:"effort"`
	Summary         *string `json:"summary"`
	GenerateSummary *string `json:"generate_summary,omitempty"` // deprecated name of summary
	Context         *string `json:"context,omitempty"`
	Mode            *string `json:"mode,omitempty"`
}
