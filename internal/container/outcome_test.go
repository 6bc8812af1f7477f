package container

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestImagesBecomeFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	python(t, w, "1")
	png := append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 100)...)
	e := w.(*workspace).entry
	col := newCollector(nil)
	col.push(sandbox.Output{Stream: "stdout", Text: "before\n"})
	col.push(sandbox.Output{Stream: "display", MIME: "image/png", Data: png})
	col.push(sandbox.Output{Stream: "stdout", Text: "after\n"})
	col.push(sandbox.Output{Stream: "result", Text: "42"})
	outputs := col.outputs(0)
	made, err := e.keepImages(t.Context(), outputs)
	must(t, err)
	if len(made) != 1 || !made[0].Shown || made[0].Name != made[0].ID+".png" || outputs[1].FileID != made[0].ID ||
		b.content(made[0]) != string(png) {
		t.Fatalf("made %+v", made)
	}
	want := []turn.Output{
		{Text: "before\n", Stream: "stdout"}, {MIME: "image/png", Data: png, FileID: made[0].ID}, {Text: "after\n", Stream: "stdout"}, {Text: "42", Stream: "result"},
	}
	if diff := cmp.Diff(want, outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if f, ok := w.Find(t.Context(), made[0].Path); !ok || f.ID != made[0].ID || !f.Shown {
		t.Errorf("find: %+v, %v", f, ok)
	}
	must(t, b.DeleteFile(as(t, "p"), w.Container().ID, made[0].ID))
}

func TestCollectorCutsTheMiddle(t *testing.T) {
	t.Parallel()
	col := newCollector(nil)
	col.push(sandbox.Output{Stream: "stdout", Text: "FIRST é"})
	line := strings.Repeat("é", 499) + "\n"
	for range 3000 {
		col.push(sandbox.Output{Stream: "stdout", Text: line})
	}
	col.push(sandbox.Output{Stream: "display", MIME: "image/png", Data: []byte("png")})
	col.push(sandbox.Output{Stream: "stderr", Text: "LAST"})
	out := col.outputs(7)
	var all strings.Builder
	images := 0
	for _, o := range out {
		all.WriteString(o.Text)
		if o.IsImage() {
			images++
		}
	}
	s := all.String()
	if images != 1 || len(s) > clientText+300 || len(s) < clientText-2000 || !strings.HasPrefix(s, "FIRST é") ||
		strings.Contains(s, "\uFFFD") {
		t.Errorf("%d images, %d bytes of text, begins %q", images, len(s), s[:20])
	}
	for _, want := range []string{"bytes of output were cut here", "LAST", "7 more bytes were printed"} {
		if !strings.Contains(s, want) {
			t.Errorf("no %q", want)
		}
	}
	total := len("FIRST é") + 3000*len(line) + len("LAST")
	var cutBytes int
	fmt.Sscanf(s[strings.Index(s, "[... "):], "[... %d bytes", &cutBytes)
	kept := clientText - total + cutBytes
	if kept < 0 || kept > 2 {
		t.Errorf("%d bytes in all, %d were said to be cut", total, cutBytes)
	}
}
