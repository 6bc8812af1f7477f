package upstreamtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// chat speaks Chat Completions.
type chat struct{}

func (chat) serve(ctx context.Context, w http.ResponseWriter, req *Request, a Answer) {
	in, err := oaichat.ParseRequest(req.Body)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if a.Quirks.RefuseStreamOptions && in.StreamOptions != nil {
		writeError(w, http.StatusBadRequest, "Unrecognized request argument supplied: stream_options")
		return
	}
	p := &chatPlayer{
		player: player{ctx: ctx, w: w, quirks: a.Quirks}, id: fmt.Sprintf("chatcmpl-stub-%d", req.Number), model: in.Model,
		usage: oaichat.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15},
		asked: in.StreamOptions != nil && in.StreamOptions.IncludeUsage,
	}
	if !in.Stream || a.Quirks.Plain {
		p.whole(a.Steps)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	p.flush()
	p.play(a.Steps)
}

// chatPlayer plays one answer.
type chatPlayer struct {
	player
	id     string
	model  string
	usage  oaichat.Usage
	asked  bool
	finish string
	begun  bool
	calls  int
}

// The stub writes its own structs, since it must be able to write what the protocol does not allow.
type stubChunk struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []stubChoice       `json:"choices"`
	Usage   oaichat.UsageField `json:"usage,omitzero"`
}

type stubChoice struct {
	Index        int        `json:"index"`
	Delta        *stubDelta `json:"delta,omitempty"`
	Message      *stubDelta `json:"message,omitempty"`
	FinishReason *string    `json:"finish_reason"`
}

type stubDelta struct {
	Role             string          `json:"role,omitempty"`
	Content          json.RawMessage `json:"content,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	Reasoning        string          `json:"reasoning,omitempty"`
	ToolCalls        []stubCall      `json:"tool_calls,omitempty"`
}

type stubCall struct {
	Index    *int            `json:"index,omitempty"`
	ID       json.RawMessage `json:"id,omitempty"`
	Type     string          `json:"type,omitempty"`
	Function stubFunction    `json:"function"`
}

type stubFunction struct {
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

func text(s string) json.RawMessage {
	raw, err := oaichat.Marshal(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return raw
}

func (p *chatPlayer) play(steps []Step) {
	for i := 0; i < len(steps); i++ {
		if p.ctx.Err() != nil {
			return
		}
		if call, ok := steps[i].(Call); ok {
			group := []Call{call}
			for i+1 < len(steps) && p.quirks.Interleave {
				next, ok := steps[i+1].(Call)
				if !ok {
					break
				}
				group = append(group, next)
				i++
			}
			p.playCalls(group)
			continue
		}
		p.do(steps[i])
	}
	p.end()
}

func (p *chatPlayer) do(s Step) {
	switch s := s.(type) {
	case Text:
		p.delta(stubDelta{Content: text(string(s))})
	case Reasoning:
		p.delta(p.reasoning(string(s)))
	case Cite:
		p.delta(stubDelta{Content: text(s.Text)})
	case Finish:
		p.finish = string(s)
	case Usage:
		p.usage = oaichat.Usage(s)
		p.usage.TotalTokens = p.usage.PromptTokens + p.usage.CompletionTokens
	default:
		p.common(s)
	}
}

func (p *chatPlayer) reasoning(s string) stubDelta {
	if p.quirks.ReasoningField == "reasoning" {
		return stubDelta{Reasoning: s}
	}
	return stubDelta{ReasoningContent: s}
}

// playCalls sends the pieces of calls, in turn if there are several.
func (p *chatPlayer) playCalls(group []Call) {
	first := p.calls
	p.calls += len(group)
	longest := 0
	for i := range group {
		if group[i].ID == "" {
			group[i].ID = fmt.Sprintf("call_%d", first+i)
		}
		if p.quirks.ArgumentsObject {
			group[i].Pieces = []string{join(group[i].Pieces)}
		}
		longest = max(longest, len(group[i].Pieces), 1)
	}
	for n := range longest {
		for i, c := range group {
			if n >= max(len(c.Pieces), 1) || p.ctx.Err() != nil {
				continue
			}
			if n == c.Held && c.Between != nil {
				if c.Reached != nil {
					close(c.Reached)
				}
				p.wait(c.Between)
			}
			if n > 0 {
				p.pause(c.Delay)
			}
			p.delta(stubDelta{ToolCalls: []stubCall{p.piece(c, first+i, n)}})
		}
	}
}

func (p *chatPlayer) piece(c Call, number, n int) stubCall {
	q := p.quirks
	out := stubCall{}
	if !q.NoIndex {
		index := q.FirstIndex + number
		if q.SameIndex {
			index = 0
		}
		out.Index = &index
	}
	if n < len(c.Pieces) {
		out.Function.Arguments = text(c.Pieces[n])
		if q.ArgumentsObject {
			out.Function.Arguments = json.RawMessage(c.Pieces[n])
		}
	}
	named := n == 0
	if q.LateIDs {
		named = n == max(len(c.Pieces), 1)-1
	}
	if named {
		out.Type, out.Function.Name = "function", c.Name
		switch {
		case q.NumericIDs:
			out.ID = json.RawMessage(fmt.Sprint(1000 + number))
		case !q.NoIDs:
			out.ID = text(c.ID)
		}
	}
	return out
}

func (p *chatPlayer) delta(d stubDelta) {
	if !p.begun {
		p.begun = true
		p.send(stubDelta{Role: "assistant", Content: text("")}, nil, oaichat.UsageField{})
	}
	p.send(d, nil, oaichat.UsageField{})
}

func (p *chatPlayer) send(d stubDelta, finish *string, usage oaichat.UsageField) {
	if p.quirks.NullContent && d.Content == nil {
		d.Content = json.RawMessage("null")
	}
	p.frame(p.chunk([]stubChoice{{Delta: &d, FinishReason: finish}}, usage))
}

func (p *chatPlayer) chunk(choices []stubChoice, usage oaichat.UsageField) stubChunk {
	return stubChunk{ID: p.id, Object: oaichat.ObjectChunk, Created: 1700000000, Model: p.model, Choices: choices, Usage: usage}
}

func (p *chatPlayer) finishReason() string {
	switch {
	case p.finish != "":
		return p.finish
	case p.calls > 0 && !p.quirks.FinishStop:
		return "tool_calls"
	}
	return "stop"
}

func (p *chatPlayer) end() {
	if p.ctx.Err() != nil {
		return
	}
	counts := oaichat.UsageField{Usage: &p.usage}
	own := p.quirks.Usage == UsageAlways || p.quirks.Usage == UsageAsked && p.asked
	usageChunk := p.chunk([]stubChoice{}, counts)
	if own && p.quirks.UsageFirst {
		p.frame(usageChunk)
	}
	if !p.quirks.NoFinish {
		reason, onFinish := p.finishReason(), oaichat.UsageField{}
		if p.quirks.Usage == UsageOnFinish {
			onFinish = counts
		}
		p.send(stubDelta{}, &reason, onFinish)
	}
	if own && !p.quirks.UsageFirst {
		p.frame(usageChunk)
	}
	if !p.quirks.NoDone {
		p.raw("data: " + oaichat.Done + "\n\n")
	}
}

func (p *chatPlayer) frame(c stubChunk) {
	raw, err := oaichat.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("upstreamtest: arguments that are to be sent as an object must be JSON: %v", err))
	}
	p.raw("data: " + string(raw) + "\n\n")
}

// whole answers with one JSON body. Raw replaces it; Frame has no place in it.
func (p *chatPlayer) whole(steps []Step) {
	msg := stubDelta{Role: "assistant"}
	content, reasoning := "", ""
	for _, s := range steps {
		switch s := s.(type) {
		case Text:
			content += string(s)
		case Cite:
			content += s.Text
		case Reasoning:
			reasoning += string(s)
		case Call:
			if s.ID == "" {
				s.ID = fmt.Sprintf("call_%d", p.calls)
			}
			s.Pieces = []string{join(s.Pieces)}
			call := p.piece(s, p.calls, 0)
			call.Index = nil
			msg.ToolCalls = append(msg.ToolCalls, call)
			p.calls++
		case Raw:
			p.w.Header().Set("Content-Type", "application/json")
			p.raw(string(s))
			return
		case Finish, Usage, Wait, Reached, Pause, Cut:
			p.do(s)
		}
	}
	r := p.reasoning(reasoning)
	msg.Reasoning, msg.ReasoningContent = r.Reasoning, r.ReasoningContent
	msg.Content = json.RawMessage("null")
	if content != "" {
		msg.Content = text(content)
	}
	reason := p.finishReason()
	body := p.chunk([]stubChoice{{Message: &msg, FinishReason: &reason}}, oaichat.UsageField{Usage: &p.usage})
	body.Object = oaichat.ObjectCompletion
	raw, err := oaichat.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("upstreamtest: arguments that are to be sent as an object must be JSON: %v", err))
	}
	p.w.Header().Set("Content-Type", "application/json")
	p.w.Write(raw) // an error means that the client left
}
