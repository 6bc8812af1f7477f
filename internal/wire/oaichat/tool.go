package oaichat

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// Tool types.
const (
	ToolFunction        = "function"
	ToolCustom          = "custom"
	ToolCodeInterpreter = "code_interpreter" // our extension; the object is that of Responses
)

// Tool is one entry of tools.
type Tool struct {
	Type     string    `json:"type"`
	Function *Function `json:"function,omitempty"`
	// Container is set only for code_interpreter.
	Container *ToolContainer `json:"container,omitempty"`
	// Unknown are the paths of what a code_interpreter tool holds beside these, sorted: it is our extension, so nobody else gives them a
	// meaning. Other tools may hold what their server knows.
	Unknown []string `json:"-"`
}

// UnmarshalJSON also fills Unknown.
func (t *Tool) UnmarshalJSON(data []byte) error {
	type plain Tool
	if err := json.Unmarshal(data, (*plain)(t)); err != nil {
		return err
	}
	if t.Type != ToolCodeInterpreter {
		return nil
	}
	t.Unknown = unknown(data, "", "type", "container")
	if t.Container != nil {
		t.Unknown = append(t.Unknown, t.Container.unknown...)
	}
	return nil
}

// unknown are the keys of an object that are not among known, behind prefix.
func unknown(object []byte, prefix string, known ...string) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return nil
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, key) {
			out = append(out, prefix+key)
		}
	}
	return out
}

// Function is a function that the client runs.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// ToolContainer is the container of code_interpreter: an id, or an object of type auto.
type ToolContainer struct {
	ID   string // "" for an object
	Auto *AutoContainer

	unknown []string
}

// AutoContainer asks for a container that is found or made.
type AutoContainer struct {
	Type          string          `json:"type"`
	FileIDs       []string        `json:"file_ids,omitempty"`
	MemoryLimit   string          `json:"memory_limit,omitempty"`
	NetworkPolicy json.RawMessage `json:"network_policy,omitempty"`
}

// UnmarshalJSON takes both forms.
func (c *ToolContainer) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &c.ID)
	}
	c.Auto = &AutoContainer{}
	c.unknown = unknown(data, "container.", "type", "file_ids", "memory_limit", "network_policy")
	return json.Unmarshal(data, c.Auto)
}

// MarshalJSON writes the form that is set.
func (c ToolContainer) MarshalJSON() ([]byte, error) {
	if c.Auto != nil {
		return Marshal(c.Auto)
	}
	return Marshal(c.ID)
}

// ToolChoice is tool_choice: a mode, one tool, or allowed tools.
type ToolChoice struct {
	// Mode is none, auto or required; of allowed tools, auto or required; "" where Tool is set.
	Mode string
	// Tool is the one tool that must be called.
	Tool *ToolRef
	// Allowed are the only tools that may be called; nil means all.
	Allowed []ToolRef
}

// ToolRef names a tool. Name is "" for code_interpreter.
type ToolRef struct{ Type, Name string }

type toolRefJSON struct {
	Type         string            `json:"type"`
	Name         string            `json:"name,omitempty"` // as Responses has it
	Function     *namedJSON        `json:"function,omitempty"`
	Custom       *namedJSON        `json:"custom,omitempty"`
	AllowedTools *allowedToolsJSON `json:"allowed_tools,omitempty"`
	// Mode and Tools are allowed_tools as Responses has it.
	Mode  string        `json:"mode,omitempty"`
	Tools []toolRefJSON `json:"tools,omitempty"`
}

type namedJSON struct {
	Name string `json:"name"`
}

type allowedToolsJSON struct {
	Mode  string        `json:"mode"`
	Tools []toolRefJSON `json:"tools"`
}

func (r toolRefJSON) ref() ToolRef {
	ref := ToolRef{Type: r.Type, Name: r.Name}
	if r.Function != nil {
		ref.Name = r.Function.Name
	}
	if r.Custom != nil {
		ref.Name = r.Custom.Name
	}
	return ref
}

// UnmarshalJSON takes every form of the protocol, and the flat ones of Responses.
func (c *ToolChoice) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &c.Mode)
	}
	var in toolRefJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return errors.New("must be a string or an object")
	}
	if in.Type != "allowed_tools" {
		ref := in.ref()
		c.Tool = &ref
		return nil
	}
	allowed := allowedToolsJSON{Mode: in.Mode, Tools: in.Tools}
	if in.AllowedTools != nil {
		allowed = *in.AllowedTools
	}
	c.Mode = allowed.Mode
	c.Allowed = make([]ToolRef, 0, len(allowed.Tools))
	for _, t := range allowed.Tools {
		c.Allowed = append(c.Allowed, t.ref())
	}
	return nil
}

// MarshalJSON writes the protocol's own form.
func (c ToolChoice) MarshalJSON() ([]byte, error) {
	switch {
	case c.Tool != nil:
		return Marshal(c.Tool.json())
	case c.Allowed != nil:
		allowed := allowedToolsJSON{Mode: c.Mode, Tools: []toolRefJSON{}}
		for _, t := range c.Allowed {
			allowed.Tools = append(allowed.Tools, t.json())
		}
		return Marshal(toolRefJSON{Type: "allowed_tools", AllowedTools: &allowed})
	}
	return Marshal(c.Mode)
}

func (r ToolRef) json() toolRefJSON {
	out := toolRefJSON{Type: r.Type}
	switch r.Type {
	case ToolFunction:
		out.Function = &namedJSON{r.Name}
	case ToolCustom:
		out.Custom = &namedJSON{r.Name}
	}
	return out
}
