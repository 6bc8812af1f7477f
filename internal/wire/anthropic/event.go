package anthropic

import "encoding/json"

// Types of events.
const (
	TypeMessageStart = "message_start"
	TypeBlockStart   = "content_block_start"
	TypeBlockDelta   = "content_block_delta"
	TypeBlockStop    = "content_block_stop"
	TypeMessageDelta = "message_delta"
	TypeMessageStop  = "message_stop"
	TypePing         = "ping"
)

// Event is one event of a stream: *MessageStart, *BlockStart, *BlockDelta, *BlockStop, *MessageDelta, *Mark (message_stop, ping),
// *ErrorBody or *Raw.
type Event interface {
	// EventType is the event's type, which is also the name of its frame.
	EventType() string
}

// DecodeEvent decodes the data of one frame by its type.
func DecodeEvent(data []byte) (Event, error) {
	return union(data, newEvent, func(r *Raw) Event { return r })
}

func newEvent(kind string) Event {
	switch kind {
	case TypeMessageStart:
		return &MessageStart{}
	case TypeBlockStart:
		return &BlockStart{}
	case TypeBlockDelta:
		return &BlockDelta{}
	case TypeBlockStop:
		return &BlockStop{}
	case TypeMessageDelta:
		return &MessageDelta{}
	case TypeMessageStop, TypePing:
		return &Mark{}
	case TypeError:
		return &ErrorBody{}
	}
	return nil
}

// MessageStart opens the message. Its content is empty, except where a program's next call is all of the answer: then it is whole, and
// message_stop follows.
type MessageStart struct {
	Type    string   `json:"type"`
	Message Response `json:"message"`
	Extra   Extra
}

// BlockStart opens a block. Text, thinking and calls start empty; results of server tools are whole.
type BlockStart struct {
	Type         string   `json:"type"`
	Index        int      `json:"index"`
	ContentBlock AnyBlock `json:"content_block"`
	Extra        Extra
}

// AnyBlock holds one block of any type.
type AnyBlock struct{ Block Block }

// MarshalJSON writes the block.
func (b AnyBlock) MarshalJSON() ([]byte, error) { return Marshal(b.Block) }

// UnmarshalJSON decodes the block by its type.
func (b *AnyBlock) UnmarshalJSON(data []byte) error {
	var err error
	b.Block, err = DecodeBlock(data)
	return err
}

// BlockDelta adds to a block.
type BlockDelta struct {
	Type  string   `json:"type"`
	Index int      `json:"index"`
	Delta AnyDelta `json:"delta"`
	Extra Extra
}

// BlockStop closes a block.
type BlockStop struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Extra Extra
}

// MessageDelta has what is known at the end. Usage counts are totals.
type MessageDelta struct {
	Type  string `json:"type"`
	Delta Ending `json:"delta"`
	Usage Usage  `json:"usage"`
	Extra Extra
}

// Ending is why the message stopped, and its container.
type Ending struct {
	StopReason   *string      `json:"stop_reason,omitzero"`
	StopSequence *string      `json:"stop_sequence,omitzero"`
	StopDetails  *StopDetails `json:"stop_details,omitzero"`
	Container    *Container   `json:"container,omitzero"`
	Extra        Extra
}

// Mark is an event without fields.
type Mark struct {
	Type  string `json:"type"`
	Extra Extra
}

// Types of deltas that have a struct here.
const (
	TypeTextDelta      = "text_delta"
	TypeInputDelta     = "input_json_delta"
	TypeThinkingDelta  = "thinking_delta"
	TypeSignatureDelta = "signature_delta"
	TypeCitationsDelta = "citations_delta"
)

// Delta is a piece of a block: *TextDelta, *InputDelta, *ThinkingDelta, *SignatureDelta, *CitationsDelta or *Raw.
type Delta interface {
	// DeltaType is the delta's type.
	DeltaType() string
}

// AnyDelta holds one delta of any type.
type AnyDelta struct{ Delta Delta }

// MarshalJSON writes the delta.
func (d AnyDelta) MarshalJSON() ([]byte, error) { return Marshal(d.Delta) }

// UnmarshalJSON decodes the delta by its type.
func (d *AnyDelta) UnmarshalJSON(data []byte) error {
	var err error
	d.Delta, err = union(data, newDelta, func(r *Raw) Delta { return r })
	return err
}

func newDelta(kind string) Delta {
	switch kind {
	case TypeTextDelta:
		return &TextDelta{}
	case TypeInputDelta:
		return &InputDelta{}
	case TypeThinkingDelta:
		return &ThinkingDelta{}
	case TypeSignatureDelta:
		return &SignatureDelta{}
	case TypeCitationsDelta:
		return &CitationsDelta{}
	}
	return nil
}

// TextDelta is a piece of text.
type TextDelta struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Extra Extra
}

// InputDelta is a piece of a call's input; the first is usually empty.
type InputDelta struct {
	Type        string `json:"type"`
	PartialJSON string `json:"partial_json"`
	Extra       Extra
}

// ThinkingDelta is a piece of thinking.
type ThinkingDelta struct {
	Type     string `json:"type"`
	Thinking string `json:"thinking"`
	Extra    Extra
}

// SignatureDelta comes last in thinking.
type SignatureDelta struct {
	Type      string `json:"type"`
	Signature string `json:"signature"`
	Extra     Extra
}

// CitationsDelta adds a citation to the text of a block.
type CitationsDelta struct {
	Type     string   `json:"type"`
	Citation Citation `json:"citation"`
	Extra    Extra
}

// WholeBody reads an answer that is no stream: a message as the *MessageStart that has all of it, or the error.
func WholeBody(data []byte) (Event, error) {
	kind, err := typeOf(data)
	if err != nil {
		return nil, err
	}
	if kind == TypeMessage {
		ev := &MessageStart{Type: TypeMessageStart}
		return ev, json.Unmarshal(data, &ev.Message)
	}
	return DecodeEvent(data)
}
