package openairesponses

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// encoder turns a turn.Request into the body of this protocol's request. The zero value sends everything that was asked for.
type encoder struct {
	// images says that tool results may carry images, thinks that the model is known to reason.
	images, thinks bool
	// noEncrypted does not ask for sealed reasoning. noSealed and noReasoningText leave out reasoning that is sealed, or not sealed; noIDs
	// its ids.
	noEncrypted, noSealed, noReasoningText, noIDs bool
}

const includeEncrypted = "reasoning.encrypted_content"

func (enc encoder) request(req *turn.Request) ([]byte, error) {
	if len(req.Sampling.Stop) > 0 {
		return nil, turn.Unsupported("stop", "this model's server takes no stop sequences; leave stop out and cut the answer yourself")
	}
	if req.Sampling.Seed != nil {
		return nil, turn.Unsupported("seed", "this model's server takes no seed; leave it out")
	}
	items, err := enc.input(req.Items)
	if err != nil {
		return nil, err
	}
	s := req.Sampling
	out := &oairesponses.Request{
		Model: req.Model, Input: oairesponses.Input{Items: items}, Stream: true, Store: new(false),
		Temperature: s.Temperature, TopP: s.TopP, TopLogprobs: s.TopLogprobs,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty,
		MaxOutputTokens: req.MaxOutputTokens, Metadata: req.Metadata, User: req.User, SafetyIdentifier: req.SafetyIdentifier,
		PromptCacheKey: req.PromptCacheKey, ServiceTier: req.ServiceTier, Text: textConfig(req), Reasoning: reasoningConfig(req.Reasoning),
	}
	if enc.sealed(req) {
		out.Include = []string{includeEncrypted}
	}
	if err := addTools(out, req); err != nil {
		return nil, err
	}
	body, err := oairesponses.Marshal(out)
	if err != nil {
		return nil, turn.Internal(err)
	}
	if req.Extra.Protocol == Protocol {
		return addExtra(body, req.Extra.Fields)
	}
	return body, nil
}

// sealed says whether the answer's reasoning is to come with its encrypted content: where reasoning was asked for, where the history has
// some, and where the model is known to reason unasked.
func (enc encoder) sealed(req *turn.Request) bool {
	if enc.noEncrypted || req.Reasoning.Effort == "none" {
		return false
	}
	return enc.thinks || req.Reasoning != turn.ReasoningConfig{} || slices.ContainsFunc(req.Items, func(it turn.Item) bool {
		r, ok := it.(turn.Reasoning)
		return ok && r.Encrypted != ""
	})
}

func reasoningConfig(r turn.ReasoningConfig) *oairesponses.ReasoningConfig {
	if r == (turn.ReasoningConfig{}) {
		return nil
	}
	return &oairesponses.ReasoningConfig{Effort: optional(r.Effort), Summary: optional(r.Summary)}
}

func textConfig(req *turn.Request) *oairesponses.TextConfig {
	if req.Format == nil && req.Verbosity == "" {
		return nil
	}
	out := &oairesponses.TextConfig{Verbosity: req.Verbosity}
	if f := req.Format; f != nil {
		out.Format = &oairesponses.TextFormat{Type: f.Type, Name: f.Name, Description: f.Description, Schema: f.Schema, Strict: f.Strict}
	}
	return out
}

// noParameters is sent for a tool without a schema: servers refuse a function without one.
var noParameters = json.RawMessage(`{"type":"object","properties":{}}`)

// addTools sets tools and what only makes sense with them: servers refuse tool_choice and parallel_tool_calls alone.
func addTools(out *oairesponses.Request, req *turn.Request) error {
	if len(req.Tools) == 0 {
		return nil
	}
	for _, t := range req.Tools {
		f := &oairesponses.FunctionTool{
			Type: "function", Name: t.Name, Description: optional(t.Description), Parameters: t.Parameters, Strict: t.Strict,
		}
		if f.Parameters == nil {
			f.Parameters = noParameters
		}
		if f.Strict == nil {
			f.Strict = new(false)
		}
		out.Tools = append(out.Tools, f)
	}
	out.ParallelToolCalls = req.ParallelToolCalls
	switch c := req.ToolChoice; c.Mode {
	case "":
	case turn.ChoiceAuto, turn.ChoiceNone, turn.ChoiceRequired:
		out.ToolChoice = &oairesponses.ToolChoice{Mode: string(c.Mode)}
	case turn.ChoiceFunction:
		out.ToolChoice = &oairesponses.ToolChoice{Choice: &oairesponses.Choice{Type: "function", Name: c.Name}}
	default:
		return turn.Internal(fmt.Errorf("openairesponses: tool choice %q reached a provider", c.Mode))
	}
	return nil
}

// addExtra adds fields that the body does not have.
func addExtra(body []byte, fields map[string]json.RawMessage) ([]byte, error) {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(body, &has); err != nil {
		return nil, turn.Internal(err)
	}
	var names []string
	for name := range fields {
		if _, ok := has[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		key, err := oairesponses.Marshal(name)
		if err != nil {
			return nil, turn.Internal(err)
		}
		body = append(append(append(append(body[:len(body)-1], ','), key...), ':'), fields[name]...)
		body = append(body, '}')
	}
	return body, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
