package openaichat

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/lathe-gateway/lathe/internal/provider/providertest"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// decodeLines pushes one chunk a line; ids that are minted are call_m0, call_m1 ...
func decodeLines(data string) ([]turn.Event, error) {
	return providertest.DecodeLines(&decoder{newID: providertest.NewID("call_m")}, data)
}

func TestDecodeGolden(t *testing.T) {
	providertest.DecodeGolden(t, func(data string) []byte {
		events, err := decodeLines(data)
		out := providertest.Dump(events)
		if err != nil {
			out = fmt.Appendf(out, "error: %s\n", turn.AsError(err).Message)
		}
		return out
	})
}

func TestEncodeGolden(t *testing.T) {
	for name, tc := range encodeCases() {
		t.Run(name, func(t *testing.T) {
			var body []byte
			out, err := tc.enc.request(tc.req)
			if err == nil {
				var wrong error
				if body, wrong = oaichat.Marshal(out); wrong != nil {
					t.Fatal(wrong)
				}
			}
			providertest.EncodeGolden(t, name, tc.pins, body, err)
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
