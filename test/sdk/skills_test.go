package sdk

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copySkill puts the skill of testdata into a folder, and its archive, with the folder in it, beside that.
func copySkill(t *testing.T, folder string) {
	t.Helper()
	from := os.DirFS("testdata/stamp")
	if err := os.CopyFS(folder, from); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range []string{"SKILL.md", "scripts/stamp.py"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		f, err := w.Create("stamp/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder+".zip", archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkSkills looks at what reached the model: of a skill its name, its description and its place, and the text only when the model had read
// it. Each of its turns takes three rounds.
func (g *gateway) checkSkills(t *testing.T, turns int) {
	t.Helper()
	rounds, paths := 0, map[string]bool{}
	for _, r := range g.stub.Requests() {
		if r.Model() != "stub-skill" {
			continue
		}
		rounds++
		paths[r.Path] = true
		system := r.System()
		for _, want := range []string{"stamp", "Makes stamps as the office wants them.", "/skills/stamp/SKILL.md"} {
			if !strings.Contains(system, want) {
				t.Errorf("the system text of request %d has no %q:\n%s", r.Number, want, system)
			}
		}
		if strings.Contains(system, "rule 7731") {
			t.Errorf("the system text of request %d has the skill's own text:\n%s", r.Number, system)
		}
		if read := strings.Contains(string(r.Body), "rule 7731"); read != (len(r.ToolResults()) > 0) {
			t.Errorf("request %d has %d results, and the skill's text: %t", r.Number, len(r.ToolResults()), read)
		}
	}
	if rounds != 3*turns || len(paths) != 3 {
		t.Errorf("%d rounds with a skill over %v, want %d over three protocols", rounds, paths, 3*turns)
	}
}
