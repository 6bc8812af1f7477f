package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/goldentest"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// A file of testdata/decode has a request, and the turn or the error that it becomes.
func TestDecodeGolden(t *testing.T) {
	goldentest.Each(t, "decode", func(t *testing.T, in []byte) []txtar.File {
		req, err := decode(in)
		if err != nil {
			e := turn.AsError(err)
			return []txtar.File{{Name: "error", Data: fmt.Appendf(nil, "kind %d, param %q, code %q\n%s\n", e.Kind, e.Param, e.Code, e.Message)}}
		}
		items, err := turn.MarshalItems(req.turn.Items)
		if err != nil {
			t.Fatal(err)
		}
		rest := req.turn.Clone()
		rest.Items = nil
		raw, err := json.Marshal(rest)
		if err != nil {
			t.Fatal(err)
		}
		files := []txtar.File{{Name: "items", Data: pretty(t, items)}, {Name: "turn", Data: pretty(t, raw)}}
		if req.stream {
			files = append(files, txtar.File{Name: "streamed", Data: fmt.Appendf(nil, "include_usage %v\n", req.includeUsage)})
		}
		return files
	})
}

// pretty indents JSON and leaves out what is empty.
func pretty(t *testing.T, raw []byte) []byte {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(prune(v), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			switch e = prune(e); e {
			case nil, "", false:
				delete(v, k)
			default:
				v[k] = e
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i, e := range v {
			v[i] = prune(e)
		}
	}
	return v
}

var testHead = head{id: "chatcmpl-1", created: 1700000000, model: "m"}

// A file of testdata/encode names a script of events, and has the stream and the whole answer that it becomes.
func TestEncodeGolden(t *testing.T) {
	scripts := scripts()
	seen := map[string]bool{}
	goldentest.Each(t, "encode", func(t *testing.T, in []byte) []txtar.File {
		opts := strings.Fields(string(in))
		script, ok := scripts[opts[0]]
		if !ok {
			t.Fatalf("no script %q", opts[0])
		}
		seen[opts[0]] = true
		enc := newEncoder(testHead, strings.Contains(string(in), "include_usage"), strings.Contains(string(in), "live"))
		c := newCollector(testHead)
		var v turn.Validator
		var stream bytes.Buffer
		for _, ev := range script {
			if err := v.Push(ev); err != nil {
				t.Fatal(err)
			}
			frames, err := enc.push(ev)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range frames {
				stream.Write(f.Data)
				stream.WriteByte('\n')
			}
			c.push(ev)
		}
		raw, err := oaichat.Marshal(c.response())
		if err != nil {
			t.Fatal(err)
		}
		var whole bytes.Buffer
		if err := json.Indent(&whole, raw, "", " "); err != nil {
			t.Fatal(err)
		}
		whole.WriteByte('\n')
		return []txtar.File{{Name: "stream", Data: stream.Bytes()}, {Name: "response.json", Data: whole.Bytes()}}
	})
	for name := range scripts {
		if !seen[name] {
			t.Errorf("no golden file uses the script %q", name)
		}
	}
}

func message(text string, annotations ...turn.Annotation) []turn.Event {
	whole := turn.Text{Text: text, Annotations: annotations}
	out := []turn.Event{turn.MessageStarted{}}
	for _, piece := range strings.SplitAfter(text, " ") {
		out = append(out, turn.TextDelta{Text: piece})
	}
	for _, a := range annotations {
		out = append(out, turn.Annotated{Annotation: a})
	}
	return append(out, turn.MessageDone{Message: turn.Message{Role: turn.Assistant, Parts: []turn.Part{whole}}})
}

func thought(text string) []turn.Event {
	return []turn.Event{turn.ReasoningStarted{}, turn.ReasoningDelta{Text: text}, turn.ReasoningDone{Reasoning: turn.Reasoning{Text: text}}}
}

func call(id, name, args string) []turn.Event {
	out := []turn.Event{turn.CallStarted{CallID: id, Name: name}}
	if args != "" {
		out = append(out, turn.CallDelta{Delta: args[:len(args)/2]}, turn.CallDelta{Delta: args[len(args)/2:]})
	}
	return append(out, turn.CallDone{Call: turn.Call{CallID: id, Name: name, Arguments: args}})
}

func hosted(c turn.HostedCall) []turn.Event {
	half := len(c.Code) / 2
	return []turn.Event{
		turn.HostedStarted{ID: c.ID, Tool: c.Tool, Container: c.Container},
		turn.HostedCodeDelta{Delta: c.Code[:half]}, turn.HostedCodeDelta{Delta: c.Code[half:]}, turn.HostedCodeDone{Code: c.Code},
		turn.HostedRunning{}, turn.HostedOutput{Stream: "stdout", Text: "7\n"}, turn.HostedDone{Call: c},
	}
}

func all(parts ...[]turn.Event) []turn.Event {
	out := []turn.Event{turn.Started{ID: "up-1", Model: "org/m", Fingerprint: "fp", ServiceTier: "default"}}
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func ended(reason turn.Reason, c *turn.Container) []turn.Event {
	return []turn.Event{turn.Finished{Reason: reason, Container: c, Usage: turn.Usage{Input: 10, Cached: 4, Output: 5, Reasoning: 2}}}
}

func scripts() map[string][]turn.Event {
	file := &turn.File{ID: "cfile_1", Container: "cntr_1", Path: "/mnt/data/a.csv", Name: "a.csv"}
	plot := &turn.File{ID: "cfile_2", Container: "cntr_1", Path: "/mnt/data/cfile_2.png", Name: "cfile_2.png", Shown: true}
	run := turn.HostedCall{ID: "ci_1", Tool: "python", Container: "cntr_1", Code: "print(3 + 4)", Status: turn.StatusCompleted,
		Outputs: []turn.Output{{Text: "7\n"}, {MIME: "image/png", Data: []byte("png"), FileID: "cfile_2"}}}
	silent := turn.HostedCall{ID: "ci_2", Tool: "python", Container: "cntr_1", Code: "x = 1", Status: turn.StatusCompleted}
	return map[string][]turn.Event{
		"text": all(message("Hello <b> there"), ended(turn.ReasonStop, nil)),
		"code": all(thought("hm"), message("Let me “see”."), hosted(run), thought("so"), hosted(silent),
			message("See [it](sandbox:/mnt/data/a.csv).", turn.Annotation{File: plot}, turn.Annotation{File: file, Start: 9, End: 32}),
			ended(turn.ReasonStop, &turn.Container{ID: "cntr_1", ExpiresAt: 1700009999})),
		"calls":   all(call("call_1", "f", `{"a":1}`), call("call_2", "g", ""), ended(turn.ReasonCalls, nil)),
		"mixed":   all(hosted(silent), call("call_1", "f", `{"a":1}`), ended(turn.ReasonCalls, &turn.Container{ID: "cntr_1"})),
		"refusal": all([]turn.Event{turn.MessageStarted{}, turn.RefusalDelta{Text: "No."}, turn.MessageDone{Message: turn.Message{Parts: []turn.Part{turn.Refusal{Text: "No."}}}}}, ended(turn.ReasonFilter, nil)),
		"failed-call": all([]turn.Event{
			turn.HostedStarted{ID: "ci_1", Tool: "python", Container: "cntr_1"}, turn.HostedCodeDelta{Delta: "pri"},
			turn.HostedDone{Call: turn.HostedCall{ID: "ci_1", Tool: "python", Container: "cntr_1", Code: "print(1)", Status: turn.StatusFailed}},
		}, ended(turn.ReasonLength, nil)),
		"citation": all(message("As told.", turn.Annotation{URL: "https://a", Title: "A", Start: 0, End: 2}), ended(turn.ReasonStop, nil)),
	}
}
