package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// defaultMaxTokens is sent where the client set none, since the protocol wants a number: what every model since Claude 4 can write. A model
// that can write less says so, and is then asked for that.
const defaultMaxTokens = 32_000

// learned is what a model's server has refused, so that later calls do without it. The zero value is the newest form.
type learned struct {
	// budget turns thinking on by a budget of tokens, which models before Claude 4.6 want, and not by adaptive.
	budget bool
	// noEffort leaves output_config.effort out.
	noEffort bool
	// noSystemTurns puts all system text in front: only models since Claude 4.8 take it between turns.
	noSystemTurns bool
	// maxTokens is the most that the model can write; 0 is unknown.
	maxTokens int
	// noThinkingBack leaves the thinking of earlier turns out. It holds for one call: the signatures were of another model.
	noThinkingBack bool
}

// encoder turns a turn.Request into this protocol's request.
type encoder struct{ learned }

func (enc encoder) request(req *turn.Request) (*wire.Request, error) {
	if err := checkSampling(req); err != nil {
		return nil, err
	}
	c, err := enc.conversation(req.Items)
	if err != nil {
		return nil, err
	}
	out := &wire.Request{
		Model: req.Model, MaxTokens: new(enc.limit(req)), System: wire.Content{Blocks: c.system}, Messages: c.out, Stream: new(true),
		StopSequences: req.Sampling.Stop, Temperature: notOne(req.Sampling.Temperature), TopP: notOne(req.Sampling.TopP),
		Metadata: metadata(req),
	}
	if err := addTools(out, req, c.called); err != nil {
		return nil, err
	}
	if err := addTier(out, req.ServiceTier); err != nil {
		return nil, err
	}
	if err := addFormat(out, req.Format); err != nil {
		return nil, err
	}
	if err := enc.addThinking(out, req, c); err != nil {
		return nil, err
	}
	addExtra(out, req.Extra)
	if !cachesItself(out, req, c) {
		addBreakpoints(out, c)
	}
	return out, nil
}

// addExtra sets the fields that the client wrote in this protocol. Where they say more than the canonical form they replace what was made
// of that.
func addExtra(out *wire.Request, extra turn.Extra) {
	if extra.Protocol != Protocol {
		return
	}
	out.Extra = maps.Clone(wire.Extra(extra.Fields))
	delete(out.Extra, "betas") // go into a header
	for name := range out.Extra {
		switch name {
		case "thinking":
			out.Thinking = nil
		case "output_config":
			out.OutputConfig = nil
		case "metadata":
			out.Metadata = nil
		}
	}
}

// cachesItself says that the client has set breakpoints: a request may have four, and what it wants kept is its business.
func cachesItself(out *wire.Request, req *turn.Request, c *conversation) bool {
	_, own := out.Extra["cache_control"]
	for _, t := range req.Tools {
		own = own || marked(t.Raw.Of(Protocol))
	}
	return own || c.cached
}

func marked(raw json.RawMessage) bool { return bytes.Contains(raw, []byte(`"cache_control"`)) }

func (enc encoder) limit(req *turn.Request) int {
	switch {
	case req.MaxOutputTokens != nil:
		return *req.MaxOutputTokens
	case enc.maxTokens > 0:
		return min(enc.maxTokens, defaultMaxTokens)
	}
	return defaultMaxTokens
}

// checkSampling refuses what this protocol cannot honour. Values that are the default anyway are left out instead: OpenAI's clients send
// them.
func checkSampling(req *turn.Request) error {
	if req.Extra.Protocol == Protocol {
		return nil // the client knows the protocol, and its server says what is wrong
	}
	s := req.Sampling
	unset := func(f *float64) bool { return f == nil || *f == 0 }
	thinks := req.Reasoning.Effort != "" && req.Reasoning.Effort != "none"
	switch {
	case !unset(s.PresencePenalty):
		return turn.Unsupported("presence_penalty", "Anthropic's models have no presence_penalty: leave it out")
	case !unset(s.FrequencyPenalty):
		return turn.Unsupported("frequency_penalty", "Anthropic's models have no frequency_penalty: leave it out")
	case s.TopLogprobs != nil:
		return turn.Unsupported("top_logprobs", "Anthropic's models give no logprobs: leave top_logprobs out")
	case notOne(s.Temperature) != nil && thinks:
		return turn.Unsupported("temperature",
			"Anthropic's models take no temperature but 1 while they reason: leave out temperature or the reasoning effort")
	case s.Temperature != nil && *s.Temperature > 1:
		return turn.Unsupported("temperature", "Anthropic's models take a temperature from 0 to 1, not %v", *s.Temperature)
	case s.TopP != nil && *s.TopP < 0.95 && thinks:
		return turn.Unsupported("top_p",
			"Anthropic's models take no top_p below 0.95 while they reason: leave out top_p or the reasoning effort")
	}
	return nil
}

// notOne leaves the default out: newer models refuse sampling parameters, and older ones temperature beside top_p.
func notOne(f *float64) *float64 {
	if f != nil && *f == 1 {
		return nil
	}
	return f
}

func metadata(req *turn.Request) *wire.Metadata {
	id := req.User
	if id == "" {
		id = req.SafetyIdentifier
	}
	if id == "" {
		return nil
	}
	return &wire.Metadata{UserID: id}
}

// addTier translates OpenAI's words: default is the standard tier, priority what Anthropic uses where the account has it.
func addTier(out *wire.Request, tier string) error {
	switch tier {
	case "":
	case "auto", "priority":
		out.ServiceTier = "auto"
	case "default", "standard_only":
		out.ServiceTier = "standard_only"
	default:
		return turn.Unsupported("service_tier", "Anthropic has no service tier %q: write auto, priority or default", tier)
	}
	return nil
}

func addFormat(out *wire.Request, f *turn.Format) error {
	if f == nil {
		return nil
	}
	if f.Type != "json_schema" {
		return turn.Unsupported("response_format",
			"Anthropic's models have no %s: use json_schema with the schema that the answer shall have", f.Type)
	}
	out.OutputConfig = &wire.OutputConfig{Format: &wire.Format{Type: "json_schema", Schema: f.Schema}}
	return nil
}

// addTools sets tools and tool_choice. called are the tools that the history calls: where none is declared, as in the last round of a loop,
// these are, since the server wants every tool_use explained; they may not be called.
func addTools(out *wire.Request, req *turn.Request, called []string) error {
	if len(req.Tools) == 0 {
		for _, name := range called {
			out.Tools = append(out.Tools, wire.Tool{Name: name, Description: "Not available any more.", InputSchema: noParameters})
		}
		if len(called) > 0 {
			out.ToolChoice = &wire.ToolChoice{Type: "none"}
		}
		return nil
	}
	sets := map[string]bool{}
	for _, t := range req.Tools {
		if t.Toolset != "" && sets[t.Toolset] {
			continue
		}
		sets[t.Toolset] = true
		out.Tools = append(out.Tools, tool(t))
	}
	choice := &wire.ToolChoice{}
	switch c := req.ToolChoice; c.Mode {
	case "", turn.ChoiceAuto:
		choice.Type = "auto"
	case turn.ChoiceNone:
		choice.Type = "none"
	case turn.ChoiceRequired:
		choice.Type = "any"
	case turn.ChoiceFunction:
		choice.Type, choice.Name = "tool", c.Name
	default:
		return turn.Internal(fmt.Errorf("anthropic: tool choice %q reached a provider", c.Mode))
	}
	if p := req.ParallelToolCalls; p != nil && !*p && choice.Type != "none" {
		choice.DisableParallelToolUse = new(true)
	}
	if req.ToolChoice.Mode != "" || choice.DisableParallelToolUse != nil {
		out.ToolChoice = choice
	}
	return nil
}

// tool is what the client declared. Who may call it besides the model is decided here, since its programs run here.
func tool(t turn.Tool) wire.Tool {
	var own wire.Tool
	if raw := t.Raw.Of(Protocol); raw != nil && json.Unmarshal(raw, &own) == nil {
		own.AllowedCallers = nil
		return own
	}
	out := wire.Tool{Name: t.Name, Description: t.Description, InputSchema: schema(t.Parameters)}
	if t.Strict != nil && *t.Strict {
		out.Strict = t.Strict
	}
	return out
}

var noParameters = json.RawMessage(`{"type":"object","properties":{}}`)

// schema gives a schema the type that the server insists on.
func schema(raw json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &fields) != nil || len(fields) == 0 {
		return noParameters
	}
	if _, ok := fields["type"]; ok {
		return raw
	}
	fields["type"] = json.RawMessage(`"object"`)
	out, err := wire.Marshal(fields)
	if err != nil {
		return raw // what was decoded always encodes
	}
	return out
}

// budgets are the tokens of thinking that an effort means to models that want a number.
var budgets = map[string]int{"minimal": minBudget, "low": 4096, "medium": 10_240, "high": 20_480, "xhigh": 28_672, "max": 28_672}

// minBudget is the least that the server takes.
const minBudget = 1024

// addThinking turns reasoning on where the client named an effort. The model does not think in a call that is forced to use a tool, since
// the protocol excludes the two; the call after it does.
func (enc encoder) addThinking(out *wire.Request, req *turn.Request, c *conversation) error {
	effort := req.Reasoning.Effort
	if effort == "" {
		return nil
	}
	if effort == "none" {
		out.Thinking = &wire.ThinkingConfig{Type: "disabled"}
		return nil
	}
	budget, ok := budgets[effort]
	if !ok {
		return turn.Unsupported("reasoning.effort", "%q is no reasoning effort: write none, minimal, low, medium, high, xhigh or max", effort)
	}
	forced := out.ToolChoice != nil && (out.ToolChoice.Type == "any" || out.ToolChoice.Type == "tool")
	if enc.budget {
		// Half of the limit is left for the answer. A turn of calls that began without thinking may not go on with it.
		if budget = min(budget, *out.MaxTokens/2); !forced && budget >= minBudget && !c.unthought() {
			out.Thinking = &wire.ThinkingConfig{Type: "enabled", BudgetTokens: &budget}
		}
		return nil
	}
	if !forced {
		// Newer models tell nothing of what they think unless they are asked.
		out.Thinking = &wire.ThinkingConfig{Type: "adaptive", Display: "summarized"}
	}
	if effort == "minimal" {
		effort = "low"
	}
	if !enc.noEffort {
		if out.OutputConfig == nil {
			out.OutputConfig = &wire.OutputConfig{}
		}
		out.OutputConfig.Effort = effort
	}
	return nil
}

// addBreakpoints marks what the server is to keep: tools and system text always, the conversation where another call with the same
// beginning is likely, because it has tools or has gone on for more than a turn. What is too short to be kept costs nothing.
func addBreakpoints(out *wire.Request, c *conversation) {
	keep := &wire.CacheControl{Type: "ephemeral"}
	if n := len(c.system); n > 0 {
		mark(c.system[n-1], keep)
	} else if n := len(out.Tools); n > 0 {
		out.Tools[n-1].CacheControl = keep
	}
	if len(out.Tools) == 0 && len(out.Messages) < 2 {
		return
	}
	for i := len(out.Messages) - 1; i >= 0; i-- {
		if m := out.Messages[i]; m.Role == wire.RoleUser {
			mark(m.Content.Blocks[len(m.Content.Blocks)-1], keep)
			return
		}
	}
}

func mark(b wire.Block, keep *wire.CacheControl) {
	switch b := b.(type) {
	case *wire.Text:
		b.CacheControl = keep
	case *wire.Image:
		b.CacheControl = keep
	case *wire.Document:
		b.CacheControl = keep
	case *wire.ToolResult:
		b.CacheControl = keep
	}
}
