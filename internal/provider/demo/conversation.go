package demo

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// conversation is what the script looks at of a request.
type conversation struct {
	req     *turn.Request
	first   bool     // nothing has been answered yet
	message string   // the user's last
	code    string   // the name of the tool that runs code, "" if there is none
	results []result // what came back since that message
}

// result is the answer to one call.
type result struct {
	name, text string
	hosted     bool // of the tool that runs code
	failed     bool
}

// reply is what the script says in one round.
type reply struct {
	thought, text string
	calls         []toolCall
}

type toolCall struct{ name, arguments string }

func read(req *turn.Request) *conversation {
	c := &conversation{req: req, first: true, code: codeTool(req.Tools)}
	names := map[string]string{}
	for _, it := range req.Items {
		switch v := it.(type) {
		case turn.Message:
			switch v.Role {
			case turn.User:
				c.message, c.results = textOf(v.Parts), nil
			case turn.Assistant:
				c.first = false
			}
		case turn.Call:
			names[v.CallID] = v.Name
		case turn.Result:
			name := names[v.CallID]
			c.results = append(c.results, result{name: name, text: textOf(v.Parts), hosted: c.isCode(name), failed: v.Error})
		}
	}
	return c
}

// isCode also knows the tool in a last round, where it is not offered any more: whatever the client declared is there.
func (c *conversation) isCode(name string) bool {
	if c.code != "" {
		return name == c.code
	}
	for _, t := range c.req.Tools {
		if t.Name == name {
			return false
		}
	}
	return true
}

// codeTool finds the tool that takes code: its schema has one required member, a string called code.
func codeTool(tools []turn.Tool) string {
	for _, t := range tools {
		var schema struct {
			Properties map[string]struct{ Type string }
			Required   []string
		}
		if json.Unmarshal(t.Parameters, &schema) == nil && len(schema.Required) == 1 && schema.Required[0] == "code" &&
			schema.Properties["code"].Type == "string" {
			return t.Name
		}
	}
	return ""
}

var (
	// fenced is a Python block; a block without a language counts too.
	fenced = regexp.MustCompile("(?s)```(?:[Pp]ython3?|py)?[ \t]*\r?\n(.*?)```")
	// clientCall is: call NAME {json}.
	clientCall = regexp.MustCompile(`(?m)\bcall\s+([A-Za-z0-9_-]+)\s*(\{.*\})`)
)

// programs are what the user's message asks to have run, in order.
func (c *conversation) programs() []program {
	var out []program
	for _, m := range fenced.FindAllStringSubmatch(c.message, -1) {
		out = append(out, program{about: "your code", code: strings.TrimRight(m[1], "\r\n")})
	}
	if len(out) == 0 {
		if p, ok := byKeyword(fenced.ReplaceAllString(c.message, "")); ok {
			out = append(out, p)
		}
	}
	return out
}

// clientCalls are the calls of the client's own functions that the message spells out. They are made once.
func (c *conversation) clientCalls() []toolCall {
	for _, r := range c.results {
		if !r.hosted {
			return nil
		}
	}
	var out []toolCall
	for _, m := range clientCall.FindAllStringSubmatch(fenced.ReplaceAllString(c.message, ""), -1) {
		for _, t := range c.req.Tools {
			if t.Name == m[1] && t.Name != c.code && json.Valid([]byte(m[2])) {
				out = append(out, toolCall{name: m[1], arguments: m[2]})
			}
		}
	}
	return out
}

// arguments is the declared form of a call of the code tool.
func arguments(code string) string {
	out, _ := json.Marshal(map[string]string{"code": code}) // strings always encode
	return string(out)
}
