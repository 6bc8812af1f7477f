package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// definition is a hosted tool as models see it.
//
// To add a hosted tool: a name in tool.go, a definition here, and what runs it in the Workspace.
type definition struct {
	name string
	// argument is the one that holds the code, "" for a tool whose code is the object of all its arguments. parameters is a JSON schema.
	argument, parameters string
	// describe returns the text for a request.
	describe func(s *Set) string
}

// Sentences that several tools share.
const (
	linkText = "To give the user a file that you made, link it in your answer as [name](sandbox:/mnt/data/name). "
	dataText = "The working folder is /mnt/data: uploaded files are there, and it is the only place for files that the user can download. "
	// With turn.Hosted.OutputDir.
	inputText     = "The working folder is /mnt/data; files that the user gave are in the folder $INPUT_DIR. "
	outputDirText = "To give the user files, write them to the folder $OUTPUT_DIR, which is new and empty in each call: the files at its top, not " +
		"those in folders below it, are given to the user. All other files stay in the sandbox for later calls. "
)

var definitions = []definition{
	{
		name:       Python,
		argument:   "code",
		parameters: oneString("code", "The Python code to run."),
		describe: func(s *Set) string {
			return "Runs Python code in a sandboxed interpreter and returns what it prints and the value of its last expression. " +
				"Variables, imports and files are kept between calls. " + s.filesText(`In Python the folders are os.environ["INPUT_DIR"] and `+
				`os.environ["OUTPUT_DIR"]. `) +
				"Plots and images that the code displays, as with plt.show(), are shown to the user. " +
				s.networkText("There is no network access, so nothing can be downloaded or installed") +
				"; the standard library is there, and usually numpy, pandas, scipy, matplotlib, openpyxl and pillow. " + s.timeText() + s.functionsText()
		},
	},
	{
		name:       Bash,
		argument:   "command",
		parameters: oneString("command", "The command to run."),
		describe: func(s *Set) string {
			return "Runs a command with bash in a sandbox and returns what it prints and its exit status. Files are kept between calls; " +
				"each call is a shell of its own. " + s.filesText("") +
				s.networkText("There is no network access") + ". There is no terminal. Each call has a time limit and a memory limit."
		},
	},
	{
		name:       Edit,
		parameters: editParameters,
		describe: func(s *Set) string {
			give := linkText
			if s.outputDir {
				give = "Files that this tool makes are not given to the user: another tool must copy them to its $OUTPUT_DIR. "
			}
			return "Views, makes and changes text files in the sandbox; the other tools see the same files. view shows a file with line numbers, " +
				"which are not part of it, or only the lines of view_range; it lists a folder, and shows images. create writes file_text to a new " +
				"file, or over an old one, and makes its folders. str_replace replaces old_str, which must occur exactly once in the file, with " +
				"new_str. insert puts insert_text behind the line insert_line. Paths are absolute, or relative to /mnt/data, and may " +
				"have variables such as $INPUT_DIR. " + give
		},
	},
	{
		name: ReadSkillName,
		parameters: `{"type":"object","properties":{"name":{"type":"string","description":"The skill's name."},` +
			`"path":{"type":"string","description":"A file of the skill, SKILL.md by default; \"/\" lists its files."}},` +
			`"required":["name"],"additionalProperties":false}`,
		describe: func(*Set) string {
			return "Reads a file of a skill: its instructions (SKILL.md), or another file that they name. Programs find the same files " +
				"below " + SkillsRoot + "."
		},
	},
}

// editParameters is the schema of the edit tool (wire/anthropic.md 2.2).
const editParameters = `{"type":"object","properties":{` +
	`"command":{"type":"string","enum":["view","create","str_replace","insert"],"description":"What to do."},` +
	`"path":{"type":"string","description":"The file, or for view a folder."},` +
	`"view_range":{"type":"array","items":{"type":"integer"},"description":"For view: the first and the last line to show, counted from 1; -1 as the last is the end. All lines if left out."},` +
	`"file_text":{"type":"string","description":"For create: the whole content."},` +
	`"old_str":{"type":"string","description":"For str_replace: the text to replace, exactly as it is in the file, without line numbers."},` +
	`"new_str":{"type":"string","description":"For str_replace: the text to put in its place; old_str is removed if this is left out."},` +
	`"insert_line":{"type":"integer","description":"For insert: the line behind which to insert; 0 is before the first."},` +
	`"insert_text":{"type":"string","description":"For insert: the lines to insert."}},` +
	`"required":["command","path"],"additionalProperties":false}`

func (s *Set) filesText(python string) string {
	if s.outputDir {
		return inputText + outputDirText + python
	}
	return dataText + linkText
}

// maxReach caps the domains that a model is told.
const maxReach = 30

// networkText says what can be reached; none is the sentence for nothing. Neither has a full stop.
func (s *Set) networkText(none string) string {
	if len(s.reach) == 0 {
		return none
	}
	list, more := s.reach, ""
	if len(list) > maxReach {
		list, more = list[:maxReach], fmt.Sprintf(" and %d others", len(list)-maxReach)
	}
	return "There is network access over HTTP and HTTPS to these domains only: " + strings.Join(list, ", ") + more +
		"; programs find the proxy in their environment, and `pip install` works where a package index is among the domains"
}

func (s *Set) timeText() string {
	if s.cellTime > 0 {
		return fmt.Sprintf("A call may run for %d seconds at most, and has a memory limit: split long work over several calls.", int(s.cellTime.Seconds()))
	}
	return "Each call has a time limit and a memory limit."
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
	arg := argument(name)
	if arg == "" {
		var obj map[string]json.RawMessage
		if json.Unmarshal([]byte(code), &obj) == nil && obj != nil {
			return code
		}
		arg = "arguments"
	}
	key, _ := json.Marshal(arg) // a string always encodes
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

func oneString(name, description string) string {
	params, _ := json.Marshal(schema{ // strings always encode
		Type: "object", Properties: map[string]property{name: {Type: "string", Description: description}}, Required: []string{name},
	})
	return string(params)
}

// Set is the hosted tools of one request under the names by which the model knows them. It does not change.
type Set struct {
	hosted   []string          // as the request names them, without doubles
	upstream map[string]string // hosted name to the model's, for every hosted tool, also those that the request does not have
	byModel  map[string]string // the model's name to the hosted one, only those that the request has

	functions []Function // that programs may call
	clients   map[string]turn.Tool
	outputDir bool
	cellTime  time.Duration
	reach     []string // the domains that programs may reach
}

// NewSet names the hosted tools of h so that none has the name of one of the client's functions (DESIGN section 5 rule 11), and gives
// those functions names that programs may call (turn.Tool.Programmatic) where h has the python tool. An unknown hosted name is an error.
func NewSet(h *turn.Hosted, clients []turn.Tool) (*Set, error) {
	taken, byName := make(map[string]bool, len(clients)), make(map[string]turn.Tool, len(clients))
	for _, t := range clients {
		taken[t.Name] = true
		byName[t.Name] = t
	}
	s := &Set{clients: byName, upstream: map[string]string{}, byModel: map[string]string{}, outputDir: h.OutputDir, cellTime: h.CellTime}
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
	for _, hosted := range h.Tools {
		name, ok := s.upstream[hosted]
		if !ok {
			return nil, turn.Unsupported("tools", "there is no hosted tool %q", hosted)
		}
		if _, double := s.byModel[name]; double {
			continue
		}
		s.hosted = append(s.hosted, hosted)
		s.byModel[name] = hosted
	}
	if slices.Contains(s.hosted, Python) {
		s.functions = functionsOf(clients)
	}
	return s, nil
}

// Reaching returns the set with what its tools' programs may reach.
func (s *Set) Reaching(domains []string) *Set {
	c := *s
	c.reach = domains
	return &c
}

// Tools are the hosted tools for the model, in the order of the request; those for which keep says false are left out.
func (s *Set) Tools(keep func(hosted string) bool) []turn.Tool {
	var out []turn.Tool
	for _, h := range s.hosted {
		if d, ok := define(h); ok && keep(h) {
			out = append(out, turn.Tool{Name: s.upstream[h], Description: strings.TrimSpace(d.describe(s)), Parameters: json.RawMessage(d.parameters)})
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
