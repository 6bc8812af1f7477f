package demo

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

const (
	hello = "I am Lathe's demo model: a script, not an AI. "

	abilities = "I can run a Python block that you put between ``` lines, plot (\"plot the first ten square numbers\", \"plot 3 1 4 1 5\"), " +
		"make a table, sum the numeric columns of an uploaded CSV file, and call a function of yours (\"call NAME {json}\"). " +
		"Connect a real model in lathe.yaml to ask anything else."

	noTool = "To run code I need the hosted tool in your request: \"tools\": [{\"type\": \"code_interpreter\", \"container\": {\"type\": \"auto\"}}]."
)

// maxQuoted is how many lines of output an answer repeats.
const maxQuoted = 40

// reply is what to say in this round.
func (c *conversation) reply() reply {
	var r reply
	if effort := c.req.Reasoning.Effort; effort != "" && effort != "none" && len(c.results) == 0 {
		r.thought = "I look for a Python block and for the few words that I know. "
	}
	if c.first {
		r.text = hello
	}
	programs, calls := c.programs(), c.clientCalls()
	choice := c.req.ToolChoice
	if choice.Mode == turn.ChoiceNone {
		programs, calls = nil, nil
	}
	ran, failed := 0, false
	for _, res := range c.results {
		if res.hosted {
			ran++
			failed = failed || res.failed
		}
	}
	if ran < len(programs) && !failed && c.code != "" {
		p := programs[ran]
		if ran == 0 {
			r.text += "I run " + p.about + "."
		} else {
			r.text += "Now the next block."
		}
		r.calls = append(r.calls, toolCall{name: c.code, arguments: arguments(p.code)})
	}
	if r.calls = append(r.calls, calls...); len(calls) > 0 {
		r.text += " I call " + calls[0].name + "."
	}
	if len(r.calls) > 0 {
		return r
	}
	if call, ok := c.forced(); ok {
		r.calls = []toolCall{call}
		return r
	}
	switch {
	case len(c.results) > 0:
		r.text += c.report()
	case len(programs) > 0:
		r.text += noTool
	default:
		r.text += abilities
	}
	return r
}

// forced is a call that tool_choice wants though the message gives no reason for one.
func (c *conversation) forced() (toolCall, bool) {
	name := c.req.ToolChoice.Name
	switch c.req.ToolChoice.Mode {
	case turn.ChoiceRequired:
		if name = c.code; name == "" && len(c.req.Tools) > 0 {
			name = c.req.Tools[0].Name
		}
	case turn.ChoiceFunction:
	default:
		return toolCall{}, false
	}
	if name == "" {
		return toolCall{}, false
	}
	if name == c.code {
		return toolCall{name, arguments("print(\"a tool call was required\")")}, true
	}
	return toolCall{name, "{}"}, true
}

var (
	links   = regexp.MustCompile(`\[[^\]\n]*\]\(sandbox:[^)\n]*\)`)
	failure = regexp.MustCompile(`\[the call [^\]\n]*\]?`)
)

// filesHeading begins the list of files in a result.
const filesHeading = "Files made or changed:"

// report answers from the results.
func (c *conversation) report() string {
	var b strings.Builder
	for _, r := range c.results {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		if !r.hosted {
			fmt.Fprintf(&b, "%s answered: %s", r.name, quote(r.text))
			continue
		}
		output, files, _ := strings.Cut(r.text, filesHeading)
		problem := failure.FindString(output)
		output = strings.TrimSpace(failure.ReplaceAllString(output, ""))
		switch {
		case problem != "":
			fmt.Fprintf(&b, "The code did not work: %s. Its output:\n\n%s", strings.Trim(problem, "[]"), quote(output))
		case r.failed:
			fmt.Fprintf(&b, "The code could not be run.\n\n%s", quote(output))
		case strings.HasPrefix(output, "|"):
			fmt.Fprintf(&b, "This is what the code printed:\n\n%s", output)
		default:
			fmt.Fprintf(&b, "This is what the code printed:\n\n%s", quote(output))
		}
		for i, link := range links.FindAllString(files, -1) {
			if i == 0 {
				b.WriteString("\n\nIt made ")
			} else {
				b.WriteString(", ")
			}
			b.WriteString(link)
		}
		if strings.Contains(files, "](sandbox:") {
			b.WriteString(".")
		}
	}
	return b.String()
}

// quote puts output between fences, shortened.
func quote(output string) string {
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	if n := len(lines); n > maxQuoted {
		lines = append(append(lines[:maxQuoted/2:maxQuoted/2], fmt.Sprintf("... %d lines ...", n-maxQuoted)), lines[n-maxQuoted/2:]...)
	}
	return "```\n" + strings.ReplaceAll(strings.Join(lines, "\n"), "```", "'''") + "\n```"
}
