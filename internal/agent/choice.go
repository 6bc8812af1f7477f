package agent

import (
	"slices"
	"sort"
	"strings"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// prepareChoice takes over the client's tool_choice. A function that only we have is a hosted tool.
func (l *loop) prepareChoice() error {
	c := l.req.ToolChoice
	l.choice = turn.ToolChoice{Mode: c.Mode, Name: c.Name}
	if c.Mode == turn.ChoiceFunction && !l.declared[c.Name] {
		if hosted, ok := l.set.Hosted(c.Name); ok {
			l.choice = turn.ToolChoice{Mode: turn.ChoiceHosted, Name: hosted}
		}
	}
	if _, ok := l.declared[l.choice.Name]; ok && l.choice.Mode == turn.ChoiceFunction && !l.declared[l.choice.Name] {
		return turn.Invalid("tool_choice", "tool_choice names the tool %q, which only programs may call", l.choice.Name)
	}
	if l.choice.Mode != turn.ChoiceHosted {
		return nil
	}
	if name, ok := l.set.Hosted(l.set.Upstream(l.choice.Name)); !ok || name != l.choice.Name {
		return turn.Invalid("tool_choice", "tool_choice names the tool %q, which is not among the request's tools", l.choice.Name)
	}
	return nil
}

// allowed says whether allowed_tools lets the model see a tool: a function by its name, a hosted one by its hosted name.
func (l *loop) allowed(name string) bool {
	return len(l.req.ToolChoice.Allowed) == 0 || slices.Contains(l.req.ToolChoice.Allowed, name)
}

// obey relaxes a forced choice that the model has followed, or it would be forced to call tools for ever.
func (l *loop) obey(name string) {
	c := l.choice
	hosted, isHosted := l.set.Hosted(name)
	if c.Mode == turn.ChoiceRequired || c.Mode == turn.ChoiceFunction && name == c.Name ||
		c.Mode == turn.ChoiceHosted && isHosted && hosted == c.Name {
		l.choice = turn.ToolChoice{Mode: turn.ChoiceAuto}
	}
}

func (l *loop) upstreamChoice(last bool) turn.ToolChoice {
	c := l.choice
	switch {
	case c.Mode == turn.ChoiceHosted && last:
		return turn.ToolChoice{Mode: turn.ChoiceAuto}
	case c.Mode == turn.ChoiceHosted:
		return turn.ToolChoice{Mode: turn.ChoiceFunction, Name: l.set.Upstream(c.Name)}
	}
	return c
}

// refusal says why a call of name is answered by us and not shown to the client, "" if it is not. It is worded for the model.
func (l *loop) refusal(name string, last bool) string {
	hosted, isHosted := l.set.Hosted(name)
	direct, declared := l.declared[name]
	switch {
	case declared && !direct:
		return "Error: this tool can only be called by the code of the " + l.set.Upstream(tool.Python) + " tool, as an async function." + l.toolList(last)
	case !isHosted && !declared:
		return "Error: there is no tool of this name." + l.toolList(last)
	case l.choice.Mode == turn.ChoiceNone:
		return "Not run: no tools may be called now. Answer without them."
	case isHosted && !l.allowed(hosted), !isHosted && !l.allowed(name):
		return "Not run: this tool may not be called now." + l.toolList(last)
	case isHosted && last:
		return "Not run: " + l.spentReason.sentence()
	case isHosted:
		// Calls of one round may cross a limit between them.
		if s := l.spend(); s != "" && s != spentRounds {
			return "Not run: " + s.sentence()
		}
	}
	return ""
}

func (l *loop) toolList(last bool) string {
	var names []string
	for _, t := range l.request(last).Tools {
		names = append(names, t.Name)
	}
	if len(names) == 0 {
		return " There are no tools: answer without them."
	}
	sort.Strings(names)
	return " The tools are: " + strings.Join(names, ", ") + "."
}
