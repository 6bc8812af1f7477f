package sdk

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checker is the program that is kept beside the repository where the project is developed.
func checker(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs("../../../shared/conformance/stream_shape.py")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Skip("no ../shared/conformance beside the repository: the stream is not held against recordings")
	}
	return file
}

// stream asks for a stream and returns it whole.
func (g *gateway) stream(t *testing.T, path string, body map[string]any) []byte {
	t.Helper()
	body["stream"] = true
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+path, strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Anthropic-Version", "2026-10-21")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// check holds a stream against recordings of the service; want are things that must be in it.
func check(t *testing.T, surface string, stream []byte, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(string(stream), w) {
			t.Errorf("the stream has no %s", w)
		}
	}
	file := filepath.Join(t.TempDir(), "stream")
	if err := os.WriteFile(file, stream, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "python3", checker(t), surface, file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestConformance holds the stream of a real run (reasoning, text before and after, a plot, two rounds) against recordings of the service.
func TestConformance(t *testing.T) {
	checker(t)
	const plot = "```python\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('/mnt/data/a.png')\nplt.show()\n```"
	stream := start(t).stream(t, "/v1/responses", map[string]any{
		"model":   "stub-reasoning",
		"input":   "Please plot.\n" + plot + "\n```python\nprint(6 * 7)\n```\nanswer: It is {result}: [plot](sandbox:/mnt/data/a.png)",
		"tools":   []any{map[string]any{"type": "code_interpreter", "container": map[string]any{"type": "auto"}}},
		"include": []string{"code_interpreter_call.outputs"},
	})
	check(t, "responses", stream, `"type":"response.reasoning_text.delta"`, `data:image/png;base64,`, `"logs":"42\n"`,
		`"type":"container_file_citation"`, "data: [DONE]")
}

// TestMessagesConformance does the same for Messages: thinking before code, each tool, files made, and a mixed turn.
func TestMessagesConformance(t *testing.T) {
	checker(t)
	lathe := start(t)
	code := map[string]any{"type": "code_execution_20260120", "name": "code_execution"}
	weather := map[string]any{"name": "weather", "input_schema": map[string]any{"type": "object"}}
	ask := func(model, text string, tools ...any) []byte {
		return lathe.stream(t, "/v1/messages", map[string]any{
			"model": model, "max_tokens": 1000, "thinking": map[string]any{"type": "adaptive"}, "tools": tools,
			"messages": []any{map[string]any{"role": "user", "content": text}},
		})
	}
	check(t, "messages", ask("stub-reasoning", "Please work.\n"+
		"```edit\n{\"command\": \"create\", \"path\": \"/mnt/data/a.txt\", \"file_text\": \"one\\n\"}\n```\n"+
		"```edit\n{\"command\": \"str_replace\", \"path\": \"/mnt/data/a.txt\", \"old_str\": \"one\", \"new_str\": \"two\"}\n```\n"+
		"```edit\n{\"command\": \"view\", \"path\": \"/mnt/data/a.txt\"}\n```\n"+
		"```bash\ncp /mnt/data/a.txt $OUTPUT_DIR/b.txt\n```\n```python\nprint(6 * 7)\n```\nanswer: It is {result}", code),
		`"type":"thinking_delta"`, `"is_file_update":false`, `"+two"`, `"content":"two\n"`, `"type":"bash_code_execution_output"`, `"stdout":"42\n"`)
	check(t, "messages", ask("stub-mixed", "Please work.\n```python\nprint(41)\n```\nargs: {\"city\": \"Oslo\"}", code, weather),
		`"stdout":"41\n"`, `"stop_reason":"tool_use"`)
}
