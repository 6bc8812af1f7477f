package upstreamtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// responses speaks Responses: statelessly, and with functions only.
type responses struct{}

func (responses) serve(ctx context.Context, w http.ResponseWriter, req *Request, a Answer) {
	in, err := oairesponses.DecodeRequest(req.Body)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	p := &responsesPlayer{
		player: player{ctx: ctx, w: w, quirks: a.Quirks}, id: fmt.Sprintf("resp_stub_%d", req.Number), model: in.Model,
		usage: stubUsage{InputTokens: 10, OutputTokens: 5}, output: []stubItem{},
	}
	p.quiet = !in.Stream || a.Quirks.Plain
	if !p.quiet {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		p.flush()
	}
	p.play(a.Steps)
}

// responsesPlayer plays one answer.
type responsesPlayer struct {
	player
	id, model string
	usage     stubUsage
	finish    string
	quiet     bool // one JSON body: no events
	begun     bool
	raws      bool // a Raw step was the body
	seq       int
	output    []stubItem
	open      *stubItem // message or reasoning that goes on
	calls     int
}

// The stub writes its own structs, since it must be able to write what the protocol does not allow.
type stubResponse struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	CreatedAt  int64             `json:"created_at"`
	Status     string            `json:"status"`
	Model      string            `json:"model"`
	Output     []stubItem        `json:"output"`
	Error      *stubError        `json:"error"`
	Incomplete map[string]string `json:"incomplete_details"`
	Usage      *stubUsage        `json:"usage"`
}

type stubError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type stubUsage struct {
	InputTokens   int            `json:"input_tokens"`
	InputDetails  map[string]int `json:"input_tokens_details,omitempty"`
	OutputTokens  int            `json:"output_tokens"`
	OutputDetails map[string]int `json:"output_tokens_details,omitempty"`
	TotalTokens   int            `json:"total_tokens"`
}

type stubItem struct {
	ID        string          `json:"id,omitempty"`
	Type      string          `json:"type"`
	Status    string          `json:"status,omitempty"`
	Role      string          `json:"role,omitempty"`
	Content   []stubPart      `json:"content,omitempty"`
	Summary   *[]stubPart     `json:"summary,omitempty"`
	Encrypted string          `json:"encrypted_content,omitempty"`
	CallID    json.RawMessage `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

type stubPart struct {
	Type        string      `json:"type"`
	Text        string      `json:"text"`
	Annotations *[]struct{} `json:"annotations,omitempty"`
}

type stubEvent struct {
	Type         string        `json:"type"`
	Sequence     int           `json:"sequence_number"`
	Response     *stubResponse `json:"response,omitempty"`
	ItemID       string        `json:"item_id,omitempty"`
	OutputIndex  *int          `json:"output_index,omitempty"`
	ContentIndex *int          `json:"content_index,omitempty"`
	SummaryIndex *int          `json:"summary_index,omitempty"`
	Delta        string        `json:"delta,omitempty"`
	Text         string        `json:"text,omitempty"`
	Arguments    string        `json:"arguments,omitempty"`
	Item         *stubItem     `json:"item,omitempty"`
	Part         *stubPart     `json:"part,omitempty"`
	// Of a flat error.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Error   any    `json:"error,omitempty"`
}

func (p *responsesPlayer) play(steps []Step) {
	for i := 0; i < len(steps); i++ {
		if p.ctx.Err() != nil {
			return
		}
		switch s := steps[i].(type) {
		case Text:
			p.text("message", oairesponses.TypeTextDelta, string(s))
		case Reasoning:
			p.text("reasoning", p.reasoningDelta(), string(s))
		case Call:
			group := []Call{s}
			for i+1 < len(steps) && p.quirks.Interleave {
				next, ok := steps[i+1].(Call)
				if !ok {
					break
				}
				group = append(group, next)
				i++
			}
			p.playCalls(group)
		case Finish:
			p.finish = string(s)
		case Usage:
			p.usage = stubUsage{InputTokens: s.PromptTokens, OutputTokens: s.CompletionTokens}
			if d := s.PromptTokensDetails; d != nil {
				p.usage.InputDetails = map[string]int{"cached_tokens": d.CachedTokens}
			}
			if d := s.CompletionTokensDetails; d != nil {
				p.usage.OutputDetails = map[string]int{"reasoning_tokens": d.ReasoningTokens}
			}
		case Raw:
			p.raws = p.raws || p.quiet
			p.common(s)
		default:
			p.common(s)
		}
	}
	p.end()
}

func (p *responsesPlayer) reasoningDelta() string {
	if p.quirks.ReasoningField == "summary" {
		return oairesponses.TypeSummaryDelta
	}
	return oairesponses.TypeReasoningDelta
}

// text adds to the open item of a type, or opens one.
func (p *responsesPlayer) text(kind, delta, s string) {
	if p.open == nil || p.open.Type != kind {
		p.closeItem()
		item := stubItem{ID: fmt.Sprintf("%s_%d", kind, len(p.output)), Type: kind, Status: "in_progress"}
		if kind == "message" {
			item.Role = "assistant"
		} else {
			item.Summary = &[]stubPart{}
		}
		p.open = &item
		announced := item
		p.event(stubEvent{Type: oairesponses.TypeItemAdded, OutputIndex: p.index(len(p.output)), Item: &announced})
		switch {
		case kind == "message":
			p.open.Content = []stubPart{{Type: "output_text", Annotations: &[]struct{}{}}}
		case delta == oairesponses.TypeSummaryDelta:
			p.open.Summary = &[]stubPart{{Type: "summary_text"}}
			p.open.Encrypted = "sealed_" + p.id
		default:
			p.open.Content = []stubPart{{Type: "reasoning_text"}}
		}
		if kind == "message" {
			part := p.open.Content[0]
			p.event(p.place(stubEvent{Type: oairesponses.TypePartAdded, Part: &part}))
		}
	}
	p.part().Text += s
	if !p.quirks.NoDeltas {
		p.event(p.place(stubEvent{Type: delta, Delta: s}))
	}
}

// part is the part that goes on.
func (p *responsesPlayer) part() *stubPart {
	if len(p.open.Content) > 0 {
		return &p.open.Content[0]
	}
	return &(*p.open.Summary)[0]
}

// place says where in the open item an event belongs.
func (p *responsesPlayer) place(ev stubEvent) stubEvent {
	ev.ItemID, ev.OutputIndex = p.open.ID, p.index(len(p.output))
	if strings.Contains(ev.Type, "summary") {
		ev.SummaryIndex = new(0)
	} else {
		ev.ContentIndex = new(0)
	}
	return ev
}

func (p *responsesPlayer) index(n int) *int {
	switch {
	case p.quirks.NoIndex:
		return nil
	case p.quirks.SameIndex:
		return new(0)
	}
	return new(p.quirks.FirstIndex + n)
}

func (p *responsesPlayer) closeItem() {
	if p.open == nil {
		return
	}
	if part := *p.part(); p.open.Type == "message" {
		p.event(p.place(stubEvent{Type: oairesponses.TypeTextDone, Text: part.Text}))
		p.event(p.place(stubEvent{Type: oairesponses.TypePartDone, Part: &part}))
	}
	p.open.Status = "completed"
	done := *p.open
	p.event(stubEvent{Type: oairesponses.TypeItemDone, OutputIndex: p.index(len(p.output)), Item: &done})
	p.output = append(p.output, done)
	p.open = nil
}

// playCalls sends the pieces of calls, in turn if there are several.
func (p *responsesPlayer) playCalls(group []Call) {
	p.closeItem()
	first, longest := len(p.output), 0
	items := make([]stubItem, len(group))
	for i, c := range group {
		items[i] = p.call(c)
		announced := items[i]
		announced.Status, announced.Arguments = "in_progress", text("")
		if p.quirks.LateIDs {
			announced.Name, announced.CallID = "", nil
		}
		p.event(stubEvent{Type: oairesponses.TypeItemAdded, OutputIndex: p.index(first + i), Item: &announced})
		longest = max(longest, len(c.Pieces))
	}
	for n := range longest {
		for i, c := range group {
			if n >= len(c.Pieces) || p.ctx.Err() != nil {
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
			if !p.quirks.NoDeltas {
				p.event(stubEvent{
					Type: oairesponses.TypeArgumentsDelta, ItemID: items[i].ID, OutputIndex: p.index(first + i), Delta: c.Pieces[n],
				})
			}
		}
	}
	for i, c := range group {
		p.event(stubEvent{
			Type: oairesponses.TypeArgumentsDone, ItemID: items[i].ID, OutputIndex: p.index(first + i), Arguments: join(c.Pieces),
		})
		p.event(stubEvent{Type: oairesponses.TypeItemDone, OutputIndex: p.index(first + i), Item: &items[i]})
		p.output = append(p.output, items[i])
	}
}

func (p *responsesPlayer) call(c Call) stubItem {
	n := p.calls
	p.calls++
	it := stubItem{
		ID: fmt.Sprintf("fc_%d", n), Type: "function_call", Status: "completed", Name: c.Name, Arguments: text(join(c.Pieces)),
	}
	if p.quirks.ArgumentsObject {
		it.Arguments = json.RawMessage(join(c.Pieces))
	}
	switch {
	case p.quirks.NoIDs:
		it.ID = ""
	case p.quirks.NumericIDs:
		it.CallID = json.RawMessage(fmt.Sprint(1000 + n))
	case c.ID != "":
		it.CallID = text(c.ID)
	default:
		it.CallID = text(fmt.Sprintf("call_%d", n))
	}
	return it
}

// event numbers and sends an event; the first comes behind response.created and response.in_progress.
func (p *responsesPlayer) event(ev stubEvent) {
	if p.quiet || p.quirks.OnlyEnd && ev.Response == nil {
		return
	}
	if !p.begun {
		p.begun = true
		for _, kind := range []string{oairesponses.TypeCreated, oairesponses.TypeInProgress} {
			p.event(stubEvent{Type: kind, Response: p.response("in_progress")})
		}
	}
	ev.Sequence = p.seq
	p.seq++
	raw, err := oairesponses.Marshal(ev)
	if err != nil {
		panic(fmt.Sprintf("upstreamtest: arguments that are to be sent as an object must be JSON: %v", err))
	}
	p.raw("event: " + ev.Type + "\ndata: " + string(raw) + "\n\n")
}

func (p *responsesPlayer) response(status string) *stubResponse {
	return &stubResponse{
		ID: p.id, Object: "response", CreatedAt: 1700000000, Status: status, Model: p.model, Output: append([]stubItem{}, p.output...),
	}
}

// end sends the last event, or the one body.
func (p *responsesPlayer) end() {
	if p.ctx.Err() != nil || p.raws {
		return
	}
	p.closeItem()
	kind, r := oairesponses.TypeCompleted, p.response("completed")
	switch p.finish {
	case "length":
		kind, r.Status, r.Incomplete = oairesponses.TypeIncomplete, "incomplete", map[string]string{"reason": "max_output_tokens"}
	case "content_filter":
		kind, r.Status, r.Incomplete = oairesponses.TypeIncomplete, "incomplete", map[string]string{"reason": "content_filter"}
	case "error":
		kind, r.Status = oairesponses.TypeFailed, "failed"
		r.Error = &stubError{Code: "server_error", Message: "the stub was told to fail"}
		p.failed(r.Error)
	}
	if p.quirks.Usage != UsageNone {
		usage := p.usage
		usage.TotalTokens = usage.InputTokens + usage.OutputTokens
		r.Usage = &usage
	}
	if p.quirks.NewIDs {
		for i := range r.Output {
			r.Output[i].ID = fmt.Sprintf("other_%d", i)
		}
	}
	if p.quiet {
		p.w.Header().Set("Content-Type", "application/json")
		raw, err := oairesponses.Marshal(r)
		if err != nil {
			panic(fmt.Sprintf("upstreamtest: arguments that are to be sent as an object must be JSON: %v", err))
		}
		p.w.Write(raw) // an error means that the client left
		return
	}
	if !p.quirks.NoFinish {
		p.event(stubEvent{Type: kind, Response: r})
	}
	if !p.quirks.NoDone {
		p.raw("data: [DONE]\n\n")
	}
}

func (p *responsesPlayer) failed(e *stubError) {
	if p.quirks.FlatError {
		p.event(stubEvent{Type: oairesponses.TypeError, Code: e.Code, Message: e.Message})
		return
	}
	p.event(stubEvent{Type: oairesponses.TypeError, Error: errorJSON{Type: "server_error", Code: &e.Code, Message: e.Message}})
}
