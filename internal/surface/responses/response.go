package responses

import (
	"encoding/json"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// newResponse is the response object before anything happened: the request's settings, or the protocol's defaults. Every field that
// Open Responses wants non-null has a value (wire/openai.md 10.2).
func newResponse(in *oairesponses.Request, id string, created int64) *oairesponses.Response {
	r := &oairesponses.Response{
		ID: id, Object: "response", CreatedAt: created, Status: statusInProgress, Model: in.Model,
		MaxOutputTokens: in.MaxOutputTokens, MaxToolCalls: in.MaxToolCalls,
		Output:            oairesponses.Items{},
		ParallelToolCalls: or(in.ParallelToolCalls, true),
		PromptCacheKey:    oai.Optional(in.PromptCacheKey), SafetyIdentifier: oai.Optional(in.SafetyIdentifier), User: oai.Optional(in.User),
		Reasoning:        &oairesponses.ReasoningConfig{},
		ServiceTier:      "auto",
		Temperature:      or(in.Temperature, 1),
		TopP:             or(in.TopP, 1),
		TopLogprobs:      or(in.TopLogprobs, 0),
		PresencePenalty:  or(in.PresencePenalty, 0),
		FrequencyPenalty: or(in.FrequencyPenalty, 0),
		Text:             oairesponses.TextConfig{Format: &oairesponses.TextFormat{Type: "text"}, Verbosity: "medium"},
		Tools:            oairesponses.Tools{},
		Truncation:       "disabled",
		Metadata:         map[string]string{},
	}
	if in.Instructions != nil {
		r.Instructions, _ = json.Marshal(*in.Instructions) // a string always encodes
	}
	if in.ServiceTier != "" {
		r.ServiceTier = in.ServiceTier
	}
	if in.Reasoning != nil {
		r.Reasoning.Effort, r.Reasoning.Summary = in.Reasoning.Effort, in.Reasoning.Summary
		if r.Reasoning.Summary == nil {
			r.Reasoning.Summary = in.Reasoning.GenerateSummary
		}
	}
	if in.Text != nil && in.Text.Format != nil {
		r.Text.Format = in.Text.Format
	}
	if in.Text != nil && in.Text.Verbosity != "" {
		r.Text.Verbosity = in.Text.Verbosity
	}
	if in.ToolChoice != nil {
		r.ToolChoice = *in.ToolChoice
	}
	if in.Tools != nil {
		r.Tools = in.Tools
	}
	if in.Metadata != nil {
		r.Metadata = in.Metadata
	}
	return r
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func usage(u turn.Usage) *oairesponses.Usage {
	return &oairesponses.Usage{
		InputTokens:         u.Input,
		InputTokensDetails:  oairesponses.InputDetails{CachedTokens: u.Cached, CacheWriteTokens: u.CacheWrite},
		OutputTokens:        u.Output,
		OutputTokensDetails: oairesponses.OutputDetails{ReasoningTokens: u.Reasoning},
		TotalTokens:         u.Total(),
	}
}
