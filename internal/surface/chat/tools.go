package chat

import (
	"encoding/json"
	"slices"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

func (d *decoder) tools() error {
	for i, t := range d.in.Tools {
		path := oai.At("tools", i)
		switch t.Type {
		case oaichat.ToolFunction:
			f := t.Function
			if f == nil || f.Name == "" {
				return oai.Missing(path + ".function.name")
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
			if len(t.Unknown) > 0 {
				return oai.UnknownParameter(path + "." + t.Unknown[0])
			}
			if err := d.codeInterpreter(path, t.Container); err != nil {
				return err
			}
		case "":
			return oai.Missing(path + ".type")
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
	said, err := wanted(path, c)
	if err != nil {
		return err
	}
	h, err := said.Hosted(path)
	if err != nil {
		return err
	}
	h.Session, h.MaxCalls = d.session, d.in.MaxToolCalls
	d.out.Hosted = h
	return nil
}

// wanted is what a tool says of its container, nil for nothing.
func wanted(path string, c *oaichat.ToolContainer) (*oai.Container, error) {
	if c == nil {
		return nil, nil
	}
	out := &oai.Container{ID: c.ID}
	if c.Auto == nil {
		return out, nil
	}
	out.Auto, out.Type, out.MemoryLimit, out.FileIDs = true, c.Auto.Type, c.Auto.MemoryLimit, slices.Clone(c.Auto.FileIDs)
	if raw := c.Auto.NetworkPolicy; len(raw) > 0 && string(raw) != "null" {
		var p struct {
			Type           string          `json:"type"`
			AllowedDomains []string        `json:"allowed_domains"`
			DomainSecrets  json.RawMessage `json:"domain_secrets"`
		}
		if json.Unmarshal(raw, &p) != nil {
			return nil, turn.Invalid(path+".container.network_policy", "network_policy must be an object with a type")
		}
		out.Network = &oai.NetworkPolicy{Type: p.Type, AllowedDomains: p.AllowedDomains, DomainSecrets: p.DomainSecrets}
	}
	return out, nil
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
		name, _, err := d.declared(oai.At("tool_choice.allowed_tools.tools", i), ref)
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
			return oai.Python, true, nil
		}
		return "", false, turn.Invalid(path, "%s names the function %q, which is not in tools", path, ref.Name)
	case oaichat.ToolCodeInterpreter:
		if d.out.Hosted == nil {
			return "", false, turn.Invalid(path, "%s names code_interpreter, which is not in tools", path)
		}
		return oai.Python, true, nil
	case "":
		return "", false, oai.Missing(path + ".type")
	}
	return "", false, turn.Unsupported(path+".type", "tools of type %q are not supported here; use function and code_interpreter", ref.Type)
}
