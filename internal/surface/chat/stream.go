package chat

import (
	"strings"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/sse"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// head is what every chunk of an answer repeats.
type head struct {
	id      string
	created int64
	model   string
}

// encoder turns events into the frames of a stream. It is a pure state machine; the deltas that it sends, merged by index, are the
// message that a collector builds from the same events.
type encoder struct {
	head
	includeUsage, live bool

	first       turn.Started
	text        joiner
	reasoning   joiner
	calls       int // begun
	hosted      int // begun
	open        hostedState
	annotations []oaichat.Annotation
	finished    bool
}

// hostedState is the hosted call that runs.
type hostedState struct {
	id   string
	code int // bytes of the code that were sent
}

func newEncoder(h head, includeUsage, live bool) *encoder {
	return &encoder{head: h, includeUsage: includeUsage, live: live}
}

// push returns the frames for one event.
func (e *encoder) push(ev turn.Event) ([]sse.Event, error) {
	var out []oaichat.Chunk
	switch ev := ev.(type) {
	case turn.Started:
		e.first = ev
		out = e.delta(oaichat.Delta{Role: "assistant", Content: new("")})
	case turn.MessageStarted:
		e.text.begin()
	case turn.TextDelta:
		out = e.delta(oaichat.Delta{Content: new(e.text.add(ev.Text))})
	case turn.RefusalDelta:
		out = e.delta(oaichat.Delta{Refusal: &ev.Text})
	case turn.Annotated:
		e.annotations = append(e.annotations, annotation(ev.Annotation, e.text.base))
	case turn.ReasoningStarted:
		e.reasoning.begin()
	case turn.ReasoningDelta:
		if ev.Next {
			e.reasoning.begin()
		}
		if ev.Text != "" {
			out = e.delta(oaichat.Delta{ReasoningContent: new(e.reasoning.add(ev.Text))})
		}
	case turn.CallStarted:
		e.calls++
		out = e.call(oaichat.ToolCallDelta{ID: ev.CallID, Type: oaichat.ToolFunction, Function: oaichat.FunctionDelta{Name: ev.Name}})
	case turn.CallDelta:
		out = e.call(oaichat.ToolCallDelta{Function: oaichat.FunctionDelta{Arguments: ev.Delta}})
	case turn.Finished:
		return e.finish(ev)
	default:
		out = e.hostedCall(ev)
	}
	return frames(out)
}

// hostedCall is an event of a call that runs here.
func (e *encoder) hostedCall(ev turn.Event) []oaichat.Chunk {
	switch ev := ev.(type) {
	case turn.HostedStarted:
		e.hosted++
		e.open = hostedState{id: ev.ID}
		return e.hostedDelta(oaichat.CodeInterpreterCallDelta{
			ID: ev.ID, Type: oaichat.TypeCodeInterpreterCall, ContainerID: ev.Container, Code: new(""),
		})
	case turn.HostedCodeDelta:
		e.open.code += len(ev.Delta)
		return e.hostedDelta(oaichat.CodeInterpreterCallDelta{Code: &ev.Delta})
	case turn.HostedOutput:
		if e.live {
			return e.delta(oaichat.Delta{CodeInterpreterOutput: &oaichat.CodeInterpreterOutput{ID: e.open.id, Stream: ev.Stream, Text: ev.Text}})
		}
	case turn.HostedDone:
		d := oaichat.CodeInterpreterCallDelta{Status: string(ev.Call.Status), Outputs: outputs(ev.Call.Outputs)}
		if rest := ev.Call.Code[min(e.open.code, len(ev.Call.Code)):]; rest != "" {
			d.Code = &rest // a call that could not be run was never told whole
		}
		return e.hostedDelta(d)
	}
	return nil
}

func (e *encoder) call(d oaichat.ToolCallDelta) []oaichat.Chunk {
	d.Index = e.calls - 1
	return e.delta(oaichat.Delta{ToolCalls: []oaichat.ToolCallDelta{d}})
}

func (e *encoder) hostedDelta(d oaichat.CodeInterpreterCallDelta) []oaichat.Chunk {
	d.Index = e.hosted - 1
	return e.delta(oaichat.Delta{CodeInterpreterCalls: []oaichat.CodeInterpreterCallDelta{d}})
}

func (e *encoder) delta(d oaichat.Delta) []oaichat.Chunk {
	return []oaichat.Chunk{e.chunk([]oaichat.ChunkChoice{{Delta: d}})}
}

func (e *encoder) chunk(choices []oaichat.ChunkChoice) oaichat.Chunk {
	return oaichat.Chunk{
		ID: e.id, Object: oaichat.ObjectChunk, Created: e.created, Model: e.model, Choices: choices,
		Usage: oaichat.UsageField{Present: e.includeUsage}, ServiceTier: e.first.ServiceTier, SystemFingerprint: e.first.Fingerprint,
	}
}

func (e *encoder) finish(ev turn.Finished) ([]sse.Event, error) {
	e.finished = true
	reason := string(ev.Reason)
	last := oaichat.ChunkChoice{FinishReason: &reason, Delta: oaichat.Delta{Annotations: e.annotations, Container: container(ev.Container)}}
	chunks := []oaichat.Chunk{e.chunk([]oaichat.ChunkChoice{last})}
	if e.includeUsage {
		u := e.chunk([]oaichat.ChunkChoice{})
		u.Usage.Usage = usage(ev.Usage)
		chunks = append(chunks, u)
	}
	out, err := frames(chunks)
	return append(out, sse.Event{Data: []byte(oaichat.Done)}), err
}

func frames(chunks []oaichat.Chunk) ([]sse.Event, error) {
	out := make([]sse.Event, 0, len(chunks)+1)
	for _, c := range chunks {
		data, err := oaichat.Marshal(c)
		if err != nil {
			return nil, err
		}
		out = append(out, sse.Event{Data: data})
	}
	return out, nil
}

// joiner puts the texts of several rounds into the one text that this protocol has, with an empty line between them. The first delta of a
// text brings the empty line.
type joiner struct {
	runes   int // of all that was added
	base    int // at which the open text begins
	pending bool
	newline bool // the last rune is a line feed
}

func (j *joiner) begin() { j.pending, j.base = true, j.runes }

func (j *joiner) add(s string) string {
	if j.pending && j.runes > 0 && !j.newline {
		s = "\n\n" + s
		j.base += 2
	}
	j.pending = false
	j.runes += utf8.RuneCountInString(s)
	j.newline = strings.HasSuffix(s, "\n")
	return s
}

// annotation moves the span of a, which counts in its own text, to where that text begins in the content.
func annotation(a turn.Annotation, base int) oaichat.Annotation {
	if f := a.File; f != nil {
		c := &oaichat.FileCitation{ContainerID: f.Container, FileID: f.ID, Filename: f.Name, StartIndex: a.Start, EndIndex: a.End}
		if a.End > 0 { // 0 and 0 say that the file stands nowhere in the text
			c.StartIndex += base
			c.EndIndex += base
		}
		return oaichat.Annotation{Type: oaichat.TypeFileCitation, FileCitation: c}
	}
	return oaichat.Annotation{Type: oaichat.TypeURLCitation, URLCitation: &oaichat.URLCitation{
		StartIndex: a.Start + base, EndIndex: a.End + base, URL: a.URL, Title: a.Title,
	}}
}

func container(c *turn.Container) *oaichat.Container {
	if c == nil {
		return nil
	}
	return &oaichat.Container{ID: c.ID, ExpiresAt: c.ExpiresAt}
}

func outputs(in []turn.Output) []oaichat.CodeInterpreterItem {
	out := make([]oaichat.CodeInterpreterItem, 0, len(in))
	for _, o := range turn.Runs(in) {
		if o.IsImage() {
			out = append(out, oaichat.CodeInterpreterItem{Type: "image", URL: oai.ImageURI(o)})
			continue
		}
		if o.Text != "" {
			out = append(out, oaichat.CodeInterpreterItem{Type: "logs", Logs: o.Text})
		}
	}
	return out
}

func usage(u turn.Usage) *oaichat.Usage {
	return &oaichat.Usage{
		PromptTokens: u.Input, CompletionTokens: u.Output, TotalTokens: u.Total(),
		PromptTokensDetails:     &oaichat.PromptDetails{CachedTokens: u.Cached, CacheWriteTokens: u.CacheWrite},
		CompletionTokensDetails: &oaichat.CompletionDetails{ReasoningTokens: u.Reasoning},
	}
}
