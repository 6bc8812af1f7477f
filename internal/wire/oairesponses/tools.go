package oairesponses

import (
	"encoding/json"
	"fmt"
)

// Tool is a tool of a request, also as the response echoes it (wire/openai.md 1.2): *FunctionTool, *CodeInterpreterTool, *ShellTool,
// *CustomTool or *Raw.
type Tool interface{ toolType() string }

// Tools is a list of them.
type Tools []Tool

// UnmarshalJSON decodes each element by its type.
func (s *Tools) UnmarshalJSON(data []byte) error {
	tools, err := decodeUnion(data, newTool)
	*s = tools
	return err
}

func newTool(data []byte) (Tool, error) {
	h, err := headOf(data)
	if err != nil {
		return nil, err
	}
	switch h.Type {
	case "function":
		return &FunctionTool{}, nil
	case "code_interpreter":
		return &CodeInterpreterTool{}, nil
	case "shell":
		return &ShellTool{}, nil
	case "custom":
		return &CustomTool{}, nil
	}
	return newRaw(h.Type, data), nil
}

// FunctionTool is a function that the client runs. Description, Parameters and Strict are null, not absent, when unset: that is how the
// response echoes them.
type FunctionTool struct {
	Type           string          `json:"type"`
	Name           string          `json:"name"`
	Description    *string         `json:"description"`
	Parameters     json.RawMessage `json:"parameters"`
	Strict         *bool           `json:"strict"`
	DeferLoading   bool            `json:"defer_loading,omitempty"`
	Async          bool            `json:"async,omitempty"`
	AllowedCallers []string        `json:"allowed_callers,omitempty"`
	OutputSchema   json.RawMessage `json:"output_schema,omitempty"`
}

// CodeInterpreterTool is the hosted Python.
type CodeInterpreterTool struct {
	Type           string         `json:"type"`
	Container      *CodeContainer `json:"container"`
	AllowedCallers []string       `json:"allowed_callers,omitempty"`
}

// CodeContainer is a container's id, or an Auto object where ID is "".
type CodeContainer struct {
	ID   string
	Auto *AutoContainer
}

// AutoContainer is the object form: type auto for code interpreter; container_auto, container_reference or local for shell.
type AutoContainer struct {
	Type          string         `json:"type"`
	FileIDs       []string       `json:"file_ids,omitempty"`
	MemoryLimit   string         `json:"memory_limit,omitempty"` // 1g, 4g, 16g or 64g
	NetworkPolicy *NetworkPolicy `json:"network_policy,omitempty"`
	// Skills are those of container_auto; for code_interpreter they are our extension.
	Skills json.RawMessage `json:"skills,omitempty"`
}

// NetworkPolicy is disabled, or allowlist with domains and, in requests only, secrets.
type NetworkPolicy struct {
	Type           string          `json:"type"`
	AllowedDomains []string        `json:"allowed_domains,omitempty"`
	DomainSecrets  json.RawMessage `json:"domain_secrets,omitempty"`
}

// UnmarshalJSON takes a string or an object.
func (c *CodeContainer) UnmarshalJSON(data []byte) error {
	*c = CodeContainer{}
	if isNull(data) {
		return nil
	}
	if data[0] == '"' {
		return json.Unmarshal(data, &c.ID)
	}
	return json.Unmarshal(data, &c.Auto)
}

// MarshalJSON is its inverse.
func (c CodeContainer) MarshalJSON() ([]byte, error) {
	if c.Auto != nil {
		return Marshal(c.Auto)
	}
	return Marshal(c.ID)
}

// ShellTool is the shell, hosted or run by the client.
type ShellTool struct {
	Type           string            `json:"type"`
	Environment    *ShellEnvironment `json:"environment,omitempty"`
	AllowedCallers []string          `json:"allowed_callers,omitempty"`
}

// ShellEnvironment is container_auto, container_reference {container_id} or local {skills}.
type ShellEnvironment struct {
	Type          string         `json:"type"`
	ContainerID   string         `json:"container_id,omitempty"`
	FileIDs       []string       `json:"file_ids,omitempty"`
	MemoryLimit   string         `json:"memory_limit,omitempty"`
	NetworkPolicy *NetworkPolicy `json:"network_policy,omitempty"`
	Skills        []Skill        `json:"skills,omitempty"`
}

// Skill is skill_reference {skill_id, version}, inline {name, description, source} or, for a local shell, {name, description, path}.
type Skill struct {
	Type        string          `json:"type,omitempty"`
	SkillID     string          `json:"skill_id,omitempty"`
	Version     json.RawMessage `json:"version,omitempty"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Path        string          `json:"path,omitempty"`
	Source      *SkillSource    `json:"source,omitempty"`
}

// SkillSource is a zip in base64.
type SkillSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// CustomTool takes text in a format instead of JSON arguments.
type CustomTool struct {
	Type           string          `json:"type"`
	Name           string          `json:"name"`
	Description    string          `json:"description,omitempty"`
	Format         json.RawMessage `json:"format,omitempty"`
	DeferLoading   bool            `json:"defer_loading,omitempty"`
	Async          bool            `json:"async,omitempty"`
	AllowedCallers []string        `json:"allowed_callers,omitempty"`
}

func (*FunctionTool) toolType() string        { return "function" }
func (*CodeInterpreterTool) toolType() string { return "code_interpreter" }
func (*ShellTool) toolType() string           { return "shell" }
func (*CustomTool) toolType() string          { return "custom" }
func (r *Raw) toolType() string               { return r.Type }

// ToolTypeOf names a tool's type.
func ToolTypeOf(t Tool) string { return t.toolType() }

// ToolChoice is a word (Mode: none, auto or required) or an object (Choice).
type ToolChoice struct {
	Mode   string
	Choice *Choice
}

// Choice is the object form: allowed_tools {mode, tools}, function {name}, custom {name}, mcp {server_label, name}, or a hosted tool's
// type alone.
type Choice struct {
	Type        string        `json:"type"`
	Mode        string        `json:"mode,omitempty"`
	Tools       []AllowedTool `json:"tools,omitempty"`
	Name        string        `json:"name,omitempty"`
	ServerLabel string        `json:"server_label,omitempty"`
}

// AllowedTool is one of allowed_tools.
type AllowedTool struct {
	Type        string `json:"type"`
	Name        string `json:"name,omitempty"`
	ServerLabel string `json:"server_label,omitempty"`
}

// UnmarshalJSON takes a string or an object.
func (c *ToolChoice) UnmarshalJSON(data []byte) error {
	*c = ToolChoice{}
	switch {
	case isNull(data):
		return nil
	case data[0] == '"':
		return json.Unmarshal(data, &c.Mode)
	case data[0] == '{':
		return json.Unmarshal(data, &c.Choice)
	}
	return fmt.Errorf("oairesponses: tool_choice wants a string or an object")
}

// MarshalJSON is its inverse; the zero ToolChoice is auto, the protocol's default.
func (c ToolChoice) MarshalJSON() ([]byte, error) {
	switch {
	case c.Choice != nil:
		return Marshal(c.Choice)
	case c.Mode == "":
		return []byte(`"auto"`), nil
	}
	return Marshal(c.Mode)
}
