package responses

import (
	"strings"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// callBlock is a call of a client's function in the making.
type callBlock struct {
	place     oairesponses.ItemPlace
	call      oairesponses.FunctionCall
	arguments strings.Builder
}

func openCall(e *encoder, ev turn.CallStarted) *callBlock {
	b := &callBlock{call: oairesponses.FunctionCall{
		ID: e.newID("fc_"), Type: "function_call", Status: statusInProgress, CallID: ev.CallID, Name: ev.Name,
	}}
	if b.call.CallID == "" {
		b.call.CallID = e.newID("call_") // without one the client could not answer
	}
	added := b.call
	b.place = e.open(b.call.ID, &added)
	return b
}

func (b *callBlock) push(e *encoder, ev turn.Event) {
	if ev, ok := ev.(turn.CallDelta); ok {
		b.delta(e, ev.Delta)
	}
}

func (b *callBlock) delta(e *encoder, text string) {
	b.arguments.WriteString(text)
	e.emitDelta(&oairesponses.ArgumentsDelta{EventHead: typ(oairesponses.TypeArgumentsDelta), ItemPlace: b.place, Delta: text}, len(text))
}

func (b *callBlock) close(e *encoder, status string) oairesponses.Item {
	if b.arguments.Len() == 0 && status == statusCompleted {
		b.delta(e, "{}") // models call functions without parameters so; clients parse it as JSON
	}
	done := b.call
	done.Status, done.Arguments = status, b.arguments.String()
	e.emit(&oairesponses.ArgumentsDone{
		EventHead: typ(oairesponses.TypeArgumentsDone), ItemPlace: b.place, Name: done.Name, Arguments: done.Arguments,
	})
	return &done
}

// hostedBlock is a run of code in the making.
type hostedBlock struct {
	place     oairesponses.ItemPlace
	container string
	code      strings.Builder
	codeDone  bool
	outputs   []turn.Output
}

func openHosted(e *encoder, ev turn.HostedStarted) *hostedBlock {
	empty := ""
	b := &hostedBlock{container: ev.Container}
	b.place = e.open(ev.ID, &oairesponses.CodeInterpreterCall{
		ID: ev.ID, Type: "code_interpreter_call", Status: statusInProgress, Code: &empty, ContainerID: ev.Container, Outputs: outputs(e, nil),
	})
	b.status(e, oairesponses.TypeCodeInProgress)
	return b
}

func (b *hostedBlock) status(e *encoder, kind string) {
	e.emit(&oairesponses.CodeStatus{EventHead: typ(kind), ItemPlace: b.place})
}

func (b *hostedBlock) push(e *encoder, ev turn.Event) {
	switch ev := ev.(type) {
	case turn.HostedCodeDelta:
		b.code.WriteString(ev.Delta)
		e.emitDelta(&oairesponses.CodeDelta{EventHead: typ(oairesponses.TypeCodeDelta), ItemPlace: b.place, Delta: ev.Delta}, len(ev.Delta))
	case turn.HostedCodeDone:
		b.closeCode(e)
	case turn.HostedRunning:
		b.status(e, oairesponses.TypeCodeInterpreting)
	case turn.HostedOutput:
		if e.req.turn.Live {
			e.emit(&oairesponses.OutputDelta{
				EventHead: typ(oairesponses.TypeOutputDelta), ItemPlace: b.place, CallID: b.place.ItemID, Stream: ev.Stream, Text: ev.Text,
			})
		}
	case turn.HostedDone:
		b.outputs = ev.Call.Outputs
		b.closeCode(e)
		if ev.Call.Status == turn.StatusCompleted { // the protocol has no such event for the others
			b.status(e, oairesponses.TypeCodeCompleted)
		}
	}
}

func (b *hostedBlock) closeCode(e *encoder) {
	if b.codeDone {
		return
	}
	b.codeDone = true
	e.emit(&oairesponses.CodeDone{EventHead: typ(oairesponses.TypeCodeDone), ItemPlace: b.place, Code: b.code.String()})
}

func (b *hostedBlock) close(e *encoder, status string) oairesponses.Item {
	b.closeCode(e)
	code := b.code.String()
	return &oairesponses.CodeInterpreterCall{
		ID: b.place.ItemID, Type: "code_interpreter_call", Status: status, Code: &code,
		ContainerID: b.container, Outputs: outputs(e, b.outputs),
	}
}

// outputs are null unless the request includes them, also while there are none.
func outputs(e *encoder, in []turn.Output) []oairesponses.CodeOutput {
	if !e.req.outputs {
		return nil
	}
	out := []oairesponses.CodeOutput{}
	for _, o := range turn.Runs(in) {
		if o.IsImage() {
			out = append(out, oairesponses.CodeOutput{Type: "image", URL: oai.ImageURI(o)})
			continue
		}
		out = append(out, oairesponses.CodeOutput{Type: "logs", Logs: &o.Text})
	}
	return out
}
