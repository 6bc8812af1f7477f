package container

import (
	"testing"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// A program waits through hibernation, and through the end of one gateway and the start of the next.
func TestProgramHibernatesInGVisor(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	m, shut, err := p.open(nil)
	must(t, err)
	b := &bench{Manager: m, t: t}
	w := b.open(turn.Hosted{OutputDir: true})
	if out := ask(t, w, "ci_1", "x = 5\n"+twoCalls+"print(await roll(), x)"); out.Status != tool.StatusWaiting || len(out.Wanted) != 2 {
		t.Fatalf("%+v", out)
	}
	must(t, w.Close())
	must(t, shut())

	b = p.bench(t, nil)
	if row := b.row(w); row.State != store.StateHibernated {
		t.Fatalf("after the gateway's end: %+v", row)
	}
	w = b.open(turn.Hosted{Container: w.Container().ID, OutputDir: true})
	if out := reply(t, w, "ci_1", "1"); out.Status != tool.StatusWaiting {
		t.Fatalf("%+v, notes %q", out, w.Notes())
	}
	b.sleep(w)
	w = b.open(turn.Hosted{Container: w.Container().ID, OutputDir: true})
	out := reply(t, w, "ci_1", "2")
	if out.Status != tool.StatusOK || stdout(out) != "before\n1 of get-rows 1 of roll\n2 of roll 5\n" || len(out.Files) != 1 || out.Files[0].Name != "early.txt" {
		t.Errorf("%+v", out)
	}
	wantNotes(t, w)
	// The editor and the shell see the same files as Python, in a real sandbox too.
	out = edit(t, w, `{"command":"create","path":"$OUTPUT_DIR/made.txt","file_text":"a\nb\n"}`)
	if out.Failed() || len(out.Files) != 1 {
		t.Fatalf("%+v", out)
	}
	if got := text(bash(t, w, "cat /mnt/data/outputs/*/made.txt; ls -A $OUTPUT_DIR; echo $INPUT_DIR")); got != "a\nb\n/mnt/data\n" {
		t.Errorf("%q", got)
	}
}
