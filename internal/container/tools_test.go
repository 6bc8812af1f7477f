package container

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestStreamsAreKeptApart(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	out := bash(t, w, "echo a; sleep 0.2; echo b >&2; sleep 0.2; printf c; exit 3")
	want := []turn.Output{{Stream: "stdout", Text: "a\n"}, {Stream: "stderr", Text: "b\n"}, {Stream: "stdout", Text: "c"}}
	if diff := cmp.Diff(want, out.Outputs); diff != "" || out.ExitCode != 3 || out.Exit() != 3 {
		t.Errorf("exit %d: %s", out.ExitCode, diff)
	}
	out = python(t, w, "import sys\nprint('a'); print('b', file=sys.stderr); print('c')\n1 + 1")
	want = []turn.Output{{Stream: "stdout", Text: "a\n"}, {Stream: "stderr", Text: "b\n"}, {Stream: "stdout", Text: "c\n"}, {Stream: "result", Text: "2"}}
	if diff := cmp.Diff(want, out.Outputs); diff != "" {
		t.Error(diff)
	}
	if out := python(t, w, "1/0"); out.Exit() != 1 || stdout(out) != "" || !strings.Contains(stderr(out), "ZeroDivisionError") {
		t.Errorf("%+v", out)
	}
}

// TestCollectorIsBounded: a program that changes streams with every byte costs memory for each change.
func TestCollectorIsBounded(t *testing.T) {
	c := newCollector(nil)
	for range 2 * clientText {
		c.push(sandbox.Output{Stream: sandbox.Stdout, Text: "o"})
		c.push(sandbox.Output{Stream: sandbox.Stderr, Text: "e"})
	}
	out := c.outputs(0)
	size := 0
	for _, o := range out {
		size += len(o.Text)
	}
	if len(out) > maxRuns+10 || size > clientText+100 || size < clientText {
		t.Errorf("%d runs, %d bytes", len(out), size)
	}
}

func stdout(out *tool.Outcome) string { return turn.HostedCall{Outputs: out.Outputs}.Stdout() }
func stderr(out *tool.Outcome) string { return turn.HostedCall{Outputs: out.Outputs}.Stderr() }

func edit(t testing.TB, w tool.Workspace, args string) *tool.Outcome {
	t.Helper()
	return run(t, w, tool.Edit, args)
}

func TestEdit(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{FileIDs: []string{b.upload("in.csv", "a,b\n1,2\n").ID}})
	out := edit(t, w, `{"command":"view","path":"$INPUT_DIR/in.csv","view_range":[2,-1]}`)
	want := &turn.Edit{Command: "view", FileType: "text", Content: "1,2\n", StartLine: 2, NumLines: 1, TotalLines: 2}
	if diff := cmp.Diff(want, out.Edit); diff != "" || out.Failed() || len(out.Outputs) > 0 {
		t.Errorf("%+v: %s", out, diff)
	}
	out = edit(t, w, `{"command":"create","path":"/mnt/data/sub/new.txt","file_text":"x\ny\n"}`)
	if out.Edit == nil || out.Edit.Updated || !slices.Equal(names(out.Files), []string{"sub/new.txt"}) {
		t.Errorf("%+v", out)
	}
	out = edit(t, w, `{"command":"str_replace","path":"sub/new.txt","old_str":"y","new_str":"z"}`)
	if out.Edit == nil || !slices.Equal(out.Edit.Hunk, []string{" x", "-y", "+z"}) || b.content(out.Files[0]) != "x\nz\n" {
		t.Errorf("%+v", out)
	}
	for args, want := range map[string]string{
		`{"command":"view","path":"gone"}`:                             turn.ErrorFileNotFound,
		`{"command":"str_replace","path":"sub/new.txt","old_str":"q"}`: turn.ErrorInvalidInput,
		`{"command":"none","path":"x"}`:                                turn.ErrorInvalidInput,
	} {
		out := edit(t, w, args)
		if out.ErrorCode != want || out.Edit != nil || !out.Failed() || stderr(out) == "" || !strings.Contains(tool.Words(out, nil), stderr(out)) {
			t.Errorf("%s: %+v", args, out)
		}
	}
}

func TestEditShowsPictures(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{FileIDs: []string{b.upload("a.png", "\x89PNG\r\n\x1a\n123").ID, b.upload("a.pdf", "%PDF-1").ID}})
	out := edit(t, w, `{"command":"view","path":"a.png"}`)
	if out.Edit == nil || out.Edit.FileType != "image" || out.Edit.Content != "iVBORw0KGgoxMjM=" || len(out.Files) != 0 ||
		len(out.Outputs) != 1 || out.Outputs[0].MIME != "image/png" || out.Outputs[0].FileID != "" {
		t.Errorf("%+v", out)
	}
	out = edit(t, w, `{"command":"view","path":"a.pdf"}`)
	if out.Edit == nil || out.Edit.FileType != "pdf" || out.Edit.Content != "JVBERi0x" || len(out.Outputs) != 0 {
		t.Errorf("%+v", out)
	}
}

func TestOutputDir(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{OutputDir: true})
	// The fake translates values of variables, so $OUTPUT_DIR is a path of the host here.
	out := bash(t, w, `cd "$OUTPUT_DIR" && ls -A && echo 1 > top.txt && mkdir sub && echo 2 > sub/deep.txt && cd - >/dev/null && echo 3 > beside.txt`)
	if out.Failed() || len(out.Files) != 1 || out.Files[0].Name != "top.txt" || b.content(out.Files[0]) != "1\n" {
		t.Errorf("%+v", out)
	}
	rows, _, err := b.Manager.Files(as(t, "p"), w.Container().ID, store.Page{Limit: 100})
	must(t, err)
	var all []string
	for _, f := range rows {
		all = append(all, f.Name)
	}
	slices.Sort(all)
	if !slices.Equal(all, []string{"beside.txt", "deep.txt", "top.txt"}) {
		t.Errorf("kept of the container: %q", all)
	}
	if f, ok := w.Find(t.Context(), out.Files[0].Path); !ok || f.ID != out.Files[0].ID {
		t.Errorf("a link to %s is not found", out.Files[0].Path)
	}
	first := filepath.Dir(out.Files[0].Path)
	out = python(t, w, "import os\nprint(os.listdir(os.environ['OUTPUT_DIR']))\nprint(os.environ['OUTPUT_DIR'])")
	if text(out) == "" || !strings.HasPrefix(text(out), "[]\n") || strings.Contains(text(out), filepath.Base(first)) || len(out.Files) != 0 {
		t.Errorf("the second call's folder: %+v", out)
	}
	left, err := os.ReadDir(filepath.Join(b.Dir, w.Container().ID, "vol", "data", outputs))
	if err != nil || len(left) != 1 {
		t.Errorf("empty folders stay: %v, %v", left, err)
	}
	if out := bash(t, w, `rm -r outputs; echo > outputs`); out.Failed() {
		t.Errorf("%+v", out)
	}
	if out := bash(t, w, `echo 6 > "$OUTPUT_DIR/again.txt"`); len(names(out.Files)) != 1 {
		t.Errorf("with a file in the folder's place: %+v", out)
	}
}

func TestCellTime(t *testing.T) {
	b := newBench(t, nil)
	w := b.open(turn.Hosted{CellTime: 1e9})
	out := python(t, w, "import time\ntime.sleep(50)")
	if out.Status != tool.StatusTimeout || out.Exit() == 0 || out.Stopped() == "" {
		t.Errorf("%+v", out)
	}
}
