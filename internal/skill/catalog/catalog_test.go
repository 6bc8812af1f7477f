package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// open makes a catalog over a database and blobs of its own below dir.
func open(t *testing.T, dir string, cfg Config) *Catalog {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "lathe.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	cfg.Store, cfg.Blobs, cfg.Dir = db.Skills(), blobs, filepath.Join(dir, "skills")
	c, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func as(t *testing.T, project string) context.Context {
	t.Helper()
	return auth.WithPrincipal(t.Context(), auth.Principal{Name: project, Project: project})
}

// pkg is a package with one more file, whose text tells versions apart.
func pkg(t *testing.T, name, text string) *skill.Package {
	t.Helper()
	p, report := skill.Read([]skill.File{
		{Path: name + "/SKILL.md", Data: []byte("---\nname: " + name + "\ndescription: Does " + text + ".\n---\nRead data.txt.\n")},
		{Path: name + "/data.txt", Data: []byte(text)},
		{Path: name + "/scripts/run.sh", Data: []byte("#!/bin/sh\necho " + text + "\n"), Exec: true},
	}, skill.Limits{})
	if p == nil {
		t.Fatal(report.Findings)
	}
	return p
}

func create(t *testing.T, c *Catalog, ctx context.Context, n NewSkill) (store.Skill, store.SkillVersion) { //nolint:revive // the project is in ctx
	t.Helper()
	s, v, err := c.Create(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return s, v
}

func wantKind(t *testing.T, what string, err error, kind turn.Kind, words ...string) {
	t.Helper()
	e := turn.AsError(err)
	if e == nil || e.Kind != kind {
		t.Errorf("%s: got %v, want kind %d", what, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(e.Message, w) {
			t.Errorf("%s: %q does not say %q", what, e.Message, w)
		}
	}
}

func read(t *testing.T, f *Folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func materialize(t *testing.T, c *Catalog, v store.SkillVersion) *Folder {
	t.Helper()
	f, err := c.Materialize(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Release)
	return f
}

func TestVersionsAndTheirNames(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), Config{})
	ctx := as(t, "p")
	s, first := create(t, c, ctx, NewSkill{Package: pkg(t, "tables", "one")})
	_, second, err := c.AddVersion(ctx, s.ID, pkg(t, "tables", "two"), false)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]store.SkillVersion{
		first.ID: first, "1": first, fmt.Sprint(first.Epoch): first, Default: first, second.ID: second, "2": second, fmt.Sprint(second.Epoch): second, Latest: second,
	} {
		_, got, err := c.Version(ctx, s.ID, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range []string{"", "3", "0", "-1", "01", "1.0", "skver_", "skver_x", "newest", "9999999999999999", "99999999999999999999999"} {
		_, _, err := c.Version(ctx, s.ID, name)
		wantKind(t, name, err, turn.KindNotFound)
	}
	_, _, err = c.AddVersion(ctx, s.ID, pkg(t, "chairs", "three"), false)
	wantKind(t, "another name", err, turn.KindInvalid, "tables", "chairs")
	if _, err := c.Update(ctx, s.ID, func(s *store.Skill) error { s.Default = 7; return nil }); err == nil {
		t.Error("a default that is no version")
	} else {
		wantKind(t, "a default that is no version", err, turn.KindInvalid, "7")
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	library := t.TempDir()
	writeSkill(t, filepath.Join(library, "xlsx"), "xlsx", "sheets")
	c := open(t, t.TempDir(), Config{Library: library})
	ctx := as(t, "p")
	s, first := create(t, c, ctx, NewSkill{Package: pkg(t, "tables", "one")})
	_, second, err := c.AddVersion(ctx, s.ID, pkg(t, "tables", "two"), false)
	if err != nil {
		t.Fatal(err)
	}
	same, _ := create(t, c, ctx, NewSkill{Package: pkg(t, "tables", "another skill of that name")})
	imported, _ := create(t, c, ctx, NewSkill{ID: "litellm_skill_0e1c", Package: pkg(t, "imported", "x")})
	shared, _ := create(t, c, as(t, "q"), NewSkill{Package: pkg(t, "shared", "x"), SharedWith: []string{"p"}})
	foreign, _ := create(t, c, as(t, "q"), NewSkill{Package: pkg(t, "foreign", "x")})

	got, err := c.Resolve(t.Context(), "p", []Ref{
		{ID: s.ID}, {Type: "custom", ID: s.ID, Version: Latest}, {ID: s.ID, Version: first.ID}, {ID: same.ID}, {Type: "custom", ID: imported.ID},
		{ID: shared.ID}, {Type: "anthropic", ID: "xlsx", Version: Latest}, {ID: "xlsx"}, {Type: "anthropic", ID: libraryID("xlsx")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, r := range got {
		seen = append(seen, r.Folder+" "+fmt.Sprint(r.Version.Number))
	}
	if diff := cmp.Diff([]string{"tables 1", "tables-2 2", "tables-3 1", "imported 1", "shared 1", "xlsx 1"}, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got[1].Version.ID != second.ID {
		t.Errorf("latest is %+v", got[1].Version)
	}
	for _, bad := range []struct {
		name  string
		ref   Ref
		words []string
	}{
		{"unknown", Ref{ID: "skill_none", Param: "container.skills[3]"}, []string{"container.skills[3]", "skill_none"}},
		{"foreign", Ref{ID: foreign.ID}, []string{"Skill not found: " + foreign.ID}},
		{"unknown version", Ref{ID: s.ID, Version: "9"}, []string{s.ID, "9"}},
		{"foreign by the name of its type", Ref{Type: "anthropic", ID: s.ID}, []string{s.ID}},
		{"not installed", Ref{Type: "anthropic", ID: "pptx"}, []string{"pptx", "skills_dir"}},
		{"library by name, as custom", Ref{Type: "custom", ID: "xlsx"}, []string{"xlsx"}},
		{"a version of Anthropic's", Ref{Type: "anthropic", ID: "xlsx", Version: "20251013"}, []string{"xlsx", "20251013", "latest"}},
		{"empty", Ref{}, nil},
	} {
		_, err := c.Resolve(t.Context(), "p", []Ref{{ID: s.ID}, bad.ref})
		wantKind(t, bad.name, err, turn.KindInvalid, bad.words...)
	}
	// Deleted is gone with the next request.
	if err := c.Delete(ctx, s.ID, false); err != nil {
		t.Fatal(err)
	}
	_, err = c.Resolve(t.Context(), "p", []Ref{{ID: s.ID, Version: second.ID}})
	wantKind(t, "deleted", err, turn.KindInvalid, s.ID)
}

func TestOwners(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), Config{})
	own := as(t, "p")
	s, v := create(t, c, own, NewSkill{Package: pkg(t, "tables", "one"), SharedWith: []string{"friend"}})
	friend, stranger := as(t, "friend"), as(t, "stranger")
	if _, err := c.Get(friend, s.ID); err != nil {
		t.Errorf("a friend cannot read: %v", err)
	}
	for who, test := range map[string]struct {
		ctx  context.Context
		kind turn.Kind
	}{"friend": {friend, turn.KindForbidden}, "stranger": {stranger, turn.KindNotFound}, "nobody": {t.Context(), turn.KindUnauthenticated}} {
		wantKind(t, who+" deletes", c.Delete(test.ctx, s.ID, false), test.kind)
		_, _, err := c.AddVersion(test.ctx, s.ID, pkg(t, "tables", "evil"), true)
		wantKind(t, who+" adds", err, test.kind)
		_, err = c.Update(test.ctx, s.ID, func(*store.Skill) error { return nil })
		wantKind(t, who+" updates", err, test.kind)
		_, _, err = c.DeleteVersion(test.ctx, s.ID, v.ID, func(store.Skill, store.SkillVersion) error { return nil })
		wantKind(t, who+" deletes a version", err, test.kind)
	}
	// A stranger cannot tell a foreign id from an unknown one.
	_, foreign := c.Get(stranger, s.ID)
	_, unknown := c.Get(stranger, "skill_"+strings.Repeat("0", len(s.ID)-6))
	if a, b := foreign.Error(), unknown.Error(); strings.ReplaceAll(a, s.ID, "ID") != strings.ReplaceAll(b, "skill_"+strings.Repeat("0", len(s.ID)-6), "ID") {
		t.Errorf("foreign: %s; unknown: %s", a, b)
	}
	for _, bad := range [][]string{{"p"}, {"*library"}, {""}, {"a b"}, make([]string, 101)} {
		_, _, err := c.Create(own, NewSkill{Package: pkg(t, "x", "x"), SharedWith: bad})
		wantKind(t, fmt.Sprint("shared with ", bad), err, turn.KindInvalid)
	}
}

func TestLimitsOfAProject(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), Config{MaxSkills: 2, MaxBytes: 3000})
	ctx := as(t, "p")
	s, v := create(t, c, ctx, NewSkill{Package: pkg(t, "a", "x")})
	create(t, c, ctx, NewSkill{Package: pkg(t, "b", "x")})
	_, _, err := c.Create(ctx, NewSkill{Package: pkg(t, "c", "x")})
	wantKind(t, "a third skill", err, turn.KindInvalid, "2 skills")
	for i := 2; err == nil || i == 2; i++ {
		if _, _, err = c.AddVersion(ctx, s.ID, pkg(t, "a", fmt.Sprint("version ", i)), false); i > 20 {
			t.Fatal("bytes are not counted")
		}
	}
	wantKind(t, "too many bytes", err, turn.KindInvalid, "of 3000 bytes")
	if v.Bytes < 100 {
		t.Errorf("an archive of %d bytes", v.Bytes)
	}
	create(t, c, as(t, "q"), NewSkill{Package: pkg(t, "c", "x")}) // another project has its own
}

func TestUniqueTitle(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), Config{})
	ctx := as(t, "p")
	create(t, c, ctx, NewSkill{Package: pkg(t, "a", "x"), Title: "T", UniqueTitle: true})
	_, _, err := c.Create(ctx, NewSkill{Package: pkg(t, "b", "x"), Title: "T", UniqueTitle: true})
	wantKind(t, "the same title", err, turn.KindInvalid, "Skill cannot reuse an existing display_title: T")
	create(t, c, ctx, NewSkill{Package: pkg(t, "b", "x"), Title: "T"})
	create(t, c, as(t, "q"), NewSkill{Package: pkg(t, "b", "x"), Title: "T", UniqueTitle: true})
}

// TestBytesGoWithTheLastVersion: they are content-addressed, so two versions may share them.
func TestBytesGoWithTheLastVersion(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), Config{})
	ctx := as(t, "p")
	s, first := create(t, c, ctx, NewSkill{Package: pkg(t, "a", "x")})
	_, second, err := c.AddVersion(ctx, s.ID, pkg(t, "a", "x"), true)
	if err != nil {
		t.Fatal(err)
	}
	if first.SHA256 != second.SHA256 {
		t.Fatal("the same files have other bytes")
	}
	yes := func(store.Skill, store.SkillVersion) error { return nil }
	if _, _, err := c.DeleteVersion(ctx, s.ID, first.ID, yes); err != nil {
		t.Fatal(err)
	}
	body, err := c.Content(ctx, second)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, body); err != nil || n != second.Bytes {
		t.Errorf("%d bytes, want %d (%v)", n, second.Bytes, err)
	}
	body.Close()
	if _, _, err := c.DeleteVersion(ctx, s.ID, second.ID, yes); err != nil {
		t.Fatal(err)
	}
	_, err = c.Content(ctx, second)
	wantKind(t, "content of a deleted one", err, turn.KindNotFound)
	_, err = c.Materialize(ctx, second)
	wantKind(t, "folder of a deleted one", err, turn.KindNotFound)
}

func TestMaterialize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir, Config{})
	_, v := create(t, c, as(t, "p"), NewSkill{Package: pkg(t, "tables", "one")})
	f := materialize(t, c, v)
	modes := map[string]fs.FileMode{}
	err := filepath.WalkDir(f.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		rel, _ := filepath.Rel(f.Dir, path)
		modes[rel] = info.Mode()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]fs.FileMode{
		".": fs.ModeDir | 0o555, "SKILL.md": 0o444, "data.txt": 0o444, "scripts": fs.ModeDir | 0o555, "scripts/run.sh": 0o555,
	}, modes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again := materialize(t, c, v)
	if again.Dir != f.Dir {
		t.Error("a second use has another folder")
	}

	// After a restart the folder is used again, unless something is wrong with it.
	c.Close()
	info, _ := os.Stat(filepath.Join(f.Dir, "data.txt"))
	next := reopen(t, dir, c)
	f2 := materialize(t, next, v)
	if now, err := os.Stat(filepath.Join(f2.Dir, "data.txt")); err != nil || !os.SameFile(info, now) {
		t.Errorf("unpacked anew without need (%v)", err)
	}
	if err := os.Chmod(filepath.Join(f.Dir, "data.txt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Dir, "data.txt"), []byte("cut sho"), 0o600); err != nil {
		t.Fatal(err)
	}
	third := reopen(t, dir, c)
	f3 := materialize(t, third, v)
	if got := read(t, f3, "data.txt"); got != "one" {
		t.Errorf("a damaged folder was used: %q", got)
	}
}

// reopen is what a new process would do with the same store and folder.
func reopen(t *testing.T, dir string, c *Catalog) *Catalog {
	t.Helper()
	next, err := New(t.Context(), Config{Store: c.cfg.Store, Blobs: c.cfg.Blobs, Dir: filepath.Join(dir, "skills")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	return next
}

func TestCutUnpackingLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"skills/part-XYZ/files", "skills/" + strings.Repeat("a", 64) + "/files"} { // killed before the rename, and no manifest
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, Config{})
	if left, err := os.ReadDir(filepath.Join(dir, "skills")); err != nil || len(left) != 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
}

func TestDamagedBytesAreNotUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir, Config{})
	_, v := create(t, c, as(t, "p"), NewSkill{Package: pkg(t, "tables", "one")})
	paths, _ := filepath.Glob(filepath.Join(dir, "blobs", "*", "sha256", "*", v.SHA256))
	if len(paths) != 1 {
		t.Fatal(paths)
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(paths[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = c.Materialize(t.Context(), v)
	wantKind(t, "damaged", err, turn.KindInternal)
	if left, _ := os.ReadDir(filepath.Join(dir, "skills")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDeletedWhileInUse: a call that runs keeps its files; when it ends they go.
func TestDeletedWhileInUse(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), Config{})
	ctx := as(t, "p")
	s, v := create(t, c, ctx, NewSkill{Package: pkg(t, "tables", "one")})
	f, g := materialize(t, c, v), materialize(t, c, v)
	if err := c.Delete(ctx, s.ID, false); err != nil {
		t.Fatal(err)
	}
	f.Release()
	f.Release() // twice counts once
	if got := read(t, g, "data.txt"); got != "one" {
		t.Errorf("got %q", got)
	}
	g.Release()
	if _, err := os.Stat(g.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files stay: %v", err)
	}
}

func TestEviction(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), Config{CacheBytes: 200})
	ctx := as(t, "p")
	var folders []*Folder
	for i := range 6 {
		_, v := create(t, c, ctx, NewSkill{Package: pkg(t, fmt.Sprint("s", i), "text")})
		folders = append(folders, materialize(t, c, v)) // about 100 bytes each
		if i != 2 {
			folders[i].Release()
		}
	}
	there := func(i int) bool { _, err := os.Stat(folders[i].Dir); return err == nil }
	if !there(2) || !there(5) || there(0) || there(1) {
		t.Errorf("there are %v %v %v %v %v %v; want that in use and the newest", there(0), there(1), there(2), there(3), there(4), there(5))
	}
}

// TestParallelUse: two requests with different versions of one skill see their own, however many make them at once.
func TestParallelUse(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir(), Config{CacheBytes: 1})
	ctx := as(t, "p")
	s, first := create(t, c, ctx, NewSkill{Package: pkg(t, "tables", "one")})
	_, second, err := c.AddVersion(ctx, s.ID, pkg(t, "tables", "two"), true)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			v, want := first, "one"
			if i%2 == 1 {
				v, want = second, "two"
			}
			for range 5 {
				f, err := c.Materialize(context.WithoutCancel(ctx), v)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := os.ReadFile(filepath.Join(f.Dir, "data.txt")); err != nil || string(got) != want {
					t.Errorf("got %q, want %q (%v)", got, want, err)
				}
				f.Release()
			}
		})
	}
	wg.Wait()
}

// BenchmarkMaterialize shows what a request waits for a skill of 30 MB with 5,000 files: once unpacked, and after a restart.
func BenchmarkMaterialize(b *testing.B) {
	dir := b.TempDir()
	db, err := sqlite.Open(b.Context(), filepath.Join(dir, "lathe.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		b.Fatal(err)
	}
	defer blobs.Close()
	fresh := func() *Catalog {
		c, err := New(b.Context(), Config{Store: db.Skills(), Blobs: blobs, Dir: filepath.Join(dir, "skills")})
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	files := []skill.File{{Path: "big/SKILL.md", Data: []byte("---\nname: big\ndescription: Big.\n---\n")}}
	for i := range 5000 {
		files = append(files, skill.File{Path: fmt.Sprintf("big/d%02d/f%04d", i%50, i), Data: []byte(strings.Repeat(fmt.Sprintf("%06d", i), 1000))})
	}
	p, report := skill.Read(files, skill.Anthropic)
	if p == nil {
		b.Fatal(report.Findings)
	}
	c := fresh()
	_, v, err := c.Create(auth.WithPrincipal(b.Context(), auth.Principal{Project: "p"}), NewSkill{Package: p})
	if err != nil {
		b.Fatal(err)
	}
	use := func(b *testing.B, c *Catalog) {
		b.Helper()
		f, err := c.Materialize(b.Context(), v)
		if err != nil {
			b.Fatal(err)
		}
		f.Release()
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			c.cache.drop(v.SHA256)
			b.StartTimer()
			use(b, c)
		}
	})
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			use(b, c)
		}
	})
	b.Run("after a restart", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			next := fresh()
			b.StartTimer()
			use(b, next)
		}
	})
}
