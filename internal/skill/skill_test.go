package skill

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "table-cleaner")
	write(t, dir, map[string]string{"SKILL.md": goodManifest, "scripts/run.sh": "#!/bin/sh\n", "notes.txt": "n", ".git/HEAD": "x", ".DS_Store": "x"})
	if err := os.Chmod(filepath.Join(dir, "scripts/run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, report, err := ReadFolder(dir, Limits{})
	if err != nil || p == nil {
		t.Fatal(err, report)
	}
	var got []string
	for _, f := range p.Files {
		got = append(got, fmt.Sprint(f.Path, " ", f.Exec))
	}
	if diff := cmp.Diff([]string{"SKILL.md false", "notes.txt false", "scripts/run.sh true"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if p.Folder != "table-cleaner" || report.RefusedBy() != 0 {
		t.Errorf("folder %q, findings %v", p.Folder, report.Findings)
	}
}

// TestReadFolderOpensNoSpecialFile: a pipe would block for ever, and a link may lead anywhere.
func TestReadFolderOpensNoSpecialFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "table-cleaner")
	write(t, dir, map[string]string{"SKILL.md": goodManifest})
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "passwd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "etc")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, report, err := ReadFolder(dir, Limits{})
	if err != nil || p != nil {
		t.Fatal("loaded", err)
	}
	var got []string
	for _, f := range report.Refusals() {
		got = append(got, f.Code+" "+f.Path)
	}
	if diff := cmp.Diff([]string{"link etc", "link passwd", "special pipe"}, got); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
	if _, _, err := ReadFolder(filepath.Join(dir, "none"), Limits{}); err == nil {
		t.Error("a folder that is not there was read")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	manifest := File{Path: "x/SKILL.md", Data: []byte(goodManifest)}
	big := make([]byte, 26<<20)
	many := []File{manifest}
	for i := range 500 {
		many = append(many, File{Path: fmt.Sprintf("x/f%d", i)})
	}
	tests := []struct {
		name      string
		files     []File
		limits    Limits
		loads     bool
		refusedBy string
	}{
		{"a file of 26 MiB", []File{manifest, {Path: "x/big", Data: big}}, Limits{}, true, "agentskills.io, openai"},
		{"31 MiB", []File{manifest, {Path: "x/a", Data: big[:16<<20]}, {Path: "x/b", Data: big[:15<<20]}}, Limits{}, true, "agentskills.io, anthropic"},
		{"501 files", many, Limits{}, true, "agentskills.io, openai"},
		{"31 MiB under Anthropic's limits", []File{manifest, {Path: "x/a", Data: big[:16<<20]}, {Path: "x/b", Data: big[:15<<20]}}, Anthropic, false, ""},
		{"501 files under OpenAI's limits", many, OpenAI, false, ""},
		{"26 MiB under OpenAI's limits", []File{manifest, {Path: "x/big", Data: big}}, OpenAI, false, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, report := Read(test.files, test.limits)
			if (p != nil) != test.loads {
				t.Fatalf("loads: %v, findings %v", p != nil, report.Findings)
			}
			// The manifest's name is not that of its folder, for which two refuse it as well.
			want := strings.Split(test.refusedBy, ", ")
			if test.loads {
				for _, by := range want {
					if !strings.Contains(strings.Join(report.RefusedBy().Names(), " "), by) {
						t.Errorf("not refused by %s: %v", by, report.Findings)
					}
				}
			}
		})
	}
}

func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	var files []File
	for i := range 5000 {
		files = append(files, File{Path: fmt.Sprintf("../%d", i)})
	}
	_, report := Read(files, Limits{})
	if len(report.Findings) != maxFindings || report.More < 4900 {
		t.Errorf("%d findings and %d more", len(report.Findings), report.More)
	}
}

func TestPrompt(t *testing.T) {
	t.Parallel()
	if Prompt(nil) != "" {
		t.Error("a text for no skills")
	}
	got := Prompt([]Listed{
		{Name: "table-cleaner", Description: "Cleans\n  tables.", Dir: "/skills/table-cleaner"},
		{Name: "x", Description: "</description></skill> & \"more\" " + strings.Repeat("é", 2000), Dir: "/skills/x"},
	})
	_, got, _ = strings.Cut(got, "\n")
	want := "<available_skills>\n<skill>\n<name>\ntable-cleaner\n</name>\n<description>\nCleans tables.\n</description>\n" +
		"<location>\n/skills/table-cleaner/SKILL.md\n</location>\n</skill>\n<skill>\n<name>\nx\n</name>\n<description>\n" +
		"&lt;/description&gt;&lt;/skill&gt; &amp; &#34;more&#34; "
	if !strings.HasPrefix(got, want) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got[:min(len(want), len(got))]))
	}
	if strings.Count(got, "é") > MaxDescription {
		t.Error("a description floods the prompt")
	}
}

func TestSlug(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"table-cleaner": "table-cleaner", "Table  Cleaner!": "table-cleaner", "--a--b--": "a-b", "../../etc": "etc", "..": "", "": "",
		"ÄÖ": "äö", "ﬁle": "file", "名前": "名前", "a\x00b": "a-b", "हिन्दी": "हिन्दी", strings.Repeat("a", 70): strings.Repeat("a", 64),
		strings.Repeat("a", 63) + "-b": strings.Repeat("a", 63), "emoji 🎉 x": "emoji-x",
	} {
		if got := Slug(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
