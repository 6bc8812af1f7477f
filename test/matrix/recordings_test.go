package matrix

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// opaque hides that a provider can take requests untouched.
type opaque struct{ provider.Provider }

// recordings are what the real server sent. They are not part of the project.
func recordings(t *testing.T, pattern string) []string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "fixtures", "anthropic")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the recordings are not here; they are kept beside the repository:", err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d recordings, %v", len(paths), err)
	}
	return paths
}

// frames makes streams of a recording that has an event a line, one for each answer in it.
func frames(t *testing.T, lines string) []string {
	t.Helper()
	var out []string
	var b strings.Builder
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var ev object
		must(t, json.Unmarshal([]byte(line), &ev))
		b.WriteString("event: " + str(ev, "type") + "\ndata: " + line + "\n\n")
		if str(ev, "type") == "message_stop" {
			out = append(out, b.String())
			b.Reset()
		}
	}
	return out
}

// message puts a stream of Messages together, all of it.
func message(t *testing.T, stream string) object {
	t.Helper()
	var blocks []any
	whole := object{}
	usage := object{}
	for _, ev := range events(t, []byte(stream)) {
		merge := func(v any) {
			more, _ := v.(object)
			for k, n := range more {
				if n != nil {
					usage[k] = n
				}
			}
		}
		i := num(ev, "index")
		switch str(ev, "type") {
		case "message_start":
			blocks = append(blocks, list(ev, "message", "content")...)
			for _, k := range []string{"stop_reason", "stop_details"} {
				if v := at(ev, "message", k); v != nil {
					whole[k] = v
				}
			}
			merge(at(ev, "message", "usage"))
		case "content_block_start":
			blocks = append(blocks, ev["content_block"])
		case "content_block_delta":
			grow(blocks[i].(object), ev["delta"].(object))
		case "content_block_stop":
			b := blocks[i].(object)
			if partial := str(b, "partial"); partial != "" {
				var input any
				must(t, json.Unmarshal([]byte(partial), &input))
				b["input"] = input
			}
			delete(b, "partial")
		case "message_delta":
			for _, k := range []string{"stop_reason", "stop_details"} {
				whole[k] = at(ev, "delta", k)
			}
			merge(ev["usage"])
		case "error":
			whole["error"] = ev["error"]
		}
	}
	whole["content"], whole["usage"] = blocks, usage
	return whole
}

func grow(b, delta object) {
	switch str(delta, "type") {
	case "input_json_delta":
		b["partial"] = str(b, "partial") + str(delta, "partial_json")
	case "citations_delta":
		b["citations"] = append(list(b, "citations"), delta["citation"])
	default:
		for k, v := range delta {
			if k != "type" {
				b[k] = str(b, k) + v.(string)
			}
		}
	}
}

// told leaves out of a message what is the gateway's own: ids of calls, and what is null or empty, which is the same as absent.
func told(m object) object {
	out := object{"stop_reason": m["stop_reason"], "usage": pruned(m["usage"])}
	if d := m["stop_details"]; d != nil {
		out["stop_details"] = pruned(d)
	}
	var blocks []any
	for _, b := range list(m, "content") {
		b := pruned(b).(object)
		if str(b, "type") == "tool_use" {
			delete(b, "id")
		}
		blocks = append(blocks, b)
	}
	out["content"] = blocks
	return out
}

// sameUsage: nothing may be missing; what the recording does not say may be there.
func sameUsage(t *testing.T, want, got any) {
	t.Helper()
	for k, v := range want.(object) {
		if diff := cmp.Diff(v, at(got, k)); diff != "" {
			t.Errorf("usage.%s: %s", k, diff)
		}
	}
}

func without(m object, key string) object {
	out := object{}
	for k, v := range m {
		if k != key {
			out[k] = v
		}
	}
	return out
}

func pruned(v any) any {
	switch v := v.(type) {
	case object:
		out := object{}
		for k, e := range v {
			if l, ok := e.([]any); e == nil || ok && len(l) == 0 && k == "citations" {
				continue
			}
			out[k] = pruned(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = pruned(e)
		}
		return out
	}
	return v
}

// TestRecordingsThroughMessages sends recorded answers of the real server through the provider and the Messages surface: no block, field or
// text is lost. On Chat and Responses the text and the calls come out.
func TestRecordingsThroughMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range append(recordings(t, "*.chunks.txt"), recordings(t, "anthropic-*.json")...) {
		name := filepath.Base(path)
		raw, err := os.ReadFile(path)
		must(t, err)
		var body object
		whole := strings.HasSuffix(name, ".json")
		if whole && (json.Unmarshal(raw, &body) != nil || body["type"] != "message") {
			continue // of another API
		}
		t.Run(name, func(t *testing.T) {
			all := func(kind, answer string, want object) {
				header := http.Header{"Content-Type": {kind}}
				for _, s := range []surface{messagesSurface, chatSurface, responsesSurface} {
					for _, stream := range []bool{false, true} {
						w.replay(t, s, stream, upstreamtest.Answer{Status: http.StatusOK, Header: header, Body: answer}, told(want))
					}
				}
			}
			if whole {
				all("application/json", string(raw), body)
				return
			}
			for _, stream := range frames(t, string(raw)) {
				all("text/event-stream", stream, message(t, stream))
			}
		})
	}
}

// words are a text without its white space: where calls stand between two texts, Chat puts an empty line.
func words(s string) string { return strings.Join(strings.Fields(s), "") }

// declared are tools with the names that are called: others would not reach the client.
func declared(s surface, calls []string) []any {
	out := []any{}
	for _, name := range append([]string{"weather"}, slices.Compact(slices.Sorted(slices.Values(calls)))...) {
		switch s.name {
		case "chat":
			out = append(out, object{"type": "function", "function": object{"name": name}})
		case "responses":
			out = append(out, object{"type": "function", "name": name, "parameters": object{"type": "object"}, "strict": false})
		default:
			out = append(out, object{"name": name, "input_schema": object{"type": "object"}})
		}
	}
	return out
}

func (w *world) replay(t *testing.T, s surface, stream bool, answer upstreamtest.Answer, want object) {
	t.Helper()
	url, up := w.gateway(t, "anthropic", func(p provider.Provider) provider.Provider { return opaque{p} })
	up.Push(answer)
	asked := s.ask(question{text: "hi", tool: true, stream: stream})
	var golden txtar.Archive
	var text string
	var calls []string
	for _, b := range list(want, "content") {
		switch str(b, "type") {
		case "text":
			text += str(b, "text")
		case "tool_use":
			calls = append(calls, str(b, "name"))
		}
	}
	asked["tools"] = declared(s, calls)
	got, _ := w.exchange(t, s, url, asked, &golden)
	var names []string
	for _, c := range got.Calls {
		names = append(names, c.Name)
	}
	refused := str(want, "stop_reason") == "refusal"
	if got.Error != "" {
		t.Errorf("%.300s", w.answer)
	}
	if got.Error != "" || !refused && words(got.Text) != words(text) || strings.Join(names, ",") != strings.Join(calls, ",") {
		t.Errorf("%s, stream %v: heard %+v, want %q and calls %q", s.name, stream, got, text, calls)
	}
	if s.name != "messages" {
		return
	}
	sent := w.answer
	var back object
	if stream {
		back = message(t, string(sent))
	} else {
		must(t, json.Unmarshal(sent, &back))
	}
	if len(calls) > 0 && str(want, "stop_reason") == "end_turn" {
		want["stop_reason"] = "tool_use" // one recording was put together of several answers, the calls long answered
	}
	sameUsage(t, want["usage"], back["usage"])
	if diff := cmp.Diff(without(want, "usage"), without(told(back), "usage")); diff != "" {
		t.Errorf("stream %v (-recorded +passed on):\n%s", stream, diff)
	}
}
