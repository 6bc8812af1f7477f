package responses

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// protocol is this surface's name in turn.Extra.
const protocol = "openai-responses"

// request is one decoded request: what goes to the turn, and what the answer echoes.
type request struct {
	wire *oairesponses.Request
	turn *turn.Request
	// stream, outputs, encrypted and pad are what the client wants to get.
	stream, outputs, encrypted, pad bool
}

// decode turns a body into a request, or says with a *turn.Error which field is wrong.
func decode(body []byte) (*request, error) {
	in, err := oairesponses.DecodeRequest(body)
	if err != nil {
		return nil, shapeError(err)
	}
	d := &decoder{in: in, out: &turn.Request{
		Model: in.Model, User: in.User, SafetyIdentifier: in.SafetyIdentifier,
		PromptCacheKey: in.PromptCacheKey, ServiceTier: in.ServiceTier,
		ParallelToolCalls: in.ParallelToolCalls, MaxOutputTokens: in.MaxOutputTokens,
		Sampling: turn.Sampling{
			Temperature: in.Temperature, TopP: in.TopP, TopLogprobs: in.TopLogprobs,
			PresencePenalty: in.PresencePenalty, FrequencyPenalty: in.FrequencyPenalty,
		},
	}}
	for _, part := range []func() error{
		d.required, d.refuse, d.limits, d.include, d.metadata, d.reasoning, d.text, d.tools, d.toolChoice, d.input, d.extra,
	} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	out := &request{wire: in, turn: d.out, stream: in.Stream}
	out.outputs = slices.Contains(in.Include, includeOutputs)
	out.encrypted = slices.Contains(in.Include, includeEncrypted)
	out.pad = in.StreamOptions != nil && in.StreamOptions.IncludeObfuscation != nil && *in.StreamOptions.IncludeObfuscation
	return out, nil
}

// decoder fills out from in, one group of fields a method.
type decoder struct {
	in      *oairesponses.Request
	out     *turn.Request
	session string // metadata.session_id
	preload bool   // metadata.preload_skills
}

// hints are names that clients use for something that is called otherwise here.
var hints = map[string]string{
	"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens", "messages": "input",
	"response_format": "text.format", "reasoning_effort": "reasoning.effort", "files": "file_ids", "verbosity": "text.verbosity",
}

func shapeError(err error) error {
	wrong, ok := errors.AsType[*oairesponses.FieldError](err)
	if !ok {
		return &turn.Error{Kind: turn.KindInvalid, Message: "the body is not valid JSON: " + err.Error()}
	}
	if !wrong.Unknown {
		e := turn.Invalid(wrong.Path, "invalid type for %q: want %s", wrong.Path, wrong.Want)
		if wrong.Path == "" {
			e.Message = "the body must be a JSON object"
		}
		e.Code = "invalid_type"
		return e
	}
	e := turn.Invalid(wrong.Path, "unknown parameter: %q", wrong.Path)
	e.Code = "unknown_parameter"
	if other := hints[wrong.Path[strings.LastIndexByte(wrong.Path, '.')+1:]]; other != "" {
		e.Message += "; here it is called " + other
	}
	return e
}

func (d *decoder) required() error {
	if d.in.Model == "" {
		return oai.Missing("model")
	}
	if d.in.Input.Text == nil && len(d.in.Input.Items) == 0 {
		return oai.Missing("input")
	}
	return nil
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// refuse names what this release does not have and what to do instead.
func (d *decoder) refuse() error {
	const replay = "responses are not stored by this release; send the earlier items in input, " +
		"and keep files and variables by naming the container or metadata.session_id"
	in := d.in
	for _, f := range []struct {
		param  string
		asked  bool
		advice string
	}{
		{"previous_response_id", in.PreviousResponseID != nil, replay},
		{"conversation", isSet(in.Conversation), replay},
		{"background", in.Background != nil && *in.Background,
			"background responses are not available in this release; use stream: true, which sends keep-alives"},
		{"prompt", isSet(in.Prompt), "stored prompts are not available in this release; send their text in instructions and input"},
		{"context_management", isSet(in.ContextManagement), "compaction is not available in this release; shorten input yourself"},
		{"truncation", in.Truncation == "auto", "input is never dropped silently here; leave truncation out and shorten input yourself"},
		{"moderation", isSet(in.Moderation), "moderation is not available in this release; leave it out"},
		{"access_programs", isSet(in.AccessPrograms), "access programs are the vendor's own; leave it out"},
		{"image", isSet(in.Image), "image options are the vendor's own; leave it out"},
	} {
		if f.asked {
			return turn.Unsupported(f.param, "%s is not supported: %s", f.param, f.advice)
		}
	}
	if t := in.Truncation; t != "" && t != "disabled" {
		return turn.Invalid("truncation", "truncation must be \"disabled\", got %q", t)
	}
	return nil
}

func (d *decoder) limits() error {
	in := d.in
	if n := in.MaxOutputTokens; n != nil && *n < 16 {
		return turn.Invalid("max_output_tokens", "max_output_tokens must be at least 16, got %d", *n)
	}
	if n := in.MaxToolCalls; n != nil && *n < 0 {
		return turn.Invalid("max_tool_calls", "max_tool_calls must not be negative, got %d", *n)
	}
	if n := in.TopLogprobs; n != nil && (*n < 0 || *n > 20) {
		return turn.Invalid("top_logprobs", "top_logprobs must be 0 to 20, got %d", *n)
	}
	for _, f := range []struct {
		param     string
		value     *float64
		low, high float64
	}{
		{"temperature", in.Temperature, 0, 2},
		{"top_p", in.TopP, 0, 1},
		{"presence_penalty", in.PresencePenalty, -2, 2},
		{"frequency_penalty", in.FrequencyPenalty, -2, 2},
	} {
		if v := f.value; v != nil && (*v < f.low || *v > f.high) {
			return turn.Invalid(f.param, "%s must be %g to %g, got %g", f.param, f.low, f.high, *v)
		}
	}
	if n := utf8.RuneCountInString(in.SafetyIdentifier); n > 128 {
		return oai.TooLong("safety_identifier", 128, n)
	}
	return nil
}

const (
	includeOutputs   = "code_interpreter_call.outputs"
	includeEncrypted = "reasoning.encrypted_content"
)

// includable is the enum of wire/openai.md 1.4. What belongs to tools that no request can name here has no effect.
var includable = []string{
	includeOutputs, includeEncrypted, "message.output_text.logprobs", "message.input_image.image_url", "file_search_call.results",
	"web_search_call.results", "web_search_call.action.sources", "computer_call_output.output.image_url",
}

func (d *decoder) include() error {
	for i, inc := range d.in.Include {
		if !slices.Contains(includable, inc) {
			return turn.Invalid(oai.At("include", i), "unknown include %q; it may be one of %s", inc, strings.Join(includable, ", "))
		}
	}
	return nil
}

func (d *decoder) metadata() (err error) {
	d.out.Metadata, d.session, err = oai.Metadata(d.in.Metadata)
	d.preload = oai.TakePreload(d.out.Metadata)
	return err
}

var (
	efforts     = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
	summaries   = []string{"auto", "concise", "detailed"}
	verbosities = []string{"low", "medium", "high"}
)

func oneOf(param, value string, allowed []string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return turn.Invalid(param, "%s must be one of %s, got %q", param, strings.Join(allowed, ", "), value)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (d *decoder) reasoning() error {
	r := d.in.Reasoning
	if r == nil {
		return nil
	}
	d.out.Reasoning = turn.ReasoningConfig{Effort: deref(r.Effort), Summary: deref(r.Summary)}
	if r.Summary == nil {
		d.out.Reasoning.Summary = deref(r.GenerateSummary)
	}
	if err := oneOf("reasoning.effort", d.out.Reasoning.Effort, efforts); err != nil {
		return err
	}
	if err := oneOf("reasoning.summary", d.out.Reasoning.Summary, summaries); err != nil {
		return err
	}
	if c := deref(r.Context); c != "" && c != "auto" {
		return turn.Unsupported("reasoning.context",
			"reasoning.context %q is not supported: all reasoning items in input go to the model; leave it out", c)
	}
	if m := deref(r.Mode); m != "" && m != "standard" {
		return turn.Unsupported("reasoning.mode", "reasoning.mode %q is not supported; leave it out", m)
	}
	return nil
}

var schemaName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (d *decoder) text() error {
	t := d.in.Text
	if t == nil {
		return nil
	}
	if err := oneOf("text.verbosity", t.Verbosity, verbosities); err != nil {
		return err
	}
	d.out.Verbosity = t.Verbosity
	f := t.Format
	if f == nil {
		return nil
	}
	switch f.Type {
	case "text":
		return nil
	case "json_object":
	case "json_schema":
		if !schemaName.MatchString(f.Name) {
			return turn.Invalid("text.format.name", "text.format.name must be 1 to 64 of A-Z, a-z, 0-9, _ and -, got %q", f.Name)
		}
		if !isSet(f.Schema) {
			return oai.Missing("text.format.schema")
		}
	default:
		return turn.Invalid("text.format.type", "text.format.type must be text, json_schema or json_object, got %q", f.Type)
	}
	d.out.Format = &turn.Format{Type: f.Type, Name: f.Name, Description: f.Description, Schema: f.Schema, Strict: f.Strict}
	return nil
}

// extra keeps hints that only a provider of this protocol can use.
func (d *decoder) extra() error {
	fields := map[string]json.RawMessage{}
	for name, raw := range map[string]json.RawMessage{
		"prompt_cache_retention": d.in.PromptCacheRetention,
		"prompt_cache_options":   d.in.PromptCacheOptions,
	} {
		if isSet(raw) {
			fields[name] = raw
		}
	}
	if len(fields) > 0 {
		d.out.Extra = turn.Extra{Protocol: protocol, Fields: fields}
	}
	return nil
}
