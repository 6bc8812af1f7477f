package turn

// Event is one thing that happens while a turn is answered. The order is:
//
//	Started block* Finished
//	block     = message | reasoning | call | hosted | BlockDone
//	message   = MessageStarted (TextDelta | RefusalDelta | Annotated)* MessageDone
//	reasoning = ReasoningStarted ReasoningDelta* ReasoningDone
//	call      = CallStarted CallDelta* CallDone
//	hosted    = HostedStarted HostedCodeDelta* [HostedCodeDone [HostedRunning HostedOutput*]] end
//	          | HostedResumed [HostedRunning HostedOutput*] end
//	end       = HostedDone | HostedPaused
//
// Blocks never overlap. Providers send no hosted blocks; a Sequencer builds the others. Validate checks the order.
type Event interface{ event() }

// Started says that the model began to answer; it comes once, before anything else, also in a turn of several rounds.
type Started struct {
	// ID, Model, Fingerprint and ServiceTier are the upstream's own words, "" where it gave none.
	ID, Model, Fingerprint, ServiceTier string
}

// MessageStarted opens text.
type MessageStarted struct{}

// TextDelta is a piece of text, never empty.
type TextDelta struct{ Text string }

// RefusalDelta is a piece of a refusal.
type RefusalDelta struct{ Text string }

// Annotated adds an annotation to the text of the open message; spans lie in the whole text of that message.
type Annotated struct{ Annotation Annotation }

// MessageDone closes text. Message is the whole of it.
type MessageDone struct{ Message Message }

// ReasoningStarted opens reasoning. ID is the upstream's own id of it, "" where it gave none: servers that seal reasoning refuse it under
// another one.
type ReasoningStarted struct{ ID string }

// ReasoningDelta is a piece of reasoning text, or of its summary. Next says that it begins another part of the summary.
type ReasoningDelta struct {
	Text          string
	Summary, Next bool
}

// ReasoningDone closes reasoning. Reasoning is the whole of it.
type ReasoningDone struct{ Reasoning Reasoning }

// CallStarted opens a call of a tool that the caller of this stream declared. Caller is that of Call.
type CallStarted struct {
	CallID, Name string
	Caller       string `json:",omitempty"`
	Raw          *Raw   `json:",omitempty"`
}

// CallDelta is a piece of the arguments.
type CallDelta struct{ Delta string }

// CallDone closes a call.
type CallDone struct{ Call Call }

// HostedStarted opens a call that runs here. The container exists.
type HostedStarted struct{ ID, Tool, Container string }

// HostedCodeDelta is a piece of the code, decoded from the arguments while the model writes them.
type HostedCodeDelta struct{ Delta string }

// HostedCodeDone has the whole code. The deltas add up to it.
type HostedCodeDone struct{ Code string }

// HostedRunning says that the code now runs.
type HostedRunning struct{}

// HostedOutput is output while the program prints it; it comes only where the request is Live.
type HostedOutput struct {
	Stream string // stdout or stderr
	Text   string
}

// HostedDone closes a hosted call.
type HostedDone struct{ Call HostedCall }

// HostedResumed opens the block of a call that an earlier turn of the conversation left pending; that turn has shown its code.
type HostedResumed struct{ ID, Tool, Container string }

// HostedPaused closes the block of a call whose program waits: the calls that it has made follow as blocks of their own with its id as
// Caller, and the turn ends with ReasonCalls. Only the agent sends it, and only where a tool of the request is Programmatic.
type HostedPaused struct{ Call HostedCall }

// BlockDone is a whole block that only one protocol knows.
type BlockDone struct{ Block Block }

// Finished ends a turn.
type Finished struct {
	Reason Reason
	// StopSequence is the one of Sampling.Stop that ended the answer, "" for none or where the upstream does not say.
	StopSequence string `json:",omitempty"`
	// Raw is the upstream's own end of the last round, as its protocol's surface shows it (Messages: stop_reason, stop_details, usage).
	Raw   *Raw `json:",omitempty"`
	Usage Usage
	// Items is what the whole turn added to the conversation, hosted calls as Call and Result: what the next request's history
	// would hold if nothing were lost. Only the agent fills it.
	Items []Item
	// Container is the container of the turn, "" if there is none. Only the agent fills it.
	Container *Container
	// Rounds and HostedCalls count what the agent did.
	Rounds, HostedCalls int
}

// Container is what clients are told of a turn's container.
type Container struct {
	ID string
	// ExpiresAt is in Unix seconds, 0 for never.
	ExpiresAt int64
	// Skills are those that the turn had, in their resolved versions.
	Skills []SkillRef `json:",omitempty"`
}

// Reason is why a turn ended.
type Reason string

// ReasonCalls means that the client is to run calls and come back.
const (
	ReasonStop   Reason = "stop"
	ReasonLength Reason = "length"
	ReasonFilter Reason = "content_filter"
	ReasonCalls  Reason = "tool_calls"
	// ReasonPause: the turn is not over; the client sends the conversation again as it is. Only the agent gives it (see Hosted.Pause).
	ReasonPause Reason = "pause"
)

func (Started) event()          {}
func (MessageStarted) event()   {}
func (TextDelta) event()        {}
func (RefusalDelta) event()     {}
func (Annotated) event()        {}
func (MessageDone) event()      {}
func (ReasoningStarted) event() {}
func (ReasoningDelta) event()   {}
func (ReasoningDone) event()    {}
func (CallStarted) event()      {}
func (CallDelta) event()        {}
func (CallDone) event()         {}
func (HostedStarted) event()    {}
func (HostedCodeDelta) event()  {}
func (HostedCodeDone) event()   {}
func (HostedRunning) event()    {}
func (HostedOutput) event()     {}
func (HostedDone) event()       {}
func (HostedResumed) event()    {}
func (HostedPaused) event()     {}
func (BlockDone) event()        {}
func (Finished) event()         {}
