package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestRunKeepsStateAndFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	out := python(t, w, "x = 41\nopen('a.csv', 'w').write('1,2')\nimport os\nos.makedirs('sub')\nopen('sub/b.txt', 'w').write('deep')\nx + 1")
	if out.Status != "ok" || text(out) != "42" && text(out) != "42\n" {
		t.Errorf("status %s, output %q", out.Status, text(out))
	}
	if diff := cmp.Diff([]string{"a.csv", "sub/b.txt"}, names(out.Files)); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
	if got := b.content(out.Files[0]); got != "1,2" {
		t.Errorf("a.csv has %q", got)
	}
	first := out.Files[0]

	out = python(t, w, "print(x)\nopen('a.csv', 'a').write(',3')\nos.remove('sub/b.txt')")
	if text(out) != "41\n" {
		t.Errorf("the variable is %q", text(out))
	}
	if diff := cmp.Diff([]string{"a.csv"}, names(out.Files)); diff != "" {
		t.Fatalf("files of the second call (-want +got):\n%s", diff)
	}
	if got := b.content(first) + "|" + b.content(out.Files[0]); got != "1,2|1,2,3" {
		t.Errorf("the two versions are %q", got)
	}
	if f, ok := w.Find(t.Context(), "/mnt/data/./a.csv"); !ok || f.ID != out.Files[0].ID || f.Bytes != 5 {
		t.Errorf("find a.csv: %+v, %v", f, ok)
	}
	for _, p := range []string{"/mnt/data/sub/b.txt", "/mnt/data/none", "/etc/passwd", "/mnt/data/../../etc/passwd", "/mnt/data", ""} {
		if f, ok := w.Find(t.Context(), p); ok {
			t.Errorf("find %q: %+v", p, f)
		}
	}
	if notes := w.Notes(); len(notes) > 0 {
		t.Errorf("notes: %q", notes)
	}
}

// Writing the same bytes again is what a program that is run twice does: the client gets the file, but no second version is kept.
func TestSameBytesAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	code := "import os\ntry: os.remove('a')\nexcept OSError: pass\nopen('a', 'w').write('same')"
	first, second, third := python(t, w, code), python(t, w, code), python(t, w, "1")
	if len(first.Files) != 1 || len(second.Files) != 1 || first.Files[0].ID != second.Files[0].ID || len(third.Files) != 0 {
		t.Errorf("files: %v, %v, %v", first.Files, second.Files, third.Files)
	}
	// As small a change as there is, with the time set back.
	out := python(t, w, "st = os.stat('a')\nopen('a', 'r+').write('SAME')\nos.utime('a', ns=(st.st_atime_ns, st.st_mtime_ns))")
	if len(out.Files) != 1 || out.Files[0].ID == first.Files[0].ID || b.content(out.Files[0]) != "SAME" {
		t.Errorf("a change with a forged time: %v", out.Files)
	}
}

func TestProgramFailuresAreData(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Limits.ExecTime = 2 * time.Second })
	w := b.open(turn.Hosted{})
	out := python(t, w, "open('kept', 'w').write('x')\n1/0")
	if out.Status != "error" || !strings.Contains(out.Error, "ZeroDivisionError") || len(out.Files) != 1 {
		t.Errorf("exception: %+v", out)
	}
	out = bash(t, w, "echo out; echo err >&2; exit 7")
	if out.Status != "error" || out.ExitCode != 7 || !strings.Contains(text(out), "out") || !strings.Contains(text(out), "err") {
		t.Errorf("exit status: %+v", out)
	}
	out = python(t, w, "import time\ntime.sleep(600)")
	if out.Status != "timeout" {
		t.Errorf("time-out: %+v", out)
	}
}

func TestSinkGetsTextLive(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	var got []tool.Chunk
	out, err := w.Run(t.Context(), tool.Call{Tool: tool.Bash, Code: "echo one; echo two >&2"}, func(c tool.Chunk) { got = append(got, c) })
	must(t, err)
	var streams []string
	for _, c := range got {
		streams = append(streams, c.Stream)
	}
	if !slices.Contains(streams, "stdout") || !slices.Contains(streams, "stderr") || len(text(out)) != len("one\ntwo\n") {
		t.Errorf("chunks %+v, output %q", got, text(out))
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	check := func(ctx context.Context, h *turn.Hosted) error { _, err := b.Check(ctx, h); return err }
	ctx := as(t, "p")
	id := func(h turn.Hosted) string { return b.open(h).Container().ID }
	a := id(turn.Hosted{})
	if other := id(turn.Hosted{}); other == a {
		t.Error("two requests that name nothing share a container")
	}
	if got := id(turn.Hosted{Container: a, Session: "ignored", Recent: "ignored"}); got != a {
		t.Errorf("the id was named, got %s", got)
	}
	if row, _ := b.Get(ctx, a); !row.Named {
		t.Error("a container that was named by id is not Named")
	}
	s := id(turn.Hosted{Session: "chat"})
	if got := id(turn.Hosted{Session: "chat", Recent: a}); got != s || s == a {
		t.Errorf("session: got %s, want %s", got, s)
	}
	if row, _ := b.Get(ctx, s); !row.Named {
		t.Error("the container of a session is not Named")
	}
	if got := id(turn.Hosted{Recent: a}); got != a {
		t.Errorf("recent: got %s, want %s", got, a)
	}
	w := b.open(turn.Hosted{Recent: "cntr_00000000000000000000000000000000"})
	if notes := w.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "new one") {
		t.Errorf("recent that is gone: notes %q", notes)
	}
	for _, h := range []turn.Hosted{{Container: "cntr_none"}, {Container: "../../x"}, {Container: "cntr_00000000000000000000000000000000"}} {
		_, err := b.Open(ctx, &h)
		wantKind(t, "open "+h.Container, err, turn.KindNotFound, "Container with id '"+h.Container+"' not found.")
		wantKind(t, "check "+h.Container, check(ctx, &h), turn.KindNotFound, "not found")
	}
}

func TestOtherProjectsSeeNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	check := func(ctx context.Context, h *turn.Hosted) error { _, err := b.Check(ctx, h); return err }
	w := b.open(turn.Hosted{Session: "chat"})
	out := python(t, w, "open('secret', 'w').write('s')")
	id, file, up := w.Container().ID, out.Files[0].ID, b.upload("u.csv", "s").ID
	ctx := as(t, "q")
	unknown := func(what string, err error) {
		t.Helper()
		wantKind(t, what, err, turn.KindNotFound, "")
	}
	_, err := b.Open(ctx, &turn.Hosted{Container: id})
	unknown("Open", err)
	unknown("Check", check(ctx, &turn.Hosted{Container: id}))
	unknown("Check of a file", check(ctx, &turn.Hosted{FileIDs: []string{up}}))
	_, err = b.Open(ctx, &turn.Hosted{FileIDs: []string{up}})
	unknown("Open with a file", err)
	_, err = b.Get(ctx, id)
	unknown("Get", err)
	unknown("Delete", b.Delete(ctx, id))
	_, _, err = b.Files(ctx, id, store.Page{Limit: 10})
	unknown("Files", err)
	_, err = b.File(ctx, id, file)
	unknown("File", err)
	_, _, err = b.OpenFile(ctx, id, file)
	unknown("OpenFile", err)
	unknown("DeleteFile", b.DeleteFile(ctx, id, file))
	_, err = b.PutUpload(ctx, id, up)
	unknown("PutUpload", err)
	_, err = b.Uploads().Get(ctx, up)
	unknown("Uploads.Get", err)
	unknown("Uploads.Delete", b.Uploads().Delete(ctx, up))
	for _, fid := range []string{up, file} {
		_, _, _, err = b.Uploads().Content(ctx, fid)
		unknown("Uploads.Content", err)
	}
	foreign, err := b.Open(ctx, &turn.Hosted{Session: "chat", Recent: id})
	must(t, err)
	defer foreign.Close()
	if foreign.Container().ID == id {
		t.Error("a session's name is shared between projects")
	}
	recent, err := b.Open(ctx, &turn.Hosted{Recent: id})
	must(t, err)
	defer recent.Close()
	if recent.Container().ID == id {
		t.Error("another project's recent container was opened")
	}
	_, err = b.Open(t.Context(), &turn.Hosted{})
	wantKind(t, "without a principal", err, turn.KindUnauthenticated, "")
}

func TestLimitsOfClients(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Limits.Memory, c.ExpireAfter = 2<<30, time.Hour })
	check := func(ctx context.Context, h *turn.Hosted) error { _, err := b.Check(ctx, h); return err }
	ctx := as(t, "p")
	wantKind(t, "memory", check(ctx, &turn.Hosted{MemoryLimit: 4 << 30}), turn.KindInvalid, "2 GiB")
	_, err := b.Open(ctx, &turn.Hosted{MemoryLimit: 4 << 30})
	wantKind(t, "memory", err, turn.KindInvalid, "2 GiB")
	_, err = b.Create(ctx, NewContainer{Name: "x", ExpireAfter: 2 * time.Hour})
	wantKind(t, "expiry", err, turn.KindInvalid, "60 minutes")
	w := b.open(turn.Hosted{MemoryLimit: 1 << 30})
	python(t, w, "1")
	if got := b.backend.last().spec.Limits.Memory; got != 1<<30 {
		t.Errorf("the sandbox got %d bytes of memory", got)
	}
}

func TestCallsRunInOrderOfArrival(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	first := b.open(turn.Hosted{Session: "s"})
	python(t, first, "order = []")
	release := make(chan struct{})
	running := make(chan struct{})
	done := make(chan error, 3)
	go func() {
		code := "print('go', flush=True)\nimport os, time\nwhile not os.path.exists('go'): time.sleep(.01)\norder.append(0)"
		_, err := first.Run(t.Context(), tool.Call{Tool: tool.Python, Code: code}, func(tool.Chunk) { close(running) })
		done <- err
	}()
	<-running
	e := first.(*workspace).entry
	second := b.open(turn.Hosted{Session: "s"})
	cancelled, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := second.Run(cancelled, tool.Call{Tool: tool.Python, Code: "order.append('cancelled')"}, nil)
		if !errors.Is(err, context.Canceled) {
			err = fmt.Errorf("the cancelled call returned %w", err)
		} else {
			err = nil
		}
		close(release)
		done <- err
	}()
	cancel()
	<-release // a waiting call can be cancelled while another one runs
	go func() {
		_, err := second.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "order.append(1)"}, nil)
		done <- err
	}()
	write(t, e.files.vol.path+"/data/go", "")
	for range 3 {
		must(t, <-done)
	}
	if got := strings.TrimSpace(text(python(t, first, "print(order)"))); got != "[0, 1]" {
		t.Errorf("order %s", got)
	}
}

func TestCancelledRunIsCapturedAndLeavesTheContainerUsable(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	python(t, w, "x = 1")
	ctx, cancel := context.WithCancel(t.Context())
	code := "open('half', 'w').write('made')\nprint('now', flush=True)\nimport time\ntime.sleep(600)"
	_, err := w.Run(ctx, tool.Call{Tool: tool.Python, Code: code}, func(tool.Chunk) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled run: %v", err)
	}
	if got := text(python(t, w, "print(x)")); got != "1\n" {
		t.Errorf("after the interrupt: %q", got)
	}
	if f, ok := w.Find(t.Context(), "/mnt/data/half"); !ok || b.content(f) != "made" {
		t.Errorf("what the cancelled call wrote: %+v, %v", f, ok)
	}
}

func TestDeleteWhileCodeRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ctx := as(t, "p")
	w := b.open(turn.Hosted{})
	out := python(t, w, "open('f', 'w').write('x')")
	id := w.Container().ID
	running := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "print('now', flush=True)\nimport time\ntime.sleep(600)"},
			func(tool.Chunk) { close(running) })
		done <- err
	}()
	<-running
	must(t, b.Delete(ctx, id))
	err := <-done
	wantKind(t, "the running call", err, turn.KindNotFound, id)
	if !turn.AsError(err).CodeRan {
		t.Error("code that ran does not count as run")
	}
	_, err = w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
	wantKind(t, "the next call", err, turn.KindNotFound, id)
	_, err = b.Get(ctx, id)
	wantKind(t, "get", err, turn.KindNotFound, id)
	wantKind(t, "delete again", b.Delete(ctx, id), turn.KindNotFound, id)
	if _, err := b.Blobs.Open(ctx, "p", mustSHA("x")); err == nil {
		t.Errorf("the bytes of %s are still there", out.Files[0].ID)
	}
	must(t, w.Close())
	if b.volumes.ran(id) {
		t.Error("the folder is still there")
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.ExpireAfter = time.Hour })
	check := func(ctx context.Context, h *turn.Hosted) error { _, err := b.Check(ctx, h); return err }
	ctx := as(t, "p")
	w := b.open(turn.Hosted{Session: "chat"})
	out := python(t, w, "open('f', 'w').write('x')")
	id := w.Container().ID
	later := time.Now().Add(2 * time.Hour)
	must(t, b.expireAll(ctx, later))
	if row, err := b.Get(ctx, id); err != nil || Status(row) != "running" {
		t.Fatalf("a container in use: %v, %v", row.State, err)
	}
	must(t, w.Close())
	e := w.(*workspace).entry
	e.park(time.Now())
	eventually(t, "the entry is forgotten", func() bool { return len(b.all()) == 0 })
	_, err := b.Store.Containers().Update(ctx, "p", id, func(c *store.Container) error {
		c.LastActive = time.Now().Add(-2 * time.Hour)
		return nil
	})
	must(t, err)
	expired := func() {
		t.Helper()
		row, err := b.Get(ctx, id)
		must(t, err)
		if Status(row) != "expired" {
			t.Errorf("status %s", Status(row))
		}
		for what, err := range map[string]error{
			"check": check(ctx, &turn.Hosted{Container: id}),
			"file":  func() error { _, err := b.File(ctx, id, out.Files[0].ID); return err }(),
			"open":  func() error { _, err := b.Open(ctx, &turn.Hosted{Container: id}); return err }(),
		} {
			if e := turn.AsError(err); e == nil || e.Kind != turn.KindInvalid || e.Message != "Container is expired." {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	expired() // before the reaper comes by
	must(t, b.expireAll(ctx, time.Now()))
	expired()
	if _, err := b.Blobs.Open(ctx, "p", mustSHA("x")); err == nil {
		t.Error("the bytes of an expired container are still there")
	}
	w = b.open(turn.Hosted{Session: "chat"})
	if w.Container().ID == id {
		t.Error("the session got its expired container again")
	}
	w = b.open(turn.Hosted{Recent: id})
	if len(w.Notes()) != 1 || w.Container().ID == id {
		t.Error("a recent container that has expired was not replaced with a note")
	}
	must(t, b.Delete(ctx, id))
}
