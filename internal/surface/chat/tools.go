package chat

import (
	"encoding/json"
	"slices"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// hostedPython is the name of code_interpreter in turn.Hosted (package tool).
const hostedPython = "python"

const maxFileIDs = 50

func (d *decoder) tools() error {
	for i, t := range d.in.Tools {
		path := at("tools", i)
		switch t.Type {
		case oaichat.ToolFunction:
			f := t.Function
			if f == nil || f.Name == "" {
				return missing(path + ".function.name")
			}
			if d.function(f.Name) {
				return turn.Invalid(path+".function.name", "there are two functions called %q; give each its own name", f.Name)
			}
			tool := turn.Tool{Name: f.Name, Description: f.Description, Strict: f.Strict}
			if len(f.Parameters) > 0 && string(f.Parameters) != "null" {
				tool.Parameters = f.Parameters
			}
			d.out.Tools = append(d.out.Tools, tool)
		case oaichat.ToolCodeInterpreter:
			if err := d.codeInterpreter(path, t.Container); err != nil {
				return err
			}
		case "":
			return missing(path + ".type")
		default:
			return turn.Unsupported(path+".type", "tools of type %q are not supported here; use function and code_interpreter", t.Type)
		}
	}
	return nil
}

func (d *decoder) function(name string) bool {
	return slices.ContainsFunc(d.out.Tools, func(t turn.Tool) bool { return t.Name == name })
}

func (d *decoder) codeInterpreter(path string, c *oaichat.ToolContainer) error {
	if d.out.Hosted != nil {
		return turn.Invalid(path, "there are two code_interpreter tools; an answer is made in one container, so send one")
	}
	h := &turn.Hosted{Tools: []string{hostedPython}, Session: d.in.Metadata[sessionKey], MaxCalls: d.in.MaxToolCalls}
	d.out.Hosted = h
	switch {
	case c == nil:
		return nil
	case c.Auto == nil:
		if h.Container = c.ID; h.Container == "" {
			return turn.Invalid(path+".container", "container must be a container's id or {\"type\": \"auto\"}")
		}
		return nil
	case c.Auto.Type != "auto":
		return turn.Invalid(path+".container.type", "container.type must be \"auto\", got %q", c.Auto.Type)
	case len(c.Auto.FileIDs) > maxFileIDs:
		return turn.Invalid(path+".container.file_ids", "file_ids may name at most %d files, got %d", maxFileIDs, len(c.Auto.FileIDs))
	}
	h.FileIDs = slices.Clone(c.Auto.FileIDs)
	if err := network(path, c.Auto.NetworkPolicy); err != nil {
		return err
	}
	limit, ok := memoryLimits[c.Auto.MemoryLimit]
	if !ok {
		return turn.Invalid(path+".container.memory_limit", "memory_limit must be 1g, 4g, 16g or 64g, got %q", c.Auto.MemoryLimit)
	}
	h.MemoryLimit = limit
	return nil
}

var memoryLimits = map[string]int64{"": 0, "1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}

func network(path string, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var p struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &p) != nil {
		return turn.Invalid(path+".container.network_policy", "network_policy must be an object with a type")
	}
	if p.Type != "disabled" {
		return turn.Unsupported(path+".container.network_policy.type",
			"network_policy %q is not supported: code runs without a network in this release; leave it out", p.Type)
	}
	return nil
}

func (d *decoder) toolChoice() error {
	c := d.in.ToolChoice
	if c == nil {
		return nil
	}
	if c.Tool != nil {
		name, hosted, err := d.declared("tool_choice", *c.Tool)
		if err != nil {
			return err
		}
		d.out.ToolChoice = turn.ToolChoice{Mode: turn.ChoiceFunction, Name: name}
		if hosted {
			d.out.ToolChoice.Mode = turn.ChoiceHosted
		}
		return nil
	}
	if c.Allowed != nil && c.Mode != "auto" && c.Mode != "required" {
		return turn.Invalid("tool_choice.allowed_tools.mode", "the mode of allowed_tools must be auto or required, got %q", c.Mode)
	}
	switch c.Mode {
	case "auto", "none", "required":
	default:
		return turn.Invalid("tool_choice", "tool_choice must be none, auto, required or an object, got %q", c.Mode)
	}
	if c.Mode == "required" && len(d.in.Tools) == 0 {
		return turn.Invalid("tool_choice", "tool_choice is \"required\" but there are no tools")
	}
	d.out.ToolChoice.Mode = turn.ChoiceMode(c.Mode)
	if c.Allowed != nil && len(c.Allowed) == 0 {
		return turn.Invalid("tool_choice.allowed_tools.tools", "allowed_tools names no tool; use \"none\" to forbid all")
	}
	for i, ref := range c.Allowed {
		name, _, err := d.declared(at("tool_choice.allowed_tools.tools", i), ref)
		if err != nil {
			return err
		}
		d.out.ToolChoice.Allowed = append(d.out.ToolChoice.Allowed, name)
	}
	return nil
}

// declared finds the tool that a choice names among the request's own. The hosted tool may be named as a function too, since SDKs know
// only that form.
func (d *decoder) declared(path string, ref oaichat.ToolRef) (name string, hosted bool, err error) {
	switch ref.Type {
	case oaichat.ToolFunction:
		if d.function(ref.Name) {
			return ref.Name, false, nil
		}
		if ref.Name == oaichat.ToolCodeInterpreter && d.out.Hosted != nil {
			return hostedPython, true, nil
		}
		return "", false, turn.Invalid(path, "%s names the function %q, which is not in tools", path, ref.Name)
	case oaichat.ToolCodeInterpreter:
		if d.out.Hosted == nil {
			return "", false, turn.Invalid(path, "%s names code_interpreter, which is not in tools", path)
		}
		return hostedPython, true, nil
	case "":
		return "", false, missing(path + ".type")
	}
	return "", false, turn.Unsupported(path+".type", "tools of type %q are not supported here; use function and code_interpreter", ref.Type)
}
