package anthropic

import "encoding/json"

// Reasons for which an answer stopped.
const (
	StopEndTurn       = "end_turn"
	StopMaxTokens     = "max_tokens"
	StopSequence      = "stop_sequence"
	StopToolUse       = "tool_use"
	StopPauseTurn     = "pause_turn"
	StopRefusal       = "refusal"
	StopContextWindow = "model_context_window_exceeded"
)

// Object types.
const (
	TypeMessage = "message"
	TypeError   = "error"
)

// Response is the message that answers. StopReason is null only in message_start.
type Response struct {
	ID           string       `json:"id"`
	Type         string       `json:"type"` // message
	Role         string       `json:"role"` // assistant
	Model        string       `json:"model"`
	Content      Blocks       `json:"content"`
	StopReason   *string      `json:"stop_reason"`
	StopSequence *string      `json:"stop_sequence"`
	StopDetails  *StopDetails `json:"stop_details,omitzero"`
	Container    *Container   `json:"container,omitzero"`
	Usage        Usage        `json:"usage"`
	Extra        Extra
}

// StopDetails say why a request was refused.
type StopDetails struct {
	Type        string  `json:"type"`
	Category    *string `json:"category,omitzero"`
	Explanation *string `json:"explanation,omitzero"`
	Extra       Extra
}

// Usage counts tokens. InputTokens are without those that the cache had (CacheRead) or got (CacheCreation). In message_delta the counts
// are totals so far, and only those that changed may be there.
type Usage struct {
	InputTokens         *int                 `json:"input_tokens,omitzero"`
	CacheCreationTokens *int                 `json:"cache_creation_input_tokens,omitzero"`
	CacheReadTokens     *int                 `json:"cache_read_input_tokens,omitzero"`
	CacheCreation       *CacheCreation       `json:"cache_creation,omitzero"`
	OutputTokens        *int                 `json:"output_tokens,omitzero"`
	OutputTokensDetails *OutputTokensDetails `json:"output_tokens_details,omitzero"`
	ServerToolUse       json.RawMessage      `json:"server_tool_use,omitzero"`
	ServiceTier         string               `json:"service_tier,omitzero"`
	InferenceGeo        string               `json:"inference_geo,omitzero"`
	Extra               Extra
}

// CacheCreation splits what went into the cache by its lifetime.
type CacheCreation struct {
	Ephemeral5m int `json:"ephemeral_5m_input_tokens"`
	Ephemeral1h int `json:"ephemeral_1h_input_tokens"`
	Extra       Extra
}

// OutputTokensDetails says how many tokens were thinking.
type OutputTokensDetails struct {
	ThinkingTokens int `json:"thinking_tokens"`
	Extra          Extra
}

// Error types.
const (
	ErrInvalidRequest = "invalid_request_error"
	ErrAuthentication = "authentication_error"
	ErrBilling        = "billing_error"
	ErrPermission     = "permission_error"
	ErrNotFound       = "not_found_error"
	ErrConflict       = "conflict_error"
	ErrTooLarge       = "request_too_large"
	ErrRateLimit      = "rate_limit_error"
	ErrAPI            = "api_error"
	ErrTimeout        = "timeout_error"
	ErrOverloaded     = "overloaded_error"
)

// ErrorBody is the body of an answer that failed, and the error event of a stream.
type ErrorBody struct {
	Type      string `json:"type"` // error
	Error     Error  `json:"error"`
	RequestID string `json:"request_id,omitzero"`
	Extra     Extra
}

// Error says what failed. Details has error_code.
type Error struct {
	Type    string          `json:"type"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details,omitzero"`
	Extra   Extra
}
