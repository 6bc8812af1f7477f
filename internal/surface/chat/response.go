package chat

import (
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// collector builds the whole answer out of the events that an encoder streams. It is a pure state machine.
type collector struct {
	head
	first                    turn.Started
	text, reasoning          joiner
	content, refusal, reason []byte
	answer                   oaichat.Answer
	finish                   turn.Reason
	usage                    turn.Usage
	finished                 bool
}

func newCollector(h head) *collector { return &collector{head: h} }

func (c *collector) push(ev turn.Event) {
	switch ev := ev.(type) {
	case turn.Started:
		c.first = ev
	case turn.MessageStarted:
		c.text.begin()
	case turn.TextDelta:
		c.content = append(c.content, c.text.add(ev.Text)...)
	case turn.RefusalDelta:
		c.refusal = append(c.refusal, ev.Text...)
	case turn.Annotated:
		c.answer.Annotations = append(c.answer.Annotations, annotation(ev.Annotation, c.text.base))
	case turn.ReasoningStarted:
		c.reasoning.begin()
	case turn.ReasoningDelta:
		if ev.Next {
			c.reasoning.begin()
		}
		if ev.Text != "" {
			c.reason = append(c.reason, c.reasoning.add(ev.Text)...)
		}
	case turn.CallDone:
		c.answer.ToolCalls = append(c.answer.ToolCalls, oaichat.ToolCall{
			ID: ev.Call.CallID, Type: oaichat.ToolFunction,
			Function: oaichat.FunctionCall{Name: ev.Call.Name, Arguments: ev.Call.Arguments},
		})
	case turn.HostedDone:
		c.answer.CodeInterpreterCalls = append(c.answer.CodeInterpreterCalls, oaichat.CodeInterpreterCall{
			ID: ev.Call.ID, Type: oaichat.TypeCodeInterpreterCall, Status: string(ev.Call.Status), Code: ev.Call.Code,
			ContainerID: ev.Call.Container, Outputs: outputs(ev.Call.Outputs),
		})
	case turn.Finished:
		c.finished = true
		c.finish, c.usage = ev.Reason, ev.Usage
		c.answer.Container = container(ev.Container)
	}
}

// response is the whole answer. Content is null only beside calls or a refusal.
func (c *collector) response() oaichat.Response {
	a := c.answer
	a.Role = "assistant"
	a.ReasoningContent = string(c.reason)
	if len(c.refusal) > 0 {
		a.Refusal = new(string(c.refusal))
	}
	if len(c.content) > 0 || a.Refusal == nil && len(a.ToolCalls) == 0 {
		a.Content = new(string(c.content))
	}
	return oaichat.Response{
		ID: c.id, Object: oaichat.ObjectCompletion, Created: c.created, Model: c.model,
		Choices:     []oaichat.Choice{{Message: a, FinishReason: string(c.finish)}},
		Usage:       usage(c.usage),
		ServiceTier: c.first.ServiceTier, SystemFingerprint: c.first.Fingerprint,
	}
}
