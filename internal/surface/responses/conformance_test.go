package responses

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestConformance holds our stream against recordings of the real service, with the checker that is kept beside the repository where the
// project is developed.
func TestConformance(t *testing.T) {
	checker, err := filepath.Abs("../../../../shared/conformance/stream_shape.py")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(checker); err != nil {
		t.Skip("no ../shared/conformance beside the repository: the stream is not held against recordings")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: the stream is not held against recordings")
	}
	for _, name := range []string{"two-rounds", "code-run", "reasoning"} {
		t.Run(name, func(t *testing.T) {
			a, err := txtar.ParseFile(filepath.Join("testdata/encode", name+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			g := &golden{name, a}
			request := map[string]any{}
			mustJSON(t, g.file(t, "request.json"), &request)
			request["stream"] = true
			w := post(t, testHandler(parseScript(t, g.file(t, "events"))), string(indent(t, request)), nil)
			if w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			file := filepath.Join(t.TempDir(), "stream")
			if err := os.WriteFile(file, w.Body.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), python, checker, "responses", file).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
