package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
)

func testFiles(t *testing.T, s store.Store) {
	ctx := t.Context()
	newContainers(t, s, "cntr_1")
	up := file("file_1", "")
	up.ExpiresAt = at(3600)
	made := file("cfile_1", "cntr_1")
	made.Source, made.Shown, made.Origin, made.SHA256 = "assistant", true, "file_1", up.SHA256
	check(t, s.Files().Create(ctx, up))
	check(t, s.Files().Create(ctx, made))
	for _, want := range []store.File{up, made} {
		got, err := s.Files().Get(ctx, "p", want.ID)
		check(t, err)
		same(t, want.ID, got, want)
	}
	wantErr(t, "second row with one id", s.Files().Create(ctx, up), store.ErrExists)
	wantErr(t, "file of an unknown container", s.Files().Create(ctx, file("cfile_2", "cntr_none")), store.ErrNotFound)

	references := func(want int) {
		t.Helper()
		got, err := s.Files().References(ctx, "p", up.SHA256)
		check(t, err)
		if got != want {
			t.Errorf("%d references, want %d", got, want)
		}
	}
	references(2)
	check(t, s.Files().Delete(ctx, "p", "file_1"))
	references(1)
	_, err := s.Files().Get(ctx, "p", "file_1")
	wantErr(t, "get a deleted one", err, store.ErrNotFound)
	wantErr(t, "delete it again", s.Files().Delete(ctx, "p", "file_1"), store.ErrNotFound)
}

func testFilePaging(t *testing.T, s store.Store) {
	ctx := t.Context()
	newContainers(t, s, "cntr_1", "cntr_2")
	var uploads, made, copies []string
	for i := range 9 {
		up := file(fmt.Sprintf("file_%d", (i*5)%9), "")
		up.CreatedAt = at(i / 4)
		c := file(fmt.Sprintf("cfile_%d", (i*5)%9), "cntr_1")
		c.CreatedAt = at(0) // all at once, as one call makes them
		if i%3 == 0 {
			up.Purpose, c.Origin = "vision", "file_0"
			copies = append(copies, c.ID)
		}
		check(t, s.Files().Create(ctx, up, c))
		uploads, made = append(uploads, up.ID), append(made, c.ID)
	}
	check(t, s.Files().Create(ctx, file("cfile_other", "cntr_2")))

	id := func(f store.File) string { return f.ID }
	list := func(container string) func(store.Page) ([]store.File, bool, error) {
		return func(p store.Page) ([]store.File, bool, error) { return s.Files().List(ctx, "p", container, p) }
	}
	for _, limit := range []int{1, 2, 9, 100} {
		same(t, "uploads", pages(t, store.Page{Limit: limit, Ascending: true}, id, list("")), uploads)
		same(t, "uploads, newest first", pages(t, store.Page{Limit: limit}, id, list("")), reversed(uploads))
		same(t, "a container's files", pages(t, store.Page{Limit: limit, Ascending: true}, id, list("cntr_1")), made)
		same(t, "a container's files, newest first", pages(t, store.Page{Limit: limit}, id, list("cntr_1")), reversed(made))
	}
	same(t, "by origin", pages(t, store.Page{Limit: 2, Ascending: true, Origin: "file_0"}, id, list("cntr_1")), copies)
	same(t, "by purpose", pages(t, store.Page{Limit: 2, Ascending: true, Purpose: "vision"}, id, list("")),
		[]string{uploads[0], uploads[3], uploads[6]})

	byProgram := file("cfile_made", "cntr_2")
	byProgram.Source, byProgram.CreatedAt = "assistant", at(9)
	check(t, s.Files().Create(ctx, byProgram))
	same(t, "uploads and what programs made", pages(t, store.Page{Limit: 4, Ascending: true, Made: true}, id, list("")),
		append(slices.Clone(uploads), "cfile_made"))

	_, _, err := list("cntr_1")(store.Page{Limit: 5, After: "cfile_other"})
	wantErr(t, "cursor of another container", err, store.ErrNotFound)
	_, _, err = list("")(store.Page{Limit: 5, After: "cfile_1"})
	wantErr(t, "cursor that is no upload", err, store.ErrNotFound)
	_, _, err = list("cntr_none")(store.Page{Limit: 5})
	wantErr(t, "unknown container", err, store.ErrNotFound)
}

func testFilesTogether(t *testing.T, s store.Store) {
	ctx := t.Context()
	newContainers(t, s, "cntr_1")
	check(t, s.Files().Create(ctx))
	err := s.Files().Create(ctx, file("cfile_1", "cntr_1"), file("cfile_2", "cntr_none"))
	wantErr(t, "one good and one bad row", err, store.ErrNotFound)
	_, err = s.Files().Get(ctx, "p", "cfile_1")
	wantErr(t, "the good row", err, store.ErrNotFound)
}

func testLatest(t *testing.T, s store.Store) {
	ctx := t.Context()
	newContainers(t, s, "cntr_1", "cntr_2")
	create := func(id, container, path string, created time.Time) {
		f := file(id, container)
		f.Path, f.CreatedAt = path, created
		check(t, s.Files().Create(ctx, f))
	}
	create("cfile_z", "cntr_1", "/mnt/data/a", at(0))
	create("cfile_a", "cntr_1", "/mnt/data/a", at(0))
	create("cfile_other", "cntr_1", "/mnt/data/A", at(9))
	create("cfile_elsewhere", "cntr_2", "/mnt/data/a", at(9))
	latest := func(want string) {
		t.Helper()
		got, err := s.Files().Latest(ctx, "p", "cntr_1", "/mnt/data/a")
		check(t, err)
		if got.ID != want {
			t.Errorf("latest is %s, want %s", got.ID, want)
		}
	}
	latest("cfile_a")
	create("cfile_b", "cntr_1", "/mnt/data/a", at(5))
	latest("cfile_b")
	check(t, s.Files().Delete(ctx, "p", "cfile_b"))
	latest("cfile_a")
	_, err := s.Files().Latest(ctx, "p", "cntr_1", "/mnt/data/none")
	wantErr(t, "unknown path", err, store.ErrNotFound)
}

func testContainerFiles(t *testing.T, s store.Store) {
	ctx := t.Context()
	newContainers(t, s, "cntr_1", "cntr_2")
	a, b, kept, up := file("cfile_1", "cntr_1"), file("cfile_2", "cntr_1"), file("cfile_3", "cntr_2"), file("file_1", "")
	check(t, s.Files().Create(ctx, a, b, kept, up))
	got, err := s.Files().DeleteContainer(ctx, "p", "cntr_1")
	check(t, err)
	same(t, "deleted rows", got, []store.File{a, b})
	got, err = s.Files().DeleteContainer(ctx, "p", "cntr_1")
	check(t, err)
	if len(got) != 0 {
		t.Errorf("deleted %d rows twice", len(got))
	}
	_, err = s.Files().DeleteContainer(ctx, "p", "cntr_none")
	wantErr(t, "unknown container", err, store.ErrNotFound)

	var all []string
	check(t, s.Files().All(ctx, func(f store.File) error { all = append(all, f.ID); return nil }))
	same(t, "what is left", all, []string{"cfile_3", "file_1"})

	check(t, s.Containers().Delete(ctx, "p", "cntr_2"))
	_, err = s.Files().Get(ctx, "p", "cfile_3")
	wantErr(t, "file of a deleted container", err, store.ErrNotFound)
	_, err = s.Files().Get(ctx, "p", "file_1")
	check(t, err)
}

func testExpired(t *testing.T, s store.Store) {
	ctx := t.Context()
	newContainers(t, s, "cntr_1")
	old, young, forever, made := file("file_1", ""), file("file_2", ""), file("file_3", ""), file("cfile_4", "cntr_1")
	old.ExpiresAt, young.ExpiresAt, made.ExpiresAt = at(10), at(20), at(10)
	foreign := file("file_5", "")
	foreign.Project, foreign.ExpiresAt = "q", at(11)
	check(t, s.Files().Create(ctx, old, young, forever, made, foreign))
	got, err := s.Files().Expired(ctx, at(15))
	check(t, err)
	same(t, "expired uploads", got, []store.File{old, foreign})
}
