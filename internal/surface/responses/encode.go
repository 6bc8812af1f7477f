package responses

import (
	"math/rand/v2"
	"time"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// encoder turns the events of one turn into the events of one response, numbered and in the order of wire/openai.md 2.3. It does no
// I/O. The events it returns are not changed later.
type encoder struct {
	req   *request
	newID func(prefix string) string
	now   func() time.Time

	resp     *oairesponses.Response
	seq      int
	out      []oairesponses.Event // of the push that runs
	block    block                // the open item, nil between items
	ending   bool                 // block is complete, but not closed yet
	finished bool
}

// block is an item in the making. item is its whole, with a status of the protocol; both may emit events.
type block interface {
	push(e *encoder, ev turn.Event)
	close(e *encoder, status string) oairesponses.Item
}

const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

func newEncoder(req *request, newID func(string) string, now func() time.Time) *encoder {
	e := &encoder{req: req, newID: newID, now: now}
	e.resp = newResponse(req.wire, newID("resp_"), now().Unix())
	return e
}

// push returns what the client is to see of ev.
//
// A message, call or reasoning stays open until the event after its end: only that one tells whether it was cut short.
func (e *encoder) push(ev turn.Event) []oairesponses.Event {
	e.out = nil
	if e.ending {
		status := statusCompleted
		if fin, ok := ev.(turn.Finished); ok && incompleteReason(fin.Reason) != "" {
			status = statusIncomplete
		}
		e.closeBlock(status)
	}
	switch ev := ev.(type) {
	case turn.Started:
		e.start(ev)
	case turn.MessageStarted:
		e.block = openMessage(e)
	case turn.ReasoningStarted:
		e.block = openReasoning(e, ev)
	case turn.CallStarted:
		e.block = openCall(e, ev)
	case turn.HostedStarted:
		e.block = openHosted(e, ev)
	case turn.HostedDone:
		e.pushBlock(ev)
		e.closeBlock(string(ev.Call.Status))
	case turn.MessageDone, turn.ReasoningDone, turn.CallDone:
		e.pushBlock(ev)
		e.ending = true
	case turn.Finished:
		e.finish(ev)
	default:
		e.pushBlock(ev)
	}
	return e.out
}

func (e *encoder) pushBlock(ev turn.Event) {
	if e.block != nil {
		e.block.push(e, ev)
	}
}

func (e *encoder) closeBlock(status string) {
	if e.block == nil {
		return
	}
	item := e.block.close(e, status)
	e.emit(&oairesponses.ItemEvent{EventHead: typ(oairesponses.TypeItemDone), OutputIndex: len(e.resp.Output), Item: item})
	// A new list each time: snapshots that were handed out keep the old one.
	e.resp.Output = append(e.resp.Output[:len(e.resp.Output):len(e.resp.Output)], item)
	e.block, e.ending = nil, false
}

func (e *encoder) start(ev turn.Started) {
	if ev.ServiceTier != "" {
		e.resp.ServiceTier = ev.ServiceTier
	}
	e.lifecycle(oairesponses.TypeCreated)
	e.lifecycle(oairesponses.TypeInProgress)
}

func incompleteReason(r turn.Reason) string {
	switch r {
	case turn.ReasonLength:
		return "max_output_tokens"
	case turn.ReasonFilter:
		return "content_filter"
	}
	return ""
}

func (e *encoder) finish(ev turn.Finished) {
	e.finished = true
	e.resp.Usage = usage(ev.Usage)
	if e.resp.ServiceTier == "auto" {
		e.resp.ServiceTier = "default"
	}
	if reason := incompleteReason(ev.Reason); reason != "" {
		e.resp.Status = statusIncomplete
		e.resp.IncompleteDetails = &oairesponses.IncompleteDetails{Reason: reason}
		e.lifecycle(oairesponses.TypeIncomplete)
		return
	}
	done := e.now().Unix()
	e.resp.Status, e.resp.CompletedAt = statusCompleted, &done
	e.lifecycle(oairesponses.TypeCompleted)
}

// fail ends a response whose first events the client already has: the item that is open is done as far as it came, then comes the
// nested error event, which SDKs raise, and response.failed for those that read on.
func (e *encoder) fail(err error) []oairesponses.Event {
	e.out = nil
	status := statusIncomplete
	if e.ending {
		status = statusCompleted
	}
	e.closeBlock(status)
	body := oai.Body(err)
	e.emit(&oairesponses.ErrorEvent{EventHead: typ(oairesponses.TypeError), Error: oairesponses.ErrorBody{
		Type: body.Type, Code: body.Code, Message: body.Message, Param: body.Param,
	}})
	e.finished = true
	e.resp.Status = statusFailed
	e.resp.Error = &oairesponses.ResponseError{Code: oai.StreamCode(err), Message: body.Message}
	e.lifecycle(oairesponses.TypeFailed)
	return e.out
}

// snapshot is the response as it is now.
func (e *encoder) snapshot() *oairesponses.Response {
	r := *e.resp
	return &r
}

func (e *encoder) lifecycle(kind string) {
	e.emit(&oairesponses.ResponseEvent{EventHead: typ(kind), Response: e.snapshot()})
}

func (e *encoder) emit(ev oairesponses.Event) {
	ev.Number(e.seq)
	e.seq++
	e.out = append(e.out, ev)
}

// emitDelta emits a delta of n bytes, padded to a multiple of 16 where the request wants its length hidden.
func (e *encoder) emitDelta(ev oairesponses.Event, n int) {
	if p, ok := ev.(interface{ Pad(string) }); ok && e.req.pad {
		p.Pad(letters(16 - n%16))
	}
	e.emit(ev)
}

func letters(n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[rand.IntN(len(alphabet))]
	}
	return string(b)
}

// open announces an item, and returns its place.
func (e *encoder) open(id string, item oairesponses.Item) oairesponses.ItemPlace {
	place := oairesponses.ItemPlace{ItemID: id, OutputIndex: len(e.resp.Output)}
	e.emit(&oairesponses.ItemEvent{EventHead: typ(oairesponses.TypeItemAdded), OutputIndex: place.OutputIndex, Item: item})
	return place
}

func typ(kind string) oairesponses.EventHead { return oairesponses.EventHead{Type: kind} }
