package skill

import (
	"html"
	"strings"
	"unicode/utf8"
)

// Listed is a skill as a model is told of it.
type Listed struct {
	Name, Description string
	// Dir is where the skill's files are for the model: /skills/<name>.
	Dir string
}

// Prompt is the text for the system prompt that tells a model of its skills, in the form that agentskills.io recommends
// (wire/anthropic.md 3.3): name, description and place of each; the model reads the rest itself. It is "" for no skills. The same skills
// in the same order give the same text, for the sake of prompt caches. Names and descriptions are a stranger's words: they are escaped, so that none of
// them ends its element.
func Prompt(skills []Listed) string {
	if len(skills) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("You have skills: folders with instructions, scripts and resources for special tasks. When a task fits a skill's description, " +
		"read its SKILL.md at the location below before you act, and follow it. Paths in it are relative to its folder. The folders are read-only.\n")
	b.WriteString("<available_skills>\n")
	for _, s := range skills {
		b.WriteString("<skill>\n<name>\n" + html.EscapeString(s.Name) + "\n</name>\n<description>\n" + html.EscapeString(oneLine(s.Description)) +
			"\n</description>\n<location>\n" + html.EscapeString(s.Dir) + "/" + Manifest + "\n</location>\n</skill>\n")
	}
	b.WriteString("</available_skills>")
	return b.String()
}

// oneLine makes one line of a description and cuts it at what the format allows, with a sign.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) > MaxDescription {
		s = string([]rune(s)[:MaxDescription-3]) + "..."
	}
	return s
}

// Preloaded is the text that puts a whole skill into the system prompt, for models that would not read it themselves.
func Preloaded(l Listed, body string) string {
	return "<skill name=\"" + html.EscapeString(l.Name) + "\" location=\"" + html.EscapeString(l.Dir) + "\">\n" + strings.TrimSpace(body) + "\n</skill>"
}
