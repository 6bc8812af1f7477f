package openaichat

import (
	"encoding/json"
	"fmt"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// encoder turns a turn.Request into this protocol's request. The zero value sends everything.
type encoder struct {
	// images says that tool results may carry images.
	images bool
	// noStreamOptions leaves stream_options out; completionTokens sends max_completion_tokens in place of max_tokens, which older servers
	// alone know and newer OpenAI models refuse.
	noStreamOptions, completionTokens bool
}

func (enc encoder) request(req *turn.Request) (*oaichat.Request, error) {
	messages, err := enc.messages(req.Items)
	if err != nil {
		return nil, err
	}
	out := &oaichat.Request{
		Model: req.Model, Messages: messages, Stream: true,
		Temperature: req.Sampling.Temperature, TopP: req.Sampling.TopP,
		PresencePenalty: req.Sampling.PresencePenalty, FrequencyPenalty: req.Sampling.FrequencyPenalty,
		Seed: req.Sampling.Seed, Stop: req.Sampling.Stop, ReasoningEffort: req.Reasoning.Effort, Verbosity: req.Verbosity,
		User: req.User, SafetyIdentifier: req.SafetyIdentifier, PromptCacheKey: req.PromptCacheKey, ServiceTier: req.ServiceTier,
		ResponseFormat: responseFormat(req.Format),
	}
	if !enc.noStreamOptions {
		out.StreamOptions = &oaichat.StreamOptions{IncludeUsage: true}
	}
	if enc.completionTokens {
		out.MaxCompletionTokens = req.MaxOutputTokens
	} else {
		out.MaxTokens = req.MaxOutputTokens
	}
	if req.Extra.Protocol == Protocol {
		out.Extra = req.Extra.Fields
		// Metadata of other protocols is for our own store: OpenAI takes it only for chats that it keeps.
		out.Metadata = req.Metadata
	}
	if err := addTools(out, req); err != nil {
		return nil, err
	}
	return out, nil
}

func responseFormat(f *turn.Format) *oaichat.ResponseFormat {
	if f == nil {
		return nil
	}
	out := &oaichat.ResponseFormat{Type: f.Type}
	if f.Type == "json_schema" {
		out.JSONSchema = &oaichat.JSONSchema{Name: f.Name, Description: f.Description, Schema: f.Schema, Strict: f.Strict}
	}
	return out
}

// noParameters is sent for a tool without a schema: several servers refuse a function without one.
var noParameters = json.RawMessage(`{"type":"object","properties":{}}`)

// addTools sets tools and what only makes sense with them: servers refuse tool_choice and parallel_tool_calls alone.
func addTools(out *oaichat.Request, req *turn.Request) error {
	if len(req.Tools) == 0 {
		return nil
	}
	for _, t := range req.Tools {
		f := &oaichat.Function{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict}
		if f.Parameters == nil {
			f.Parameters = noParameters
		}
		out.Tools = append(out.Tools, oaichat.Tool{Type: oaichat.ToolFunction, Function: f})
	}
	out.ParallelToolCalls = req.ParallelToolCalls
	switch c := req.ToolChoice; c.Mode {
	case "":
	case turn.ChoiceAuto, turn.ChoiceNone, turn.ChoiceRequired:
		out.ToolChoice = &oaichat.ToolChoice{Mode: string(c.Mode)}
	case turn.ChoiceFunction:
		out.ToolChoice = &oaichat.ToolChoice{Tool: &oaichat.ToolRef{Type: oaichat.ToolFunction, Name: c.Name}}
	default:
		return turn.Internal(fmt.Errorf("openaichat: tool choice %q reached a provider", c.Mode))
	}
	return nil
}
