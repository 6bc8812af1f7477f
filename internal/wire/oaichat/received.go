package oaichat

import (
	"encoding/json"
	"errors"
)

// Received is a chunk or a whole answer as a server sent it, read leniently: unknown fields are ignored, and a scalar of the wrong type
// is read as well as it can be.
type Received struct {
	ID, Model, SystemFingerprint, ServiceTier string
	Choices                                   []ReceivedChoice
	// Usage is nil where there was none.
	Usage *Usage
	// Error is set for a frame, or a body, that tells of a failure.
	Error *ReceivedError
}

// ReceivedChoice is a choice: the delta of a chunk or the message of an answer.
type ReceivedChoice struct {
	Index        int
	Delta        ReceivedDelta
	FinishReason string // "" while there is none
}

// ReceivedDelta is a delta or a message.
type ReceivedDelta struct {
	Content, Refusal string
	// Reasoning is under the name ReasoningField: reasoning_content, reasoning or reasoning_details; both are "" where there is none.
	Reasoning, ReasoningField string
	// Summary, Signature and Encrypted are of reasoning_details.
	Summary, Signature, Encrypted string
	ToolCalls                     []ReceivedCall
	Citations                     []URLCitation
}

// ReceivedCall is a call or a piece of one.
type ReceivedCall struct {
	Index     *int // nil where the server sent none
	ID, Name  string
	Arguments string
}

// ReceivedError is an error object, or a bare string in its place.
type ReceivedError struct{ Message, Type, Code, Param string }

type receivedJSON struct {
	ID                flexString           `json:"id"`
	Model             flexString           `json:"model"`
	SystemFingerprint flexString           `json:"system_fingerprint"`
	ServiceTier       flexString           `json:"service_tier"`
	Choices           []receivedChoiceJSON `json:"choices"`
	Usage             *usageJSON           `json:"usage"`
	XGroq             struct {
		Usage *usageJSON `json:"usage"`
	} `json:"x_groq"`
	Error json.RawMessage `json:"error"`
	// Object is "error" where a server puts the fields of the error at the top (older vLLM).
	Object  flexString `json:"object"`
	Message flexString `json:"message"`
	Type    flexString `json:"type"`
	Code    flexString `json:"code"`
	Param   flexString `json:"param"`
	Detail  flexString `json:"detail"` // FastAPI's name for the message
}

type receivedChoiceJSON struct {
	Index        flexInt            `json:"index"`
	Delta        *receivedDeltaJSON `json:"delta"`
	Message      *receivedDeltaJSON `json:"message"`
	FinishReason flexString         `json:"finish_reason"`
}

type receivedDeltaJSON struct {
	Content          contentJSON           `json:"content"`
	Refusal          flexString            `json:"refusal"`
	ReasoningContent contentJSON           `json:"reasoning_content"`
	Reasoning        contentJSON           `json:"reasoning"`
	ReasoningDetails []reasoningDetailJSON `json:"reasoning_details"`
	ToolCalls        []receivedCallJSON    `json:"tool_calls"`
	FunctionCall     *receivedFunctionJSON `json:"function_call"` // of servers from before tools
	Annotations      []struct {
		Citation URLCitation `json:"url_citation"`
	} `json:"annotations"`
}

type reasoningDetailJSON struct {
	Text      flexString `json:"text"`
	Summary   flexString `json:"summary"`
	Data      flexString `json:"data"`
	Signature flexString `json:"signature"`
}

type receivedCallJSON struct {
	Index    *flexInt             `json:"index"`
	ID       flexString           `json:"id"`
	Function receivedFunctionJSON `json:"function"`
}

type receivedFunctionJSON struct {
	Name      flexString    `json:"name"`
	Arguments flexArguments `json:"arguments"`
}

type usageJSON struct {
	PromptTokens     flexInt `json:"prompt_tokens"`
	CompletionTokens flexInt `json:"completion_tokens"`
	PromptDetails    *struct {
		CachedTokens     flexInt `json:"cached_tokens"`
		CacheWriteTokens flexInt `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails *struct {
		ReasoningTokens flexInt `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	CacheHit flexInt `json:"prompt_cache_hit_tokens"` // DeepSeek
}

// contentJSON is a string, null, or parts. Mistral sends reasoning as a part of type thinking.
type contentJSON struct{ text, thinking string }

func (c *contentJSON) UnmarshalJSON(data []byte) error {
	*c = contentJSON{}
	if isNull(data) || data[0] != '[' {
		var s flexString
		err := s.UnmarshalJSON(data)
		c.text = string(s)
		return err
	}
	var parts []struct {
		Type     flexString  `json:"type"`
		Text     flexString  `json:"text"`
		Thinking contentJSON `json:"thinking"`
	}
	if json.Unmarshal(data, &parts) == nil { // an array of something else holds no text
		for _, p := range parts {
			c.text += string(p.Text)
			c.thinking += p.Thinking.text
		}
	}
	return nil
}

// ParseReceived reads a chunk or a whole answer. It fails only where data is no JSON object.
func ParseReceived(data []byte) (*Received, error) {
	var in receivedJSON
	if err := json.Unmarshal(data, &in); err != nil {
		te, ok := errors.AsType[*json.UnmarshalTypeError](err)
		if !ok || te.Field == "" {
			return nil, err
		}
		// json has skipped the field of the wrong type and read all others.
	}
	out := &Received{
		ID: string(in.ID), Model: string(in.Model), SystemFingerprint: string(in.SystemFingerprint), ServiceTier: string(in.ServiceTier),
		Error: in.error(),
	}
	for _, c := range in.Choices {
		out.Choices = append(out.Choices, c.choice())
	}
	switch {
	case in.Usage != nil:
		out.Usage = in.Usage.usage()
	case in.XGroq.Usage != nil:
		out.Usage = in.XGroq.Usage.usage()
	}
	return out, nil
}

func (in *receivedJSON) error() *ReceivedError {
	if !isNull(in.Error) {
		return parseErrorValue(in.Error)
	}
	if in.Object != "error" && in.Type != "error" && (in.Detail == "" || in.Choices != nil) {
		return nil
	}
	e := &ReceivedError{Message: string(in.Message), Type: string(in.Type), Code: string(in.Code), Param: string(in.Param)}
	if e.Message == "" {
		e.Message = string(in.Detail)
	}
	return e
}

func parseErrorValue(raw json.RawMessage) *ReceivedError {
	if raw[0] != '{' {
		var s flexString
		if s.UnmarshalJSON(raw) != nil || s == "" {
			s = flexString(raw)
		}
		return &ReceivedError{Message: string(s)}
	}
	var in struct {
		Message flexString `json:"message"`
		Type    flexString `json:"type"`
		Code    flexString `json:"code"`
		Param   flexString `json:"param"`
	}
	if json.Unmarshal(raw, &in) != nil {
		return &ReceivedError{Message: string(raw)}
	}
	return &ReceivedError{Message: string(in.Message), Type: string(in.Type), Code: string(in.Code), Param: string(in.Param)}
}

func (c receivedChoiceJSON) choice() ReceivedChoice {
	out := ReceivedChoice{Index: int(c.Index), FinishReason: string(c.FinishReason)}
	d := c.Delta
	if d == nil {
		d = c.Message
	}
	if d != nil {
		out.Delta = d.delta()
	}
	return out
}

func (d *receivedDeltaJSON) delta() ReceivedDelta {
	out := ReceivedDelta{Content: d.Content.text, Refusal: string(d.Refusal)}
	out.reason(d)
	for _, c := range d.ToolCalls {
		call := ReceivedCall{ID: string(c.ID), Name: string(c.Function.Name), Arguments: string(c.Function.Arguments)}
		if c.Index != nil {
			i := int(*c.Index)
			call.Index = &i
		}
		out.ToolCalls = append(out.ToolCalls, call)
	}
	if f := d.FunctionCall; f != nil && len(out.ToolCalls) == 0 {
		zero := 0
		out.ToolCalls = []ReceivedCall{{Index: &zero, Name: string(f.Name), Arguments: string(f.Arguments)}}
	}
	for _, a := range d.Annotations {
		if a.Citation.URL != "" {
			out.Citations = append(out.Citations, a.Citation)
		}
	}
	return out
}

// reason reads reasoning from the one field that is to be replayed: servers that sign it send reasoning_details, often beside a copy of
// the text in reasoning.
func (out *ReceivedDelta) reason(d *receivedDeltaJSON) {
	text, summary := "", ""
	for _, r := range d.ReasoningDetails {
		text += string(r.Text)
		summary += string(r.Summary)
		out.Signature += string(r.Signature)
		out.Encrypted += string(r.Data)
	}
	switch {
	case len(d.ReasoningDetails) > 0:
		out.Reasoning, out.Summary, out.ReasoningField = text, summary, "reasoning_details"
	case d.ReasoningContent.text != "":
		out.Reasoning, out.ReasoningField = d.ReasoningContent.text, "reasoning_content"
	case d.Reasoning.text != "":
		out.Reasoning, out.ReasoningField = d.Reasoning.text, "reasoning"
	case d.Content.thinking != "":
		out.Reasoning, out.ReasoningField = d.Content.thinking, "thinking"
	}
}

func (u *usageJSON) usage() *Usage {
	out := &Usage{PromptTokens: int(u.PromptTokens), CompletionTokens: int(u.CompletionTokens)}
	out.TotalTokens = out.PromptTokens + out.CompletionTokens
	if d := u.PromptDetails; d != nil {
		out.PromptTokensDetails = &PromptDetails{CachedTokens: int(d.CachedTokens), CacheWriteTokens: int(d.CacheWriteTokens)}
	}
	if u.CacheHit > 0 && (out.PromptTokensDetails == nil || out.PromptTokensDetails.CachedTokens == 0) {
		out.PromptTokensDetails = &PromptDetails{CachedTokens: int(u.CacheHit)}
	}
	if d := u.CompletionDetails; d != nil {
		out.CompletionTokensDetails = &CompletionDetails{ReasoningTokens: int(d.ReasoningTokens)}
	}
	return out
}
