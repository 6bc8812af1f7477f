package messages

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// history puts the conversation together and holds the protocol's rules of pairs: each call of the client's is answered in the user's turn
// behind it, and each call that runs here has its result, except those that wait (wire/anthropic.md 2.5 and 2.8).
type history struct {
	d     *decoder
	items []turn.Item

	last   string // path of the newest assistant's message
	tail   string // type of its newest block, "" once a user's turn has begun
	inUser bool   // the newest turn is a user's
	// spoke says that the user said something besides results since the oldest call that waits.
	spoke bool

	ids   map[string]bool // of client calls
	open  map[string]bool // client calls of the newest assistant's turn that have no result yet; true where a program waits
	order []string        // of open

	hosted map[string]*hostedCall // by the client's id
	ran    []string               // those of code execution, in order
	waits  int                    // how many of these have no result yet
}

// hostedCall is a call that ran here, while its result is looked for.
type hostedCall struct {
	path, name string
	item       int // in items; -1 for a tool that does not run here
	done       bool
}

func newHistory(d *decoder) *history {
	return &history{d: d, ids: map[string]bool{}, open: map[string]bool{}, hosted: map[string]*hostedCall{}}
}

// add appends a message, unless it is empty.
func (h *history) add(role turn.Role, parts []turn.Part) {
	if len(parts) > 0 {
		h.items = append(h.items, turn.Message{Role: role, Parts: parts})
	}
}

func (h *history) beginUser() { h.inUser, h.tail = true, "" }

// beginAssistant ends the user's turn: what it has not answered stays unanswered.
func (h *history) beginAssistant() error {
	if !h.inUser {
		return nil
	}
	h.inUser = false
	return h.unanswered()
}

func (h *history) unanswered() error {
	var ids []string
	for _, id := range h.order {
		if _, ok := h.open[id]; ok {
			ids = append(ids, id)
		}
	}
	h.order = nil
	clear(h.open)
	if len(ids) == 0 {
		return nil
	}
	return invalid(h.last, "`tool_use` ids were found without `tool_result` blocks immediately after: %s. "+
		"Each `tool_use` block must have a corresponding `tool_result` block in the next message.", strings.Join(ids, ", "))
}

// called notes a call of the client's.
func (h *history) called(path, id string, programmatic bool) error {
	if h.ids[id] {
		return invalid(path+".id", "`tool_use` ids must be unique")
	}
	h.ids[id] = true
	h.open[id] = programmatic
	h.order = append(h.order, id)
	return nil
}

// answer notes a result, and says whether a program waits for it.
func (h *history) answer(path, id string) (programmatic bool, err error) {
	programmatic, ok := h.open[id]
	switch {
	case ok:
		delete(h.open, id)
		return programmatic, nil
	case slices.Contains(h.order, id):
		return false, invalid(path, "each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", id)
	}
	return false, invalid(path, "unexpected `tool_use_id` found in `tool_result` blocks: %s. "+
		"Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", id)
}

// parts of code_execution as blocks name them, and the argument that holds the code; edit has the whole object.
var hostedNames = map[string]struct{ tool, argument string }{
	"code_execution":             {python, "code"},
	"bash_code_execution":        {bash, "command"},
	"text_editor_code_execution": {edit, ""},
}

func (h *history) serverCall(path string, b *wire.ToolUse) error {
	if b.ID == "" {
		return missing(path + ".id")
	}
	if h.hosted[b.ID] != nil {
		return invalid(path+".id", "`server_tool_use` ids must be unique")
	}
	call := &hostedCall{path: path, name: b.Name, item: -1}
	h.hosted[b.ID] = call
	part, ours := hostedNames[b.Name]
	if !ours {
		h.block(b)
		return nil
	}
	call.item = len(h.items)
	if h.waits == 0 {
		h.spoke = false
	}
	h.waits++
	h.ran = append(h.ran, b.ID)
	h.items = append(h.items, turn.HostedCall{
		ID: ownHostedID(b.ID), Tool: part.tool, Code: codeOf(b.Input, part.argument), Status: turn.StatusCompleted, Outputs: []turn.Output{},
	})
	return nil
}

func codeOf(input json.RawMessage, argument string) string {
	if argument == "" {
		var compact bytes.Buffer
		if json.Compact(&compact, input) != nil {
			return "{}"
		}
		return compact.String()
	}
	var fields map[string]json.RawMessage
	var code string
	if json.Unmarshal(input, &fields) == nil {
		_ = json.Unmarshal(fields[argument], &code) // what is no string ran no code
	}
	return code
}

func isServerResult(kind string) bool {
	return strings.HasSuffix(kind, "_tool_result") && kind != wire.TypeToolResult
}

// serverResult finds the call of a result by its id: several calls may come before their results.
func (h *history) serverResult(path string, b *wire.ServerResult) error {
	call := h.hosted[b.ToolUseID]
	switch {
	case b.ToolUseID == "":
		return missing(path + ".tool_use_id")
	case call == nil:
		return invalid(path, "unexpected `tool_use_id` found in `%s` blocks: %s. Each `%s` block must have a corresponding `server_tool_use` "+
			"block before it.", b.Type, b.ToolUseID, b.Type)
	case call.item < 0:
		h.block(b)
		return nil
	case call.done:
		return invalid(path, "each server_tool_use must have a single result. Found multiple `%s` blocks with id: %s", b.Type, b.ToolUseID)
	case b.Type != call.name+"_tool_result":
		return invalid(path+".type", "the result of `%s` must be a `%s_tool_result`", call.name, call.name)
	}
	call.done = true
	h.waits--
	item, ok := h.items[call.item].(turn.HostedCall)
	if !ok {
		return nil // the item is always a hosted call
	}
	if err := fill(path+".content", &item, b.Content); err != nil {
		return err
	}
	h.items[call.item] = item
	return nil
}

// fill takes what a call put out. Its files are known by the call's id to those who keep it.
func fill(path string, call *turn.HostedCall, c wire.ServerContent) error {
	switch r := c.Result.(type) {
	case *wire.Execution:
		out := ""
		if r.Stdout != nil {
			out = *r.Stdout
		} else if r.EncryptedStdout != nil {
			out = "[The output is encrypted: only the server that made it can read it.]\n"
		}
		for _, o := range []turn.Output{{Text: out, Stream: "stdout"}, {Text: r.Stderr, Stream: "stderr"}} {
			if o.Text != "" {
				call.Outputs = append(call.Outputs, o)
			}
		}
		call.ExitCode, call.Failed = r.ReturnCode, r.ReturnCode != 0
	case *wire.EditorView:
		call.Edit = &turn.Edit{
			Command: "view", FileType: r.FileType, Content: r.Content, StartLine: count(r.StartLine), NumLines: count(r.NumLines),
			TotalLines: count(r.TotalLines),
		}
	case *wire.EditorCreate:
		call.Edit = &turn.Edit{Command: "create", Updated: r.IsFileUpdate}
	case *wire.EditorReplace:
		call.Edit = &turn.Edit{
			Command: "str_replace", OldStart: count(r.OldStart), OldLines: count(r.OldLines), NewStart: count(r.NewStart),
			NewLines: count(r.NewLines), Hunk: r.Lines,
		}
	case *wire.ResultError:
		call.Status, call.ErrorCode, call.Failed = turn.StatusFailed, r.ErrorCode, true
		if r.ErrorMessage != nil && *r.ErrorMessage != "" {
			call.Outputs = append(call.Outputs, turn.Output{Text: *r.ErrorMessage + "\n"})
		}
	default:
		return invalid(path+".type", "the result of a code execution tool does not have this form")
	}
	return nil
}

func count(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// end checks what the conversation ends with.
func (h *history) end() error {
	if err := h.unanswered(); err != nil {
		return err
	}
	if err := h.waiting(); err != nil {
		return err
	}
	if len(h.items) == 0 || !slices.ContainsFunc(h.items, notSystem) {
		return invalid("messages", "at least one message must have content")
	}
	if t := h.tail; (t == wire.TypeText || t == wire.TypeThinking || t == wire.TypeRedactedThinking) && !h.d.call.native && !h.paused() {
		return invalid(h.last, "This model does not support assistant message prefill. The conversation must end with a user message.")
	}
	return nil
}

// paused says that the conversation ends with a turn that ran code here: one that ended with pause_turn may have text behind its results.
func (h *history) paused() bool {
	for _, it := range slices.Backward(h.items) {
		switch v := it.(type) {
		case turn.HostedCall:
			return h.d.out.turn.Hosted != nil
		case turn.Message:
			if v.Role != turn.Assistant {
				return false
			}
		case turn.Result:
			return false
		}
	}
	return false
}

func notSystem(it turn.Item) bool {
	m, ok := it.(turn.Message)
	return !ok || m.Role != turn.System
}

// waiting marks the calls that have no result. They are to be run, or go on, now: the user has said nothing since.
func (h *history) waiting() error {
	programs := map[string]bool{} // that wait for results of their calls
	for _, it := range h.items {
		if c, ok := it.(turn.Call); ok && c.Caller != "" {
			programs[c.Caller] = true
		}
	}
	for _, id := range h.ran {
		call := h.hosted[id]
		if call.done {
			continue
		}
		if h.spoke {
			return invalid(call.path, "`%s` tool use with id `%s` was found without a corresponding `%s_tool_result` block", call.name, id, call.name)
		}
		hosted := h.d.out.turn.Hosted
		if hosted == nil || !slices.Contains(hosted.Tools, hostedNames[call.name].tool) {
			return invalid(call.path, "`%s` tool use with id `%s` was found without a result, but no `%s` tool was provided", call.name, id, codeName)
		}
		item, ok := h.items[call.item].(turn.HostedCall)
		if !ok {
			continue // the item is always a hosted call
		}
		if programs[item.ID] && hosted.Container == "" {
			return turn.Invalid("container", "container_id is required when there are pending tool uses generated by code execution with tools.")
		}
		item.Pending = true
		h.items[call.item] = item
	}
	return nil
}
