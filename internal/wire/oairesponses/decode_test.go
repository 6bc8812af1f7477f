package oairesponses

import (
	"bytes"
	"encoding/json"
)

// Events are only written in the product: what servers send is read by ParseReceived, leniently. The tests read them strictly, to see that
// no field of a recording is without a place.

// DecodeEvent decodes the data of one frame by its type; one without a struct becomes a *RawEvent.
func DecodeEvent(data []byte) (Event, error) {
	h, err := headOf(data)
	if err != nil {
		return nil, err
	}
	ev := newEvent(h.Type)
	if ev == nil {
		raw := &RawEvent{JSON: bytes.Clone(data)}
		return raw, json.Unmarshal(data, &raw.EventHead)
	}
	return ev, json.Unmarshal(data, ev)
}

func newEvent(kind string) Event {
	switch kind {
	case TypeCreated, TypeQueued, TypeInProgress, TypeCompleted, TypeIncomplete, TypeFailed:
		return &ResponseEvent{}
	case TypeError:
		return &ErrorEvent{}
	case TypeItemAdded, TypeItemDone:
		return &ItemEvent{}
	case TypePartAdded, TypePartDone:
		return &PartEvent{}
	case TypeSummaryPartAdded, TypeSummaryPartDone:
		return &SummaryPartEvent{}
	case TypeCodeInProgress, TypeCodeInterpreting, TypeCodeCompleted:
		return &CodeStatus{}
	}
	if ev := newDelta(kind); ev != nil {
		return ev
	}
	return newDone(kind)
}

func newDelta(kind string) Event {
	switch kind {
	case TypeTextDelta:
		return &TextDelta{}
	case TypeRefusalDelta:
		return &RefusalDelta{}
	case TypeReasoningDelta:
		return &ReasoningDelta{}
	case TypeSummaryDelta:
		return &SummaryDelta{}
	case TypeArgumentsDelta:
		return &ArgumentsDelta{}
	case TypeInputDelta:
		return &InputDelta{}
	case TypeCodeDelta:
		return &CodeDelta{}
	case TypeShellCommandDelta:
		return &ShellCommandDelta{}
	case TypeShellOutputDelta:
		return &ShellOutputDelta{}
	case TypeOutputDelta:
		return &OutputDelta{}
	}
	return nil
}

func newDone(kind string) Event {
	switch kind {
	case TypeTextDone:
		return &TextDone{}
	case TypeAnnotationAdded:
		return &AnnotationAdded{}
	case TypeRefusalDone:
		return &RefusalDone{}
	case TypeReasoningDone:
		return &ReasoningDone{}
	case TypeSummaryDone:
		return &SummaryDone{}
	case TypeArgumentsDone:
		return &ArgumentsDone{}
	case TypeInputDone:
		return &InputDone{}
	case TypeCodeDone:
		return &CodeDone{}
	case TypeShellCommandAdded:
		return &ShellCommandAdded{}
	case TypeShellCommandDone:
		return &ShellCommandDone{}
	case TypeShellOutputDone:
		return &ShellOutputDone{}
	}
	return nil
}

// RawEvent is an event of a type that has no struct here, as it was sent.
type RawEvent struct {
	EventHead
	JSON json.RawMessage
}

// MarshalJSON returns the event as it was sent.
func (e *RawEvent) MarshalJSON() ([]byte, error) { return e.JSON, nil }
