package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// merged is what a client makes of a stream: strings appended, entries with an index merged.
type merged struct {
	answer  oaichat.Answer
	content string
	refusal string
	finish  string
	usage   *oaichat.Usage
	done    bool
}

// merge adds a frame and checks what must hold for every frame of a stream.
func (m *merged) merge(t *rapid.T, data []byte, includeUsage bool) {
	if m.done {
		t.Fatalf("a frame after [DONE]: %s", data)
	}
	if string(data) == oaichat.Done {
		m.done = true
		return
	}
	var c oaichat.Chunk
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	if c.ID != testHead.id || c.Created != testHead.created || c.Model != testHead.model || c.Object != oaichat.ObjectChunk {
		t.Fatalf("head of %s", data)
	}
	if c.Usage.Present != includeUsage || m.usage != nil {
		t.Fatalf("usage of %s", data)
	}
	m.usage = c.Usage.Usage
	if len(c.Choices) == 0 {
		if m.usage == nil || m.finish == "" {
			t.Fatalf("no choices: %s", data)
		}
		return
	}
	if m.finish != "" || m.usage != nil {
		t.Fatalf("a choice after the last, or beside usage: %s", data)
	}
	choice := c.Choices[0]
	if choice.FinishReason != nil {
		m.finish = *choice.FinishReason
	}
	m.delta(t, choice.Delta)
}

func (m *merged) delta(t *rapid.T, d oaichat.Delta) {
	if (d.Role == "") == (m.answer.Role == "") {
		t.Fatalf("the role must come first and once: %+v", d)
	}
	m.answer.Role += d.Role
	add := func(to *string, s *string) {
		if s != nil {
			*to += *s
		}
	}
	add(&m.content, d.Content)
	add(&m.refusal, d.Refusal)
	add(&m.answer.ReasoningContent, d.ReasoningContent)
	for _, c := range d.ToolCalls {
		if c.Index == len(m.answer.ToolCalls) {
			m.answer.ToolCalls = append(m.answer.ToolCalls, oaichat.ToolCall{})
		}
		to := &m.answer.ToolCalls[c.Index]
		to.ID += c.ID
		to.Type += c.Type
		to.Function.Name += c.Function.Name
		to.Function.Arguments += c.Function.Arguments
	}
	for _, c := range d.CodeInterpreterCalls {
		if c.Index == len(m.answer.CodeInterpreterCalls) {
			m.answer.CodeInterpreterCalls = append(m.answer.CodeInterpreterCalls, oaichat.CodeInterpreterCall{})
		}
		to := &m.answer.CodeInterpreterCalls[c.Index]
		to.ID += c.ID
		to.Type += c.Type
		to.ContainerID += c.ContainerID
		to.Status += c.Status
		add(&to.Code, c.Code)
		to.Outputs = append(to.Outputs, c.Outputs...)
	}
	m.answer.Annotations = append(m.answer.Annotations, d.Annotations...)
	if d.Container != nil {
		m.answer.Container = d.Container
	}
}

// TestDeltasAddUp: for any turn, the deltas of the stream are the message of the whole answer.
func TestDeltasAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := drawTurn(t)
		includeUsage, live := rapid.Bool().Draw(t, "include_usage"), rapid.Bool().Draw(t, "live")
		enc, c := newEncoder(testHead, includeUsage, live), newCollector(testHead)
		var v turn.Validator
		var m merged
		for _, ev := range events {
			if err := v.Push(ev); err != nil {
				t.Fatalf("the test's own events: %v", err)
			}
			frames, err := enc.push(ev)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range frames {
				if f.Name != "" {
					t.Fatal("frames of this protocol have no name")
				}
				if !live && strings.Contains(string(f.Data), "code_interpreter_output") {
					t.Fatal("output without being asked")
				}
				m.merge(t, f.Data, includeUsage)
			}
			c.push(ev)
		}
		whole := c.response()
		want := whole.Choices[0]
		if !m.done || m.finish != want.FinishReason {
			t.Fatalf("done %v, finish %q, want %q", m.done, m.finish, want.FinishReason)
		}
		if includeUsage && cmp.Diff(whole.Usage, m.usage) != "" {
			t.Fatalf("usage %+v, want %+v", m.usage, whole.Usage)
		}
		got := m.answer
		if want.Message.Content == nil {
			want.Message.Content = new("") // a stream cannot say null: it has begun with an empty text
		}
		got.Content = &m.content
		if m.refusal != "" {
			got.Refusal = &m.refusal
		}
		if diff := cmp.Diff(want.Message, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-whole +streamed)\n%s", diff)
		}
		checkSpans(t, want.Message)
	})
}

// checkSpans: every span that a drawn turn marks is the text "LINK" of the content.
func checkSpans(t *rapid.T, a oaichat.Answer) {
	runes := []rune(*a.Content)
	for _, n := range a.Annotations {
		if f := n.FileCitation; f.EndIndex > 0 && string(runes[f.StartIndex:f.EndIndex]) != "LINK" {
			t.Fatalf("span %d:%d of %q", f.StartIndex, f.EndIndex, *a.Content)
		}
	}
}

func drawTurn(t *rapid.T) []turn.Event {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab \n<é😀\"")), 1, 5, -1)
	out := []turn.Event{turn.Started{Fingerprint: "fp"}}
	for i := range rapid.IntRange(0, 6).Draw(t, "blocks") {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			out = append(out, drawMessage(t, text)...)
		case 1:
			out = append(out, turn.ReasoningStarted{})
			for range rapid.IntRange(0, 3).Draw(t, "pieces") {
				out = append(out, turn.ReasoningDelta{Text: text.Draw(t, "text"), Summary: rapid.Bool().Draw(t, "summary")})
			}
			out = append(out, turn.ReasoningDone{})
		case 2:
			out = append(out, call(turn.NewID("call_"), "f", rapid.SampledFrom([]string{"", "{}", `{"a":"b"}`}).Draw(t, "args"))...)
		default:
			out = append(out, drawHosted(t, text, i)...)
		}
	}
	f := turn.Finished{Reason: rapid.SampledFrom([]turn.Reason{turn.ReasonStop, turn.ReasonCalls, turn.ReasonLength}).Draw(t, "reason")}
	if rapid.Bool().Draw(t, "container") {
		f.Container = &turn.Container{ID: "cntr_1"}
	}
	return append(out, f)
}

func drawMessage(t *rapid.T, text *rapid.Generator[string]) []turn.Event {
	out := []turn.Event{turn.MessageStarted{}}
	whole := ""
	for range rapid.IntRange(0, 3).Draw(t, "pieces") {
		s := text.Draw(t, "text")
		whole += s
		out = append(out, turn.TextDelta{Text: s})
	}
	parts := []turn.Part{}
	if whole != "" && rapid.Bool().Draw(t, "annotated") {
		start := len([]rune(whole))
		whole += "LINK"
		out = append(out, turn.TextDelta{Text: "LINK"},
			turn.Annotated{Annotation: turn.Annotation{File: &turn.File{ID: "cfile_1"}, Start: start, End: start + 4}},
			turn.Annotated{Annotation: turn.Annotation{File: &turn.File{ID: "cfile_2"}}})
	}
	if whole != "" {
		parts = append(parts, turn.Text{Text: whole})
	}
	if rapid.IntRange(0, 5).Draw(t, "refusal") == 0 {
		out = append(out, turn.RefusalDelta{Text: "no"})
		parts = append(parts, turn.Refusal{Text: "no"})
	}
	return append(out, turn.MessageDone{Message: turn.Message{Role: turn.Assistant, Parts: parts}})
}

func drawHosted(t *rapid.T, text *rapid.Generator[string], i int) []turn.Event {
	c := turn.HostedCall{ID: turn.NewID("ci_"), Tool: "python", Container: "cntr_1", Status: turn.StatusCompleted}
	out := []turn.Event{turn.HostedStarted{ID: c.ID, Tool: c.Tool, Container: c.Container}}
	for range rapid.IntRange(0, 3).Draw(t, "pieces") {
		s := text.Draw(t, "code")
		c.Code += s
		out = append(out, turn.HostedCodeDelta{Delta: s})
	}
	if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
		c.Code += "rest"
		c.Status = turn.StatusFailed
		return append(out, turn.HostedDone{Call: c})
	}
	out = append(out, turn.HostedCodeDone{Code: c.Code}, turn.HostedRunning{}, turn.HostedOutput{Stream: "stderr", Text: "x"})
	for range rapid.IntRange(0, 2).Draw(t, "outputs") {
		c.Outputs = append(c.Outputs, turn.Output{Text: text.Draw(t, "logs")}, turn.Output{MIME: "image/png", Data: []byte{byte(i)}})
	}
	return append(out, turn.HostedDone{Call: c})
}
