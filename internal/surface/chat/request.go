package chat

import (
	"encoding/json"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// request is one decoded request: what goes to the turn, and how the client wants the answer.
type request struct {
	turn                 *turn.Request
	stream, includeUsage bool
}

// sessionKey is the pair of metadata that names a container (turn.Hosted.Session).
const sessionKey = "session_id"

// decode turns a body into a request, or says with a *turn.Error which field is wrong.
func decode(body []byte) (*request, error) {
	in, err := oaichat.ParseRequest(body)
	if err != nil {
		return nil, shapeError(body, err)
	}
	d := &decoder{in: in, out: &turn.Request{
		Model: in.Model, User: in.User, SafetyIdentifier: in.SafetyIdentifier, PromptCacheKey: in.PromptCacheKey,
		ServiceTier: in.ServiceTier, ParallelToolCalls: in.ParallelToolCalls, Verbosity: in.Verbosity,
		MaxOutputTokens: in.MaxCompletionTokens, Reasoning: turn.ReasoningConfig{Effort: in.ReasoningEffort},
		Sampling: turn.Sampling{
			Temperature: in.Temperature, TopP: in.TopP, PresencePenalty: in.PresencePenalty, FrequencyPenalty: in.FrequencyPenalty,
			Seed: in.Seed, Stop: in.Stop,
		},
	}}
	if d.out.MaxOutputTokens == nil {
		d.out.MaxOutputTokens = in.MaxTokens
	}
	for _, part := range []func() error{d.refuse, d.metadata, d.format, d.tools, d.toolChoice, d.messages, d.extra} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return &request{turn: d.out, stream: in.Stream, includeUsage: in.StreamOptions != nil && in.StreamOptions.IncludeUsage}, nil
}

// decoder fills out from in, one group of fields a method.
type decoder struct {
	in  *oaichat.Request
	out *turn.Request
}

// refuse names what an answer that is made here cannot hold. Requests that are passed on untouched never come to it.
func (d *decoder) refuse() error {
	in := d.in
	if in.N != nil && *in.N != 1 {
		return turn.Unsupported("n", "n must be 1 here: one answer a request; send the request several times")
	}
	if in.Logprobs != nil && *in.Logprobs || in.TopLogprobs != nil && *in.TopLogprobs > 0 {
		return turn.Unsupported("logprobs", "logprobs are not available here; leave them out")
	}
	for i, m := range in.Modalities {
		if m != "text" {
			return turn.Unsupported(at("modalities", i), "the modality %q is not available here: answers are text", m)
		}
	}
	for _, f := range []struct{ name, advice string }{
		{"audio", "answers are text"},
		{"functions", "use tools"},
		{"function_call", "use tool_choice"},
	} {
		if raw, ok := in.Extra[f.name]; ok && string(raw) != "null" {
			return turn.Unsupported(f.name, "%s is not supported here: %s", f.name, f.advice)
		}
	}
	for _, v := range []struct {
		param string
		value *int
	}{{"max_completion_tokens", in.MaxCompletionTokens}, {"max_tokens", in.MaxTokens}, {"max_tool_calls", in.MaxToolCalls}} {
		if v.value != nil && *v.value < 1 {
			return turn.Invalid(v.param, "%s must be at least 1, got %d", v.param, *v.value)
		}
	}
	return nil
}

const (
	maxPairs = 16
	maxKey   = 64
	maxValue = 512
)

func (d *decoder) metadata() error {
	if len(d.in.Metadata) > maxPairs {
		return turn.Invalid("metadata", "metadata may have at most %d pairs, got %d", maxPairs, len(d.in.Metadata))
	}
	for k, v := range d.in.Metadata {
		if len(k) > maxKey || len(v) > maxValue {
			return turn.Invalid("metadata", "a key of metadata may have at most %d characters, its value %d", maxKey, maxValue)
		}
		if k == sessionKey {
			continue // it names a container here and means nothing to a model
		}
		if d.out.Metadata == nil {
			d.out.Metadata = map[string]string{}
		}
		d.out.Metadata[k] = v
	}
	return nil
}

func (d *decoder) format() error {
	f := d.in.ResponseFormat
	if f == nil {
		return nil
	}
	switch f.Type {
	case "text":
	case "json_object":
		d.out.Format = &turn.Format{Type: f.Type}
	case "json_schema":
		s := f.JSONSchema
		if s == nil {
			return missing("response_format.json_schema")
		}
		d.out.Format = &turn.Format{Type: f.Type, Name: s.Name, Description: s.Description, Schema: s.Schema, Strict: s.Strict}
	default:
		return turn.Invalid("response_format.type", "response_format.type must be text, json_object or json_schema, got %q", f.Type)
	}
	return nil
}

// extra keeps what only a model's server of this protocol understands.
func (d *decoder) extra() error {
	fields := map[string]json.RawMessage{}
	for name, raw := range d.in.Extra {
		if string(raw) != "null" {
			fields[name] = raw
		}
	}
	if len(fields) > 0 || d.out.Metadata != nil {
		d.out.Extra = turn.Extra{Protocol: Protocol, Fields: fields}
	}
	return nil
}
