package models

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// modelInfo mirrors ModelInfo of wire/anthropic.md 1.9. What is not known of a model is null; its time is when the gateway started.
type modelInfo struct {
	ID             string        `json:"id"`
	Type           string        `json:"type"` // model
	DisplayName    string        `json:"display_name"`
	CreatedAt      string        `json:"created_at"`
	Lifecycle      string        `json:"lifecycle"` // active
	DeprecatedAt   *string       `json:"deprecated_at"`
	RetiresAt      *string       `json:"retires_at"`
	Line           *string       `json:"line"`
	MaxInputTokens *int          `json:"max_input_tokens"`
	MaxTokens      *int          `json:"max_tokens"`
	Capabilities   *capabilities `json:"capabilities"`
}

type support struct {
	Supported bool `json:"supported"`
}

// capabilities say what a request may ask for here.
type capabilities struct {
	Batch             support           `json:"batch"`
	Citations         support           `json:"citations"`
	CodeExecution     support           `json:"code_execution"` // programs may call tools
	ContextManagement contextManagement `json:"context_management"`
	Effort            effort            `json:"effort"`
	ImageInput        support           `json:"image_input"`
	PDFInput          support           `json:"pdf_input"`
	ServerTools       serverTools       `json:"server_tools"`
	StructuredOutputs support           `json:"structured_outputs"`
	Thinking          thinking          `json:"thinking"`
}

type contextManagement struct {
	support
	ClearThinking support `json:"clear_thinking_20251015"`
	ClearToolUses support `json:"clear_tool_uses_20250919"`
	Compact       support `json:"compact_20260112"`
}

type effort struct {
	support
	Low    support `json:"low"`
	Medium support `json:"medium"`
	High   support `json:"high"`
	XHigh  support `json:"xhigh"`
	Max    support `json:"max"`
}

type serverTools struct {
	support
	CodeExecution support `json:"code_execution"`
	WebSearch     support `json:"web_search"`
}

type thinking struct {
	support
	Types struct {
		Adaptive     support `json:"adaptive"`
		BetweenTools support `json:"between_tools"`
		Disabled     support `json:"disabled"`
		Enabled      support `json:"enabled"`
	} `json:"types"`
}

// info describes a model. Of those at Anthropic only Anthropic knows what they can do.
func info(m provider.Model) modelInfo {
	out := modelInfo{
		ID: m.Name, Type: "model", DisplayName: m.Name, CreatedAt: time.Unix(m.Created, 0).UTC().Format(time.RFC3339), Lifecycle: "active",
	}
	if f, ok := m.Provider.(provider.Forwarder); ok && f.Protocol() == "anthropic" {
		return out
	}
	yes := support{true}
	c := &capabilities{
		CodeExecution: yes, ImageInput: support{m.Images}, ServerTools: serverTools{support: yes, CodeExecution: yes},
		Effort: effort{yes, yes, yes, yes, yes, yes}, StructuredOutputs: yes, Thinking: thinking{support: yes},
	}
	c.Thinking.Types.Adaptive, c.Thinking.Types.BetweenTools, c.Thinking.Types.Disabled, c.Thinking.Types.Enabled = yes, yes, yes, yes
	out.Capabilities = c
	return out
}

const mostModels = 1000

// listInfo answers with a page of models, in the order of the configuration. All are active.
func (c Config) listInfo(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := anthropic.ReadLimit(q, mostModels)
	if err != nil {
		return err
	}
	all := c.named()
	if want := append(q["lifecycle[]"], q["lifecycle"]...); len(want) > 0 && !slices.Contains(want, "active") {
		all = nil
	}
	page, more, err := window(all, q, limit)
	if err != nil {
		return err
	}
	data := make([]modelInfo, len(page))
	for i, m := range page {
		data[i] = info(m)
	}
	anthropic.WriteJSON(w, http.StatusOK, anthropic.NewIDPage(data, more, func(m modelInfo) string { return m.ID }))
	return nil
}

// window is the part of all behind after_id, or before before_id.
func window(all []provider.Model, q url.Values, limit int) (page []provider.Model, more bool, err error) {
	find := func(param string) (int, error) {
		i := slices.IndexFunc(all, func(m provider.Model) bool { return m.Name == q.Get(param) })
		if i < 0 {
			return 0, turn.Invalid(param, "%s: there is no model %q", param, q.Get(param))
		}
		return i, nil
	}
	switch {
	case q.Get("after_id") != "" && q.Get("before_id") != "":
		return nil, false, turn.Invalid("before_id", "before_id: cannot be combined with after_id")
	case q.Get("before_id") != "":
		i, err := find("before_id")
		if err != nil {
			return nil, false, err
		}
		from := max(0, i-limit)
		return all[from:i], from > 0, nil
	case q.Get("after_id") != "":
		i, err := find("after_id")
		if err != nil {
			return nil, false, err
		}
		all = all[i+1:]
	}
	if len(all) > limit {
		return all[:limit], true, nil
	}
	return all, false, nil
}
