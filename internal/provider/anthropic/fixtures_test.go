package anthropic

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// recorded is what a stream of events holds for a client of this gateway, read apart from the decoder: text, and calls of client's tools.
func recorded(t *testing.T, data string) (said string, calls []string) {
	t.Helper()
	block := func(b wire.Block) {
		switch b := b.(type) {
		case *wire.Text:
			said += b.Text
		case *wire.ToolUse:
			if b.Type == wire.TypeToolUse {
				calls = append(calls, b.Name+" "+b.ID)
			}
		}
	}
	for line := range strings.Lines(data) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		ev, err := wire.DecodeEvent([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		switch ev := ev.(type) {
		case *wire.MessageStart:
			for _, b := range ev.Message.Content {
				block(b)
			}
		case *wire.BlockStart:
			block(ev.ContentBlock.Block)
		case *wire.BlockDelta:
			if d, ok := ev.Delta.Delta.(*wire.TextDelta); ok {
				said += d.Text
			}
		}
	}
	return said, calls
}

// TestRecordings decodes streams that were recorded from the real server, those of tools that run there too: no text and no call of a
// client's tool is lost. They are not part of the project.
func TestRecordings(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "..", "shared", "fixtures", "anthropic")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the recordings are not here; they are kept beside the repository:", err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.chunks.txt"))
	if err != nil || len(paths) < 9 {
		t.Fatalf("%d recordings, %v", len(paths), err)
	}
	reasons := map[string]turn.Reason{"anthropic-refusal.chunks.txt": turn.ReasonFilter, "anthropic-tool-no-args.chunks.txt": turn.ReasonCalls,
		"anthropic-programmatic-tool-calling.1.chunks.txt": turn.ReasonCalls}
	usages := map[string]turn.Usage{
		"anthropic-text.chunks.txt": {Input: 12, Output: 30}, "anthropic-message-delta-input-tokens.chunks.txt": {Input: 61, Output: 2},
		"duplicate-message-start.chunks.txt": {Input: 17, Output: 227}, "anthropic-tool-no-args.chunks.txt": {Input: 565, Output: 48},
	}
	for _, path := range paths {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			events, err := decodeLines(string(raw))
			if err != nil {
				t.Fatal(err)
			}
			said, refused, calls := "", "", []string(nil)
			for _, ev := range events {
				switch ev := ev.(type) {
				case turn.TextDelta:
					said += ev.Text
				case turn.RefusalDelta:
					refused += ev.Text
				case turn.CallDone:
					calls = append(calls, ev.Call.Name+" "+ev.Call.CallID)
					if !json.Valid([]byte(ev.Call.Arguments)) {
						t.Errorf("arguments %q", ev.Call.Arguments)
					}
				}
			}
			wantSaid, wantCalls := recorded(t, string(raw))
			if said != wantSaid || strings.Join(calls, ",") != strings.Join(wantCalls, ",") {
				t.Errorf("said %q, want %q\ncalls %q, want %q", said, wantSaid, calls, wantCalls)
			}
			f := events[len(events)-1].(turn.Finished)
			want := reasons[name]
			if want == "" {
				want = turn.ReasonStop
			}
			if f.Reason != want || (want == turn.ReasonFilter) != (refused != "") {
				t.Errorf("finished %+v, refused %q", f, refused)
			}
			if u, ok := usages[name]; ok && f.Usage != u {
				t.Errorf("usage %+v, want %+v", f.Usage, u)
			}
		})
	}
}
