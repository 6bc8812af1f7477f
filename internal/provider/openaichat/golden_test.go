package openaichat

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with the file called name in the archive, or writes it there.
func golden(t *testing.T, path, name string, got []byte) {
	t.Helper()
	ar, err := txtar.ParseFile(path)
	if err != nil && (!*update || !os.IsNotExist(err)) {
		t.Fatal(err)
	}
	if ar == nil {
		ar = &txtar.Archive{}
	}
	for i, f := range ar.Files {
		if f.Name != name {
			continue
		}
		if *update {
			ar.Files[i].Data = got
			break
		}
		if diff := cmp.Diff(string(f.Data), string(got)); diff != "" {
			t.Errorf("%s (-want +got; -update writes it):\n%s", path, diff)
		}
		return
	}
	if !*update {
		t.Fatalf("%s has no file %s; -update writes it", path, name)
	}
	if !bytes.Contains(txtar.Format(ar), []byte("-- "+name+" --")) {
		ar.Files = append(ar.Files, txtar.File{Name: name, Data: got})
	}
	if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dump is one event a line.
func dump(events []turn.Event, err error) []byte {
	var b strings.Builder
	for _, ev := range events {
		b.WriteString(strings.NewReplacer("turn.", "", "(nil)", "").Replace(fmt.Sprintf("%#v", ev)))
		b.WriteByte('\n')
	}
	if err != nil {
		fmt.Fprintf(&b, "error: %s\n", turn.AsError(err).Message)
	}
	return []byte(b.String())
}

// decodeLines pushes one chunk a line; ids that are minted are call_m0, call_m1 ...
func decodeLines(data string) ([]turn.Event, error) {
	minted := 0
	d := &decoder{newID: func() string {
		minted++
		return fmt.Sprintf("call_m%d", minted-1)
	}}
	var events []turn.Event
	var v turn.Validator
	push := func(evs []turn.Event) error {
		for _, ev := range evs {
			if err := v.Push(ev); err != nil {
				return err
			}
		}
		events = append(events, evs...)
		return nil
	}
	for line := range strings.Lines(data) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		c, err := oaichat.ParseReceived([]byte(line))
		if err != nil {
			return events, err
		}
		if err := push(d.push(c)); err != nil {
			return events, err
		}
	}
	evs, err := d.End()
	if err != nil {
		return events, err
	}
	return events, push(evs)
}

func TestDecodeGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/decode/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(bytes.TrimSpace(ar.Comment)) == 0 {
				t.Error("the file does not say what it pins")
			}
			golden(t, path, "events", dump(decodeLines(string(ar.Files[0].Data))))
		})
	}
}

func TestEncodeGolden(t *testing.T) {
	for name, tc := range encodeCases() {
		t.Run(name, func(t *testing.T) {
			out, err := tc.enc.request(tc.req)
			var got []byte
			if err != nil {
				got = fmt.Appendf(nil, "error: %v\n", err)
			} else {
				raw, err := oaichat.Marshal(out)
				if err != nil {
					t.Fatal(err)
				}
				var b bytes.Buffer
				if err := json.Indent(&b, raw, "", "  "); err != nil {
					t.Fatal(err)
				}
				got = append(b.Bytes(), '\n')
			}
			path := filepath.Join("testdata", "encode", name+".txtar")
			golden(t, path, "request.json", got)
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				ar.Comment = []byte(tc.pins + "\n")
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if string(ar.Comment) != tc.pins+"\n" {
				t.Errorf("%s says it pins %q, the case %q", path, ar.Comment, tc.pins)
			}
		})
	}
}

type encodeCase struct {
	pins string
	enc  encoder
	req  *turn.Request
}

func said(role turn.Role, text string) turn.Message {
	return turn.Message{Role: role, Parts: []turn.Part{turn.Text{Text: text}}}
}

func result(id string, parts ...turn.Part) turn.Result { return turn.Result{CallID: id, Parts: parts} }

func encodeCases() map[string]encodeCase {
	png := turn.Image{URL: "data:image/png;base64,AAAA", Detail: "original"}
	return map[string]encodeCase{
		"everything": {"every field of the request stands where the protocol has it; extra fields survive behind the known ones", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{said(turn.Developer, "be brief"), said(turn.User, "hi")},
			Tools:             []turn.Tool{{Name: "f", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`), Strict: new(true)}, {Name: "g"}},
			ToolChoice:        turn.ToolChoice{Mode: turn.ChoiceFunction, Name: "f"},
			ParallelToolCalls: new(false),
			Sampling: turn.Sampling{Temperature: new(0.0), TopP: new(0.5), PresencePenalty: new(0.1), FrequencyPenalty: new(0.2),
				Seed: new(int64(7)), Stop: []string{"X"}},
			MaxOutputTokens: new(10), Reasoning: turn.ReasoningConfig{Effort: "low"}, Verbosity: "high",
			Format:   &turn.Format{Type: "json_schema", Name: "n", Schema: json.RawMessage(`{"type":"object"}`), Strict: new(true)},
			Metadata: map[string]string{"k": "v"}, User: "u", SafetyIdentifier: "s", PromptCacheKey: "p", ServiceTier: "flex",
			Extra: turn.Extra{Protocol: Protocol, Fields: map[string]json.RawMessage{
				"top_k": json.RawMessage("40"), "chat_template_kwargs": json.RawMessage(`{"enable_thinking": false}`), "model": json.RawMessage(`"evil"`)}},
		}},
		"other-protocol": {"extra fields and metadata of another protocol stay behind; without tools there is no tool_choice (vLLM: 400)", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{said(turn.User, "hi")}, ToolChoice: turn.ToolChoice{Mode: turn.ChoiceAuto}, ParallelToolCalls: new(true),
			Metadata: map[string]string{"k": "v"},
			Extra:    turn.Extra{Protocol: "openai-responses", Fields: map[string]json.RawMessage{"truncation": json.RawMessage(`"auto"`)}},
		}},
		"old-and-new-servers": {"a server that refused stream_options and max_tokens gets neither", encoder{noStreamOptions: true, completionTokens: true}, &turn.Request{
			Model: "m", Items: []turn.Item{said(turn.User, "hi")}, MaxOutputTokens: new(10),
		}},
		"tool-loop": {"reasoning, text and parallel calls of one turn are one assistant message with its results right behind it; reasoning goes back in the field in which it came; arguments that are no JSON are wrapped, since chat templates decode them", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{
				said(turn.User, "go"),
				turn.Reasoning{Text: "hm", Field: "reasoning_content"}, said(turn.Assistant, "Let me see."),
				turn.Call{CallID: "c1", Name: "python", Arguments: `{"code":"1"}`}, turn.Call{CallID: "c2", Name: "python", Arguments: "print(2)"},
				result("c1", turn.Text{Text: "1"}), result("c2", turn.Text{Text: "2"}),
				turn.Reasoning{Text: "well", Field: "reasoning"}, turn.Call{CallID: "c3", Name: "f"},
				result("c3", turn.Text{Text: "a"}, turn.Text{Text: "b"}),
				said(turn.Assistant, "Done."), said(turn.User, "thanks"),
			},
		}},
		"text-after-call": {"text that came after a call does not stand between the call and its result", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{
				said(turn.User, "go"), said(turn.Assistant, "A"), turn.Call{CallID: "c1", Name: "f", Arguments: "{}"}, said(turn.Assistant, "B"),
				result("c1", turn.Text{Text: "r"}),
			},
		}},
		"assistant-twice": {"two answers in a row stay two messages", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{said(turn.User, "go"), said(turn.Assistant, "A"), said(turn.Assistant, "B"),
				turn.Message{Role: turn.Assistant, Parts: []turn.Part{turn.Refusal{Text: "no"}}}},
		}},
		"result-images": {"images of tool results follow all results of the turn in a user message: a tool message holds only text", encoder{images: true}, &turn.Request{
			Model: "m", Items: []turn.Item{
				said(turn.User, "plot"), turn.Call{CallID: "c1", Name: "python", Arguments: "{}"}, turn.Call{CallID: "c2", Name: "python", Arguments: "{}"},
				result("c1", turn.Text{Text: "ok"}, png), result("c2", png),
				turn.Call{CallID: "c3", Name: "python", Arguments: "{}"}, result("c3", turn.Text{Text: "end"}, png),
			},
		}},
		"result-images-blind": {"a model without eyes is told that there was an image", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{said(turn.User, "plot"), turn.Call{CallID: "c1", Name: "python", Arguments: "{}"}, result("c1", png)},
		}},
		"parts": {"several texts are one string; with an image or a file they are parts; detail original is high; a foreign part of this protocol goes as it came", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{
				turn.Message{Role: turn.System, Parts: []turn.Part{turn.Text{Text: "a"}, turn.Text{Text: "b"}}},
				turn.Message{Role: turn.User, Name: "bob", Parts: []turn.Part{
					turn.Text{Text: "see"}, png, turn.Document{Name: "a.pdf", MIME: "application/pdf", Data: []byte("x")}, turn.Document{FileID: "file-1"},
					turn.Foreign{Protocol: Protocol, Kind: "input_audio", JSON: json.RawMessage(`{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}`)},
				}},
			},
		}},
		"signed-reasoning": {"reasoning_details of OpenRouter and thinking parts of Mistral go back whole; sealed reasoning of another protocol does not", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{
				said(turn.User, "go"),
				turn.Reasoning{Field: "reasoning_details", Summary: []string{"s"}, Text: "t", Signature: "sig", Encrypted: "enc"}, said(turn.Assistant, "A"),
				turn.Reasoning{Field: "thinking", Text: "hm"}, said(turn.Assistant, "B"),
				turn.Reasoning{Encrypted: "of another"}, said(turn.Assistant, "C"),
			},
		}},
		"image-by-id":  {"an image by file id cannot go up", encoder{}, &turn.Request{Model: "m", Items: []turn.Item{turn.Message{Role: turn.User, Parts: []turn.Part{turn.Image{FileID: "file_1"}}}}}},
		"file-by-url":  {"a file by URL cannot go up", encoder{}, &turn.Request{Model: "m", Items: []turn.Item{turn.Message{Role: turn.User, Parts: []turn.Part{turn.Document{URL: "https://x"}}}}}},
		"foreign-part": {"a part of another protocol is refused by its kind", encoder{}, &turn.Request{Model: "m", Items: []turn.Item{turn.Message{Role: turn.User, Parts: []turn.Part{turn.Foreign{Protocol: "anthropic", Kind: "search_result"}}}}}},
	}
}
