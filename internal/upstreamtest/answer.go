package upstreamtest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// Answer is what the stub does with one request.
type Answer struct {
	// Status, Header and Body answer at once and without steps, where Status is set: an error, or any raw body.
	Status int
	Header http.Header
	Body   string
	// BeforeHeaders holds the answer back until it is closed; nil does not.
	BeforeHeaders <-chan struct{}
	// Steps are done in order.
	Steps  []Step
	Quirks Quirks
}

// Quirks are the ways in which servers differ from the protocol. The zero value is a server that keeps to it.
type Quirks struct {
	// FirstIndex is the index of the first call (Anthropic's compatible layer: 1). NoIndex leaves index out. SameIndex gives every call
	// index 0 (Gemini's compatible layer, older Ollama).
	FirstIndex         int
	NoIndex, SameIndex bool
	// NoIDs leaves out the ids of calls, NumericIDs sends numbers, and LateIDs sends id and name only with the last piece.
	NoIDs, NumericIDs, LateIDs bool
	// ArgumentsObject sends the arguments as an object and in one piece (they must be JSON); on Messages with the start of the call.
	ArgumentsObject bool
	// Interleave sends the pieces of neighbouring calls in turn: first of each, second of each.
	Interleave bool
	// FinishStop sends finish_reason stop also after calls. NoFinish sends none.
	FinishStop, NoFinish bool
	// ReasoningField is the name of the reasoning's field: reasoning_content by default, or reasoning. On Responses reasoning comes as text,
	// and with summary as a summary that is sealed.
	ReasoningField string
	// NullContent sends content: null in every delta without text.
	NullContent bool
	// Usage says where the counts stand.
	Usage UsagePlace
	// NoDone leaves out the frame [DONE]. UsageFirst sends the usage chunk before the chunk with finish_reason.
	NoDone, UsageFirst bool
	// Plain answers with one JSON body although a stream was asked for.
	Plain bool
	// RefuseStreamOptions answers 400 to a request that has stream_options.
	RefuseStreamOptions bool
	// Comments sends an SSE comment before each frame.
	Comments bool

	// Of Responses only. NoDeltas sends texts and arguments only whole, at the end of their item. OnlyEnd sends nothing but the response at
	// the end. NewIDs gives items other ids at the end than in the stream (vLLM). FlatError has error events as the SDKs document them, not
	// as the service sends them.
	NoDeltas, OnlyEnd, NewIDs, FlatError bool

	// Of Messages only. DuplicateStart sends message_start twice. Spliced sends the whole message in message_start, as for the next call
	// of a running program. Padded puts spaces before the last brace. Pings sends a ping before each event. Unknown puts blocks and events that
	// nobody knows between the others. NoSignature leaves thinking unsigned.
	DuplicateStart, Spliced, Padded, Pings, Unknown, NoSignature bool
}

// UsagePlace is where a stream has its usage.
type UsagePlace int

// UsageAsked follows stream_options.include_usage as the protocol says: a chunk of its own.
const (
	UsageAsked UsagePlace = iota
	UsageOnFinish
	UsageAlways // a chunk of its own, asked for or not
	UsageNone
)

// Step is one thing that an answer does: Text, Reasoning, Redacted, Cite, Call, Finish, Usage, Wait, Reached, Pause, Raw, Frame or Cut.
type Step interface{ step() }

// Text sends content in one delta.
type Text string

// Reasoning sends reasoning in one delta.
type Reasoning string

// Redacted is reasoning that only the server can read. Chat Completions leaves it out.
type Redacted string

// Cite sends a text that cites a web page. Chat Completions sends only the text.
type Cite struct{ Text, URL, Title string }

// Call calls a tool, one delta for each piece of the arguments. ID "" gives call_<n>, with n counting from 0 in each answer as open
// models do, and an id that is new each time on Messages.
type Call struct {
	ID, Name string
	Pieces   []string
	// Between is waited for after the first Held pieces; nil does not wait.
	Between <-chan struct{}
	Held    int
	// Reached is closed before Between is waited for, where it is not nil.
	Reached chan<- struct{}
	// Delay is real time between pieces, for clients in other processes; tests in Go use channels.
	Delay time.Duration
}

// Finish sets the finish_reason; without it the answer ends with tool_calls after calls and stop otherwise. On Responses length and
// content_filter end it incomplete, and error as failed.
type Finish string

// Usage sets the counts; without it they are 10 in and 5 out.
type Usage oaichat.Usage

// Tokens sets the counts.
func Tokens(input, output int) Usage {
	return Usage(oaichat.Usage{PromptTokens: input, CompletionTokens: output})
}

// Wait stops until the channel is closed or the client leaves.
type Wait <-chan struct{}

// Reached closes the channel, so that a test knows that all before it has been sent.
type Reached chan<- struct{}

// Pause waits in real time, for clients in other processes that have no channel. Tests in Go use Wait.
type Pause time.Duration

// Raw writes bytes as they are.
type Raw string

// Frame sends data as one frame.
type Frame string

// Cut drops the connection: the client sees an unexpected end.
type Cut struct{}

func (Text) step()      {}
func (Reasoning) step() {}
func (Redacted) step()  {}
func (Cite) step()      {}
func (Call) step()      {}
func (Finish) step()    {}
func (Usage) step()     {}
func (Wait) step()      {}
func (Reached) step()   {}
func (Pause) step()     {}
func (Raw) step()       {}
func (Frame) step()     {}
func (Cut) step()       {}

// Say answers with text, one delta a piece.
func Say(pieces ...string) Answer {
	var a Answer
	for _, p := range pieces {
		a.Steps = append(a.Steps, Text(p))
	}
	return a
}

// Do answers with steps.
func Do(steps ...Step) Answer { return Answer{Steps: steps} }

// With returns the answer with quirks.
func (a Answer) With(q Quirks) Answer {
	a.Quirks = q
	return a
}

// Fail answers with an error body.
func Fail(status int, message string) Answer {
	return FailCode(status, message, "")
}

// FailCode answers with an error body that has a code.
func FailCode(status int, message, code string) Answer {
	e := errorJSON{Message: message, Type: "invalid_request_error"}
	if status >= 500 {
		e.Type = "server_error"
	}
	if code != "" {
		e.Code = &code
	}
	body, err := oaichat.Marshal(oaichat.ErrorFrame[errorJSON]{Error: e})
	if err != nil {
		panic(err) // a struct of strings always encodes
	}
	return Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: string(body)}
}

// RateLimited answers 429 with Retry-After in seconds.
func RateLimited(seconds int) Answer {
	a := FailCode(http.StatusTooManyRequests, "rate limit reached", "rate_limit_exceeded")
	a.Header.Set("Retry-After", strconv.Itoa(seconds))
	return a
}

// Overloaded answers 529, as Anthropic's servers do.
func Overloaded() Answer { return FailCode(529, "overloaded", "overloaded_error") }

// RunCode calls the tool python with code, in pieces as a model writes it.
func RunCode(code string) Answer {
	return Do(Call{Name: "python", Pieces: CodeArguments(code, 7)})
}

// CodeArguments is {"code": code} in pieces of at most size bytes.
func CodeArguments(code string, size int) []string {
	raw, err := oaichat.Marshal(struct {
		Code string `json:"code"`
	}{code})
	if err != nil {
		panic(err) // a string always encodes
	}
	return Pieces(string(raw), size)
}

// Pieces cuts s into pieces of size runes; a size of 0 or less does not cut.
func Pieces(s string, size int) []string {
	runes := []rune(s)
	if size <= 0 {
		return []string{s}
	}
	var out []string
	for len(runes) > size {
		out = append(out, string(runes[:size]))
		runes = runes[size:]
	}
	return append(out, string(runes))
}
