package messages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// Names of turn.Hosted.Tools (package tool).
const (
	python = "python"
	bash   = "bash"
	edit   = "edit"
)

// codeName is the name of every code_execution tool, and of its Python part.
const codeName = "code_execution"

// codeTools are the parts of a code_execution tool, by its version (wire/anthropic.md 2.1).
var codeTools = map[string][]string{
	"code_execution_20250522": {python},
	"code_execution_20250825": {bash, edit},
	"code_execution_20260120": {bash, edit, python},
	"code_execution_20260521": {bash, edit, python},
}

// programCallers are the callers that are programs; the two newer ones mean the same.
var programCallers = []string{"code_execution_20250825", "code_execution_20260120", "code_execution_20260521"}

func at(list string, i int) string { return fmt.Sprintf("%s.%d", list, i) }

func (d *decoder) tools() error {
	for i, t := range d.in.Tools {
		path := at("tools", i)
		var err error
		switch kind := t.Type; {
		case kind == "" || kind == "custom":
			err = d.custom(path, t)
		case isCodeExecution(kind):
			err = d.codeExecution(path, t)
		case d.call.native || isClientTool(kind):
			err = d.clientTool(path, t)
		default:
			err = unsupported(path+".type", "tools of type %q run at Anthropic only; this model's server has none: leave it out", kind)
		}
		if err != nil {
			return err
		}
	}
	return d.programs()
}

func (d *decoder) declare(path, name string, mode turn.ChoiceMode) error {
	if d.kinds[name] != "" {
		e := turn.Invalid(path+".name", "tools: Tool names must be unique: %q comes twice", name)
		e.Code = "tool_name_conflict"
		return e
	}
	d.kinds[name] = mode
	return nil
}

// cellTime is how long a cell of the newest version may run (wire/anthropic.md 2.1).
const cellTime = 90 * time.Second

func (d *decoder) codeExecution(path string, t wire.Tool) error {
	parts, ok := codeTools[t.Type]
	if !ok {
		return unsupported(path+".type", "there is no %q here: use code_execution_20250522, _20250825, _20260120 or _20260521", t.Type)
	}
	if t.Name != codeName {
		return invalid(path+".name", "Input should be '%s'", codeName)
	}
	if d.out.code != "" {
		return invalid(path, "there are two code_execution tools; a response runs in one container, so send one")
	}
	for i, c := range t.AllowedCallers {
		if c != "direct" {
			return invalid(at(path+".allowed_callers", i), "Input should be 'direct': programs do not call code_execution")
		}
	}
	d.out.code = t.Type
	d.out.turn.Hosted = &turn.Hosted{Tools: parts, Pause: true, OutputDir: true}
	if t.Type == "code_execution_20260521" {
		d.out.turn.Hosted.CellTime = cellTime
	}
	return d.declare(path, codeName, turn.ChoiceHosted)
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

func (d *decoder) custom(path string, t wire.Tool) error {
	if !toolName.MatchString(t.Name) {
		return invalid(path+".custom.name", "String should match pattern '%s'", toolName)
	}
	if len(t.InputSchema) == 0 {
		return missing(path + ".custom.input_schema")
	}
	if !isObject(t.InputSchema) {
		return invalid(path+".custom.input_schema", "Input should be a valid dictionary")
	}
	if err := d.declare(path, t.Name, turn.ChoiceFunction); err != nil {
		return err
	}
	tool := turn.Tool{Name: t.Name, Description: t.Description, Parameters: t.InputSchema, Strict: t.Strict}
	if err := d.callers(path, t, &tool); err != nil {
		return err
	}
	if err := setRaw(&tool, t); err != nil {
		return err
	}
	d.out.turn.Tools = append(d.out.turn.Tools, tool)
	return nil
}

// setRaw keeps what the client wrote.
func setRaw(tool *turn.Tool, t wire.Tool) error {
	raw, err := wire.Marshal(t)
	if err != nil {
		return turn.Internal(err)
	}
	tool.Raw = &turn.Raw{Protocol: protocol, JSON: raw}
	return nil
}

// callers reads allowed_callers: direct is the model itself, which is all there is by default.
func (d *decoder) callers(path string, t wire.Tool, tool *turn.Tool) error {
	direct := len(t.AllowedCallers) == 0
	for i, c := range t.AllowedCallers {
		switch {
		case c == "direct":
			direct = true
		case slices.Contains(programCallers, c):
			tool.Programmatic = true
		default:
			return invalid(at(path+".allowed_callers", i), "Input should be 'direct' or one of %s", strings.Join(programCallers, ", "))
		}
	}
	tool.NotDirect = !direct
	if !tool.Programmatic {
		return nil
	}
	d.out.programmatic = true
	if t.Strict != nil && *t.Strict {
		return invalid(path, "`strict` tools cannot be called by code execution: leave out strict or that caller")
	}
	if isCircular(t.InputSchema) {
		return invalid(path+".custom.input_schema", "Circular $ref detected: programs cannot call a tool with a recursive schema")
	}
	return nil
}

// programs checks what holds for all tools that programs call (wire/anthropic.md 2.8).
func (d *decoder) programs() error {
	if !d.out.programmatic {
		return nil
	}
	if d.out.code == "" || !slices.Contains(d.out.turn.Hosted.Tools, python) {
		return invalid("tools", "`allowed_callers` names code execution, but no `code_execution` tool of version 20260120 or newer was provided")
	}
	if c := d.in.ToolChoice; c != nil && c.DisableParallelToolUse != nil && *c.DisableParallelToolUse {
		return invalid("tool_choice.disable_parallel_tool_use", "programs call tools side by side: leave it out where a tool has code execution among its `allowed_callers`")
	}
	return nil
}

// isCircular says whether a schema contains itself by $ref.
func isCircular(schema json.RawMessage) bool {
	var root any
	if json.Unmarshal(schema, &root) != nil {
		return false
	}
	c := circles{root: root, open: map[string]bool{}, done: map[string]bool{}}
	return c.in(root)
}

type circles struct {
	root       any
	open, done map[string]bool
	seen       int
}

// mostSeen bounds the work: references to the same large part are followed each time.
const mostSeen = 1_000_000

func (c *circles) in(v any) bool {
	if c.seen++; c.seen > mostSeen {
		return true // as good as endless
	}
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, c.in)
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok && c.follow(ref) {
			return true
		}
		for name, inner := range v {
			if name != "$ref" && c.in(inner) {
				return true
			}
		}
	}
	return false
}

func (c *circles) follow(ref string) bool {
	if c.open[ref] || ref == "#" {
		return true
	}
	path, local := strings.CutPrefix(ref, "#/")
	if !local || c.done[ref] {
		return false
	}
	target := c.root
	for part := range strings.SplitSeq(path, "/") {
		m, ok := target.(map[string]any)
		if !ok {
			return false
		}
		target = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	c.open[ref] = true
	found := c.in(target)
	c.open[ref], c.done[ref] = false, true
	return found
}

func (d *decoder) toolChoice() error {
	tc := d.in.ToolChoice
	if tc == nil {
		return nil
	}
	out := d.out.turn
	if tc.DisableParallelToolUse != nil && *tc.DisableParallelToolUse {
		out.ParallelToolCalls = new(false)
	}
	switch tc.Type {
	case "auto":
		out.ToolChoice.Mode = turn.ChoiceAuto
	case "none":
		out.ToolChoice.Mode = turn.ChoiceNone
	case "any":
		out.ToolChoice.Mode = turn.ChoiceRequired
	case "tool":
		return d.forced(tc.Name)
	default:
		return invalid("tool_choice.type", "Input should be 'auto', 'any', 'tool' or 'none'")
	}
	if len(d.in.Tools) == 0 && tc.Type != "none" {
		return invalid("tool_choice", "tool_choice may only be specified while providing tools")
	}
	return nil
}

func (d *decoder) forced(name string) error {
	out := d.out.turn
	switch d.kinds[name] {
	case "":
		return invalid("tool_choice.name", "Tool '%s' not found in provided tools", name)
	case turn.ChoiceHosted:
		out.ToolChoice = turn.ToolChoice{Mode: turn.ChoiceHosted, Name: out.Hosted.Tools[0]}
		return nil
	}
	for _, t := range out.Tools {
		if t.Name == name && t.NotDirect {
			return invalid("tool_choice.name", "Tool '%s' does not allow the caller 'direct', so that the model cannot be made to call it", name)
		}
	}
	out.ToolChoice = turn.ToolChoice{Mode: turn.ChoiceFunction, Name: name}
	return nil
}

// container reads both forms of the field. Without a code_execution tool a container has no use, and none is looked for.
func (d *decoder) container() error {
	c := d.in.Container
	if c == nil {
		return nil
	}
	id := c.ID
	if c.Object != nil {
		id = c.Object.ID
		if err := d.skills(c.Object.Skills); err != nil {
			return err
		}
	}
	if id != nil && *id == "" {
		return invalid("container", "the id is empty: leave it out for a new container")
	}
	if id != nil && d.out.turn.Hosted != nil {
		d.out.turn.Hosted.Container = *id
	}
	return nil
}

// skills are put into the container. A version that is absent is the latest.
func (d *decoder) skills(refs []wire.SkillRef) error {
	if len(refs) == 0 {
		return nil
	}
	if d.out.turn.Hosted == nil {
		return invalid("container.skills", "Skills require the code_execution tool to be included in the request")
	}
	if len(refs) > maxSkills {
		return invalid("container.skills", "at most %d skills can be named, got %d", maxSkills, len(refs))
	}
	for i, ref := range refs {
		param := fmt.Sprintf("container.skills.%d", i)
		if ref.Type != "custom" && ref.Type != "anthropic" {
			return invalid(param+".type", "must be custom or anthropic, got %q", ref.Type)
		}
		if ref.SkillID == "" {
			return invalid(param+".skill_id", "Field required")
		}
		d.out.turn.Hosted.Skills = append(d.out.turn.Hosted.Skills, turn.SkillRef{
			Type: ref.Type, ID: ref.SkillID, Version: cmp.Or(ref.Version, "latest"), Param: param,
		})
	}
	return nil
}

// maxSkills is the protocol's limit for one request (wire/anthropic.md 3.3).
const maxSkills = 20
