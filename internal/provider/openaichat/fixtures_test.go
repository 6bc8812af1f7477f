package openaichat

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sse"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// TestRecordings decodes streams that were recorded from real servers. They are not part of the project.
func TestRecordings(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "fixtures", "openai")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the recordings are not here; they are kept beside the repository:", err)
	}
	for _, tc := range []struct {
		file             string
		model, field     string
		textEnd, calls   string
		reason           turn.Reason
		usage            turn.Usage
		reasoningAtLeast int
	}{
		{"chat-anthropic-fallback-tool-call.sse", "claude-haiku-4-5-20251001", "", "Reading it.", `read_file({"path": "a.txt"})`, turn.ReasonCalls, turn.Usage{}, 0},
		{"chat-deepseek-reasoning.chunks.txt", "deepseek-reasoner", "reasoning_content", "r\"s.", "", turn.ReasonStop, turn.Usage{Input: 18, Output: 219, Reasoning: 205}, 500},
		{"chat-deepseek-tool-call.chunks.txt", "deepseek-reasoner", "reasoning_content", "", `weather({"location": "San Francisco"})`, turn.ReasonCalls,
			turn.Usage{Input: 339, Cached: 320, Output: 83, Reasoning: 39}, 100},
		{"chat-groq-reasoning.chunks.txt", "qwen/qwen3-32b", "reasoning", "{3}$", "", turn.ReasonStop, turn.Usage{Input: 17, Output: 1107, Reasoning: 963}, 500},
	} {
		t.Run(tc.file, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join(dir, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			data := string(raw)
			if strings.HasSuffix(tc.file, ".sse") {
				data = ""
				for ev, err := range sse.Read(strings.NewReader(string(raw)), 0) {
					if err != nil {
						t.Fatal(err)
					}
					if string(ev.Data) != "[DONE]" {
						data += string(ev.Data) + "\n"
					}
				}
			}
			events, err := decodeLines(data)
			if err != nil {
				t.Fatal(err)
			}
			text, calls, reasoning := "", "", turn.Reasoning{}
			for _, ev := range events {
				switch ev := ev.(type) {
				case turn.MessageDone:
					text += ev.Message.Parts[0].(turn.Text).Text
				case turn.CallDone:
					calls += fmt.Sprintf("%s(%s)", ev.Call.Name, ev.Call.Arguments)
				case turn.ReasoningDone:
					reasoning = ev.Reasoning
				}
			}
			if model := events[0].(turn.Started).Model; model != tc.model {
				t.Errorf("model %q", model)
			}
			if !strings.HasSuffix(text, tc.textEnd) || (tc.textEnd == "") != (text == "") || calls != tc.calls {
				t.Errorf("text %q, calls %q", text, calls)
			}
			if reasoning.Field != tc.field || len(reasoning.Text) < tc.reasoningAtLeast {
				t.Errorf("reasoning of %d bytes in %q", len(reasoning.Text), reasoning.Field)
			}
			if f := events[len(events)-1].(turn.Finished); f.Reason != tc.reason || f.Usage != tc.usage {
				t.Errorf("finished %+v", f)
			}
		})
	}
}
