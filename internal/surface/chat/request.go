package chat

import (
	"bytes"
	"encoding/json"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// request is one decoded request: what goes to the turn, and how the client wants the answer.
type request struct {
	turn                 *turn.Request
	stream, includeUsage bool
}

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
	for _, part := range []func() error{d.refuse, d.metadata, d.format, d.tools, d.container, d.toolChoice, d.messages, d.extra} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return &request{turn: d.out, stream: in.Stream, includeUsage: in.StreamOptions != nil && in.StreamOptions.IncludeUsage}, nil
}

// decoder fills out from in, one group of fields a method.
type decoder struct {
	in      *oaichat.Request
	out     *turn.Request
	session string // metadata.session_id
	preload bool   // metadata.preload_skills
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
			return turn.Unsupported(oai.At("modalities", i), "the modality %q is not available here: answers are text", m)
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

func (d *decoder) metadata() (err error) {
	d.out.Metadata, d.session, err = oai.Metadata(d.in.Metadata)
	d.preload = oai.TakePreload(d.out.Metadata)
	return err
}

// container is our extension: {id, skills} beside or without a code_interpreter tool, in the form that Messages has.
func (d *decoder) container() error {
	raw, ok := d.in.Extra["container"]
	if !ok || string(raw) == "null" {
		return nil
	}
	var c struct {
		ID     *string         `json:"id"`
		Skills json.RawMessage `json:"skills"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return turn.Invalid("container", "container must be an object with skills, and an id for one that there is")
	}
	skills, err := oai.Skills("container.skills", c.Skills)
	if err != nil {
		return err
	}
	if len(skills) == 0 && d.out.Hosted == nil {
		return nil // a container without code has no use
	}
	h := oai.AddSkills(d.out.Hosted, skills)
	if c.ID != nil && *c.ID != "" {
		if h.Container != "" && h.Container != *c.ID {
			return turn.Invalid("container.id", "container.id is another container than that of the code_interpreter tool")
		}
		h.Container = *c.ID
	}
	h.Session, h.MaxCalls, h.Preload = d.session, d.in.MaxToolCalls, d.preload
	d.out.Hosted = h
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
			return oai.Missing("response_format.json_schema")
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
		if string(raw) != "null" && name != "container" {
			fields[name] = raw
		}
	}
	if len(fields) > 0 || d.out.Metadata != nil {
		d.out.Extra = turn.Extra{Protocol: Protocol, Fields: fields}
	}
	return nil
}
