package oairesponses

import (
	"encoding/json"
)

// Event is one event of a stream (wire/openai.md 2.2): *ResponseEvent, *ErrorEvent, *ItemEvent, *PartEvent, *TextDelta, *TextDone,
// *AnnotationAdded, *RefusalDelta, *RefusalDone, *ReasoningDelta, *ReasoningDone, *SummaryPartEvent, *SummaryDelta, *SummaryDone,
// *ArgumentsDelta, *ArgumentsDone, *InputDelta, *InputDone, *CodeStatus, *CodeDelta, *CodeDone, *ShellCommandAdded,
// *ShellCommandDelta, *ShellCommandDone, *ShellOutputDelta, *ShellOutputDone or *OutputDelta.
type Event interface {
	// EventType is the event's type, which is also the name of its frame.
	EventType() string
	// Number sets sequence_number.
	Number(n int)
}

// Types of events that have a struct here.
const (
	TypeCreated    = "response.created"
	TypeQueued     = "response.queued"
	TypeInProgress = "response.in_progress"
	TypeCompleted  = "response.completed"
	TypeIncomplete = "response.incomplete"
	TypeFailed     = "response.failed"
	TypeError      = "error"

	TypeItemAdded = "response.output_item.added"
	TypeItemDone  = "response.output_item.done"
	TypePartAdded = "response.content_part.added"
	TypePartDone  = "response.content_part.done"

	TypeTextDelta       = "response.output_text.delta"
	TypeTextDone        = "response.output_text.done"
	TypeAnnotationAdded = "response.output_text.annotation.added"
	TypeRefusalDelta    = "response.refusal.delta"
	TypeRefusalDone     = "response.refusal.done"

	TypeReasoningDelta   = "response.reasoning_text.delta"
	TypeReasoningDone    = "response.reasoning_text.done"
	TypeSummaryPartAdded = "response.reasoning_summary_part.added"
	TypeSummaryPartDone  = "response.reasoning_summary_part.done"
	TypeSummaryDelta     = "response.reasoning_summary_text.delta"
	TypeSummaryDone      = "response.reasoning_summary_text.done"

	TypeArgumentsDelta = "response.function_call_arguments.delta"
	TypeArgumentsDone  = "response.function_call_arguments.done"
	TypeInputDelta     = "response.custom_tool_call_input.delta"
	TypeInputDone      = "response.custom_tool_call_input.done"

	TypeCodeInProgress   = "response.code_interpreter_call.in_progress"
	TypeCodeInterpreting = "response.code_interpreter_call.interpreting"
	TypeCodeCompleted    = "response.code_interpreter_call.completed"
	TypeCodeDelta        = "response.code_interpreter_call_code.delta"
	TypeCodeDone         = "response.code_interpreter_call_code.done"

	TypeShellCommandAdded = "response.shell_call_command.added"
	TypeShellCommandDelta = "response.shell_call_command.delta"
	TypeShellCommandDone  = "response.shell_call_command.done"
	TypeShellOutputDelta  = "response.shell_call_output_content.delta"
	TypeShellOutputDone   = "response.shell_call_output_content.done"

	// TypeOutputDelta is this gateway's own: output of hosted code while it is printed.
	TypeOutputDelta = "lathe.output.delta"
)

// EventHead is in every event.
type EventHead struct {
	Type           string `json:"type"`
	SequenceNumber int    `json:"sequence_number"`
}

// EventType implements Event.
func (h *EventHead) EventType() string { return h.Type }

// Number implements Event.
func (h *EventHead) Number(n int) { h.SequenceNumber = n }

// ItemPlace says which item an event is about.
type ItemPlace struct {
	ItemID      string `json:"item_id"`
	OutputIndex int    `json:"output_index"`
}

// PartPlace says which part of an item an event is about.
type PartPlace struct {
	ItemPlace
	ContentIndex int `json:"content_index"`
}

// Padding hides the length of a delta (stream_options.include_obfuscation).
type Padding struct {
	Obfuscation string `json:"obfuscation,omitempty"`
}

// Pad sets the padding.
func (p *Padding) Pad(s string) { p.Obfuscation = s }

// ResponseEvent is created, queued, in_progress, completed, incomplete or failed.
type ResponseEvent struct {
	EventHead
	Response *Response `json:"response"`
}

// ErrorEvent comes before response.failed. The service nests the error; its SDKs document the flat form, which is decoded too.
type ErrorEvent struct {
	EventHead
	Error ErrorBody `json:"error"`
}

// ErrorBody is the error of an ErrorEvent.
type ErrorBody struct {
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

// UnmarshalJSON takes the nested and the flat form.
func (e *ErrorEvent) UnmarshalJSON(data []byte) error {
	var in struct {
		EventHead
		Error   *ErrorBody `json:"error"`
		Code    *string    `json:"code"`
		Message string     `json:"message"`
		Param   *string    `json:"param"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	e.EventHead = in.EventHead
	if in.Error != nil {
		e.Error = *in.Error
	} else {
		e.Error = ErrorBody{Code: in.Code, Message: in.Message, Param: in.Param}
	}
	return nil
}

// ItemEvent opens or closes an item.
type ItemEvent struct {
	EventHead
	OutputIndex int  `json:"output_index"`
	Item        Item `json:"item"`
}

// UnmarshalJSON decodes the item by its type.
func (e *ItemEvent) UnmarshalJSON(data []byte) error {
	var in struct {
		EventHead
		OutputIndex int             `json:"output_index"`
		Item        json.RawMessage `json:"item"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	item, err := decodeOne(in.Item, newItem)
	*e = ItemEvent{EventHead: in.EventHead, OutputIndex: in.OutputIndex, Item: item}
	return err
}

// PartEvent opens or closes a part of an item.
type PartEvent struct {
	EventHead
	PartPlace
	Part Part `json:"part"`
}

// UnmarshalJSON decodes the part by its type.
func (e *PartEvent) UnmarshalJSON(data []byte) error {
	var in struct {
		EventHead
		PartPlace
		Part json.RawMessage `json:"part"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	part, err := decodeOne(in.Part, newPart)
	*e = PartEvent{EventHead: in.EventHead, PartPlace: in.PartPlace, Part: part}
	return err
}
