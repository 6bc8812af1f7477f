package oairesponses

import "encoding/json"

// TextDelta is a piece of an answer's text. Logprobs is sent even when empty.
type TextDelta struct {
	EventHead
	PartPlace
	Delta    string            `json:"delta"`
	Logprobs []json.RawMessage `json:"logprobs"`
	Padding
}

// TextDone has the whole text of a part.
type TextDone struct {
	EventHead
	PartPlace
	Text     string            `json:"text"`
	Logprobs []json.RawMessage `json:"logprobs"`
}

// AnnotationAdded adds an annotation to a part's text.
type AnnotationAdded struct {
	EventHead
	PartPlace
	AnnotationIndex int        `json:"annotation_index"`
	Annotation      Annotation `json:"annotation"`
}

// RefusalDelta is a piece of a refusal.
type RefusalDelta struct {
	EventHead
	PartPlace
	Delta string `json:"delta"`
	Padding
}

// RefusalDone has the whole refusal.
type RefusalDone struct {
	EventHead
	PartPlace
	Refusal string `json:"refusal"`
}

// ReasoningDelta is a piece of reasoning text.
type ReasoningDelta struct {
	EventHead
	PartPlace
	Delta string `json:"delta"`
	Padding
}

// ReasoningDone has the whole reasoning text of a part.
type ReasoningDone struct {
	EventHead
	PartPlace
	Text string `json:"text"`
}

// SummaryPlace says which part of a reasoning item's summary an event is about.
type SummaryPlace struct {
	ItemPlace
	SummaryIndex int `json:"summary_index"`
}

// SummaryPartEvent opens or closes a part of a summary.
type SummaryPartEvent struct {
	EventHead
	SummaryPlace
	Part   Text   `json:"part"`
	Status string `json:"status,omitempty"`
}

// SummaryDelta is a piece of a summary.
type SummaryDelta struct {
	EventHead
	SummaryPlace
	Delta string `json:"delta"`
	Padding
}

// SummaryDone has the whole text of a summary part.
type SummaryDone struct {
	EventHead
	SummaryPlace
	Text string `json:"text"`
}

// ArgumentsDelta is a piece of a function call's arguments.
type ArgumentsDelta struct {
	EventHead
	ItemPlace
	Delta string `json:"delta"`
	Padding
}

// ArgumentsDone has a function call's whole arguments.
type ArgumentsDone struct {
	EventHead
	ItemPlace
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// InputDelta is a piece of a custom tool call's input.
type InputDelta struct {
	EventHead
	ItemPlace
	Delta string `json:"delta"`
	Padding
}

// InputDone has a custom tool call's whole input.
type InputDone struct {
	EventHead
	ItemPlace
	Input string `json:"input"`
}

// CodeStatus is in_progress, interpreting or completed of a code interpreter call.
type CodeStatus struct {
	EventHead
	ItemPlace
}

// CodeDelta is a piece of the code.
type CodeDelta struct {
	EventHead
	ItemPlace
	Delta string `json:"delta"`
	Padding
}

// CodeDone has the whole code.
type CodeDone struct {
	EventHead
	ItemPlace
	Code string `json:"code"`
}

// OutputDelta is output of hosted code while it is printed. CallID is the item's id: a code_interpreter_call has no other.
type OutputDelta struct {
	EventHead
	ItemPlace
	CallID string `json:"call_id"`
	Stream string `json:"stream"` // stdout or stderr
	Text   string `json:"text"`
}

// CommandPlace says which command of a shell call an event is about; these events have no item_id.
type CommandPlace struct {
	OutputIndex  int `json:"output_index"`
	CommandIndex int `json:"command_index"`
}

// ShellCommandAdded opens a command, which is empty yet.
type ShellCommandAdded struct {
	EventHead
	CommandPlace
	Command string `json:"command"`
}

// ShellCommandDelta is a piece of a command.
type ShellCommandDelta struct {
	EventHead
	CommandPlace
	Delta string `json:"delta"`
	Padding
}

// ShellCommandDone has the whole command.
type ShellCommandDone struct {
	EventHead
	CommandPlace
	Command string `json:"command"`
}

// ShellOutputDelta is a piece of a command's output.
type ShellOutputDelta struct {
	EventHead
	ItemPlace
	CommandIndex int         `json:"command_index"`
	Delta        ShellStream `json:"delta"`
}

// ShellStream is a piece of stdout, of stderr, or of both.
type ShellStream struct {
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// ShellOutputDone has the whole output.
type ShellOutputDone struct {
	EventHead
	ItemPlace
	CommandIndex int           `json:"command_index"`
	Output       []ShellOutput `json:"output"`
}
