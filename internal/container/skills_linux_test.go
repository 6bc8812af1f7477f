package container

import (
	"path/filepath"
	"testing"

	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/skill/catalog"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// shelf is a catalog beside the containers of a place.
func shelf(t *testing.T, p place) func(*Config) {
	t.Helper()
	db, err := sqlite.Open(background, filepath.Join(p.Dir, "skills.db"))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return func(cfg *Config) {
		c, err := catalog.New(background, catalog.Config{Store: db.Skills(), Blobs: cfg.Blobs, Dir: filepath.Join(p.Dir, "skills")})
		must(t, err)
		cfg.Skills = c
	}
}

func pack(t *testing.T, text string) *skill.Package {
	t.Helper()
	p, report := skill.Read([]skill.File{
		{Path: "SKILL.md", Data: []byte("---\nname: greet\ndescription: Says hello.\n---\n" + text + "\n")},
		{Path: "say.sh", Data: []byte("#!/bin/sh\necho " + text + "\n"), Exec: true},
	}, skill.Limits{})
	if p == nil || !report.Loads() {
		t.Fatal(report)
	}
	return p
}

// Skills come into a container that is new, live or resumed; a second version replaces the first for those that ask for it; a version that
// was deleted stays for a turn that has it; programs cannot write to them.
func TestSkillsInGVisor(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	b := p.bench(t, shelf(t, p))
	c := b.Config.Skills.(*catalog.Catalog)
	ctx := as(t, "p")
	s, one, err := c.Create(ctx, catalog.NewSkill{Package: pack(t, "hello")})
	must(t, err)
	_, two, err := c.AddVersion(ctx, s.ID, pack(t, "salve"), true)
	must(t, err)

	with := func(v store.SkillVersion, w tool.Workspace) func() {
		t.Helper()
		skills, err := b.Skills(ctx, &turn.Hosted{Skills: []turn.SkillRef{{ID: s.ID, Version: v.ID}}})
		must(t, err)
		w.Mount(skills)
		return skills[0].Release
	}
	const run = "import subprocess; print(subprocess.run(['/skills/greet/say.sh'], capture_output=True, text=True).stdout)"
	w := b.open(turn.Hosted{})
	python(t, w, "import os; x = os.listdir('/skills')")
	wantText(t, python(t, w, "print(x)"), "[]\n")
	releaseOne := with(one, w)
	wantText(t, python(t, w, run), "hello\n\n")
	wantText(t, python(t, w, "f = open('/skills/greet/SKILL.md'); f.readline(); print(f.readline())"), "name: greet\n\n")
	for _, attempt := range []string{"open('/skills/greet/new', 'w')", "open('/skills/greet/SKILL.md', 'a')", "os.remove('/skills/greet/say.sh')",
		"os.chmod('/skills/greet', 0o777)", "os.mkdir('/skills/x')"} {
		wantText(t, python(t, w, "try: "+attempt+"; print('done')\nexcept OSError as e: print('refused')"), "refused\n")
	}

	// The memory has a file of the skill open, and finds it again.
	b.sleep(w)
	w = b.wake(w)
	wantText(t, python(t, w, "print(f.readline())"), "description: Says hello.\n\n")
	wantNotes(t, w)
	wantText(t, python(t, w, run), "hello\n\n")

	releaseTwo := with(two, w)
	wantText(t, python(t, w, run), "salve\n\n")
	_, _, err = c.DeleteVersion(ctx, s.ID, one.ID, func(store.Skill, store.SkillVersion) error { return nil })
	must(t, err)
	other := b.open(turn.Hosted{})
	otherSkills, err := b.Skills(ctx, &turn.Hosted{Skills: []turn.SkillRef{{ID: s.ID, Version: two.ID}}})
	must(t, err)
	_, _, err = c.DeleteVersion(ctx, s.ID, two.ID, func(store.Skill, store.SkillVersion) error { return nil })
	must(t, err)
	other.Mount(otherSkills)
	wantText(t, python(t, other, run), "salve\n\n")
	if _, err := b.Skills(ctx, &turn.Hosted{Skills: []turn.SkillRef{{ID: s.ID, Version: two.ID}}}); err == nil {
		t.Error("a version that was deleted is found")
	}
	otherSkills[0].Release()
	releaseOne()
	releaseTwo()
}

// A container that is made with skills has them in every turn, in the versions that they had then.
func TestContainerWithSkills(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	b := p.bench(t, shelf(t, p))
	c := b.Config.Skills.(*catalog.Catalog)
	ctx := as(t, "p")
	s, _, err := c.Create(ctx, catalog.NewSkill{Package: pack(t, "hello")})
	must(t, err)
	row, err := b.Create(ctx, NewContainer{Name: "n", Skills: []turn.SkillRef{{ID: s.ID}}})
	must(t, err)
	_, _, err = c.AddVersion(ctx, s.ID, pack(t, "salve"), true)
	must(t, err)
	skills, err := b.Skills(ctx, &turn.Hosted{Container: row.ID, Skills: []turn.SkillRef{{ID: s.ID}}})
	must(t, err)
	if len(skills) != 2 || skills[0].Name != "greet" || skills[1].Name != "greet-2" {
		t.Fatalf("%+v", skills)
	}
	w := b.open(turn.Hosted{Container: row.ID})
	w.Mount(skills)
	wantText(t, python(t, w, "import subprocess\nfor n in ('greet', 'greet-2'): print(subprocess.run([f'/skills/{n}/say.sh'], capture_output=True, text=True).stdout)"),
		"hello\n\nsalve\n\n")
	for _, s := range skills {
		s.Release()
	}
	if _, err := b.Create(ctx, NewContainer{Name: "n", Skills: []turn.SkillRef{{ID: "skill_none", Param: "skills[0]"}}}); err == nil || turn.AsError(err).Param != "skills[0]" {
		t.Errorf("%v", err)
	}
	if _, err := b.Create(as(t, "q"), NewContainer{Name: "n", Skills: []turn.SkillRef{{ID: s.ID}}}); err == nil {
		t.Error("another project's skill")
	}
}
