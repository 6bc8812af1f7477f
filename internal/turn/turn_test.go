package turn

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// push drives a sequencer between Started and Finished and returns the whole stream.
func push(steps func(*Sequencer) []Event) []Event {
	var s Sequencer
	events := []Event{Started{}}
	events = append(events, steps(&s)...)
	events = append(events, s.Close()...)
	return append(events, Finished{Reason: ReasonStop})
}

func validate(events []Event) error {
	var v Validator
	for i, ev := range events {
		if err := v.Push(ev); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
	}
	return v.End()
}

// TestSequencerAlwaysWellFormed feeds random interleavings of everything that an upstream may send: the events must follow the grammar,
// and nothing that was sent may be lost.
func TestSequencerAlwaysWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, reasoning, args := "", "", map[int]string{}
		group := 0 // calls after a Close of their group are new ones
		events := push(func(s *Sequencer) []Event {
			var out []Event
			inCalls := false
			for range rapid.IntRange(0, 40).Draw(t, "steps") {
				delta := rapid.StringN(0, 5, -1).Draw(t, "delta")
				kind := rapid.IntRange(0, 5).Draw(t, "kind")
				if kind != 0 && inCalls && (kind == 5 || delta != "") {
					inCalls = false
					group++
				}
				switch kind {
				case 0:
					inCalls = true
					i := rapid.IntRange(0, 3).Draw(t, "index")
					args[group*10+i] += delta
					name := rapid.SampledFrom([]string{"", "f"}).Draw(t, "name")
					out = append(out, s.Call(i, "", name, delta)...)
				case 1:
					text += delta
					out = append(out, s.Text(delta)...)
				case 2:
					text += delta
					out = append(out, s.Refusal(delta)...)
				case 3:
					reasoning += delta
					out = append(out, s.Reasoning(delta, "reasoning")...)
				case 4:
					reasoning += delta
					out = append(out, s.ReasoningSummary(delta)...)
				case 5:
					out = append(out, s.Sign("sig", "enc")...)
				}
			}
			return out
		})
		if err := validate(events); err != nil {
			t.Fatalf("%v\n%#v", err, events)
		}
		gotText, gotReasoning, gotArgs, wantArgs := "", "", 0, 0
		for _, ev := range events {
			switch e := ev.(type) {
			case TextDelta:
				gotText += e.Text
			case RefusalDelta:
				gotText += e.Text
			case ReasoningDelta:
				gotReasoning += e.Text
			case CallDone:
				gotArgs += len(e.Call.Arguments)
			}
		}
		for _, a := range args {
			wantArgs += len(a)
		}
		if gotText != text || gotReasoning != reasoning || gotArgs != wantArgs {
			t.Fatalf("lost something: text %q of %q, reasoning %q of %q, %d of %d bytes of arguments",
				gotText, text, gotReasoning, reasoning, gotArgs, wantArgs)
		}
	})
}

func TestSequencerStreamsTheFirstCall(t *testing.T) {
	var s Sequencer
	var got []Event
	got = append(got, s.Text("I will run it.")...)
	got = append(got, s.Call(1, "call_a", "python", `{"co`)...) // first index 1
	got = append(got, s.Call(2, "call_b", "f", `{}`)...)        // waits
	got = append(got, s.Call(1, "", "", `de":1}`)...)
	got = append(got, s.Close()...)
	want := []Event{
		MessageStarted{}, TextDelta{Text: "I will run it."},
		MessageDone{Message: Message{Role: Assistant, Parts: []Part{Text{Text: "I will run it."}}}},
		CallStarted{CallID: "call_a", Name: "python"}, CallDelta{Delta: `{"co`}, CallDelta{Delta: `de":1}`},
		CallDone{Call: Call{CallID: "call_a", Name: "python", Arguments: `{"code":1}`}},
		CallStarted{CallID: "call_b", Name: "f"}, CallDelta{Delta: `{}`},
		CallDone{Call: Call{CallID: "call_b", Name: "f", Arguments: `{}`}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSequencerAnnotatesTheOpenMessage(t *testing.T) {
	var s Sequencer
	if got := s.Annotate(Annotation{URL: "x"}); got != nil {
		t.Errorf("without a message: %v", got)
	}
	s.Text("see x")
	a := Annotation{URL: "https://x", Start: 4, End: 5}
	s.Annotate(a)
	done := s.Close()[0].(MessageDone)
	want := Message{Role: Assistant, Parts: []Part{Text{Text: "see x", Annotations: []Annotation{a}}}}
	if diff := cmp.Diff(want, done.Message); diff != "" {
		t.Error(diff)
	}
}

func TestSequencerKeepsReasoningApart(t *testing.T) {
	got := push(func(s *Sequencer) []Event {
		out := s.OpenReasoning("rs_1")
		s.SummaryPart() // nothing came yet: no empty part
		out = append(out, s.ReasoningSummary("a")...)
		out = append(out, s.ReasoningSummary("b")...)
		s.SummaryPart()
		out = append(out, s.ReasoningSummary("c")...)
		out = append(out, s.Sign("", "sealed")...)
		out = append(out, s.OpenReasoning("rs_2")...)
		return append(out, s.Reasoning("d", "")...)
	})
	want := []Event{
		Started{}, ReasoningStarted{ID: "rs_1"}, ReasoningDelta{Text: "a", Summary: true}, ReasoningDelta{Text: "b", Summary: true},
		ReasoningDelta{Text: "c", Summary: true, Next: true},
		ReasoningDone{Reasoning: Reasoning{ID: "rs_1", Summary: []string{"ab", "c"}, Encrypted: "sealed"}},
		ReasoningStarted{ID: "rs_2"}, ReasoningDelta{Text: "d"}, ReasoningDone{Reasoning: Reasoning{ID: "rs_2", Text: "d"}}, Finished{Reason: ReasonStop},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := validate(got); err != nil {
		t.Error(err)
	}
}

func TestValidatorRefuses(t *testing.T) {
	done := HostedDone{Call: HostedCall{ID: "ci_1"}}
	tests := map[string][]Event{
		"nothing":                   {},
		"no Started":                {Finished{}},
		"two Started":               {Started{}, Started{}, Finished{}},
		"no Finished":               {Started{}},
		"after Finished":            {Started{}, Finished{}, MessageStarted{}},
		"text outside a message":    {Started{}, TextDelta{Text: "a"}, Finished{}},
		"empty delta":               {Started{}, MessageStarted{}, TextDelta{}, MessageDone{}, Finished{}},
		"message never done":        {Started{}, MessageStarted{}, Finished{}},
		"whole differs":             {Started{}, MessageStarted{}, TextDelta{Text: "a"}, MessageDone{}, Finished{}},
		"arguments differ":          {Started{}, CallStarted{}, CallDelta{Delta: "{}"}, CallDone{}, Finished{}},
		"code differs":              {Started{}, HostedStarted{}, HostedCodeDelta{Delta: "1"}, HostedCodeDone{}, done, Finished{}},
		"overlap":                   {Started{}, MessageStarted{}, CallStarted{}, CallDone{}, MessageDone{}, Finished{}},
		"running before code":       {Started{}, HostedStarted{}, HostedRunning{}, done, Finished{}},
		"output before running":     {Started{}, HostedStarted{}, HostedCodeDone{}, HostedOutput{}, done, Finished{}},
		"hosted done without start": {Started{}, done, Finished{}},
	}
	for name, events := range tests {
		t.Run(name, func(t *testing.T) {
			if validate(events) == nil {
				t.Error("accepted")
			}
		})
	}
	if err := validate([]Event{
		Started{}, HostedStarted{}, HostedCodeDelta{Delta: "1"}, HostedCodeDone{Code: "1"}, HostedRunning{}, HostedOutput{Text: "1"}, done,
		HostedStarted{}, done, Finished{},
	}); err != nil {
		t.Errorf("a good stream: %v", err)
	}
}

func TestItemsSurviveTheStore(t *testing.T) {
	items := []Item{
		Message{ID: "msg_1", Role: User, Name: "bob", Parts: []Part{
			Text{Text: "hi"}, Image{URL: "data:image/png;base64,AA==", Detail: "low"},
			Document{FileID: "file_1", Name: "a.csv", MIME: "text/csv", Data: []byte("a,b")},
			Foreign{Protocol: "openai-chat", Kind: "input_audio", JSON: json.RawMessage(`{"type":"input_audio"}`)},
		}},
		Reasoning{ID: "rs_1", Summary: []string{"s"}, Text: "t", Encrypted: "e", Signature: "g", Field: "reasoning_content"},
		Call{ID: "fc_1", CallID: "call_1", Name: "f", Arguments: "not json"},
		Result{CallID: "call_1", Parts: []Part{Text{Text: "r"}}, Error: true},
		Message{Role: Assistant, Parts: []Part{
			Text{Text: "see a", Annotations: []Annotation{{File: &File{ID: "cfile_1", Container: "cntr_1", Path: "/mnt/data/a", Name: "a"}, Start: 4, End: 5}}},
			Refusal{Text: "no"},
		}},
		HostedCall{ID: "ci_1", Tool: "python", Container: "cntr_1", Code: "1", Status: StatusCompleted,
			Outputs: []Output{{Text: "1\n"}, {MIME: "image/png", Data: []byte{1, 2}, FileID: "cfile_1"}},
			Files:   []File{{ID: "cfile_1", Shown: true}}, ForModel: "1", Failed: true},
	}
	data, err := MarshalItems(items)
	if err != nil {
		t.Fatal(err)
	}
	got, err := UnmarshalItems(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(items, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzUnmarshalItems(f *testing.F) {
	f.Add([]byte(`[{"type":"message","value":{"role":"user"},"parts":[{"type":"text","value":{"Text":"a"}}]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		items, err := UnmarshalItems(data)
		if err != nil {
			return
		}
		if _, err := MarshalItems(items); err != nil {
			t.Errorf("read but cannot be written: %v", err)
		}
	})
}

func TestErrorsHideWhatIsNotForClients(t *testing.T) {
	secret := errors.New("dial 10.0.0.1: password hunter2")
	e := AsError(fmt.Errorf("outer: %w", secret))
	if e.Kind != KindInternal || strings.Contains(e.Message, "hunter2") {
		t.Errorf("message %q of kind %d", e.Message, e.Kind)
	}
	if !strings.Contains(e.Error(), "hunter2") || !errors.Is(e, secret) {
		t.Error("the log must see the cause")
	}
	if AsError(nil) != nil {
		t.Error("AsError(nil) is not nil")
	}
	inner := Invalid("input[0].type", "no such type")
	if AsError(fmt.Errorf("x: %w", inner)) != inner {
		t.Error("a wrapped *Error is not found")
	}
}

func TestNewIDFitsEveryAPI(t *testing.T) {
	a, b := NewID("srvtoolu_"), NewID("srvtoolu_")
	if a == b || len(a) > 64 || !strings.HasPrefix(a, "srvtoolu_") {
		t.Errorf("%q, %q", a, b)
	}
}

func TestCloneCanBeChanged(t *testing.T) {
	calls := 3
	r := &Request{Items: []Item{Message{}}, Tools: []Tool{{Name: "f"}}, Metadata: map[string]string{"a": "b"},
		Sampling: Sampling{Stop: []string{"x"}}, Hosted: &Hosted{Tools: []string{"python"}, FileIDs: []string{"file_1"}, MaxCalls: &calls}}
	c := r.Clone()
	c.Items[0] = Call{}
	c.Tools[0].Name = "g"
	c.Metadata["a"] = "c"
	c.Sampling.Stop[0] = "y"
	c.Hosted.Tools[0] = "bash"
	c.Hosted.FileIDs[0] = "file_2"
	c.Hosted.Container = "cntr_1"
	if _, ok := r.Items[0].(Message); !ok || r.Tools[0].Name != "f" || r.Metadata["a"] != "b" || r.Sampling.Stop[0] != "x" ||
		r.Hosted.Tools[0] != "python" || r.Hosted.FileIDs[0] != "file_1" || r.Hosted.Container != "" {
		t.Errorf("the original changed: %+v", r)
	}
}

func TestHiddenCallID(t *testing.T) {
	if id := NewHiddenCallID(); !IsHiddenCallID(id) || len(id) > 64 || id == NewHiddenCallID() {
		t.Errorf("minted %q", id)
	}
	for _, id := range []string{"", "call_h", "call_0", NewID("call_"), NewID("call_h") + "0", "call_h" + strings.Repeat("g", 32)} {
		if IsHiddenCallID(id) {
			t.Errorf("%q was taken for one of ours", id)
		}
	}
}
