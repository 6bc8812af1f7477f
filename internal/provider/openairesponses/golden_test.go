package openairesponses

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
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
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
func dump(events []turn.Event, d *decoder, err error) []byte {
	var b strings.Builder
	for _, ev := range events {
		b.WriteString(strings.NewReplacer("turn.", "", "(nil)", "").Replace(fmt.Sprintf("%#v", ev)))
		b.WriteByte('\n')
	}
	if err != nil {
		fmt.Fprintf(&b, "error: %s\n", err)
	}
	if skipped := d.skipped(); skipped != nil {
		fmt.Fprintf(&b, "skipped: %s\n", strings.Join(skipped, ", "))
	}
	return []byte(b.String())
}

// decodeLines pushes one event a line; ids that are minted are call_m0, call_m1 ...
func decodeLines(data string) ([]turn.Event, *decoder, error) {
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
		evs, err := d.Push([]byte(line))
		if err != nil {
			return events, d, err
		}
		if err := push(evs); err != nil {
			return events, d, err
		}
	}
	evs, err := d.End()
	if err != nil {
		return events, d, err
	}
	return events, d, push(evs)
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
			raw, err := tc.enc.request(tc.req)
			var got []byte
			if err != nil {
				got = fmt.Appendf(nil, "error: %v\n", err)
			} else {
				if _, err := oairesponses.DecodeRequest(raw); err != nil && name != "everything" { // which has a field that nobody knows
					t.Errorf("no request of the protocol: %v", err)
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
	user := func(parts ...turn.Part) *turn.Request {
		return &turn.Request{Model: "m", Items: []turn.Item{turn.Message{Role: turn.User, Parts: parts}}}
	}
	with := func(change func(*turn.Request)) *turn.Request {
		r := user(turn.Text{Text: "hi"})
		change(r)
		return r
	}
	return map[string]encodeCase{
		"everything": {"every field of the request stands where the protocol has it; extra fields stand behind the known ones and replace none", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{said(turn.Developer, "be brief"), said(turn.User, "hi")},
			Tools:             []turn.Tool{{Name: "f", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`), Strict: new(true)}, {Name: "g"}},
			ToolChoice:        turn.ToolChoice{Mode: turn.ChoiceFunction, Name: "f"},
			ParallelToolCalls: new(false),
			Sampling: turn.Sampling{Temperature: new(0.0), TopP: new(0.5), PresencePenalty: new(0.1), FrequencyPenalty: new(0.2),
				TopLogprobs: new(3)},
			MaxOutputTokens: new(100), Reasoning: turn.ReasoningConfig{Effort: "low", Summary: "auto"}, Verbosity: "high",
			Format:   &turn.Format{Type: "json_schema", Name: "n", Schema: json.RawMessage(`{"type":"object"}`), Strict: new(true)},
			Metadata: map[string]string{"k": "v"}, User: "u", SafetyIdentifier: "s", PromptCacheKey: "p", ServiceTier: "flex",
			Extra: turn.Extra{Protocol: Protocol, Fields: map[string]json.RawMessage{
				"prompt_cache_retention": json.RawMessage(`"24h"`), "new_field": json.RawMessage(`{"a": 1}`), "model": json.RawMessage(`"evil"`), "store": json.RawMessage("true")}},
		}},
		"other-protocol": {"extra fields of another protocol stay behind; without tools there is no tool_choice; nobody asked for reasoning, so it is not asked for", encoder{}, with(func(r *turn.Request) {
			r.ToolChoice, r.ParallelToolCalls = turn.ToolChoice{Mode: turn.ChoiceAuto}, new(true)
			r.Extra = turn.Extra{Protocol: "openai-chat", Fields: map[string]json.RawMessage{"logit_bias": json.RawMessage("{}")}}
		})},
		"tool-loop": {"sealed reasoning goes back whole under its own id, unsealed with its text; items of ours have no ids up there; arguments that are no JSON are wrapped", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{
				said(turn.User, "go"),
				turn.Reasoning{ID: "rs_1", Summary: []string{"a", "b"}, Encrypted: "gAAA"},
				turn.Message{ID: "msg_ours", Role: turn.Assistant, Parts: []turn.Part{turn.Text{Text: "Let me see."}}},
				turn.Call{ID: "fc_ours", CallID: "c1", Name: "python", Arguments: `{"code":"1"}`}, turn.Call{CallID: "c2", Name: "python", Arguments: "print(2)"},
				result("c1", turn.Text{Text: "1"}), result("c2", turn.Text{Text: "2"}, turn.Text{Text: "3"}),
				turn.Reasoning{ID: "rs_2", Text: "well"}, turn.Call{CallID: "c3", Name: "f"}, result("c3"),
				said(turn.Assistant, "Done."), said(turn.User, "thanks"),
			},
		}},
		"reasoning-refused": {"a server that refuses unsealed reasoning and sealing gets neither; a summary alone, and what another protocol sealed, stay behind", encoder{noReasoningText: true, noEncrypted: true}, &turn.Request{
			Model: "m", Reasoning: turn.ReasoningConfig{Effort: "low"}, Items: []turn.Item{
				said(turn.User, "go"), turn.Reasoning{Text: "well"}, turn.Reasoning{Summary: []string{"s"}},
				turn.Reasoning{Field: "reasoning_details", Encrypted: "of another"}, said(turn.Assistant, "A"), said(turn.User, "and?"),
			},
		}},
		"known-to-reason": {"a model that is known to reason is asked for sealed reasoning unasked", encoder{thinks: true}, user(turn.Text{Text: "hi"})},
		"no-effort":       {"a client that wants no reasoning asks for none of it", encoder{thinks: true}, with(func(r *turn.Request) { r.Reasoning.Effort = "none" })},
		"result-images": {"images of tool results are parts of the output", encoder{images: true}, &turn.Request{
			Model: "m", Items: []turn.Item{said(turn.User, "plot"), turn.Call{CallID: "c1", Name: "python", Arguments: "{}"}, result("c1", turn.Text{Text: "ok"}, png)},
		}},
		"result-images-blind": {"a model without eyes is told that there was an image", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{said(turn.User, "plot"), turn.Call{CallID: "c1", Name: "python", Arguments: "{}"}, result("c1", png)},
		}},
		"parts": {"images by URL and by id, files inline, by id and by URL; detail is never left out; a foreign part of this protocol goes as it came; an assistant's refusal and text are parts", encoder{}, &turn.Request{
			Model: "m", Items: []turn.Item{
				turn.Message{Role: turn.System, Parts: []turn.Part{turn.Text{Text: "a"}, turn.Text{Text: "b"}}},
				turn.Message{Role: turn.User, Name: "bob", Parts: []turn.Part{
					turn.Text{Text: "see <this>"}, png, turn.Image{FileID: "file-2"}, turn.Document{Name: "a.pdf", MIME: "application/pdf", Data: []byte("x")},
					turn.Document{FileID: "file-1", Name: "b.pdf"}, turn.Document{URL: "https://x/c.pdf"},
					turn.Foreign{Protocol: Protocol, Kind: "input_audio", JSON: json.RawMessage(`{"type":"input_audio","data":"AA"}`)},
				}},
				turn.Message{Role: turn.Assistant, Parts: []turn.Part{turn.Text{Text: "Well."}, turn.Refusal{Text: "no"}}},
				turn.Message{Role: turn.Assistant},
			},
		}},
		"stop":            {"stop has no counterpart: refused by name", encoder{}, with(func(r *turn.Request) { r.Sampling.Stop = []string{"X"} })},
		"seed":            {"seed has no counterpart: refused by name", encoder{}, with(func(r *turn.Request) { r.Sampling.Seed = new(int64(1)) })},
		"foreign-part":    {"a part of another protocol is refused by its kind", encoder{}, user(turn.Foreign{Protocol: "anthropic", Kind: "search_result"})},
		"assistant-image": {"an assistant's image is refused", encoder{}, &turn.Request{Model: "m", Items: []turn.Item{turn.Message{Role: turn.Assistant, Parts: []turn.Part{png}}}}},
	}
}
