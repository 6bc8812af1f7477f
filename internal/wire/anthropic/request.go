package anthropic

import "encoding/json"

// Roles of messages. System text also stands in messages, behind a user's turn, where the model is new enough.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"
)

// Request is the body of POST /v1/messages. Fields of betas are in Extra.
type Request struct {
	Model         string          `json:"model"`
	MaxTokens     *int            `json:"max_tokens,omitzero"` // required, except by count_tokens
	System        Content         `json:"system,omitzero"`
	Messages      Messages        `json:"messages"`
	Tools         Tools           `json:"tools,omitzero"`
	ToolChoice    *ToolChoice     `json:"tool_choice,omitzero"`
	Stream        *bool           `json:"stream,omitzero"`
	StopSequences []string        `json:"stop_sequences,omitzero"`
	Thinking      *ThinkingConfig `json:"thinking,omitzero"`
	OutputConfig  *OutputConfig   `json:"output_config,omitzero"`
	Metadata      *Metadata       `json:"metadata,omitzero"`
	ServiceTier   string          `json:"service_tier,omitzero"` // auto or standard_only
	Speed         string          `json:"speed,omitzero"`
	InferenceGeo  string          `json:"inference_geo,omitzero"`
	CacheControl  *CacheControl   `json:"cache_control,omitzero"`
	Container     *ContainerRef   `json:"container,omitzero"`
	// Temperature, TopP and TopK exist under version 2023-06-01 only.
	Temperature *float64 `json:"temperature,omitzero"`
	TopP        *float64 `json:"top_p,omitzero"`
	TopK        *int     `json:"top_k,omitzero"`
	Extra       Extra
}

// Messages are the turns of a request.
type Messages []Message

// UnmarshalJSON reads an array of messages.
func (m *Messages) UnmarshalJSON(data []byte) (err error) {
	*m, err = list(data, object[Message])
	return err
}

// Tools are the tools of a request.
type Tools []Tool

// UnmarshalJSON reads an array of tools.
func (t *Tools) UnmarshalJSON(data []byte) (err error) {
	*t, err = list(data, object[Tool])
	return err
}

// Message is one turn. Consecutive turns of one role are taken as one.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
	Extra   Extra
}

// Tool is a function of the client's (Type "" or custom), or one that Anthropic knows by its Type; toolsets have no Name.
type Tool struct {
	Type                string            `json:"type,omitzero"`
	Name                string            `json:"name,omitzero"`
	Description         string            `json:"description,omitzero"`
	InputSchema         json.RawMessage   `json:"input_schema,omitzero"`
	Strict              *bool             `json:"strict,omitzero"`
	AllowedCallers      []string          `json:"allowed_callers,omitzero"`
	DeferLoading        *bool             `json:"defer_loading,omitzero"`
	EagerInputStreaming *bool             `json:"eager_input_streaming,omitzero"`
	InputExamples       []json.RawMessage `json:"input_examples,omitzero"`
	CacheControl        *CacheControl     `json:"cache_control,omitzero"`
	Extra               Extra
}

// ToolChoice is auto, any, tool (with Name) or none.
type ToolChoice struct {
	Type                   string `json:"type"`
	Name                   string `json:"name,omitzero"`
	DisableParallelToolUse *bool  `json:"disable_parallel_tool_use,omitzero"`
	Extra                  Extra
}

// ThinkingConfig is enabled (with BudgetTokens), adaptive, disabled or between_tools. Display is summarized or omitted.
type ThinkingConfig struct {
	Type         string `json:"type"`
	BudgetTokens *int   `json:"budget_tokens,omitzero"`
	Display      string `json:"display,omitzero"`
	Extra        Extra
}

// OutputConfig has the effort (low, medium, high, xhigh, max) and the form of the answer.
type OutputConfig struct {
	Effort string  `json:"effort,omitzero"`
	Format *Format `json:"format,omitzero"`
	Extra  Extra
}

// Format is json_schema.
type Format struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema,omitzero"`
	Extra  Extra
}

// Metadata has an opaque id of the end user.
type Metadata struct {
	UserID string `json:"user_id,omitzero"`
	Extra  Extra
}

// ContainerRef is a container's id, or an object with an id and skills.
type ContainerRef struct {
	// ID is set for a string.
	ID *string
	// Object is set for an object.
	Object *Container
}

// MarshalJSON writes the form that is set.
func (c ContainerRef) MarshalJSON() ([]byte, error) {
	if c.ID != nil {
		return Marshal(*c.ID)
	}
	return Marshal(c.Object)
}

// UnmarshalJSON reads a string or an object.
func (c *ContainerRef) UnmarshalJSON(data []byte) error {
	*c = ContainerRef{}
	if data[0] == '"' {
		return json.Unmarshal(data, &c.ID)
	}
	return json.Unmarshal(data, &c.Object)
}

// Container is a container as a request names it, or as an answer tells of it (ExpiresAt).
type Container struct {
	ID        *string    `json:"id,omitzero"`
	ExpiresAt string     `json:"expires_at,omitzero"` // RFC 3339
	Skills    []SkillRef `json:"skills,omitzero"`
	Extra     Extra
}

// SkillRef is a skill of a container: of type anthropic or custom.
type SkillRef struct {
	Type    string `json:"type"`
	SkillID string `json:"skill_id"`
	Version string `json:"version,omitzero"`
	Extra   Extra
}
