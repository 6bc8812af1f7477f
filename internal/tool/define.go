package tool

import (
	"encoding/json"
	"strconv"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// definition is a hosted tool as models see it.
//
// To add a hosted tool: a name in tool.go, a definition here, and what runs it in the Workspace.
type definition struct {
	name, argument, description, argumentText string
}

var definitions = []definition{
	{
		name:     Python,
		argument: "code",
		description: "Runs Python code in a sandboxed interpreter and returns what it prints and the value of its last expression. " +
			"Variables, imports and files are kept between calls. The working folder is /mnt/data: uploaded files are there, and it is the " +
			"only place for files that the user can download. To give the user a file that you made, link it in your answer as " +
			"[name](sandbox:/mnt/data/name). Plots and images that the code displays, as with plt.show(), are shown to the user. There is no " +
			"network access, so nothing can be downloaded or installed; the standard library is there, and usually numpy, pandas, scipy, " +
			"matplotlib, openpyxl and pillow. Each call has a time limit and a memory limit.",
		argumentText: "The Python code to run.",
	},
	{
		name:     Bash,
		argument: "command",
		description: "Runs a command with bash in a sandbox and returns what it prints and its exit status. Files are kept between calls; " +
			"each call is a shell of its own. The working folder is /mnt/data: uploaded files are there, and it is the only place for files " +
			"that the user can download. To give the user a file that you made, link it in your answer as [name](sandbox:/mnt/data/name). " +
			"There is no network access and no terminal. Each call has a time limit and a memory limit.",
		argumentText: "The command to run.",
	},
}

func define(name string) (definition, bool) {
	for _, d := range definitions {
		if d.name == name {
			return d, true
		}
	}
	return definition{}, false
}

// argument is the name of the argument that holds the code.
func argument(name string) string {
	if d, ok := define(name); ok {
		return d.argument
	}
	return "code"
}

// Arguments puts code into the declared form.
func Arguments(name, code string) string {
	key, _ := json.Marshal(argument(name)) // a string always encodes
	value, _ := json.Marshal(code)
	return "{" + string(key) + ":" + string(value) + "}"
}

type schema struct {
	Type       string              `json:"type"`
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
	Additional bool                `json:"additionalProperties"`
}

type property struct {
	Type        string `json:"type"`
	Description string `json:"description"`
}

func (d definition) turnTool(name string) turn.Tool {
	params, _ := json.Marshal(schema{ // strings always encode
		Type:       "object",
		Properties: map[string]property{d.argument: {Type: "string", Description: d.argumentText}},
		Required:   []string{d.argument},
	})
	return turn.Tool{Name: name, Description: d.description, Parameters: params}
}

// Set is the hosted tools of one request under the names by which the model knows them. It does not change.
type Set struct {
	hosted   []string          // as the request names them, without doubles
	upstream map[string]string // hosted name to the model's, for every hosted tool, also those that the request does not have
	byModel  map[string]string // the model's name to the hosted one, only those that the request has
}

// NewSet names hosted tools so that none has the name of one of the client's functions (DESIGN section 5 rule 11). An unknown hosted
// name is an error.
func NewSet(hosted []string, clients []turn.Tool) (*Set, error) {
	taken := make(map[string]bool, len(clients))
	for _, t := range clients {
		taken[t.Name] = true
	}
	s := &Set{upstream: map[string]string{}, byModel: map[string]string{}}
	for _, d := range definitions {
		name := d.name
		for i := 1; taken[name]; i++ {
			name = "lathe_" + d.name
			if i > 1 {
				name += "_" + strconv.Itoa(i)
			}
		}
		taken[name] = true
		s.upstream[d.name] = name
	}
	for _, h := range hosted {
		name, ok := s.upstream[h]
		if !ok {
			return nil, turn.Unsupported("tools", "there is no hosted tool %q", h)
		}
		if _, double := s.byModel[name]; double {
			continue
		}
		s.hosted = append(s.hosted, h)
		s.byModel[name] = h
	}
	return s, nil
}

// Tools are the hosted tools for the model, in the order of the request; those for which keep says false are left out.
func (s *Set) Tools(keep func(hosted string) bool) []turn.Tool {
	var out []turn.Tool
	for _, h := range s.hosted {
		if d, ok := define(h); ok && keep(h) {
			out = append(out, d.turnTool(s.upstream[h]))
		}
	}
	return out
}

// Hosted is the hosted tool that the model calls name, and whether the request has one.
func (s *Set) Hosted(name string) (string, bool) {
	h, ok := s.byModel[name]
	return h, ok
}

// Upstream is the model's name for a hosted tool, whether or not this request has it.
func (s *Set) Upstream(hosted string) string {
	if name, ok := s.upstream[hosted]; ok {
		return name
	}
	return hosted
}

// Len is how many hosted tools the request has.
func (s *Set) Len() int { return len(s.hosted) }
