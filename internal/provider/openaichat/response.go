package openaichat

import (
	"encoding/json"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// decoder turns chunks, or a whole answer, into events. It is a pure state machine.
type decoder struct {
	// newID mints the id of a call that came without one.
	newID func() string

	seq      turn.Sequencer
	started  bool
	head     turn.Started
	finish   string
	usage    turn.Usage
	calls    []*callSlot
	ids      map[string]bool         // of calls
	held     []oaichat.ReceivedDelta // text and reasoning that came after a call had begun
	detailed bool                    // the open reasoning came as reasoning_details
}

// callSlot is one call of the answer.
type callSlot struct {
	index *int // as the server counts, nil where it does not
	id    string
	name  string
	args  []byte
}

// Over is never true: usage may follow what ends the answer, in a frame of its own.
func (d *decoder) Over() bool { return false }

// Finished says that the answer is whole, so that an end of the stream is no error.
func (d *decoder) Finished() bool { return d.finish != "" }

// Push takes the next chunk, or a whole answer.
func (d *decoder) Push(data []byte) ([]turn.Event, error) {
	c, err := oaichat.ParseReceived(data)
	if err != nil {
		return nil, err
	}
	if c.Error != nil {
		return nil, (*upstream.Said)(c.Error)
	}
	return d.push(c), nil
}

// push takes the next chunk. Chunks after the one with finish_reason are fine: usage comes so, and some servers send more.
func (d *decoder) push(c *oaichat.Received) []turn.Event {
	if d.head.ID == "" {
		d.head.ID = c.ID
	}
	if d.head.Model == "" {
		d.head.Model = c.Model
	}
	if d.head.Fingerprint == "" {
		d.head.Fingerprint = c.SystemFingerprint
	}
	if d.head.ServiceTier == "" {
		d.head.ServiceTier = c.ServiceTier
	}
	if c.Usage != nil {
		d.usage = usage(c.Usage)
	}
	var out []turn.Event
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // nobody asked for a second answer
		}
		if !d.started {
			d.started = true
			out = append(out, d.head)
		}
		out = append(out, d.delta(choice.Delta)...)
		if choice.FinishReason != "" {
			d.finish = choice.FinishReason
		}
	}
	return out
}

func (d *decoder) delta(c oaichat.ReceivedDelta) []turn.Event {
	if len(d.calls) > 0 {
		// Text between the pieces of a call would end the call too early, so it waits for the end.
		calls := c.ToolCalls
		c.ToolCalls = nil
		d.held = append(d.held, c)
		c = oaichat.ReceivedDelta{ToolCalls: calls}
	}
	var out []turn.Event
	if c.Reasoning != "" || c.Summary != "" {
		d.detailed = c.ReasoningField == "reasoning_details"
		out = append(out, d.seq.Reasoning(c.Reasoning, c.ReasoningField)...)
		out = append(out, d.seq.ReasoningSummary(c.Summary)...)
	}
	if c.Signature != "" || c.Encrypted != "" {
		d.detailed = true
		out = append(out, d.seq.Sign(c.Signature, c.Encrypted)...)
	}
	out = append(out, d.seq.Text(c.Content)...)
	out = append(out, d.seq.Refusal(c.Refusal)...)
	for _, u := range c.Citations {
		out = append(out, d.seq.Annotate(turn.Annotation{Start: u.StartIndex, End: u.EndIndex, URL: u.URL, Title: u.Title})...)
	}
	for _, call := range c.ToolCalls {
		out = append(out, d.call(call)...)
	}
	return d.named(out)
}

// named gives reasoning that had no text of its own, only sealed details, the field in which it goes back.
func (d *decoder) named(events []turn.Event) []turn.Event {
	for i, ev := range events {
		if r, ok := ev.(turn.ReasoningDone); ok && d.detailed {
			r.Reasoning.Field = "reasoning_details"
			events[i] = r
			d.detailed = false
		}
	}
	return events
}

// call finds the call that a piece belongs to. A call is announced once its name is known, with an id minted here if there is none by
// then or if another call of this answer has the same.
func (d *decoder) call(c oaichat.ReceivedCall) []turn.Event {
	n := d.slot(c)
	if n < 0 {
		n = len(d.calls)
		d.calls = append(d.calls, &callSlot{index: c.Index})
	}
	s := d.calls[n]
	if s.id == "" && c.ID != "" && !d.ids[c.ID] {
		s.id = c.ID
	}
	if s.name == "" {
		s.name = c.Name
	}
	s.args = append(s.args, c.Arguments...)
	if s.name != "" && s.id == "" {
		s.id = d.newID()
	}
	if s.id != "" {
		if d.ids == nil {
			d.ids = map[string]bool{}
		}
		d.ids[s.id] = true
	}
	return d.seq.Call(n, s.id, s.name, c.Arguments)
}

// slot is the number of the call that a piece continues, or -1 for a new one.
func (d *decoder) slot(c oaichat.ReceivedCall) int {
	newest := len(d.calls) - 1
	for n := newest; n >= 0; n-- {
		s := d.calls[n]
		same := s.index != nil && c.Index != nil && *s.index == *c.Index
		if c.Index == nil {
			same = c.ID == s.id || c.ID == "" && n == newest
		}
		if !same {
			continue
		}
		if s.begins(c) {
			return -1
		}
		return n
	}
	if c.Index == nil && c.Name == "" {
		return newest // an id that is new in each piece
	}
	return -1
}

// begins says that a piece that would continue this call begins another: Gemini's compatible layer and older Ollama number every call 0.
// A new id alone is no sign, since some vLLM parsers made one up for each piece.
func (s *callSlot) begins(c oaichat.ReceivedCall) bool {
	switch {
	case c.Name == "" || s.name == "":
		return false
	case c.ID != "" && s.id != "" && c.ID != s.id:
		return true
	case c.ID != "" && c.Index != nil:
		return false
	}
	return strings.HasPrefix(strings.TrimSpace(c.Arguments), "{") && json.Valid(s.args)
}

// End closes the answer. Without a finish_reason it has broken off.
func (d *decoder) End() ([]turn.Event, error) {
	if !d.Finished() {
		return nil, upstream.Incomplete()
	}
	for _, s := range d.calls {
		if s.name == "" {
			return nil, upstream.Malformed("a tool call without a name", nil)
		}
	}
	reason, err := d.reason()
	if err != nil {
		return nil, err
	}
	d.calls = nil
	var out []turn.Event
	for _, h := range d.held {
		out = append(out, d.delta(h)...)
	}
	out = d.named(append(out, d.seq.Close()...))
	return append(out, turn.Finished{Reason: reason, Usage: d.usage}), nil
}

// reason maps finish_reason. Many servers say stop after calls; others say tool_calls without any.
func (d *decoder) reason() (turn.Reason, error) {
	switch d.finish {
	case "length", "max_tokens", "model_length":
		return turn.ReasonLength, nil
	case "content_filter":
		return turn.ReasonFilter, nil
	case "error", "abort", "insufficient_system_resource":
		return "", upstream.GaveUp("finish_reason " + d.finish)
	}
	if len(d.calls) > 0 {
		return turn.ReasonCalls, nil
	}
	return turn.ReasonStop, nil
}

func usage(u *oaichat.Usage) turn.Usage {
	out := turn.Usage{Input: upstream.Count(u.PromptTokens), Output: upstream.Count(u.CompletionTokens)}
	if d := u.PromptTokensDetails; d != nil {
		out.Cached, out.CacheWrite = upstream.Count(d.CachedTokens), upstream.Count(d.CacheWriteTokens)
	}
	if d := u.CompletionTokensDetails; d != nil {
		out.Reasoning = upstream.Count(d.ReasoningTokens)
	}
	return out
}
