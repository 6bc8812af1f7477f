package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lathe-gateway/lathe/internal/store"
)

func skillRow(id string) (store.Skill, store.SkillVersion) {
	return store.Skill{ID: id, Project: "p", Title: "Title of " + id, Name: "name-" + id, Description: "d", CreatedAt: at(0), UpdatedAt: at(0)},
		versionRow(id, "skver_"+id+"_1")
}

func versionRow(skill, id string) store.SkillVersion {
	return store.SkillVersion{
		ID: id, Project: "p", Skill: skill, Name: "name-" + skill, Description: "description of " + id, Folder: "folder", Body: "text of " + id,
		SHA256: "sha of " + id, Bytes: 100, Unpacked: 300, Files: 3, CreatedAt: at(0),
	}
}

func newSkill(t *testing.T, s store.Store, id string, edit func(*store.Skill, *store.SkillVersion)) store.Skill {
	t.Helper()
	k, v := skillRow(id)
	if edit != nil {
		edit(&k, &v)
	}
	got, _, err := s.Skills().Create(t.Context(), k, v)
	check(t, err)
	return got
}

func testSkills(t *testing.T, s store.Store) {
	ctx := t.Context()
	k, v := skillRow("skill_1")
	gotSkill, gotVersion, err := s.Skills().Create(ctx, k, v)
	check(t, err)
	v.Number, v.Epoch, v.Body = 1, v.CreatedAt.UnixMicro(), ""
	k.Default, k.Latest, k.LatestID, k.LatestEpoch, k.Description = 1, 1, v.ID, v.Epoch, v.Description
	k.SharedWith = []string{}
	same(t, "created skill", gotSkill, k)
	same(t, "created version", gotVersion, v)
	_, _, err = s.Skills().Create(ctx, k, v)
	wantErr(t, "second skill of one id", err, store.ErrExists)

	gotSkill, err = s.Skills().Get(ctx, "p", k.ID)
	check(t, err)
	same(t, "get", gotSkill, k)
	for _, name := range []store.VersionName{{ID: v.ID}, {Number: 1}, {Epoch: v.Epoch}} {
		gotVersion, err = s.Skills().Version(ctx, "p", k.ID, name)
		check(t, err)
		same(t, fmt.Sprintf("version %v", name), gotVersion, v)
	}
	for _, name := range []store.VersionName{{ID: "skver_none"}, {Number: 2}, {Epoch: 5}, {}} {
		_, err = s.Skills().Version(ctx, "p", k.ID, name)
		wantErr(t, fmt.Sprintf("version %v", name), err, store.ErrNotFound)
	}

	usage, err := s.Skills().Usage(ctx, "p")
	check(t, err)
	same(t, "usage", usage, store.SkillUsage{Skills: 1, Versions: 1, Bytes: 100})
	rows, err := s.Skills().Delete(ctx, "p", k.ID)
	check(t, err)
	same(t, "versions of what was deleted", rows, []store.SkillVersion{v})
	_, err = s.Skills().Get(ctx, "p", k.ID)
	wantErr(t, "get a deleted one", err, store.ErrNotFound)
	_, err = s.Skills().Version(ctx, "p", k.ID, store.VersionName{ID: v.ID})
	wantErr(t, "version of a deleted one", err, store.ErrNotFound)
	_, err = s.Skills().Delete(ctx, "p", k.ID)
	wantErr(t, "delete it again", err, store.ErrNotFound)
	_, _, err = s.Skills().AddVersion(ctx, versionRow(k.ID, "skver_2"), false)
	wantErr(t, "version for a deleted one", err, store.ErrNotFound)
	usage, err = s.Skills().Usage(ctx, "p")
	check(t, err)
	same(t, "usage of nothing", usage, store.SkillUsage{})
}

func testSkillVersions(t *testing.T, s store.Store) {
	ctx := t.Context()
	newSkill(t, s, "skill_1", nil)
	add := func(id string, makeDefault bool) store.Skill {
		t.Helper()
		k, _, err := s.Skills().AddVersion(ctx, versionRow("skill_1", id), makeDefault)
		check(t, err)
		return k
	}
	k := add("skver_2", false)
	if k.Default != 1 || k.Latest != 2 || k.LatestID != "skver_2" || k.Description != "description of skver_skill_1_1" {
		t.Errorf("after a second version: %+v", k)
	}
	k = add("skver_3", true)
	if k.Default != 3 || k.Latest != 3 || k.Description != "description of skver_3" {
		t.Errorf("after a new default: %+v", k)
	}
	// All were made in one microsecond; their epochs are names all the same.
	if epoch := at(0).UnixMicro(); k.LatestEpoch != epoch+2 {
		t.Errorf("epoch %d, want %d", k.LatestEpoch, epoch+2)
	}
	ids := func(want ...string) {
		t.Helper()
		id := func(v store.SkillVersion) string { return v.ID }
		list := func(p store.Page) ([]store.SkillVersion, bool, error) {
			return s.Skills().Versions(ctx, "p", "skill_1", p)
		}
		for _, limit := range []int{1, 2, 10} {
			same(t, "versions", pages(t, store.Page{Limit: limit, Ascending: true}, id, list), want)
			same(t, "versions, newest first", pages(t, store.Page{Limit: limit}, id, list), reversed(want))
		}
	}
	ids("skver_skill_1_1", "skver_2", "skver_3")

	refused := errors.New("refused")
	_, err := s.Skills().DeleteVersion(ctx, "p", "skill_1", "skver_2", func(*store.Skill) error { return refused })
	wantErr(t, "refused deletion", err, refused)
	remove := func(id string) store.Skill {
		t.Helper()
		k, err := s.Skills().DeleteVersion(ctx, "p", "skill_1", id, func(k *store.Skill) error { k.UpdatedAt = at(9); return nil })
		check(t, err)
		return k
	}
	k = remove("skver_3")
	if k.Default != 2 || k.Latest != 2 || k.Description != "description of skver_2" || !k.UpdatedAt.Equal(at(9)) {
		t.Errorf("after the default went: %+v", k)
	}
	ids("skver_skill_1_1", "skver_2")
	_, v, err := s.Skills().AddVersion(ctx, versionRow("skill_1", "skver_4"), false)
	check(t, err)
	if v.Number != 4 {
		t.Errorf("the number %d was given twice", v.Number)
	}
	_, err = s.Skills().Update(ctx, "p", "skill_1", func(k *store.Skill) error { k.Default = 3; return nil })
	wantErr(t, "a deleted version as default", err, store.ErrNotFound)
	k, err = s.Skills().Update(ctx, "p", "skill_1", func(k *store.Skill) error { k.Default, k.Title = 1, "New"; return nil })
	check(t, err)
	if k.Default != 1 || k.Title != "New" || k.Description != "description of skver_skill_1_1" {
		t.Errorf("after an update: %+v", k)
	}
	remove("skver_skill_1_1")
	remove("skver_4")
	k = remove("skver_2")
	if k.Default != 0 || k.Latest != 0 || k.LatestID != "" || k.LatestEpoch != 0 {
		t.Errorf("without versions: %+v", k)
	}
	none, _, err := s.Skills().Versions(ctx, "p", "skill_1", store.Page{Limit: 10})
	check(t, err)
	if len(none) != 0 {
		t.Errorf("versions of nothing: %v", none)
	}
	if k = add("skver_5", false); k.Default != 5 || k.Latest != 5 {
		t.Errorf("a first version again: %+v", k)
	}
	n, err := s.Skills().References(ctx, "p", "sha of skver_5")
	check(t, err)
	m, err := s.Skills().References(ctx, "p", "sha of skver_2")
	check(t, err)
	if n != 1 || m != 0 {
		t.Errorf("%d and %d references, want 1 and 0", n, m)
	}
	var all []string
	check(t, s.Skills().AllVersions(ctx, func(v store.SkillVersion) error { all = append(all, v.ID); return nil }))
	same(t, "all versions", all, []string{"skver_5"})
}

func testSkillPaging(t *testing.T, s store.Store) {
	ctx := t.Context()
	var own, library []string
	for i := range 7 {
		k := newSkill(t, s, fmt.Sprintf("skill_%d", (i*3)%7), func(k *store.Skill, v *store.SkillVersion) {
			k.CreatedAt = at(i)
			if i%3 == 0 {
				k.Project, v.Project = store.Library, store.Library
			}
		})
		if i%3 == 0 {
			library = append(library, k.ID)
		} else {
			own = append(own, k.ID)
		}
	}
	id := func(k store.Skill) string { return k.ID }
	list := func(edit func(*store.SkillPage)) func(store.Page) ([]store.Skill, bool, error) {
		return func(p store.Page) ([]store.Skill, bool, error) {
			q := store.SkillPage{After: p.After, Limit: p.Limit, Ascending: p.Ascending}
			edit(&q)
			return s.Skills().List(ctx, "p", q)
		}
	}
	for _, limit := range []int{1, 3, 100} {
		same(t, "own", pages(t, store.Page{Limit: limit, Ascending: true}, id, list(func(p *store.SkillPage) { p.Custom = true })), own)
		same(t, "library", pages(t, store.Page{Limit: limit}, id, list(func(p *store.SkillPage) { p.Library = true })), reversed(library))
		if n := len(pages(t, store.Page{Limit: limit}, id, list(func(*store.SkillPage) {}))); n != 7 {
			t.Errorf("%d skills in all, want 7", n)
		}
	}
	same(t, "by title", pages(t, store.Page{Limit: 5}, id, list(func(p *store.SkillPage) { p.Title = "Title of " + own[1] })), []string{own[1]})
	got, err := s.Skills().OfLibrary(ctx, "name-"+library[1])
	check(t, err)
	same(t, "of the library by name", got.ID, library[1])
	_, err = s.Skills().OfLibrary(ctx, "name-"+own[0])
	wantErr(t, "an own one as of the library", err, store.ErrNotFound)

	// Whoever deletes what a page shows must get the next page all the same.
	rows, more, err := s.Skills().List(ctx, "p", store.SkillPage{Limit: 1, Custom: true})
	check(t, err)
	_, err = s.Skills().Delete(ctx, "p", rows[0].ID)
	check(t, err)
	next, _, err := s.Skills().List(ctx, "p", store.SkillPage{Limit: 1, Custom: true, After: rows[0].ID, AfterTime: rows[0].CreatedAt})
	check(t, err)
	if !more || len(next) != 1 || next[0].ID != own[len(own)-2] {
		t.Errorf("behind a deleted row comes %v, want %s", next, own[len(own)-2])
	}
	_, _, err = s.Skills().List(ctx, "p", store.SkillPage{Limit: 1, After: rows[0].ID})
	wantErr(t, "a cursor without a time that is gone", err, store.ErrNotFound)
}

func testSkillSearch(t *testing.T, s store.Store) {
	ctx := t.Context()
	for _, row := range []struct{ id, name, description, body string }{
		{"skill_a", "spreadsheet-analyst", "Reads XLSX files", "Use openpyxl; then chart the totals."},
		{"skill_b", "chart-maker", "Makes charts", "Matplotlib."},
		{"skill_c", "rapport-médical", "Écrit un rapport", "Résumé"},
	} {
		newSkill(t, s, row.id, func(k *store.Skill, v *store.SkillVersion) {
			k.Name, v.Name, v.Description, v.Body, k.Title = row.name, row.name, row.description, row.body, ""
		})
	}
	newSkill(t, s, "skill_foreign", func(k *store.Skill, v *store.SkillVersion) {
		k.Project, v.Project, v.Description = "q", "q", "charts of others"
	})
	find := func(query string, want ...string) {
		t.Helper()
		rows, _, err := s.Skills().List(ctx, "p", store.SkillPage{Limit: 10, Query: query})
		check(t, err)
		var got []string
		for _, k := range rows {
			got = append(got, k.ID)
		}
		same(t, query, got, want)
	}
	find("chart", "skill_b", "skill_a") // the name counts more than the text
	find("charts", "skill_b")
	find("openpyxl totals", "skill_a")
	find("openpyxl nothing", "skill_a") // no skill has both words
	find("medical", "skill_c")
	find("RÉSUMÉ", "skill_c")
	find("xls", "skill_a")
	find("nothing")
	find(`"chart OR * NEAR( ) -: ' ; --`, "skill_b", "skill_a")
	find("!?")
	rows, more, err := s.Skills().List(ctx, "p", store.SkillPage{Limit: 1, Query: "chart"})
	check(t, err)
	next, last, err := s.Skills().List(ctx, "p", store.SkillPage{Limit: 1, Query: "chart", After: rows[0].ID})
	check(t, err)
	if !more || last || len(next) != 1 || next[0].ID != "skill_a" {
		t.Errorf("second page of a search: %v, more %v then %v", next, more, last)
	}

	_, _, err = s.Skills().AddVersion(ctx, store.SkillVersion{
		ID: "skver_new", Project: "p", Skill: "skill_b", Name: "chart-maker", Description: "Draws diagrams", Body: "Plotly.", CreatedAt: at(1),
	}, true)
	check(t, err)
	find("matplotlib")
	find("plotly", "skill_b")
	_, err = s.Skills().Delete(ctx, "p", "skill_b")
	check(t, err)
	find("plotly")
}

func testSkillSharing(t *testing.T, s store.Store) {
	ctx := t.Context()
	newSkill(t, s, "skill_1", func(k *store.Skill, _ *store.SkillVersion) { k.SharedWith = []string{"r", "q", "q"} })
	newSkill(t, s, "skill_lib", func(k *store.Skill, v *store.SkillVersion) { k.Project, v.Project = store.Library, store.Library })
	for project, want := range map[string]error{"p": nil, "q": nil, "r": nil, "z": store.ErrNotFound, "": store.ErrNotFound} {
		_, err := s.Skills().Get(ctx, project, "skill_1")
		wantErr(t, "get by "+project, err, want)
		_, err = s.Skills().Version(ctx, project, "skill_1", store.VersionName{Number: 1})
		wantErr(t, "version by "+project, err, want)
		_, _, err = s.Skills().Versions(ctx, project, "skill_1", store.Page{Limit: 1})
		wantErr(t, "versions by "+project, err, want)
		_, err = s.Skills().Get(ctx, project, "skill_lib")
		wantErr(t, "library by "+project, err, nil)
	}
	for _, project := range []string{"q", "z", store.Library} {
		_, err := s.Skills().Delete(ctx, project, "skill_1")
		wantErr(t, "delete by "+project, err, store.ErrNotFound)
		_, err = s.Skills().Update(ctx, project, "skill_1", func(*store.Skill) error { return nil })
		wantErr(t, "update by "+project, err, store.ErrNotFound)
		v := versionRow("skill_1", "skver_x")
		v.Project = project
		_, _, err = s.Skills().AddVersion(ctx, v, false)
		wantErr(t, "version added by "+project, err, store.ErrNotFound)
		_, err = s.Skills().DeleteVersion(ctx, project, "skill_1", "skver_skill_1_1", func(*store.Skill) error { return nil })
		wantErr(t, "version deleted by "+project, err, store.ErrNotFound)
	}
	k, err := s.Skills().Update(ctx, "p", "skill_1", func(k *store.Skill) error { k.SharedWith = []string{"z"}; return nil })
	check(t, err)
	same(t, "shared with", k.SharedWith, []string{"z"})
	_, err = s.Skills().Get(ctx, "q", "skill_1")
	wantErr(t, "get by q after it lost its share", err, store.ErrNotFound)
	_, err = s.Skills().Get(context.WithoutCancel(ctx), "z", "skill_1")
	check(t, err)
	_, err = s.Skills().Delete(ctx, "p", "skill_1")
	check(t, err)
	rows, _, err := s.Skills().List(ctx, "z", store.SkillPage{Limit: 10})
	check(t, err)
	if len(rows) != 1 || rows[0].ID != "skill_lib" {
		t.Errorf("z sees %v", rows)
	}
}
