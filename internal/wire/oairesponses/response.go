package oairesponses

import "encoding/json"

// Response is the response object (wire/openai.md 1.5). Whoever builds one gives every field that has neither omitempty nor a pointer
// a value: strict clients want them set (10.2).
type Response struct {
	ID                 string             `json:"id"`
	Object             string             `json:"object"`
	CreatedAt          int64              `json:"created_at"`
	Status             string             `json:"status"`
	Background         bool               `json:"background"`
	CompletedAt        *int64             `json:"completed_at"`
	Error              *ResponseError     `json:"error"`
	FrequencyPenalty   float64            `json:"frequency_penalty"`
	IncompleteDetails  *IncompleteDetails `json:"incomplete_details"`
	Instructions       json.RawMessage    `json:"instructions"` // a string, or items where a stored prompt made them
	MaxOutputTokens    *int               `json:"max_output_tokens"`
	MaxToolCalls       *int               `json:"max_tool_calls"`
	Model              string             `json:"model"`
	Output             Items              `json:"output"`
	ParallelToolCalls  bool               `json:"parallel_tool_calls"`
	PresencePenalty    float64            `json:"presence_penalty"`
	PreviousResponseID *string            `json:"previous_response_id"`
	PromptCacheKey     *string            `json:"prompt_cache_key"`
	Reasoning          *ReasoningConfig   `json:"reasoning"`
	SafetyIdentifier   *string            `json:"safety_identifier"`
	ServiceTier        string             `json:"service_tier"`
	Store              bool               `json:"store"`
	Temperature        float64            `json:"temperature"`
	Text               TextConfig         `json:"text"`
	ToolChoice         ToolChoice         `json:"tool_choice"`
	Tools              Tools              `json:"tools"`
	TopLogprobs        int                `json:"top_logprobs"`
	TopP               float64            `json:"top_p"`
	Truncation         string             `json:"truncation"`
	Usage              *Usage             `json:"usage"`
	User               *string            `json:"user"`
	Metadata           map[string]string  `json:"metadata"`

	// What only the vendor sends.
	Conversation         json.RawMessage `json:"conversation,omitempty"`
	Prompt               json.RawMessage `json:"prompt,omitempty"`
	PromptCacheRetention json.RawMessage `json:"prompt_cache_retention,omitempty"`
	PromptCacheOptions   json.RawMessage `json:"prompt_cache_options,omitempty"`
	Moderation           json.RawMessage `json:"moderation,omitempty"`
	ToolUsage            json.RawMessage `json:"tool_usage,omitempty"`
	Billing              json.RawMessage `json:"billing,omitempty"`
	ContentFilters       json.RawMessage `json:"content_filters,omitempty"`
	AccessPrograms       json.RawMessage `json:"access_programs,omitempty"`
	Image                json.RawMessage `json:"image,omitempty"`
}

// ResponseError is why a response failed. Code is of an open set (1.5).
type ResponseError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Type    string  `json:"type,omitempty"`
	Param   *string `json:"param,omitempty"`
}

// IncompleteDetails has the reason max_output_tokens, content_filter or max_messages.
type IncompleteDetails struct {
	Reason string `json:"reason"`
}

// Usage counts tokens over all rounds of a response.
type Usage struct {
	InputTokens         int           `json:"input_tokens"`
	InputTokensDetails  InputDetails  `json:"input_tokens_details"`
	OutputTokens        int           `json:"output_tokens"`
	OutputTokensDetails OutputDetails `json:"output_tokens_details"`
	TotalTokens         int           `json:"total_tokens"`
}

// InputDetails says how many of the input tokens came from a cache and went to one.
type InputDetails struct {
	CachedTokens            int             `json:"cached_tokens"`
	CacheWriteTokens        int             `json:"cache_write_tokens"`
	CacheWriteTokensDetails json.RawMessage `json:"cache_write_tokens_details,omitempty"`
}

// OutputDetails says how many of the output tokens were reasoning.
type OutputDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}
