package messages

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/goldentest"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// archive reads a golden file; want compares it with the one that has got's files.
func archive(t *testing.T, path string) *txtar.Archive {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(bytes.TrimSpace(a.Comment)) == 0 {
		t.Error("the file does not say what it pins")
	}
	return a
}

func eachGolden(t *testing.T, folder string, check func(t *testing.T, a *txtar.Archive) []txtar.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files in testdata/%s: %v", folder, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a := archive(t, path)
			goldentest.Compare(t, path, &txtar.Archive{Comment: a.Comment, Files: check(t, a)})
		})
	}
}

func indent(t *testing.T, v any) []byte {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

var (
	modelLine   = regexp.MustCompile(`(?m)^model: (\S+)$`)
	versionLine = regexp.MustCompile(`(?m)^version: (\S+)$`)
	betaLine    = regexp.MustCompile(`(?m)^betas: (\S+)$`)
)

// TestDecode: request.json -> turn, what the turn is asked, or the error. Lines of the comment may say where the model is ("model: native"
// speaks this protocol), the version, and the betas.
func TestDecode(t *testing.T) {
	eachGolden(t, "decode", func(t *testing.T, a *txtar.Archive) []txtar.File {
		c := &call{version: version2026, body: a.Files[0].Data}
		if m := versionLine.FindSubmatch(a.Comment); m != nil {
			c.version = string(m[1])
		}
		if m := betaLine.FindSubmatch(a.Comment); m != nil {
			c.betas = strings.Split(string(m[1]), ",")
		}
		m := modelLine.FindSubmatch(a.Comment)
		c.native = m != nil && string(m[1]) == "native"
		req, err := decode(c)
		if err != nil {
			t.Fatal(err)
		}
		return append(a.Files[:1:1], txtar.File{Name: "turn", Data: dumpRequest(t, req)})
	})
}

// TestRefused: each file of the archive has a line on what it pins, a request, the field at fault and the message. A line that begins with
// "2023: " is of the older version.
func TestRefused(t *testing.T) {
	const path = "testdata/refused.txtar"
	a := archive(t, path)
	got := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		lines := strings.SplitN(string(f.Data), "\n", 3)
		c := &call{version: version2026, body: []byte(lines[1])}
		if strings.HasPrefix(lines[0], "2023: ") {
			c.version = version2023
		}
		_, err := decode(c)
		e := turn.AsError(err)
		if e == nil || e.Kind != turn.KindInvalid && e.Kind != turn.KindUnsupported {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		got.Files = append(got.Files, txtar.File{Name: f.Name, Data: []byte(lines[0] + "\n" + lines[1] + "\n" + e.Param + "\n" + e.Message + "\n")})
	}
	goldentest.Compare(t, path, got)
}

// dumpRequest has a line for each item and tool, and one for the rest.
func dumpRequest(t *testing.T, req *request) []byte {
	t.Helper()
	var out bytes.Buffer
	line := func(name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var any any
		mustJSON(t, string(data), &any)
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		out.WriteString(name + " ")
		if err := enc.Encode(pruned(any)); err != nil {
			t.Fatal(err)
		}
	}
	for _, it := range req.turn.Items {
		data, err := turn.MarshalItems([]turn.Item{it})
		if err != nil {
			t.Fatal(err)
		}
		var items []struct {
			Type  string
			Value json.RawMessage
			Parts []json.RawMessage
		}
		mustJSON(t, string(data), &items)
		line(items[0].Type, items[0].Value)
		for _, p := range items[0].Parts {
			line("  part", p)
		}
	}
	for _, tool := range req.turn.Tools {
		line("tool", tool)
	}
	rest := req.turn.Clone()
	rest.Items, rest.Tools = nil, nil
	line("request", rest)
	line("answer", map[string]any{
		"stream": req.stream, "code": req.code, "programmatic": req.programmatic, "thinks": req.thinks, "omitted": req.omitted,
		"mute": req.mute, "toolsets": req.toolsets,
	})
	return out.Bytes()
}

// pruned is v without what is empty.
func pruned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if k == "ParallelToolCalls" && e != nil {
				continue
			}
			if e = pruned(e); e == nil {
				delete(v, k)
			} else {
				v[k] = e
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			if e := pruned(v[i]); e != nil {
				v[i] = e
			}
		}
		if len(v) == 0 {
			return nil
		}
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}

// TestEncode: request.json and events -> stream, the bytes that a streaming client gets, and response.json, what another one gets.
func TestEncode(t *testing.T) {
	eachGolden(t, "encode", func(t *testing.T, a *txtar.Archive) []txtar.File {
		s := parseScript(t, string(a.Files[1].Data))
		request := map[string]any{}
		mustJSON(t, string(a.Files[0].Data), &request)
		live := ""
		if strings.Contains(string(a.Comment), "x-lathe-live: 1") {
			live = "1"
		}
		whole := post(t, testHandler(s, nil), "/v1/messages", string(indent(t, request)), liveHeader, live)
		request["stream"] = true
		streamed := post(t, testHandler(s, nil), "/v1/messages", string(indent(t, request)), liveHeader, live)
		if streamed.Code != http.StatusOK {
			t.Fatalf("status %d: %s", streamed.Code, streamed.Body)
		}
		var resp any
		mustJSON(t, whole.Body.String(), &resp)
		return append(a.Files[:2:2], txtar.File{Name: "stream", Data: streamed.Body.Bytes()}, txtar.File{Name: "response.json", Data: indent(t, resp)})
	})
}

// TestConformance holds our streams against recordings of the real service, with the checker that is kept beside the repository where the
// project is developed.
func TestConformance(t *testing.T) {
	checker, err := filepath.Abs("../../../../shared/conformance/stream_shape.py")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(checker); err != nil {
		t.Skip("no ../shared/conformance beside the repository: the streams are not held against recordings")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: the streams are not held against recordings")
	}
	for _, name := range []string{"bash", "editor", "python", "mixed", "pause", "thinking-code", "text", "programmatic", "resumed"} {
		t.Run(name, func(t *testing.T) {
			a := archive(t, filepath.Join("testdata/encode", name+".txtar"))
			for _, f := range a.Files {
				if f.Name != "stream" {
					continue
				}
				file := filepath.Join(t.TempDir(), "stream")
				if err := os.WriteFile(file, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
				out, err := exec.CommandContext(t.Context(), python, checker, "messages", file).CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				t.Logf("%s", out)
				return
			}
			t.Error("no stream")
		})
	}
}
