package messages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// drawTurn draws a well-formed turn.
func drawTurn(t *rapid.T) []turn.Event {
	pieces := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("ab<&\n\"\\é☃😀\u2028\x01")), 1, 6, -1), 0, 4)
	events := []turn.Event{turn.Started{}}
	for range rapid.IntRange(0, 6).Draw(t, "blocks") {
		switch rapid.IntRange(0, 4).Draw(t, "block") {
		case 0:
			events = append(events, turn.MessageStarted{})
			var parts []turn.Part
			for _, p := range pieces.Draw(t, "text") {
				events = append(events, turn.TextDelta{Text: p})
				parts = append(parts, turn.Text{Text: p})
				if rapid.Bool().Draw(t, "annotated") {
					events = append(events, turn.Annotated{Annotation: turn.Annotation{End: 1, URL: "https://x"}})
				}
			}
			events = append(events, turn.MessageDone{Message: turn.Message{Role: turn.Assistant, Parts: parts}})
		case 1:
			events = append(events, turn.ReasoningStarted{})
			for _, p := range pieces.Draw(t, "reasoning") {
				events = append(events, turn.ReasoningDelta{Text: p, Summary: rapid.Bool().Draw(t, "summary")})
			}
			events = append(events, turn.ReasoningDone{Reasoning: turn.Reasoning{Encrypted: "e"}})
		case 2:
			c := turn.Call{CallID: turn.NewHiddenCallID(), Name: "f"}
			events = append(events, turn.CallStarted{CallID: c.CallID, Name: c.Name})
			for _, p := range pieces.Draw(t, "arguments") {
				events = append(events, turn.CallDelta{Delta: p})
				c.Arguments += p
			}
			events = append(events, turn.CallDone{Call: c})
		default:
			events = append(events, drawHosted(t, pieces)...)
		}
	}
	return append(events, turn.Finished{
		Reason: rapid.SampledFrom([]turn.Reason{turn.ReasonStop, turn.ReasonLength, turn.ReasonFilter, turn.ReasonPause}).Draw(t, "reason"),
		Usage:  turn.Usage{Input: 3, Output: 4},
	})
}

func drawHosted(t *rapid.T, pieces *rapid.Generator[[]string]) []turn.Event {
	id, tool := turn.NewID("ci_"), rapid.SampledFrom([]string{python, bash, edit}).Draw(t, "tool")
	call := turn.HostedCall{ID: id, Tool: tool, Status: turn.StatusFailed}
	if rapid.IntRange(0, 3).Draw(t, "resumed") == 0 {
		return []turn.Event{turn.HostedResumed{ID: id, Tool: tool}, turn.HostedRunning{}, turn.HostedDone{Call: call}}
	}
	events := []turn.Event{turn.HostedStarted{ID: id, Tool: tool}}
	code := ""
	for _, p := range pieces.Draw(t, "code") {
		if tool == edit {
			break // its code is JSON
		}
		code += p
		events = append(events, turn.HostedCodeDelta{Delta: p})
	}
	if !rapid.Bool().Draw(t, "ran") {
		return append(events, turn.HostedDone{Call: call})
	}
	events = append(events, turn.HostedCodeDone{Code: code}, turn.HostedRunning{}, turn.HostedOutput{Stream: "stdout", Text: "1\n"})
	call.Code, call.Status = code, turn.StatusCompleted
	call.Outputs = []turn.Output{{Text: "1\n"}, {MIME: "image/png", Data: []byte{1}}}
	return append(events, turn.HostedDone{Call: call})
}

func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := drawTurn(t)
		v := turn.Validator{}
		for _, ev := range events {
			if err := v.Push(ev); err != nil {
				t.Fatalf("the test draws turns that are not well formed: %v", err)
			}
		}
		req := &request{
			turn: &turn.Request{Live: rapid.Bool().Draw(t, "live")}, thinks: rapid.Bool().Draw(t, "thinks"),
			omitted: rapid.Bool().Draw(t, "omitted"), mute: rapid.IntRange(0, 9).Draw(t, "mute") == 0, code: "code_execution_20260521",
		}
		enc := newEncoder(req, turn.NewID)
		var got []wire.Event
		for _, ev := range events {
			got = append(got, enc.push(ev)...)
		}
		built, err := rebuild(got)
		if err != nil {
			t.Fatalf("%v\nevents: %#v", err, events)
		}
		if diff := cmp.Diff(asJSON(t, enc.resp), asJSON(t, *built)); diff != "" {
			t.Fatalf("the plain answer and the sum of the stream differ (-plain +stream):\n%s", diff)
		}
	})
}

func asJSON(t *rapid.T, m wire.Response) any {
	data, err := wire.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// rebuild adds a stream up as SDKs do, from its bytes, and checks the rules of wire/anthropic.md 1.6.
func rebuild(events []wire.Event) (*wire.Response, error) {
	var m *wire.Response
	var open wire.Block
	var input strings.Builder
	stopped := false
	for i, ev := range events {
		raw, err := wire.Marshal(ev)
		if err != nil {
			return nil, err
		}
		if ev, err = wire.DecodeEvent(raw); err != nil {
			return nil, fmt.Errorf("event %d %s: %w", i, raw, err)
		}
		if stopped || (m == nil) != (ev.EventType() == wire.TypeMessageStart) {
			return nil, fmt.Errorf("event %d: %s out of place", i, ev.EventType())
		}
		switch ev := ev.(type) {
		case *wire.MessageStart:
			m = &ev.Message
		case *wire.BlockStart:
			if open != nil || ev.Index != len(m.Content) {
				return nil, fmt.Errorf("event %d: block %d starts, %d are done, open is %v", i, ev.Index, len(m.Content), open)
			}
			open = ev.ContentBlock.Block
			input.Reset()
		case *wire.BlockDelta:
			if open == nil || ev.Index != len(m.Content) {
				return nil, fmt.Errorf("event %d: delta for block %d", i, ev.Index)
			}
			add(open, ev.Delta.Delta, &input)
		case *wire.BlockStop:
			if open == nil || ev.Index != len(m.Content) {
				return nil, fmt.Errorf("event %d: block %d stops", i, ev.Index)
			}
			if call, ok := open.(*wire.ToolUse); ok {
				if call.Type == wire.TypeServerToolUse && !json.Valid([]byte(input.String())) {
					return nil, fmt.Errorf("event %d: the input of a hosted call is %q", i, input.String())
				}
				call.Input = inputObject(input.String())
			}
			m.Content = append(m.Content, open)
			open = nil
		case *wire.MessageDelta:
			m.StopReason, m.StopSequence, m.StopDetails = ev.Delta.StopReason, ev.Delta.StopSequence, ev.Delta.StopDetails
			m.Container, m.Usage = ev.Delta.Container, ev.Usage
		case *wire.Mark:
			stopped = true
		}
	}
	if m == nil || open != nil || !stopped || m.StopReason == nil {
		return nil, fmt.Errorf("the stream is not whole: %d events", len(events))
	}
	return m, nil
}

func add(b wire.Block, d wire.Delta, input *strings.Builder) {
	switch d := d.(type) {
	case *wire.InputDelta:
		input.WriteString(d.PartialJSON)
	case *wire.TextDelta:
		if t, ok := b.(*wire.Text); ok {
			t.Text += d.Text
		}
	case *wire.CitationsDelta:
		if t, ok := b.(*wire.Text); ok {
			t.Citations = append(t.Citations, d.Citation)
		}
	case *wire.ThinkingDelta:
		if t, ok := b.(*wire.Thinking); ok {
			t.Thinking += d.Thinking
		}
	case *wire.SignatureDelta:
		if t, ok := b.(*wire.Thinking); ok {
			t.Signature += d.Signature
		}
	}
}

// FuzzDecode: no body takes the decoder down, and what it takes can be stored.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(simple))
	f.Add([]byte(`{"model":"m","max_tokens":1,"container":{"id":null,"skills":[]},"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":1}},{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":[]}]}]}`))
	f.Add([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"document","source":{"type":"content","content":[{}]}}]}]}],"tools":[{"type":"computer_toolset_20260801","configs":{"zoom":null}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, native := range []bool{false, true} {
			req, err := decode(&call{version: version2023, body: body, native: native})
			if err != nil {
				continue
			}
			items, err := turn.MarshalItems(req.turn.Items)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := turn.UnmarshalItems(items); err != nil || bytes.Contains(items, []byte("!(")) {
				t.Errorf("%v in %s", err, items)
			}
		}
	})
}
