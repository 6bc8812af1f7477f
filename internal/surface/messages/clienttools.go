package messages

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// Anthropic's own models know some tools without being given a schema (wire/anthropic.md 5). Clients run them. For other models the schemas
// and descriptions here stand for them; what the protocol's own server gets is what the client wrote.

// clientTool is a tool, or a set of tools, that clients declare by type only.
type clientTool struct {
	// prefix is what types of it begin with: the rest is a date.
	prefix string
	// set is the toolset's name, "" for a single tool.
	set string
	// members of a set; a single tool has one, whose name is the client's.
	members func(t wire.Tool) []member
}

type member struct {
	name, text string
	schema     schema
}

// schema is a JSON schema of the kinds that are needed here.
type schema struct {
	Type        string            `json:"type,omitempty"`
	Description string            `json:"description,omitempty"`
	Enum        []string          `json:"enum,omitempty"`
	Items       *schema           `json:"items,omitempty"`
	MinItems    int               `json:"minItems,omitempty"`
	MaxItems    int               `json:"maxItems,omitempty"`
	Properties  map[string]schema `json:"properties,omitzero"`
	Required    []string          `json:"required,omitempty"`
	AnyOf       []schema          `json:"anyOf,omitempty"`
}

func object(properties map[string]schema, required ...string) schema {
	if properties == nil {
		properties = map[string]schema{}
	}
	return schema{Type: "object", Properties: properties, Required: required}
}

func text(description string) schema   { return schema{Type: "string", Description: description} }
func number(description string) schema { return schema{Type: "number", Description: description} }
func whole(description string) schema  { return schema{Type: "integer", Description: description} }
func flag(description string) schema   { return schema{Type: "boolean", Description: description} }

func oneOf(description string, values ...string) schema {
	return schema{Type: "string", Description: description, Enum: values}
}

func wholes(n int, description string) schema {
	return schema{Type: "array", Items: &schema{Type: "integer"}, MinItems: n, MaxItems: n, Description: description}
}

var clientTools = []clientTool{
	{prefix: "bash_", members: one(bashTool)},
	{prefix: "text_editor_", members: one(editorTool)},
	{prefix: "memory_", members: one(memoryTool)},
	{prefix: "computer_toolset_", set: "computer", members: func(wire.Tool) []member { return computerMembers }},
	{prefix: "computer_", members: one(computerTool)},
	{prefix: "browser_toolset_", set: "browser", members: func(wire.Tool) []member { return browserMembers }},
}

func one(make func(wire.Tool) member) func(wire.Tool) []member {
	return func(t wire.Tool) []member { return []member{make(t)} }
}

func findClientTool(kind string) (clientTool, bool) {
	for _, c := range clientTools {
		if strings.HasPrefix(kind, c.prefix) {
			return c, true
		}
	}
	return clientTool{}, false
}

func isClientTool(kind string) bool {
	_, ok := findClientTool(kind)
	return ok
}

// clientTool declares what a tool that is known by its type means to a model. One that is not known here goes to Anthropic only.
func (d *decoder) clientTool(path string, t wire.Tool) error {
	c, known := findClientTool(t.Type)
	var members []member
	switch {
	case !known:
		name := t.Name
		if name == "" {
			name = t.Type
		}
		members = []member{{name: name}}
	case c.set == "" && t.Name == "":
		return missing(path + ".name")
	default:
		members = c.members(t)
	}
	var configs map[string]struct {
		Enabled *bool `json:"enabled"`
	}
	if raw := t.Extra["configs"]; c.set != "" && len(raw) > 0 {
		if err := json.Unmarshal(raw, &configs); err != nil {
			return invalid(path+".configs", "Input should be a valid dictionary")
		}
	}
	for _, m := range members {
		if on := configs[m.name].Enabled; on != nil && !*on {
			continue
		}
		if c.set != "" && d.call.native && d.kinds[m.name] != "" {
			continue // Anthropic tells two sets apart by toolset_name
		}
		if err := d.declare(path, m.name, turn.ChoiceFunction); err != nil {
			return err
		}
		params, err := wire.Marshal(m.schema)
		if err != nil {
			return turn.Internal(err)
		}
		tool := turn.Tool{Name: m.name, Description: m.text, Parameters: params, Toolset: c.set}
		if err := d.callers(path, t, &tool); err != nil {
			return err
		}
		if c.set != "" && tool.Programmatic {
			return invalid(path+".allowed_callers", "programs cannot call a toolset: leave it out")
		}
		if err := setRaw(&tool, t); err != nil {
			return err
		}
		if c.set != "" {
			d.out.toolsets[m.name] = c.set
		}
		d.out.turn.Tools = append(d.out.turn.Tools, tool)
	}
	return nil
}

func bashTool(t wire.Tool) member {
	return member{
		name: t.Name,
		text: "Runs a command in a persistent bash session on the user's own machine and returns what it prints. restart: true starts a new session.",
		schema: object(map[string]schema{
			"command": text("The command to run. Required unless the session is restarted."),
			"restart": flag("Start the session anew instead of running a command."),
		}),
	}
}

// editorTool has undo_edit in its oldest versions only.
func editorTool(t wire.Tool) member {
	commands := []string{"view", "create", "str_replace", "insert"}
	insert := "insert_text"
	if t.Type == "text_editor_20241022" || t.Type == "text_editor_20250124" {
		commands, insert = append(commands, "undo_edit"), "new_str"
	}
	properties := map[string]schema{
		"command":     oneOf("What to do.", commands...),
		"path":        text("Absolute path of the file or folder."),
		"view_range":  wholes(2, "For view: the first and the last line, counted from 1; -1 is the end of the file."),
		"file_text":   text("For create: what the file is to hold."),
		"old_str":     text("For str_replace: the text to replace. It must be in the file exactly once."),
		"new_str":     text("For str_replace: the new text."),
		"insert_line": whole("For insert: the line behind which the text goes; 0 is the beginning."),
	}
	if insert != "new_str" {
		properties[insert] = text("For insert: the text.")
	} else {
		properties[insert] = text("For str_replace and insert: the new text.")
	}
	return member{
		name:   t.Name,
		text:   "Views, creates and edits files on the user's own machine. view shows a file with line numbers, or what is in a folder.",
		schema: object(properties, "command", "path"),
	}
}

func memoryTool(t wire.Tool) member {
	return member{
		name: t.Name,
		text: "Your memory: files in /memories that are kept between conversations. View the folder before you begin, and note there what later " +
			"conversations will need.",
		schema: object(map[string]schema{
			"command":     oneOf("What to do.", "view", "create", "str_replace", "insert", "delete", "rename"),
			"path":        text("Path below /memories. For all commands but rename."),
			"view_range":  wholes(2, "For view: the first and the last line, counted from 1."),
			"file_text":   text("For create: what the file is to hold."),
			"old_str":     text("For str_replace: the text to replace."),
			"new_str":     text("For str_replace: the new text."),
			"insert_line": whole("For insert: the line behind which the text goes."),
			"insert_text": text("For insert: the text."),
			"old_path":    text("For rename: the path as it is."),
			"new_path":    text("For rename: the path as it shall be."),
		}, "command"),
	}
}

// computerTool is the older form: one tool with an action.
func computerTool(t wire.Tool) member {
	actions := []string{"key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click", "double_click", "screenshot", "cursor_position"}
	if t.Type != "computer_20241022" {
		actions = append(actions, "left_mouse_down", "left_mouse_up", "scroll", "hold_key", "wait", "triple_click")
	}
	if string(t.Extra["enable_zoom"]) == "true" {
		actions = append(actions, "zoom")
	}
	about := "Uses the mouse, keyboard and screen of a computer. Take a screenshot to see what is there before and after you act."
	if w, h := t.Extra["display_width_px"], t.Extra["display_height_px"]; len(w) > 0 && len(h) > 0 {
		about += fmt.Sprintf(" The screen has %s x %s pixels.", w, h)
	}
	return member{
		name: t.Name, text: about,
		schema: object(map[string]schema{
			"action":           oneOf("What to do.", actions...),
			"coordinate":       wholes(2, pixels),
			"start_coordinate": wholes(2, "For left_click_drag: where to begin. "+pixels),
			"text":             text("For type: the text; for key and hold_key: the keys; for clicks and scroll: keys to hold down."),
			"scroll_direction": oneOf("For scroll.", "up", "down", "left", "right"),
			"scroll_amount":    whole("For scroll: how many clicks of the wheel."),
			"duration":         number("For hold_key and wait: seconds."),
			"region":           wholes(4, "For zoom: x0, y0, x1, y1."),
		}, "action"),
	}
}
