package responses

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden is one txtar file; its comment says which bugs it pins.
type golden struct {
	path    string
	archive *txtar.Archive
}

func eachGolden(t *testing.T, folder string, check func(t *testing.T, g *golden)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files in testdata/%s: %v", folder, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			g := &golden{path, a}
			check(t, g)
			if *update {
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func (g *golden) file(t *testing.T, name string) string {
	t.Helper()
	for _, f := range g.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	t.Fatalf("%s has no %s", g.path, name)
	return ""
}

// want compares got with the file called name, or makes it so.
func (g *golden) want(t *testing.T, name string, got []byte) {
	t.Helper()
	for i, f := range g.archive.Files {
		if f.Name != name {
			continue
		}
		if *update {
			g.archive.Files[i].Data = got
		} else if diff := cmp.Diff(string(f.Data), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		return
	}
	if !*update {
		t.Fatalf("%s has no %s; run with -update and read what it made", g.path, name)
	}
	g.archive.Files = append(g.archive.Files, txtar.File{Name: name, Data: got})
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

// TestDecode: request.json -> turn.json, what the turn is asked.
func TestDecode(t *testing.T) {
	eachGolden(t, "decode", func(t *testing.T, g *golden) {
		req, err := decode([]byte(g.file(t, "request.json")))
		if err != nil {
			t.Fatal(err)
		}
		items, err := turn.MarshalItems(req.turn.Items)
		if err != nil {
			t.Fatal(err)
		}
		rest := req.turn.Clone()
		rest.Items = nil
		var fields map[string]any
		mustJSON(t, string(indent(t, rest)), &fields)
		for k, v := range fields {
			if empty(v) {
				delete(fields, k)
			}
		}
		fields["Items"] = json.RawMessage(items)
		g.want(t, "turn.json", indent(t, fields))
	})
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case map[string]any:
		for _, e := range v {
			if !empty(e) {
				return false
			}
		}
		return true
	}
	return false
}

// TestEncode: events -> stream, the bytes that a streaming client gets, and response.json, what another one gets.
func TestEncode(t *testing.T) {
	eachGolden(t, "encode", func(t *testing.T, g *golden) {
		s := parseScript(t, g.file(t, "events"))
		request := map[string]any{}
		mustJSON(t, g.file(t, "request.json"), &request)
		header := http.Header{}
		if strings.Contains(string(g.archive.Comment), "x-lathe-live: 1") {
			header.Set(oai.LiveHeader, "1")
		}
		whole := post(t, testHandler(s), string(indent(t, request)), header)
		request["stream"] = true
		streamed := post(t, testHandler(s), string(indent(t, request)), header)
		if streamed.Code != http.StatusOK {
			t.Fatalf("status %d: %s", streamed.Code, streamed.Body)
		}
		g.want(t, "stream", streamed.Body.Bytes())
		var resp any
		mustJSON(t, whole.Body.String(), &resp)
		g.want(t, "response.json", indent(t, resp))
		if s.err == nil && !strings.Contains(streamed.Body.String(), strings.TrimSpace(compactOutput(t, whole.Body.Bytes()))) {
			t.Error("the last event of the stream has another output than the plain response")
		}
	})
}

// compactOutput is the output of a response as the stream has it: in the encoder's own order of keys.
func compactOutput(t *testing.T, body []byte) string {
	t.Helper()
	var resp struct{ Output json.RawMessage }
	mustJSON(t, string(body), &resp)
	out := string(resp.Output)
	for esc, c := range map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&"} {
		out = strings.ReplaceAll(out, esc, c)
	}
	return `"output":` + out + ","
}
