package container

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// newest is what clients see of a container's files: the newest version of each path.
func (b *bench) newest(id string) map[string]string {
	b.t.Helper()
	rows, _, err := b.Files(as(b.t, "p"), id, store.Page{Limit: 1000, Ascending: true})
	must(b.t, err)
	out := map[string]string{}
	for _, f := range rows {
		out[f.Name] = b.content(turn.File{Container: id, ID: f.ID})
	}
	return out
}

func wantFiles(t testing.TB, b *bench, id string, want string) {
	t.Helper()
	var got []string
	for name, text := range b.newest(id) {
		got = append(got, name+"="+text)
	}
	slices.Sort(got)
	if s := strings.Join(got, " "); s != want {
		t.Errorf("files of %s: %q, want %q", id, s, want)
	}
}

// bothKinds runs a test on disk images, where they can be had, and on plain folders.
func bothKinds(t *testing.T, test func(t *testing.T, b *bench)) {
	for name, plain := range map[string]bool{"images": false, "folders": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBench(t, func(c *Config) { c.PlainVolumes = plain }))
		})
	}
}

func TestFork(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, b *bench) {
		ctx := as(t, "p")
		w := b.open(turn.Hosted{Session: "s"})
		id := w.Container().ID
		out := python(t, w, "import os\nx = [1]\nopen('a', 'w').write('first')\nopen(os.path.expanduser('~/dot'), 'w').write('home')\nf = open('log', 'w'); f.write('1'); f.flush()")
		python(t, w, "open('a', 'w').write('second')")
		c, err := b.Fork(ctx, id, NewFork{Name: "twin", ExpireAfter: time.Hour})
		must(t, err)
		if c.ID == id || c.Name != "twin" || c.ExpireAfter != time.Hour || c.Session != "" || !c.Named || c.State != store.StateHibernated {
			t.Errorf("fork %+v", c)
		}
		wantFiles(t, b, c.ID, "a=second log=1")
		if rows, _, err := b.Files(ctx, c.ID, store.Page{Limit: 10}); err != nil || len(rows) != 2 || rows[0].ID == out.Files[0].ID {
			t.Errorf("rows of the fork: %+v, %v", rows, err)
		}
		twin := b.open(turn.Hosted{Container: c.ID})
		// Both go on from here, the one still open when it was forked.
		wantText(t, python(t, w, "x.append('source'); f.write('s'); f.flush(); open('a', 'w').write('of source')\nprint(x)"), "[1, 'source']\n")
		wantText(t, python(t, twin, "x.append('fork'); f.write('f'); f.flush(); print(x, open('a').read(), open('log').read(), open(os.path.expanduser('~/dot')).read())"),
			"[1, 'fork'] second 1f home\n")
		wantNotes(t, w)
		wantNotes(t, twin)
		wantText(t, python(t, w, "print(open('log').read())"), "1s\n")
		wantFiles(t, b, c.ID, "a=second log=1f")
		must(t, w.Close(), b.Delete(ctx, id))
		wantFiles(t, b, c.ID, "a=second log=1f")

		// A fork of one that hibernates, whose raw image is gone.
		b.sleep(twin)
		eventually(t, "it is packed", func() bool { return b.row(twin).Memory.Packed > 0 })
		must(t, b.tendMemories(t.Context(), time.Now().Add(2*time.Hour)))
		third, err := b.Fork(ctx, c.ID, NewFork{})
		must(t, err)
		if third.Name != "twin" || third.ExpireAfter != time.Hour {
			t.Errorf("fork %+v", third)
		}
		for _, id := range []string{third.ID, c.ID} {
			w := b.open(turn.Hosted{Container: id})
			wantText(t, python(t, w, "print(x)"), "[1, 'fork']\n")
		}

		// One that never ran.
		fresh, err := b.Create(ctx, NewContainer{Name: "fresh"})
		must(t, err)
		b.putFile(fresh.ID, "up", "loaded")
		fork, err := b.Fork(ctx, fresh.ID, NewFork{})
		must(t, err)
		if fork.State != store.StateIdle {
			t.Errorf("fork of an unused one is %s", fork.State)
		}
		w = b.open(turn.Hosted{Container: fork.ID})
		wantText(t, python(t, w, "print(open('up').read())"), "loaded\n")
		wantNotes(t, w)
		wantFiles(t, b, fork.ID, "up=loaded")
	})
}

func TestForkThatIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ctx := as(t, "p")
	w := b.open(turn.Hosted{})
	python(t, w, "x = 1\nopen('f', 'w').write('kept')")
	_, err := b.Fork(as(t, "q"), w.Container().ID, NewFork{})
	wantKind(t, "another project", err, turn.KindNotFound, w.Container().ID)
	_, err = b.Fork(ctx, w.Container().ID, NewFork{ExpireAfter: 99999 * time.Hour})
	wantKind(t, "too long a life", err, turn.KindInvalid, "longer than")
	b.backend.checkpoint = func() error { return os.ErrInvalid }
	_, err = b.Fork(ctx, w.Container().ID, NewFork{})
	wantKind(t, "memory that cannot be written", err, turn.KindInternal, "files are kept")
	wantText(t, python(t, w, "print('x' in dir(), open('f').read())"), "False kept\n")
	wantNotes(t, w, noteRestarted)
	rows, _, err := b.List(ctx, store.Page{Limit: 10})
	if err != nil || len(rows) != 1 {
		t.Errorf("containers: %v, %v", rows, err)
	}
}

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, b *bench) {
		ctx := as(t, "p")
		w := b.open(turn.Hosted{})
		id := w.Container().ID
		python(t, w, "import os\nx = 'one'\nopen('a', 'w').write('1111')\nopen('b', 'w').write('b')\nf = open('b')")
		one, err := b.Checkpoint(ctx, id, "one")
		must(t, err)
		if one.Name != "one" || !one.Memory || one.Bytes <= 0 || one.Container != id {
			t.Errorf("checkpoint %+v", one)
		}
		_, err = b.Checkpoint(ctx, id, "one")
		wantKind(t, "the same name", err, turn.KindConflict, "already")
		wantText(t, python(t, w, "x = 'two'\nopen('a', 'w').write('2222')\nf.close()\nos.remove('b')\nopen('c', 'w').write('c')\nprint(x)"), "two\n")
		two, err := b.Checkpoint(ctx, id, "two")
		must(t, err)
		list, more, err := b.Checkpoints(ctx, id, store.Page{Limit: 10, Ascending: true})
		if err != nil || more || len(list) != 2 || list[0] != one || list[1] != two {
			t.Errorf("list: %+v, %v", list, err)
		}

		check := `print(x, sorted(os.listdir('.')), open('a').read(), f.read())`
		for range 2 { // a checkpoint stays
			_, err = b.Rewind(ctx, id, one.ID)
			must(t, err)
			wantFiles(t, b, id, "a=1111 b=b c=c") // c is history
			wantText(t, python(t, w, check), "one ['a', 'b'] 1111 b\n")
			wantNotes(t, w)
			if f, ok := w.Find(t.Context(), "/mnt/data/a"); !ok || b.content(f) != "1111" {
				t.Errorf("a is %+v, %v", f, ok)
			}
			if _, ok := w.Find(t.Context(), "/mnt/data/c"); ok {
				t.Error("c can be found")
			}
			python(t, w, "x = 'lost'\nopen('a', 'w').write('lost')")
		}
		must(t, w.Close())
		_, err = b.Rewind(ctx, id, two.ID)
		must(t, err)
		w = b.wake(w)
		wantText(t, python(t, w, "print(x, sorted(os.listdir('.')), open('a').read())"), "two ['a', 'c'] 2222\n")
		wantNotes(t, w)

		must(t, b.DeleteCheckpoint(ctx, id, one.ID))
		wantKind(t, "delete again", b.DeleteCheckpoint(ctx, id, one.ID), turn.KindNotFound, one.ID)
		_, err = b.Rewind(ctx, id, one.ID)
		wantKind(t, "rewind to a deleted one", err, turn.KindNotFound, one.ID)
		if _, err := os.Stat(b.checkpointDir(id, one.ID)); err == nil {
			t.Error("its copy stays")
		}
		for what, err := range map[string]error{
			"list":   func() error { _, _, err := b.Checkpoints(as(t, "q"), id, store.Page{Limit: 1}); return err }(),
			"make":   func() error { _, err := b.Checkpoint(as(t, "q"), id, "x"); return err }(),
			"rewind": func() error { _, err := b.Rewind(as(t, "q"), id, two.ID); return err }(),
			"delete": b.DeleteCheckpoint(as(t, "q"), id, two.ID),
		} {
			wantKind(t, "another project: "+what, err, turn.KindNotFound, id)
		}
		must(t, b.tidy(t.Context(), time.Now()))
		if _, err := os.Stat(b.checkpointDir(id, two.ID)); err != nil {
			t.Error(err)
		}
	})
}

// What a client deletes while a container hibernates is deleted of its forks and checkpoints too.
func TestDeletedFilesStayDeletedInForks(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ctx := as(t, "p")
	w := b.open(turn.Hosted{Session: "s"})
	out := python(t, w, "import os\nf = open('gone', 'w'); f.write('x'); f.flush()")
	id := w.Container().ID
	b.sleep(w)
	must(t, b.DeleteFile(ctx, id, out.Files[0].ID))
	fork, err := b.Fork(ctx, id, NewFork{})
	must(t, err)
	point, err := b.Checkpoint(ctx, id, "point")
	must(t, err)
	show := func(w tool.Workspace) {
		t.Helper()
		wantText(t, python(t, w, "print(os.listdir('.'), f.closed)"), "[] False\n")
		wantNotes(t, w)
	}
	show(b.open(turn.Hosted{Container: fork.ID}))
	show(b.wake(w))
	_, err = b.Rewind(ctx, id, point.ID)
	must(t, err)
	show(b.wake(w))
	wantFiles(t, b, id, "")
	wantFiles(t, b, fork.ID, "")
}

func TestCloneKeepsHoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	f, err := os.Create(src)
	must(t, err)
	must(t, f.Truncate(64<<20))
	for _, at := range []int64{0, 10 << 20, 64<<20 - 5} {
		_, err := f.WriteAt([]byte("data!"), at)
		must(t, err)
	}
	must(t, f.Close(), cloneFile(src, dst))
	got, err := os.ReadFile(dst)
	must(t, err)
	want, err := os.ReadFile(src)
	must(t, err)
	if string(got) != string(want) {
		t.Error("the copy differs")
	}
	if n := onDisk(dst); n > 1<<20 {
		t.Errorf("the copy takes %d bytes", n)
	}
	if cloneFile(src, dst) == nil {
		t.Error("a file was overwritten")
	}
}
