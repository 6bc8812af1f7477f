package responses

import (
	"regexp"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

func (d *decoder) tools() error {
	names := map[string]bool{}
	for i, t := range d.in.Tools {
		path := oai.At("tools", i)
		switch t := t.(type) {
		case *oairesponses.CodeInterpreterTool:
			if err := d.codeInterpreter(path, t); err != nil {
				return err
			}
		case *oairesponses.FunctionTool:
			if names[t.Name] {
				return turn.Invalid(path+".name", "there are two functions called %q; give each its own name", t.Name)
			}
			names[t.Name] = true
			if err := d.function(path, t); err != nil {
				return err
			}
		default:
			kind := oairesponses.ToolTypeOf(t)
			if kind == "" {
				return oai.Missing(path + ".type")
			}
			return turn.Unsupported(path+".type", "tools of type %q are not supported; use code_interpreter and function", kind)
		}
	}
	return nil
}

func (d *decoder) codeInterpreter(path string, t *oairesponses.CodeInterpreterTool) error {
	if d.out.Hosted != nil {
		return turn.Invalid(path, "there are two code_interpreter tools; a response runs in one container, so send one")
	}
	if err := callers(path, t.AllowedCallers); err != nil {
		return err
	}
	if t.Container == nil {
		t.Container = &oairesponses.CodeContainer{Auto: &oairesponses.AutoContainer{Type: "auto"}}
	}
	c := &oai.Container{ID: t.Container.ID}
	if auto := t.Container.Auto; auto != nil {
		c.Auto, c.Type, c.MemoryLimit, c.FileIDs = true, auto.Type, auto.MemoryLimit, auto.FileIDs
		if p := auto.NetworkPolicy; p != nil {
			c.Network = &oai.NetworkPolicy{Type: p.Type, AllowedDomains: p.AllowedDomains, DomainSecrets: p.DomainSecrets}
		}
	}
	h, err := c.Hosted(path)
	if err != nil {
		return err
	}
	h.Session, h.MaxCalls = d.session, d.in.MaxToolCalls
	if auto := t.Container.Auto; auto != nil {
		skills, err := oai.Skills(path+".container.skills", auto.Skills)
		if err != nil {
			return err
		}
		oai.AddSkills(h, skills)
		h.Preload = d.preload
	}
	d.out.Hosted = h
	return nil
}

func callers(path string, allowed []string) error {
	for i, c := range allowed {
		if c != "direct" {
			return turn.Unsupported(oai.At(path+".allowed_callers", i), "caller %q is not supported; the model calls tools directly, leave it out", c)
		}
	}
	return nil
}

var functionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func (d *decoder) function(path string, t *oairesponses.FunctionTool) error {
	if !functionName.MatchString(t.Name) {
		return turn.Invalid(path+".name", "a function's name must be 1 to 128 of A-Z, a-z, 0-9, _ and -, got %q", t.Name)
	}
	if err := callers(path, t.AllowedCallers); err != nil {
		return err
	}
	if t.DeferLoading {
		return turn.Unsupported(path+".defer_loading", "defer_loading is not supported: all functions are shown to the model; leave it out")
	}
	if t.Async {
		return turn.Unsupported(path+".async", "async functions are not supported; leave it out")
	}
	tool := turn.Tool{Name: t.Name, Description: deref(t.Description), Strict: t.Strict}
	if isSet(t.Parameters) {
		if t.Parameters[0] != '{' {
			return turn.Invalid(path+".parameters", "parameters must be a JSON schema object")
		}
		tool.Parameters = t.Parameters
	}
	d.out.Tools = append(d.out.Tools, tool)
	return nil
}

func (d *decoder) toolChoice() error {
	tc := d.in.ToolChoice
	if tc == nil {
		return nil
	}
	if tc.Choice == nil {
		return d.choiceMode("tool_choice", tc.Mode)
	}
	c := tc.Choice
	if c.Type != "allowed_tools" {
		name, hosted, err := d.declared("tool_choice", c.Type, c.Name)
		if err != nil {
			return err
		}
		d.out.ToolChoice = turn.ToolChoice{Mode: turn.ChoiceFunction, Name: name}
		if hosted {
			d.out.ToolChoice.Mode = turn.ChoiceHosted
		}
		return nil
	}
	if c.Mode == "none" || c.Mode == "" {
		return turn.Invalid("tool_choice.mode", "the mode of allowed_tools must be auto or required")
	}
	if err := d.choiceMode("tool_choice.mode", c.Mode); err != nil {
		return err
	}
	if len(c.Tools) == 0 {
		return turn.Invalid("tool_choice.tools", "allowed_tools names no tool; use \"none\" to forbid all")
	}
	for i, t := range c.Tools {
		name, _, err := d.declared(oai.At("tool_choice.tools", i), t.Type, t.Name)
		if err != nil {
			return err
		}
		d.out.ToolChoice.Allowed = append(d.out.ToolChoice.Allowed, name)
	}
	return nil
}

func (d *decoder) choiceMode(param, mode string) error {
	switch mode {
	case "auto", "none", "required":
	default:
		return turn.Invalid(param, "%s must be none, auto, required or an object, got %q", param, mode)
	}
	if mode == "required" && len(d.in.Tools) == 0 {
		return turn.Invalid(param, "tool_choice is \"required\" but there are no tools")
	}
	d.out.ToolChoice.Mode = turn.ChoiceMode(mode)
	return nil
}

// declared finds the tool that a choice names among the request's own.
func (d *decoder) declared(path, kind, name string) (canonical string, hosted bool, err error) {
	switch kind {
	case "code_interpreter":
		if d.out.Hosted == nil {
			return "", false, turn.Invalid(path, "%s names code_interpreter, which is not in tools", path)
		}
		return oai.Python, true, nil
	case "function":
		for _, t := range d.out.Tools {
			if t.Name == name {
				return name, false, nil
			}
		}
		return "", false, turn.Invalid(path, "%s names the function %q, which is not in tools", path, name)
	case "":
		return "", false, oai.Missing(path + ".type")
	}
	return "", false, turn.Unsupported(path+".type", "tools of type %q are not supported; use code_interpreter and function", kind)
}
