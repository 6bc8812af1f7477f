package messages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// hostedBlock is a call that runs here: a server_tool_use, closed before its code runs, and later its result, which comes in one piece.
type hostedBlock struct {
	call  wire.ToolUse
	parts hostedPart
	// codeDone says that the server_tool_use is closed, or was part of an earlier answer.
	codeDone bool
	code     strings.Builder // for edit its arguments
	rest     string          // the beginning of a rune whose end has not come
}

// hostedPart is a part of code_execution in the protocol's words.
type hostedPart struct {
	name, argument, result, output, file, failure string
}

var hostedParts = map[string]hostedPart{
	python: {codeName, "code", wire.TypeCodeResult, wire.TypeCodeOutput, "code_execution_output", wire.TypeCodeError},
	bash: {
		"bash_code_execution", "command", wire.TypeBashResult, wire.TypeBashOutput, "bash_code_execution_output", wire.TypeBashError,
	},
	edit: {"text_editor_code_execution", "", wire.TypeEditorResult, "", "", wire.TypeEditorError},
}

func newHosted(e *encoder, id, tool string) *hostedBlock {
	b := &hostedBlock{parts: hostedParts[tool]}
	b.call = wire.ToolUse{Type: wire.TypeServerToolUse, ID: clientHostedID(id), Name: b.parts.name, Input: json.RawMessage("{}")}
	if tool == python && e.req.code != "code_execution_20250522" {
		b.call.Caller = direct() // recordings have it on this part only
	}
	return b
}

func openHosted(e *encoder, ev turn.HostedStarted) *hostedBlock {
	b := newHosted(e, ev.ID, ev.Tool)
	first := b.call
	e.start(&first)
	e.input("")
	if b.parts.argument != "" {
		e.input(`{"` + b.parts.argument + `": "`)
	}
	return b
}

func resumeHosted(e *encoder, ev turn.HostedResumed) *hostedBlock {
	b := newHosted(e, ev.ID, ev.Tool)
	b.codeDone = true
	return b
}

func (b *hostedBlock) push(e *encoder, ev turn.Event) {
	switch ev := ev.(type) {
	case turn.HostedCodeDelta:
		b.delta(e, ev.Delta)
	case turn.HostedCodeDone:
		b.closeCode(e)
	case turn.HostedOutput:
		if e.req.turn.Live {
			e.live(b.call.ID, ev)
		}
	case turn.HostedPaused:
		b.closeCode(e)
	case turn.HostedDone:
		b.closeCode(e)
		e.whole(b.result(ev.Call))
	}
}

// delta streams code as the inside of a JSON string; edit has JSON already.
func (b *hostedBlock) delta(e *encoder, piece string) {
	b.code.WriteString(piece)
	if b.parts.argument == "" {
		e.input(piece)
		return
	}
	piece = b.rest + piece
	cut := len(piece)
	for i := max(0, cut-utf8.UTFMax); i < cut; i++ {
		if utf8.RuneStart(piece[i]) && !utf8.FullRuneInString(piece[i:]) {
			cut = i
		}
	}
	b.rest = piece[cut:]
	if cut > 0 {
		e.input(escaped(piece[:cut]))
	}
}

// escaped is s as it stands inside a JSON string.
func escaped(s string) string {
	quoted, err := wire.Marshal(s)
	if err != nil {
		return "" // a string always encodes
	}
	return string(quoted[1 : len(quoted)-1])
}

func (b *hostedBlock) closeCode(e *encoder) {
	if b.codeDone {
		return
	}
	b.codeDone = true
	whole := b.call
	if b.parts.argument != "" {
		e.input(escaped(b.rest) + `"}`)
		whole.Input = json.RawMessage(`{"` + b.parts.argument + `":"` + escaped(b.code.String()) + `"}`)
	} else {
		whole.Input = inputObject(b.code.String())
		if b.code.Len() == 0 {
			e.input("{}")
		}
	}
	e.stop(&whole)
}

// result is what came of the call. A program that failed has a result with a return code; an error is a call that did not run.
func (b *hostedBlock) result(call turn.HostedCall) *wire.ServerResult {
	out := &wire.ServerResult{Type: b.parts.result, ToolUseID: b.call.ID}
	if b.parts.name == codeName {
		out.Caller = b.call.Caller
	}
	switch {
	case call.ErrorCode != "" || call.Status == turn.StatusFailed || b.parts.argument == "" && call.Edit == nil:
		out.Content.Result = b.failure(call)
	case b.parts.argument == "":
		out.Content.Result = edited(call.Edit)
	default:
		out.Content.Result = b.execution(call)
	}
	return out
}

func (b *hostedBlock) failure(call turn.HostedCall) *wire.ResultError {
	f := &wire.ResultError{Type: b.parts.failure, ErrorCode: cmp.Or(call.ErrorCode, turn.ErrorUnavailable)}
	if b.parts.argument != "" {
		return f // only the editor's error has a message
	}
	if said := joined(call.Outputs); said != "" {
		said = strings.TrimSpace(said)
		f.ErrorMessage = &said
	} else {
		f.Extra = wire.Extra{"error_message": json.RawMessage("null")}
	}
	return f
}

func joined(outputs []turn.Output) string {
	var s strings.Builder
	for _, o := range outputs {
		if !o.IsImage() {
			s.WriteString(o.Text)
		}
	}
	return s.String()
}

// execution is what a program put out. Images are among its files.
func (b *hostedBlock) execution(call turn.HostedCall) *wire.Execution {
	stdout := call.Stdout()
	out := &wire.Execution{
		Type: b.parts.output, Stdout: &stdout, Stderr: call.Stderr(), ReturnCode: call.ExitCode, Content: []wire.ExecutionFile{},
	}
	if call.Failed && out.ReturnCode == 0 {
		out.ReturnCode = 1 // killed or interrupted: there is no exit status
	}
	for _, f := range call.Files {
		out.Content = append(out.Content, wire.ExecutionFile{Type: b.parts.file, FileID: f.ID})
	}
	return out
}

func edited(ed *turn.Edit) wire.ResultContent {
	switch ed.Command {
	case "view":
		return &wire.EditorView{
			Type: wire.TypeEditorView, FileType: cmp.Or(ed.FileType, "text"), Content: ed.Content, NumLines: &ed.NumLines,
			StartLine: &ed.StartLine, TotalLines: &ed.TotalLines,
		}
	case "create":
		return &wire.EditorCreate{Type: wire.TypeEditorCreate, IsFileUpdate: ed.Updated}
	}
	return &wire.EditorReplace{
		Type: wire.TypeEditorReplace, OldStart: &ed.OldStart, OldLines: &ed.OldLines, NewStart: &ed.NewStart, NewLines: &ed.NewLines,
		Lines: ed.Hunk,
	}
}

// typeOutputDelta is an extension of this gateway's, for requests that ask for it: output while it is printed, with the id of its call.
const typeOutputDelta = "lathe_output_delta"

func (e *encoder) live(id string, ev turn.HostedOutput) {
	data, err := wire.Marshal(struct {
		Type      string `json:"type"`
		ToolUseID string `json:"tool_use_id"`
		Stream    string `json:"stream"`
		Text      string `json:"text"`
	}{typeOutputDelta, id, ev.Stream, ev.Text})
	if err != nil {
		panic(fmt.Sprintf("messages: %v", err)) // strings always encode
	}
	e.emit(&wire.Raw{Type: typeOutputDelta, JSON: data})
}
