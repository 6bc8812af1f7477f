package upstreamtest

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/wire/anthropic"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

var (
	skillPlace = regexp.MustCompile(`<location>\s*(\S+)\s*</location>`)
	readLine   = regexp.MustCompile(`(?m)^read: (edit|bash|read_skill|python)$`)
	lineNumber = regexp.MustCompile(`(?m)^ *\d+\t`)
	command    = regexp.MustCompile("(?s)```bash\n(.*?)```")
)

// useSkill does what a model does with a skill, and knows nothing but what it is told: it finds the first one's place in the system text, reads its
// SKILL.md with the tool that the line "read: ..." of the user's message names, or else the first that there is, runs the first fenced
// bash block of it in the skill's folder, and answers. Without a skill, a tool or a block it says so.
func useSkill(r *Request) Answer {
	place := skillPlace.FindStringSubmatch(r.System())
	if place == nil {
		return Say("I have no skill.")
	}
	results := r.ToolResults()
	switch len(results) {
	case 0:
		call, ok := readCall(r, place[1])
		if !ok {
			return Say("I cannot read the skill.")
		}
		return Do(Text("Let me read the skill."), call)
	case 1:
		block := command.FindStringSubmatch(lineNumber.ReplaceAllString(results[0], ""))
		if block == nil {
			return Say("The skill has no command: " + results[0])
		}
		return Do(commandCall(r, "cd "+path.Dir(place[1])+" && "+block[1]))
	}
	return final(r)
}

// readCall reads a file as the user's message wants it.
func readCall(r *Request, file string) (Call, bool) {
	tools := []string{"edit", "bash", "read_skill", "python"}
	if m := readLine.FindStringSubmatch(r.LastUser()); m != nil {
		tools = m[1:]
	}
	for _, tool := range tools {
		name := hostedNamed(r, tool)
		if name == "" {
			continue
		}
		switch tool {
		case "edit":
			return Call{Name: name, Pieces: []string{object("command", "view", "path", file)}}, true
		case "bash":
			return Call{Name: name, Pieces: []string{object("command", "cat "+file)}}, true
		case "read_skill":
			return Call{Name: name, Pieces: []string{object("name", path.Base(path.Dir(file)))}}, true
		}
		return Call{Name: name, Pieces: []string{object("code", fmt.Sprintf("print(open(%q).read())", file))}}, true
	}
	return Call{}, false
}

// commandCall runs a command with bash, or from Python where the request has no bash.
func commandCall(r *Request, command string) Call {
	if name := hostedNamed(r, "bash"); name != "" {
		return Call{Name: name, Pieces: []string{object("command", command)}}
	}
	code := fmt.Sprintf("import subprocess\np = subprocess.run([\"bash\", \"-c\", %s], capture_output=True, text=True)\nprint(p.stdout + p.stderr)", quoted(command))
	return Call{Name: hostedTool(r), Pieces: CodeArguments(code, 0)}
}

// quoted is a string of JSON, which is one of Python too.
func quoted(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return string(raw)
}

// object is a JSON object of strings, from names and values in turn.
func object(pairs ...string) string {
	fields := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		fields[pair[0]] = pair[1]
	}
	raw, err := oaichat.Marshal(fields)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(raw)
}

// System is the system text of the request, wherever its protocol has it: all of it, in order.
func (r *Request) System() string {
	var texts []string
	switch {
	case r.speaksMessages():
		in := r.Messages()
		said, _ := userContent(in.System)
		texts = append(texts, said)
		for _, m := range in.Messages {
			if m.Role == anthropic.RoleSystem {
				said, _ := userContent(m.Content)
				texts = append(texts, said)
			}
		}
	case r.speaksResponses():
		in := r.Responses()
		if in.Instructions != nil {
			texts = append(texts, *in.Instructions)
		}
		for _, it := range in.Input.Items {
			if m, ok := it.(*oairesponses.Message); ok && isSystem(m.Role) {
				texts = append(texts, inputText(m.Content))
			}
		}
	default:
		for _, m := range r.Chat().Messages {
			if isSystem(m.Role) {
				texts = append(texts, m.Content.String())
			}
		}
	}
	return strings.Join(texts, "\n")
}

func isSystem(role string) bool { return role == "system" || role == "developer" }
