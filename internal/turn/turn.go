// Package turn is the canonical form of one model turn: what a client asked (Request), what has been said (Item) and what happens
// while it is answered (Event). Surfaces decode into it, providers encode out of it, and the loop between them speaks nothing else.
//
// It knows no protocol, does no I/O and imports nothing of this project. Everything may import it.
package turn

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Stream is the answer to one Request.
//
// Contract, for every implementation and every caller:
//   - It is single use, and ranged by the goroutine that owns the context it was made with.
//   - A pair is an event with a nil error, or a nil event with an error. An error is last. Errors meant for clients are *Error.
//   - Without an error the last event is Finished. An upstream that ends without its own terminal event is an error.
//   - Resources open and close inside the sequence: a caller that stops ranging early, or cancels the context, frees them.
//   - Events are well formed (see Event): a block that was started is done before the next one starts.
type Stream = iter.Seq2[Event, error]

// Streamer is the one shape at which surface, run, agent and provider meet.
type Streamer interface {
	Stream(ctx context.Context, req *Request) Stream
}

// Request is one turn as a client asked for it. A nil or zero field means that the client did not set it.
// Whoever receives a Request must not change it or what it points to; copy first (see Clone).
type Request struct {
	// Model is the name that the client asked for; the router replaces it with the provider's own.
	Model string
	// Items is the conversation, oldest first. System and developer text are Messages with those roles.
	Items []Item
	// Tools are functions that the client itself runs. The agent adds hosted ones on the way up.
	Tools      []Tool
	ToolChoice ToolChoice
	// ParallelToolCalls allows several calls in one model turn; nil leaves it to the model.
	ParallelToolCalls *bool
	Sampling          Sampling
	// MaxOutputTokens caps each model call, reasoning included.
	MaxOutputTokens *int
	Reasoning       ReasoningConfig
	// Format is the shape that the answer's text must have; nil means plain text.
	Format *Format
	// Verbosity is low, medium or high.
	Verbosity string
	// Hosted is set when the client asked for tools that run here.
	Hosted *Hosted
	// Metadata is the client's own, at most 16 pairs. session_id has been taken out (see Hosted.Session).
	Metadata map[string]string
	// User, SafetyIdentifier, PromptCacheKey and ServiceTier are handed to providers that know them.
	User, SafetyIdentifier, PromptCacheKey, ServiceTier string
	// Extra are fields of the client's protocol that have no place here. A provider of the same protocol sends them up as they are.
	Extra Extra
	// Live asks for hosted output while it is printed (request header x-lathe-live: 1).
	Live bool
}

// Extra is a set of request fields that only Protocol ("openai-chat", "openai-responses", "anthropic") gives a meaning. Its surface names
// the protocol also where there are no such fields: a provider of the same protocol then gives back all that the upstream says, with Raw
// and Block, and keeps the upstream's blocks apart.
type Extra struct {
	Protocol string
	Fields   map[string]json.RawMessage
}

// Sampling holds the usual knobs; nil leaves the provider's default.
type Sampling struct {
	Temperature, TopP, PresencePenalty, FrequencyPenalty *float64
	Seed                                                 *int64
	TopLogprobs                                          *int
	Stop                                                 []string
}

// ReasoningConfig mirrors reasoning {effort, summary} of Responses and reasoning_effort of Chat Completions.
type ReasoningConfig struct {
	Effort, Summary string
}

// Format mirrors text.format of Responses and response_format of Chat Completions.
type Format struct {
	// Type is json_object or json_schema.
	Type              string
	Name, Description string
	Schema            json.RawMessage
	Strict            *bool
}

// Tool is a function. Parameters is a JSON schema, nil for none.
type Tool struct {
	Name, Description string
	Parameters        json.RawMessage
	Strict            *bool
	// Programmatic says that programs of the python tool may call it, as an async function of its name. NotDirect says that the model
	// itself may not.
	Programmatic, NotDirect bool `json:",omitempty"`
	// Toolset is the set that this tool came with where one declaration stands for several, "" otherwise. All of a set have the same Raw,
	// which is sent once.
	Toolset string `json:",omitempty"`
	Raw     *Raw   `json:",omitempty"`
}

// ChoiceMode is how free the model is to call tools.
type ChoiceMode string

// The zero mode leaves the provider's default.
const (
	ChoiceAuto     ChoiceMode = "auto"
	ChoiceNone     ChoiceMode = "none"
	ChoiceRequired ChoiceMode = "required" // any tool, or any of Allowed
	ChoiceFunction ChoiceMode = "function" // the function called Name
	ChoiceHosted   ChoiceMode = "hosted"   // the hosted tool called Name; only between surface and agent
)

// ToolChoice is the client's wish. The agent relaxes a forced one once it has been obeyed.
type ToolChoice struct {
	Mode ChoiceMode
	Name string
	// Allowed restricts auto and required to these tools (allowed_tools). Hosted ones stand under their hosted name. The agent
	// resolves it by leaving the others out: a provider never sees it.
	Allowed []string
}

// Hosted says which hosted tools a request may use and in which container.
type Hosted struct {
	// Tools are names of package tool: "python" for code_interpreter.
	Tools []string
	// Container is an explicit id, or "" for automatic choice.
	Container string
	// Session is metadata.session_id: a name, per project, for a container that is made at its first use.
	Session string
	// Recent is the container that the newest replayed hosted call names. It is used if it still exists, else a new one is made and
	// the model is told.
	Recent string
	// FileIDs are uploaded files to put into the container before the first call.
	FileIDs []string
	// MemoryLimit is in bytes for a container that is made for this request; 0 means the operator's default.
	MemoryLimit int64
	// Network is what programs may reach in a container that is made for this request; nil means what the operator allows. A container that
	// is there must have been made with the same.
	Network *Network `json:",omitempty"`
	// Skills are put into the container beside those that it was made with.
	Skills []SkillRef `json:",omitempty"`
	// Preload puts the whole text of each skill into the prompt.
	Preload bool `json:",omitempty"`
	// Pause ends the turn with ReasonPause where the cap of rounds would give the model a last round.
	Pause bool `json:",omitempty"`
	// OutputDir gives each call a new, empty $OUTPUT_DIR, and only what a program leaves at its top becomes files of the call (and
	// images that it displayed, Shown). What it changes elsewhere below /mnt/data is kept as files of the container all the same.
	OutputDir bool `json:",omitempty"`
	// CellTime is the longest that a python call may run, 0 for the operator's limit alone. The model is told of it.
	CellTime time.Duration `json:",omitempty"`
	// MaxCalls caps all hosted calls of the turn (max_tool_calls); nil means no cap but the agent's own.
	MaxCalls *int
}

// SkillRef names a skill.
type SkillRef struct {
	// Type is custom, anthropic (one of Anthropic's own, by its short name), or "" where the protocol has no such field.
	Type string `json:"type,omitempty"`
	// ID is a skill's id, or the name of one of the operator's library.
	ID string `json:"id"`
	// Version is one of a version's names, latest, or default, which "" means too. Where a protocol means the latest by a version that
	// is absent, as Messages does, its surface says latest.
	Version string `json:"version,omitempty"`
	// Archive is a zip in the place of an id: a skill that came with the request.
	Archive []byte `json:"-"`
	// Param is the reference's place in the request, for errors.
	Param string `json:"-"`
}

// Clone copies the request and its top-level slices and maps, so that the copy can be changed. Items and parts are shared: they are
// never changed in place.
func (r *Request) Clone() *Request {
	c := *r
	c.Items = append([]Item(nil), r.Items...)
	c.Tools = append([]Tool(nil), r.Tools...)
	c.Sampling.Stop = append([]string(nil), r.Sampling.Stop...)
	if r.Hosted != nil {
		h := *r.Hosted
		h.Tools = append([]string(nil), h.Tools...)
		h.FileIDs = append([]string(nil), h.FileIDs...)
		h.Skills = append([]SkillRef(nil), h.Skills...)
		c.Hosted = &h
	}
	if r.Metadata != nil {
		c.Metadata = make(map[string]string, len(r.Metadata))
		for k, v := range r.Metadata {
			c.Metadata[k] = v
		}
	}
	return &c
}

// Usage counts tokens. Input includes Cached and CacheWrite; Output includes Reasoning.
type Usage struct {
	Input, Cached, CacheWrite int
	Output, Reasoning         int
}

// Add returns the sum, as it is reported for a turn of several rounds.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, Cached: u.Cached + v.Cached, CacheWrite: u.CacheWrite + v.CacheWrite,
		Output: u.Output + v.Output, Reasoning: u.Reasoning + v.Reasoning,
	}
}

// Total is Input plus Output.
func (u Usage) Total() int { return u.Input + u.Output }
