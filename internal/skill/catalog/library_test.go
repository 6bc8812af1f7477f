package catalog

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func writeSkill(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFileAt(t, filepath.Join(dir, "SKILL.md"), "---\nname: "+name+"\ndescription: "+text+"\n---\nBody.\n")
}

func writeFileAt(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// look lets the library look at its folder twice, as the watch does.
func lookTwice(t *testing.T, c *Catalog) {
	t.Helper()
	for range 2 {
		if err := c.library.sync(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
}

func listed(t *testing.T, c *Catalog, project string) map[string]string {
	t.Helper()
	rows, _, err := c.List(as(t, project), store.SkillPage{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range rows {
		got[s.Name] = s.Description
	}
	return got
}

func TestLibrary(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), t.TempDir()
	writeSkill(t, filepath.Join(dir, "tables"), "tables", "one")
	writeSkill(t, filepath.Join(dir, "charts"), "charts", "one")
	writeFileAt(t, filepath.Join(dir, "README.md"), "a file is no skill")
	if err := os.MkdirAll(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := open(t, data, Config{Library: dir, Poll: 1 << 40})
	want := func(what string, skills map[string]string) {
		t.Helper()
		for _, project := range []string{"p", "q"} {
			if diff := cmp.Diff(skills, listed(t, c, project)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", what, project, diff)
			}
		}
	}
	want("at the start", map[string]string{"tables": "one", "charts": "one"})
	id := libraryID("tables")

	// Nobody writes to it.
	err := c.Delete(as(t, "p"), id, false)
	wantKind(t, "delete", err, turn.KindForbidden, "operator")
	_, _, err = c.AddVersion(as(t, "p"), id, pkg(t, "tables", "evil"), true)
	wantKind(t, "add a version", err, turn.KindForbidden)

	// An edit is a new version; the old one stays under its names.
	writeSkill(t, filepath.Join(dir, "tables"), "tables", "two, longer")
	if err := c.library.sync(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	want("while it changes", map[string]string{"tables": "one", "charts": "one"})
	lookTwice(t, c)
	want("edited", map[string]string{"tables": "two, longer", "charts": "one"})
	if _, v, err := c.Version(as(t, "p"), id, "1"); err != nil || v.Description != "one" {
		t.Errorf("version 1: %+v, %v", v, err)
	}

	// A fault in an edit keeps the last good one.
	writeFileAt(t, filepath.Join(dir, "tables", "SKILL.md"), "no front matter any more")
	lookTwice(t, c)
	want("broken", map[string]string{"tables": "two, longer", "charts": "one"})
	next := reopenLibrary(t, data, dir, c)
	if diff := cmp.Diff(map[string]string{"tables": "two, longer", "charts": "one"}, listed(t, next, "p")); diff != "" {
		t.Errorf("broken, after a restart (-want +got):\n%s", diff)
	}

	// A removed folder is gone with the next request, before anybody looked.
	if err := os.RemoveAll(filepath.Join(dir, "charts")); err != nil {
		t.Fatal(err)
	}
	_, err = c.Get(as(t, "p"), libraryID("charts"))
	wantKind(t, "removed", err, turn.KindNotFound)
	_, err = c.Resolve(t.Context(), "p", []Ref{{ID: "charts"}})
	wantKind(t, "removed", err, turn.KindInvalid, "charts")
	lookTwice(t, c)
	want("removed", map[string]string{"tables": "two, longer"})

	// A folder with another name in it is another skill.
	writeSkill(t, filepath.Join(dir, "tables"), "chairs", "three")
	lookTwice(t, c)
	want("renamed", map[string]string{"chairs": "three"})

	// Two of one name: the second waits until the first is gone.
	writeSkill(t, filepath.Join(dir, "more-chairs"), "chairs", "four")
	lookTwice(t, c)
	want("two of one name", map[string]string{"chairs": "three"})
	if err := os.RemoveAll(filepath.Join(dir, "tables")); err != nil {
		t.Fatal(err)
	}
	lookTwice(t, c)
	lookTwice(t, c)
	want("the first is gone", map[string]string{"chairs": "four"})
}

func reopenLibrary(t *testing.T, data, dir string, c *Catalog) *Catalog {
	t.Helper()
	next, err := New(t.Context(), Config{Store: c.cfg.Store, Blobs: c.cfg.Blobs, Dir: filepath.Join(data, "skills"), Library: dir, Poll: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	return next
}

// TestLibraryKeepsFewVersions: a skill that is edited all day does not fill the disk.
func TestLibraryKeepsFewVersions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeSkill(t, filepath.Join(dir, "tables"), "tables", "x")
	c := open(t, t.TempDir(), Config{Library: dir, Poll: 1 << 40})
	text := "x"
	for range kept + 5 {
		text += "x"
		writeSkill(t, filepath.Join(dir, "tables"), "tables", text)
		lookTwice(t, c)
	}
	_, rows, _, err := c.Versions(as(t, "p"), libraryID("tables"), store.Page{Limit: 100})
	if err != nil || len(rows) != kept || rows[0].Description != text {
		t.Errorf("%d versions, the newest %+v, %v", len(rows), rows[0], err)
	}
}

// TestNoLibraryAnyMore: what an earlier configuration had does not stay for ever.
func TestNoLibraryAnyMore(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), t.TempDir()
	writeSkill(t, filepath.Join(dir, "tables"), "tables", "x")
	c := open(t, data, Config{Library: dir, Poll: 1 << 40})
	next := reopen(t, data, c)
	if got := listed(t, next, "p"); len(got) != 0 {
		t.Errorf("still there: %v", got)
	}
	if _, err := New(t.Context(), Config{Store: c.cfg.Store, Blobs: c.cfg.Blobs, Dir: t.TempDir(), Library: filepath.Join(dir, "none")}); err == nil {
		t.Error("a folder that is not there is no fault")
	}
}
