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

// TestConformance holds the stream of a real run (reasoning, text before and after, a plot, two rounds) against recordings of the service,
// with the checker that is kept beside the repository where the project is developed.
func TestConformance(t *testing.T) {
	checker, err := filepath.Abs("../../../shared/conformance/stream_shape.py")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(checker); err != nil {
		t.Skip("no ../shared/conformance beside the repository: the stream is not held against recordings")
	}
	lathe := start(t)
	const plot = "```python\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('/mnt/data/a.png')\nplt.show()\n```"
	body, err := json.Marshal(map[string]any{
		"model":   "stub-reasoning",
		"input":   "Please plot.\n" + plot + "\n```python\nprint(6 * 7)\n```\nanswer: It is {result}: [plot](sandbox:/mnt/data/a.png)",
		"tools":   []any{map[string]any{"type": "code_interpreter", "container": map[string]any{"type": "auto"}}},
		"include": []string{"code_interpreter_call.outputs"},
		"stream":  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, lathe.url+"/v1/responses", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"type":"response.reasoning_text.delta"`, `data:image/png;base64,`, `"logs":"42\n"`, `"type":"container_file_citation"`, "data: [DONE]",
	} {
		if !strings.Contains(string(stream), want) {
			t.Errorf("the stream has no %s", want)
		}
	}
	file := filepath.Join(t.TempDir(), "stream")
	if err := os.WriteFile(file, stream, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "python3", checker, "responses", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
