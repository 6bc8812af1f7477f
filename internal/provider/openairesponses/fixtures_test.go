package openairesponses

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
)

// content is what a recording holds, or what was made of it.
type content struct {
	Text, Reasoning string
	Sealed, Calls   []string
}

// recorded reads a recording without the decoder: the whole response in it.
func recorded(t *testing.T, data string) (content, int) {
	t.Helper()
	type part struct{ Text, Refusal string }
	type response struct {
		Output []struct {
			Type, Name, Arguments string
			CallID                string `json:"call_id"`
			Encrypted             string `json:"encrypted_content"`
			Content, Summary      []part
		}
		Usage struct {
			Input  int `json:"input_tokens"`
			Output int `json:"output_tokens"`
		}
	}
	var ev struct {
		response
		Response *response
	}
	if err := json.Unmarshal([]byte(data), &ev); err != nil {
		t.Fatal(err)
	}
	r := ev.response
	if ev.Response != nil {
		r = *ev.Response
	}
	var out content
	for _, it := range r.Output {
		switch it.Type {
		case "message":
			for _, p := range it.Content {
				out.Text += p.Text + p.Refusal
			}
		case "reasoning":
			for _, p := range slices.Concat(it.Summary, it.Content) {
				out.Reasoning += p.Text
			}
			if it.Encrypted != "" {
				out.Sealed = append(out.Sealed, it.Encrypted)
			}
		case "function_call":
			out.Calls = append(out.Calls, fmt.Sprintf("%s %s(%s)", it.CallID, it.Name, it.Arguments))
		}
	}
	return out, r.Usage.Input + r.Usage.Output
}

// streamed is the text in the deltas of a recording.
func streamed(t *testing.T, lines []string) string {
	t.Helper()
	text := ""
	for _, l := range lines {
		var ev struct {
			Type  string
			Delta any
		}
		if err := json.Unmarshal([]byte(l), &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Type == "response.output_text.delta" {
			text += ev.Delta.(string)
		}
	}
	return text
}

func decoded(events []turn.Event) (content, int) {
	var out content
	tokens := 0
	for _, ev := range events {
		switch ev := ev.(type) {
		case turn.TextDelta:
			out.Text += ev.Text
		case turn.RefusalDelta:
			out.Text += ev.Text
		case turn.ReasoningDelta:
			out.Reasoning += ev.Text
		case turn.ReasoningDone:
			if ev.Reasoning.Encrypted != "" {
				out.Sealed = append(out.Sealed, ev.Reasoning.Encrypted)
			}
		case turn.CallDone:
			out.Calls = append(out.Calls, fmt.Sprintf("%s %s(%s)", ev.Call.CallID, ev.Call.Name, ev.Call.Arguments))
		case turn.Finished:
			tokens = ev.Usage.Total()
		}
	}
	return out, tokens
}

// TestRecordings decodes every stream and body of this protocol that was recorded from real servers: nothing of text, reasoning and calls is
// lost. They are not part of the project.
func TestRecordings(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "fixtures", "openai")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Skip("the recordings are not here; they are kept beside the repository:", err)
	}
	tried := 0
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		switch {
		case strings.HasSuffix(f.Name(), ".chunks.txt") && strings.Contains(lines[0], `"type":"response.`):
		case strings.HasSuffix(f.Name(), ".json") && json.Valid(raw) && strings.Contains(string(raw), `"object": "response"`):
			var one strings.Builder
			for _, l := range lines {
				one.WriteString(strings.TrimSpace(l))
			}
			lines = []string{one.String()}
		default:
			continue // of another protocol
		}
		tried++
		t.Run(f.Name(), func(t *testing.T) {
			events, _, err := decodeLines(strings.Join(lines, "\n"))
			if said, ok := errors.AsType[*upstream.Said](err); ok && strings.Contains(f.Name(), "error") {
				if said.Code != "insufficient_quota" || !strings.Contains(said.Message, "quota") {
					t.Errorf("error %+v", said)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, wantTokens := recorded(t, lines[len(lines)-1])
			if deltas := streamed(t, lines); !strings.HasPrefix(want.Text, deltas) {
				t.Logf("the recording contradicts itself (it was edited): its deltas say %q, its end %q", deltas, want.Text)
				want.Text = deltas
			}
			got, tokens := decoded(events)
			if diff := cmp.Diff(want, got); diff != "" || tokens != wantTokens || tokens == 0 {
				t.Errorf("%d tokens, want %d; -recorded +decoded:\n%s", tokens, wantTokens, diff)
			}
			t.Logf("%d events: %d bytes of text, %d of reasoning, %d sealed, calls %q",
				len(events), len(got.Text), len(got.Reasoning), len(got.Sealed), got.Calls)
		})
	}
	if tried < 8 {
		t.Errorf("only %d recordings are of this protocol", tried)
	}
}
