package messages

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// request is one decoded request: what goes to the turn, and what the answer depends on.
type request struct {
	turn   *turn.Request
	stream bool
	// code is the version of the code_execution tool, "" for none; programmatic says that programs may call the client's tools.
	code         string
	programmatic bool
	// thinks shows the model's reasoning; omitted shows only that there is some (display: omitted).
	thinks, omitted bool
	// mute drops what the model says: max_tokens was 0, the request is to fill caches only.
	mute bool
	// toolsets has the set of each tool that came with one.
	toolsets map[string]string
}

// decoder fills out from in, one group of fields a method.
type decoder struct {
	call *call
	in   *wire.Request
	out  *request
	// kinds has what tool_choice may name: the tools that were declared, by name.
	kinds map[string]turn.ChoiceMode
}

// decode turns a body into a request, or says with a *turn.Error which field is wrong. The paths are those of the protocol's own messages:
// messages.0.content.1.text.
func decode(c *call) (*request, error) {
	in := &wire.Request{}
	if err := json.Unmarshal(c.body, in); err != nil {
		return nil, shapeError(err)
	}
	d := &decoder{call: c, in: in, kinds: map[string]turn.ChoiceMode{}, out: &request{
		toolsets: map[string]string{},
		turn:     &turn.Request{Model: in.Model, Extra: turn.Extra{Protocol: protocol}},
	}}
	for _, part := range []func() error{
		d.required, d.unknown, d.limits, d.thinking, d.output, d.tools, d.container, d.metadata, d.toolChoice, d.input, d.extra,
	} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	d.out.stream = in.Stream != nil && *in.Stream
	return d.out, nil
}

// invalid is a bad value of a field; the message begins with its path, as the protocol's own do.
func invalid(path, format string, args ...any) error {
	return turn.Invalid(path, "%s: %s", path, fmt.Sprintf(format, args...))
}

func unsupported(path, format string, args ...any) error {
	return turn.Unsupported(path, "%s: %s", path, fmt.Sprintf(format, args...))
}

func missing(path string) error { return invalid(path, "Field required") }

// wants says what a field of a Go type takes.
var wants = map[reflect.Kind]string{
	reflect.String: "a valid string", reflect.Bool: "a valid boolean", reflect.Int: "a valid integer", reflect.Float64: "a valid number",
	reflect.Slice: "a valid list", reflect.Map: "a valid dictionary", reflect.Struct: "a valid dictionary",
}

func shapeError(err error) error {
	wrong, ok := errors.AsType[*wire.FieldError](err)
	if !ok {
		return &turn.Error{Kind: turn.KindInvalid, Message: "The request body must be a JSON object", Cause: err}
	}
	want := "of another form"
	if errors.Is(wrong.Err, wire.ErrTooDeep) {
		want = "blocks that do not stand inside of each other so deeply"
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](wrong.Err); ok && t.Type != nil {
		want = wants[t.Type.Kind()]
		if t.Type == reflect.TypeFor[wire.Blocks]() {
			want = "a valid string or list"
		}
	}
	e := turn.Invalid(wrong.Path, "%s: Input should be %s", wrong.Path, want)
	e.Cause = wrong.Err
	return e
}

// mostMessages is the protocol's own limit.
const mostMessages = 100_000

func (d *decoder) required() error {
	switch {
	case d.in.Model == "":
		return missing("model")
	case d.in.MaxTokens == nil:
		return missing("max_tokens")
	case d.in.Messages == nil:
		return missing("messages")
	case len(d.in.Messages) == 0:
		return invalid("messages", "at least one message is required")
	case len(d.in.Messages) > mostMessages:
		return invalid("messages", "List should have at most %d items, got %d", mostMessages, len(d.in.Messages))
	}
	return nil
}

// idle are fields that have no effect where the model's server does not speak this protocol: hints, and what the answer says was not done.
var idle = []string{"context_management", "diagnostics"}

// elsewhere says of fields that only Anthropic can honour what to do instead.
var elsewhere = map[string]string{
	"betas":             "send the names in the header anthropic-beta",
	"anthropic_beta":    "send the names in the header anthropic-beta",
	"compaction":        "shorten messages yourself",
	"fallbacks":         "the gateway's configuration says which model answers",
	"mcp_servers":       "give the model tools of your own instead",
	"anthropic_version": "send the header anthropic-version",
}

// unknown holds the one rule for fields that this release does not know: a model whose server speaks this protocol gets them, for others
// they are refused by name. Null is as good as absent.
func (d *decoder) unknown() error {
	for _, name := range slices.Sorted(maps.Keys(d.in.Extra)) {
		value := string(d.in.Extra[name])
		switch {
		case value == "null", value == `""`:
		case name == "thread":
			// SDKs send the turn again with the whole history when they see this code.
			e := turn.Unsupported(name, "thread: conversations are not kept here, send the earlier messages")
			e.Code = "thread_unsupported_request"
			return e
		case d.call.native, slices.Contains(idle, name), name == "output_format":
		case elsewhere[name] != "" && value != "[]":
			return unsupported(name, "not supported for this model, %s", elsewhere[name])
		case value != "[]" || elsewhere[name] == "":
			e := turn.Invalid(name, "%s: Extra inputs are not permitted", name)
			e.Code = "unknown_parameter"
			return e
		}
	}
	return nil
}

func (d *decoder) limits() error {
	in, out := d.in, d.out.turn
	if *in.MaxTokens < 0 {
		return invalid("max_tokens", "Input should be greater than or equal to 0")
	}
	out.MaxOutputTokens = in.MaxTokens
	if *in.MaxTokens == 0 {
		d.out.mute = true
		if !d.call.native {
			// No other protocol has it. The model reads its input all the same, which is what fills its cache.
			out.MaxOutputTokens = new(16)
		}
	}
	for i, s := range in.StopSequences {
		if strings.TrimSpace(s) == "" {
			return invalid(fmt.Sprintf("stop_sequences.%d", i), "each stop sequence must contain non-whitespace")
		}
	}
	out.Sampling.Stop = in.StopSequences
	if err := d.sampling(); err != nil {
		return err
	}
	switch in.ServiceTier {
	case "", "auto":
	case "standard_only":
		out.ServiceTier = "default"
	default:
		return invalid("service_tier", "Input should be 'auto' or 'standard_only'")
	}
	if in.Speed != "" && in.Speed != "standard" && in.Speed != "fast" {
		return invalid("speed", "Input should be 'standard' or 'fast'")
	}
	if geo := in.InferenceGeo; geo != "" && geo != "global" && geo != "not_available" && !d.call.native {
		return unsupported("inference_geo", "where this model runs is the operator's choice: leave it out")
	}
	return nil
}

func (d *decoder) sampling() error {
	in := d.in
	for _, f := range []struct {
		name  string
		value *float64
	}{{"temperature", in.Temperature}, {"top_p", in.TopP}} {
		switch {
		case f.value == nil:
		case d.call.version == version2026:
			return invalid(f.name, "Extra inputs are not permitted: version %s of the API has no sampling parameters", version2026)
		case *f.value < 0 || *f.value > 1:
			return invalid(f.name, "range: 0..1")
		}
	}
	d.out.turn.Sampling.Temperature, d.out.turn.Sampling.TopP = in.Temperature, in.TopP
	switch {
	case in.TopK == nil:
	case d.call.version == version2026:
		return invalid("top_k", "Extra inputs are not permitted: version %s of the API has no sampling parameters", version2026)
	case !d.call.native:
		return unsupported("top_k", "this model's server has no such parameter: leave it out")
	}
	return nil
}

// least is the smallest budget that the protocol takes.
const least = 1024

// thinking shows reasoning only to those who ask for it, as the protocol does: clients read content[0].text.
func (d *decoder) thinking() error {
	t := d.in.Thinking
	if t == nil {
		return nil
	}
	switch t.Display {
	case "", "summarized", "omitted":
		d.out.omitted = t.Display == "omitted"
	default:
		return invalid("thinking.display", "Input should be 'summarized' or 'omitted'")
	}
	r := &d.out.turn.Reasoning
	switch t.Type {
	case "disabled":
		return nil
	case "adaptive", "between_tools":
	case "enabled":
		if t.BudgetTokens == nil {
			return missing("thinking.budget_tokens")
		}
		if *t.BudgetTokens < least {
			return invalid("thinking.budget_tokens", "Input should be greater than or equal to %d", least)
		}
		// Between calls it may think more than it may write in one of them.
		if *t.BudgetTokens >= *d.in.MaxTokens && !slices.Contains(d.call.betas, "interleaved-thinking-2025-05-14") {
			return invalid("max_tokens", "`max_tokens` must be greater than `thinking.budget_tokens`")
		}
		r.Effort = effortOf(*t.BudgetTokens)
	default:
		return invalid("thinking.type", "Input should be 'adaptive', 'between_tools', 'disabled' or 'enabled'")
	}
	d.out.thinks = true
	if !d.out.omitted {
		r.Summary = "auto"
	}
	return nil
}

// effortOf is what a budget of tokens means to servers that know words only.
func effortOf(budget int) string {
	switch {
	case budget < 8192:
		return "low"
	case budget < 16_384:
		return "medium"
	}
	return "high"
}

var efforts = []string{"low", "medium", "high", "xhigh", "max"}

// output reads output_config, and output_format as it was called in its beta.
func (d *decoder) output() error {
	o := d.in.OutputConfig
	if o == nil {
		o = &wire.OutputConfig{}
	}
	if o.Effort != "" {
		if !slices.Contains(efforts, o.Effort) {
			return invalid("output_config.effort", "Input should be one of %s", strings.Join(efforts, ", "))
		}
		d.out.turn.Reasoning.Effort = o.Effort
	}
	format, path := o.Format, "output_config.format"
	if raw := d.in.Extra["output_format"]; format == nil && len(raw) > 0 && string(raw) != "null" {
		format, path = &wire.Format{}, "output_format"
		if err := json.Unmarshal(raw, format); err != nil {
			return invalid(path, "Input should be a valid dictionary")
		}
	}
	if format == nil {
		return nil
	}
	if format.Type != "json_schema" {
		return invalid(path+".type", "Input should be 'json_schema'")
	}
	if !isObject(format.Schema) {
		return invalid(path+".schema", "Input should be a valid dictionary")
	}
	d.out.turn.Format = &turn.Format{Type: "json_schema", Name: "output", Schema: format.Schema, Strict: new(true)}
	return nil
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// metadata takes session_id out, which is an extension of this gateway's: a name for the container of several requests.
func (d *decoder) metadata() error {
	m := d.in.Metadata
	if m == nil {
		return nil
	}
	if len(m.UserID) > 512 {
		return invalid("metadata.user_id", "String should have at most 512 characters")
	}
	d.out.turn.User = m.UserID
	for _, name := range slices.Sorted(maps.Keys(m.Extra)) {
		var session string
		value := m.Extra[name]
		switch {
		case string(value) == "null", string(value) == `""` && name == "user_id":
		case name == "session_id":
			if json.Unmarshal(value, &session) != nil || session == "" || len(session) > 512 {
				return invalid("metadata.session_id", "Input should be a string of 1 to 512 characters")
			}
			if h := d.out.turn.Hosted; h != nil {
				h.Session = session
			}
		case !d.call.native:
			return invalid("metadata."+name, "Extra inputs are not permitted")
		}
	}
	delete(m.Extra, "session_id")
	return nil
}

// extra keeps what only a server of this protocol gives a meaning.
func (d *decoder) extra() error {
	fields := map[string]json.RawMessage{}
	for name, value := range d.in.Extra {
		if string(value) != "null" && string(value) != `""` {
			fields[name] = value
		}
	}
	var errs []error
	keep := func(name string, set bool, value any) {
		if !set {
			return
		}
		raw, err := wire.Marshal(value)
		errs = append(errs, err)
		fields[name] = raw
	}
	in := d.in
	keep("thinking", in.Thinking != nil, in.Thinking)
	keep("output_config", in.OutputConfig != nil, in.OutputConfig)
	keep("metadata", in.Metadata != nil, in.Metadata)
	keep("cache_control", in.CacheControl != nil, in.CacheControl)
	keep("speed", in.Speed != "", in.Speed)
	keep("inference_geo", in.InferenceGeo != "", in.InferenceGeo)
	keep("top_k", in.TopK != nil, in.TopK)
	if betas := slices.DeleteFunc(slices.Clone(d.call.betas), ours); len(betas) > 0 {
		keep("betas", true, betas)
	}
	if err := errors.Join(errs...); err != nil {
		return turn.Internal(err)
	}
	d.out.turn.Extra.Fields = fields
	return nil
}
