package oairesponses

import (
	"encoding/json"
	"fmt"
)

// Item is an element of a request's input or of a response's output (wire/openai.md 1.3, 1.6): *Message, *Reasoning, *FunctionCall,
// *FunctionCallOutput, *CodeInterpreterCall, *ItemReference, *ShellCall, *ShellCallOutput, *LocalShellCall, *LocalShellCallOutput,
// *ApplyPatchCall, *ApplyPatchCallOutput, *CustomToolCall, *CustomToolCallOutput or *Raw.
type Item interface{ itemType() string }

// Items is a list of them.
type Items []Item

// UnmarshalJSON decodes each element by its type.
func (s *Items) UnmarshalJSON(data []byte) error {
	items, err := decodeUnion(data, newItem)
	*s = items
	return err
}

func newItem(data []byte) (Item, error) {
	h, err := headOf(data)
	if err != nil {
		return nil, err
	}
	switch h.Type {
	case "message":
		return &Message{}, nil
	case "reasoning":
		return &Reasoning{}, nil
	case "function_call":
		return &FunctionCall{}, nil
	case "function_call_output":
		return &FunctionCallOutput{}, nil
	case "code_interpreter_call":
		return &CodeInterpreterCall{}, nil
	case "item_reference":
		return &ItemReference{}, nil
	case "shell_call":
		return &ShellCall{}, nil
	case "shell_call_output":
		return &ShellCallOutput{}, nil
	case "local_shell_call":
		return &LocalShellCall{}, nil
	case "local_shell_call_output":
		return &LocalShellCallOutput{}, nil
	case "apply_patch_call":
		return &ApplyPatchCall{}, nil
	case "apply_patch_call_output":
		return &ApplyPatchCallOutput{}, nil
	case "custom_tool_call":
		return &CustomToolCall{}, nil
	case "custom_tool_call_output":
		return &CustomToolCallOutput{}, nil
	case "": // optional on easy messages and on references
		if h.Role != "" {
			return &Message{}, nil
		}
		if h.ID != "" {
			return &ItemReference{}, nil
		}
	}
	return newRaw(h.Type, data), nil
}

// Message is a message in any of its three forms: easy input (content may be a string), input, and output.
type Message struct {
	ID      string  `json:"id,omitempty"`
	Type    string  `json:"type,omitempty"` // message, or "" on an easy one
	Status  string  `json:"status,omitempty"`
	Role    string  `json:"role"`
	Phase   string  `json:"phase,omitempty"`
	Content Content `json:"content"`
}

// Reasoning is what a model thought. Its texts are of type reasoning_text.
type Reasoning struct {
	ID               string  `json:"id,omitempty"`
	Type             string  `json:"type"`
	Summary          []*Text `json:"summary"` // of type summary_text
	Content          []*Text `json:"content,omitzero"`
	EncryptedContent string  `json:"encrypted_content,omitempty"`
	Status           string  `json:"status,omitempty"`
}

// FunctionCall is a call of a function that the client runs.
type FunctionCall struct {
	ID        string          `json:"id,omitempty"`
	Type      string          `json:"type"`
	Status    string          `json:"status,omitempty"`
	Arguments string          `json:"arguments"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace,omitempty"`
	Async     bool            `json:"async,omitempty"`
	Caller    json.RawMessage `json:"caller,omitempty"`
	// ParsedArguments is no part of the protocol: openai-node adds it to what it parsed, and sends it back.
	ParsedArguments json.RawMessage `json:"parsed_arguments,omitempty"`
}

// FunctionCallOutput answers a FunctionCall. Output is a string, or parts of the input kinds.
type FunctionCallOutput struct {
	ID        string          `json:"id,omitempty"`
	Type      string          `json:"type"`
	Status    string          `json:"status,omitempty"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name,omitempty"`
	Namespace string          `json:"namespace,omitempty"`
	Output    Content         `json:"output"`
	Caller    json.RawMessage `json:"caller,omitempty"`
}

// CodeInterpreterCall is a hosted run of code. Outputs is null where the request did not include them.
type CodeInterpreterCall struct {
	ID          string       `json:"id"`
	Type        string       `json:"type"`
	Status      string       `json:"status"` // in_progress, interpreting, completed, incomplete or failed
	Code        *string      `json:"code"`
	ContainerID string       `json:"container_id"`
	Outputs     []CodeOutput `json:"outputs"`
}

// CodeOutput is logs {logs} or image {url}.
type CodeOutput struct {
	Type string  `json:"type"`
	Logs *string `json:"logs,omitempty"`
	URL  string  `json:"url,omitempty"`
}

// ItemReference names a stored item.
type ItemReference struct {
	Type string `json:"type,omitempty"`
	ID   string `json:"id"`
}

// ShellCall is a call of the shell tool, hosted or local.
type ShellCall struct {
	ID          string            `json:"id,omitempty"`
	Type        string            `json:"type"`
	Status      string            `json:"status,omitempty"`
	CallID      string            `json:"call_id"`
	Action      ShellAction       `json:"action"`
	Environment *ShellEnvironment `json:"environment"`
	Caller      json.RawMessage   `json:"caller,omitempty"`
	CreatedBy   string            `json:"created_by,omitempty"`
}

// ShellAction is what a ShellCall runs.
type ShellAction struct {
	Commands        []string `json:"commands"`
	TimeoutMS       *int     `json:"timeout_ms"`
	MaxOutputLength *int     `json:"max_output_length"`
}

// ShellCallOutput has one entry a command.
type ShellCallOutput struct {
	ID              string          `json:"id,omitempty"`
	Type            string          `json:"type"`
	Status          string          `json:"status,omitempty"`
	CallID          string          `json:"call_id"`
	MaxOutputLength *int            `json:"max_output_length"`
	Output          []ShellOutput   `json:"output"`
	Caller          json.RawMessage `json:"caller,omitempty"`
}

// ShellOutput is what one command put out.
type ShellOutput struct {
	Stdout  string       `json:"stdout"`
	Stderr  string       `json:"stderr"`
	Outcome ShellOutcome `json:"outcome"`
}

// ShellOutcome is exit {exit_code} or timeout.
type ShellOutcome struct {
	Type     string `json:"type"`
	ExitCode *int   `json:"exit_code,omitempty"`
}

// LocalShellCall is a call of the legacy local_shell tool, which the client runs.
type LocalShellCall struct {
	ID     string          `json:"id"`
	Type   string          `json:"type"`
	Status string          `json:"status,omitempty"`
	CallID string          `json:"call_id"`
	Action LocalShellExec  `json:"action"`
	Caller json.RawMessage `json:"caller,omitempty"`
}

// LocalShellExec is the action exec.
type LocalShellExec struct {
	Type             string            `json:"type"`
	Command          []string          `json:"command"`
	Env              map[string]string `json:"env"`
	TimeoutMS        *int              `json:"timeout_ms,omitempty"`
	User             string            `json:"user,omitempty"`
	WorkingDirectory string            `json:"working_directory,omitempty"`
}

// LocalShellCallOutput answers a LocalShellCall. Output is a JSON string.
type LocalShellCallOutput struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status,omitempty"`
	Output string `json:"output"`
}

// ApplyPatchCall is a call of the apply_patch tool, which the client runs.
type ApplyPatchCall struct {
	ID        string          `json:"id,omitempty"`
	Type      string          `json:"type"`
	Status    string          `json:"status,omitempty"`
	CallID    string          `json:"call_id"`
	Operation PatchOperation  `json:"operation"`
	Caller    json.RawMessage `json:"caller,omitempty"`
}

// PatchOperation is create_file, update_file or delete_file.
type PatchOperation struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Diff string `json:"diff,omitempty"`
}

// ApplyPatchCallOutput answers an ApplyPatchCall.
type ApplyPatchCallOutput struct {
	ID     string          `json:"id,omitempty"`
	Type   string          `json:"type"`
	Status string          `json:"status,omitempty"`
	CallID string          `json:"call_id"`
	Output string          `json:"output,omitempty"`
	Caller json.RawMessage `json:"caller,omitempty"`
}

// CustomToolCall is a call of a custom tool: its input is text, not JSON.
type CustomToolCall struct {
	ID        string          `json:"id,omitempty"`
	Type      string          `json:"type"`
	Status    string          `json:"status,omitempty"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Input     string          `json:"input"`
	Namespace string          `json:"namespace,omitempty"`
	Async     bool            `json:"async,omitempty"`
	Caller    json.RawMessage `json:"caller,omitempty"`
}

// CustomToolCallOutput answers a CustomToolCall.
type CustomToolCallOutput struct {
	ID     string          `json:"id,omitempty"`
	Type   string          `json:"type"`
	Status string          `json:"status,omitempty"`
	CallID string          `json:"call_id"`
	Output Content         `json:"output"`
	Caller json.RawMessage `json:"caller,omitempty"`
}

func (*Message) itemType() string              { return "message" }
func (*Reasoning) itemType() string            { return "reasoning" }
func (*FunctionCall) itemType() string         { return "function_call" }
func (*FunctionCallOutput) itemType() string   { return "function_call_output" }
func (*CodeInterpreterCall) itemType() string  { return "code_interpreter_call" }
func (*ItemReference) itemType() string        { return "item_reference" }
func (*ShellCall) itemType() string            { return "shell_call" }
func (*ShellCallOutput) itemType() string      { return "shell_call_output" }
func (*LocalShellCall) itemType() string       { return "local_shell_call" }
func (*LocalShellCallOutput) itemType() string { return "local_shell_call_output" }
func (*ApplyPatchCall) itemType() string       { return "apply_patch_call" }
func (*ApplyPatchCallOutput) itemType() string { return "apply_patch_call_output" }
func (*CustomToolCall) itemType() string       { return "custom_tool_call" }
func (*CustomToolCallOutput) itemType() string { return "custom_tool_call_output" }
func (r *Raw) itemType() string                { return r.Type }

// TypeOf names an item's type, also where the item leaves it out.
func TypeOf(it Item) string { return it.itemType() }

var errNotContent = fmt.Errorf("oairesponses: want a string or an array of parts")
