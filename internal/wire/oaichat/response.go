package oaichat

import "encoding/json"

// Response is a whole answer (chat.completion).
type Response struct {
	ID                string   `json:"id"`
	Object            string   `json:"object"`
	Created           int64    `json:"created"`
	Model             string   `json:"model"`
	Choices           []Choice `json:"choices"`
	Usage             *Usage   `json:"usage,omitempty"`
	ServiceTier       string   `json:"service_tier,omitempty"`
	SystemFingerprint string   `json:"system_fingerprint,omitempty"`
}

// Choice is one choice of a Response.
type Choice struct {
	Index        int             `json:"index"`
	Message      Answer          `json:"message"`
	FinishReason string          `json:"finish_reason"`
	Logprobs     json.RawMessage `json:"logprobs"`
}

// Answer is the message of a Choice.
type Answer struct {
	Role             string       `json:"role"`
	Content          *string      `json:"content"`
	Refusal          *string      `json:"refusal"`
	ReasoningContent string       `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall   `json:"tool_calls,omitempty"`
	Annotations      []Annotation `json:"annotations,omitempty"`
	// CodeInterpreterCalls and Container are our extension.
	CodeInterpreterCalls []CodeInterpreterCall `json:"code_interpreter_calls,omitempty"`
	Container            *Container            `json:"container,omitempty"`
}

// Chunk is one frame of a stream (chat.completion.chunk).
type Chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []ChunkChoice `json:"choices"`
	// Usage is absent (zero), null or counts: see UsageField.
	Usage             UsageField `json:"usage,omitzero"`
	ServiceTier       string     `json:"service_tier,omitempty"`
	SystemFingerprint string     `json:"system_fingerprint,omitempty"`
}

// ChunkChoice is one choice of a Chunk. FinishReason is null until the last.
type ChunkChoice struct {
	Index        int             `json:"index"`
	Delta        Delta           `json:"delta"`
	FinishReason *string         `json:"finish_reason"`
	Logprobs     json.RawMessage `json:"logprobs"`
}

// Delta is what a chunk adds. Strings are appended, entries with an index are merged into the one with the same index.
type Delta struct {
	Role             string          `json:"role,omitempty"`
	Content          *string         `json:"content,omitempty"`
	Refusal          *string         `json:"refusal,omitempty"`
	ReasoningContent *string         `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCallDelta `json:"tool_calls,omitempty"`
	// The rest is our extension. Annotations and Container come once, in the choice's last chunk.
	CodeInterpreterCalls  []CodeInterpreterCallDelta `json:"code_interpreter_calls,omitempty"`
	CodeInterpreterOutput *CodeInterpreterOutput     `json:"code_interpreter_output,omitempty"`
	Annotations           []Annotation               `json:"annotations,omitempty"`
	Container             *Container                 `json:"container,omitempty"`
}

// ToolCallDelta is a piece of a call: id, type and name in the first, pieces of the arguments after it.
type ToolCallDelta struct {
	Index    int           `json:"index"`
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type,omitempty"`
	Function FunctionDelta `json:"function"`
}

// FunctionDelta is the function of a ToolCallDelta.
type FunctionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// Usage counts the tokens of an answer.
type Usage struct {
	PromptTokens            int                `json:"prompt_tokens"`
	CompletionTokens        int                `json:"completion_tokens"`
	TotalTokens             int                `json:"total_tokens"`
	PromptTokensDetails     *PromptDetails     `json:"prompt_tokens_details,omitempty"`
	CompletionTokensDetails *CompletionDetails `json:"completion_tokens_details,omitempty"`
}

// PromptDetails is usage.prompt_tokens_details.
type PromptDetails struct {
	CachedTokens     int `json:"cached_tokens"`
	CacheWriteTokens int `json:"cache_write_tokens,omitempty"`
}

// CompletionDetails is usage.completion_tokens_details.
type CompletionDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// UsageField is the usage of a chunk. The zero value is left out.
type UsageField struct {
	// Present writes the field: as null where Usage is nil, as stream_options.include_usage wants on all chunks but the last.
	Present bool
	Usage   *Usage
}

// IsZero leaves the field out.
func (u UsageField) IsZero() bool { return !u.Present && u.Usage == nil }

// MarshalJSON writes the counts or null.
func (u UsageField) MarshalJSON() ([]byte, error) { return Marshal(u.Usage) }

// UnmarshalJSON reads the counts or null.
func (u *UsageField) UnmarshalJSON(data []byte) error {
	u.Present = true
	return json.Unmarshal(data, &u.Usage)
}

// ErrorFrame is a frame that tells of a failure after the first chunk, and an error body.
type ErrorFrame[T any] struct {
	Error T `json:"error"`
}
