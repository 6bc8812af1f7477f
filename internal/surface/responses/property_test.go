package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// drawTurn draws a well-formed turn; cut says that it ends with an error somewhere after its first event.
func drawTurn(t *rapid.T) (events []turn.Event, cut bool) {
	pieces := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("ab<&\n\"é☃😀")), 1, 6, -1), 0, 4)
	events = append(events, turn.Started{})
	for range rapid.IntRange(0, 6).Draw(t, "blocks") {
		switch rapid.IntRange(0, 3).Draw(t, "block") {
		case 0:
			events = append(events, drawMessage(t, pieces)...)
		case 1:
			events = append(events, turn.ReasoningStarted{})
			r := turn.Reasoning{Encrypted: "e"}
			for _, p := range pieces.Draw(t, "reasoning") {
				events = append(events, turn.ReasoningDelta{Text: p, Summary: rapid.Bool().Draw(t, "summary")})
			}
			if rapid.Bool().Draw(t, "whole") {
				r.Text, r.Summary = "whole", []string{"a", "b"}
			}
			events = append(events, turn.ReasoningDone{Reasoning: r})
		case 2:
			c := turn.Call{CallID: rapid.SampledFrom([]string{"", "call_1"}).Draw(t, "call id"), Name: "f"}
			events = append(events, turn.CallStarted{CallID: c.CallID, Name: c.Name})
			for _, p := range pieces.Draw(t, "arguments") {
				events = append(events, turn.CallDelta{Delta: p})
				c.Arguments += p
			}
			events = append(events, turn.CallDone{Call: c})
		case 3:
			events = append(events, drawHosted(t, pieces)...)
		}
	}
	events = append(events, turn.Finished{
		Reason: rapid.SampledFrom([]turn.Reason{turn.ReasonStop, turn.ReasonLength, turn.ReasonFilter, turn.ReasonCalls}).Draw(t, "reason"),
		Usage:  turn.Usage{Input: 3, Output: 4},
	})
	if rapid.Bool().Draw(t, "cut") {
		return events[:rapid.IntRange(1, len(events)-1).Draw(t, "at")], true
	}
	return events, false
}

func drawMessage(t *rapid.T, pieces *rapid.Generator[[]string]) []turn.Event {
	events := []turn.Event{turn.MessageStarted{}}
	var parts []turn.Part
	for _, p := range pieces.Draw(t, "text") {
		if rapid.IntRange(0, 4).Draw(t, "refusal") == 0 {
			parts = append(parts, turn.Refusal{Text: p})
			events = append(events, turn.RefusalDelta{Text: p})
			continue
		}
		parts = append(parts, turn.Text{Text: p})
		events = append(events, turn.TextDelta{Text: p})
		if rapid.Bool().Draw(t, "annotated") {
			events = append(events, turn.Annotated{Annotation: turn.Annotation{End: 1, File: &turn.File{ID: "cfile_1"}}})
		}
	}
	return append(events, turn.MessageDone{Message: turn.Message{Role: turn.Assistant, Parts: parts}})
}

func drawHosted(t *rapid.T, pieces *rapid.Generator[[]string]) []turn.Event {
	id := turn.NewID("ci_")
	events := []turn.Event{turn.HostedStarted{ID: id, Tool: oai.Python, Container: "cntr_1"}}
	code := ""
	for _, p := range pieces.Draw(t, "code") {
		code += p
		events = append(events, turn.HostedCodeDelta{Delta: p})
	}
	call := turn.HostedCall{ID: id, Code: code, Container: "cntr_1", Status: turn.StatusFailed}
	if rapid.Bool().Draw(t, "ran") {
		call.Status = rapid.SampledFrom([]turn.Status{turn.StatusCompleted, turn.StatusIncomplete}).Draw(t, "status")
		call.Outputs = []turn.Output{{Text: "1\n"}, {MIME: "image/png", Data: []byte{1}}}
		events = append(events, turn.HostedCodeDone{Code: code}, turn.HostedRunning{}, turn.HostedOutput{Stream: "stdout", Text: "1\n"})
	}
	return append(events, turn.HostedDone{Call: call})
}

func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events, cut := drawTurn(t)
		v := turn.Validator{}
		for _, ev := range events {
			if err := v.Push(ev); err != nil {
				t.Fatalf("the test draws turns that are not well formed: %v", err)
			}
		}
		req := &request{
			wire: &oairesponses.Request{Model: "m"}, turn: &turn.Request{Live: rapid.Bool().Draw(t, "live")},
			outputs: rapid.Bool().Draw(t, "outputs"), encrypted: rapid.Bool().Draw(t, "encrypted"), pad: rapid.Bool().Draw(t, "pad"),
		}
		enc := newEncoder(req, turn.NewID, time.Now)
		var got []oairesponses.Event
		for _, ev := range events {
			got = append(got, enc.push(ev)...)
		}
		if cut {
			got = append(got, enc.fail(errors.New("cut"))...)
		}
		if err := checkStream(got, cut); err != nil {
			t.Fatalf("%v\nevents: %#v", err, events)
		}
	})
}

// checkStream reads a stream as a client does, through its JSON.
func checkStream(events []oairesponses.Event, cut bool) error {
	c := &streamChecker{sums: map[string]string{}, done: []oairesponses.Item{}}
	for i, ev := range events {
		data, err := oairesponses.Marshal(ev)
		if err != nil {
			return err
		}
		var keys map[string]any
		if err := json.Unmarshal(data, &keys); err != nil {
			return err
		}
		if keys["sequence_number"] != float64(i) || keys["type"] != ev.EventType() {
			return fmt.Errorf("event %d is numbered %v, of type %v", i, keys["sequence_number"], keys["type"])
		}
		if _, ok := keys["error"]; ok && ev.EventType() != "error" {
			return fmt.Errorf("%s has a top-level key error", ev.EventType())
		}
		if err := c.add(ev, keys); err != nil {
			return fmt.Errorf("event %d, %s: %w", i, ev.EventType(), err)
		}
	}
	if c.open != "" || c.last == nil {
		return fmt.Errorf("open at the end: %q; terminal event: %v", c.open, c.last)
	}
	if diff := cmp.Diff(oairesponses.Items(c.done), c.last.Output); diff != "" {
		return fmt.Errorf("the output is not the items that were done:\n%s", diff)
	}
	if cut != (c.last.Status == statusFailed) || (!cut && (c.last.Usage == nil || c.last.Usage.TotalTokens != 7)) {
		return fmt.Errorf("ends as %s with usage %v", c.last.Status, c.last.Usage)
	}
	return nil
}

type streamChecker struct {
	open string
	done []oairesponses.Item
	sums map[string]string
	last *oairesponses.Response
}

func (c *streamChecker) add(ev oairesponses.Event, keys map[string]any) error {
	if c.last != nil {
		return errors.New("after the terminal event")
	}
	if at, ok := keys["output_index"]; ok && at != float64(len(c.done)) {
		return fmt.Errorf("output_index %v, want %d", at, len(c.done))
	}
	if id, ok := keys["item_id"]; ok && id != c.open {
		return fmt.Errorf("about %v while %q is open", id, c.open)
	}
	kind := strings.TrimSuffix(strings.TrimSuffix(ev.EventType(), ".delta"), ".done")
	part := fmt.Sprint(keys["item_id"], keys["content_index"], keys["summary_index"], kind)
	if delta, ok := keys["delta"].(string); ok {
		c.sums[part] += delta
	}
	switch ev := ev.(type) {
	case *oairesponses.ItemEvent:
		id := itemID(ev.Item)
		if ev.Type == oairesponses.TypeItemAdded {
			if c.open != "" {
				return fmt.Errorf("%s is added while %s is open", id, c.open)
			}
			c.open = id
			return nil
		}
		if id != c.open {
			return fmt.Errorf("%s is done while %q is open", id, c.open)
		}
		c.open, c.done = "", append(c.done, ev.Item)
	case *oairesponses.ResponseEvent:
		if ev.Type != oairesponses.TypeCreated && ev.Type != oairesponses.TypeInProgress {
			c.last = ev.Response
		} else if len(ev.Response.Output) != 0 || ev.Response.Output == nil {
			return fmt.Errorf("output %v", ev.Response.Output)
		}
	}
	for _, whole := range []string{"text", "refusal", "arguments", "code"} {
		if v, ok := keys[whole].(string); ok && strings.HasSuffix(ev.EventType(), ".done") && v != c.sums[part] {
			return fmt.Errorf("has %q, its deltas add up to %q", v, c.sums[part])
		}
	}
	return nil
}

func itemID(it oairesponses.Item) string {
	switch it := it.(type) {
	case *oairesponses.Message:
		return it.ID
	case *oairesponses.Reasoning:
		return it.ID
	case *oairesponses.FunctionCall:
		return it.ID
	case *oairesponses.CodeInterpreterCall:
		return it.ID
	}
	return ""
}
