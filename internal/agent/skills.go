package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

var errNoSandbox = turn.Unsupported("tools", "this server has no sandbox to run code in; its operator can find out why with `lathe doctor`")

// prepareSkills finds the turn's skills, and the tools that go with them: where the request has none that run here, python runs their
// scripts; where the model could not look into a folder with ease, read_skill reads them.
func (l *loop) prepareSkills(ctx context.Context) error {
	h := turn.Hosted{}
	if l.req.Hosted != nil {
		h = *l.req.Hosted
	}
	l.asked = &h
	if len(h.Tools) == 0 && len(h.Skills) == 0 {
		return nil
	}
	if l.cfg.Workspaces == nil {
		return errNoSandbox
	}
	var err error
	if l.skills, err = l.cfg.Workspaces.Skills(ctx, &h); err != nil || len(l.skills) == 0 {
		return err
	}
	if h.Tools = slices.Clone(h.Tools); len(h.Tools) == 0 {
		h.Tools = []string{tool.Python}
	}
	if !slices.Contains(h.Tools, tool.Bash) && !slices.Contains(h.Tools, tool.Edit) {
		h.Tools = append(h.Tools, tool.ReadSkillName)
	}
	return nil
}

// skillsPrompt tells the model of the turn's skills: of each its name, what it is for and where it lies, or all of its text.
func (l *loop) skillsPrompt() string {
	listed := make([]skill.Listed, len(l.skills))
	for i, s := range l.skills {
		listed[i] = skill.Listed{Name: s.Name, Description: s.Description, Dir: s.Path()}
	}
	if !l.cfg.PreloadSkills && !l.asked.Preload {
		return skill.Prompt(listed)
	}
	var texts []string
	for i, s := range l.skills {
		if body, failed := tool.ReadSkill(l.skills[i:i+1], `{"name":"`+s.Name+`"}`); !failed {
			texts = append(texts, skill.Preloaded(listed[i], body))
		}
	}
	return strings.Join(append([]string{skill.Prompt(listed)}, texts...), "\n")
}

// readSkill answers a call of read_skill. The model's history has it; the client, which did not declare the tool, does not see it.
func (r *round) readSkill(c *openCall, call turn.Call) {
	call.Arguments = asObject(call.Arguments)
	text, failed := tool.ReadSkill(r.skills, call.Arguments)
	r.items = append(r.items, call)
	r.repeats.add(call.Name, call.Arguments, text)
	r.answer(c, text, nil, failed)
}

// skillRefs are skills as clients are told of them.
func skillRefs(skills []tool.Skill) []turn.SkillRef {
	var out []turn.SkillRef
	for _, s := range skills {
		out = append(out, turn.SkillRef{Type: s.Type, ID: s.ID, Version: s.Shown})
	}
	return out
}
