package skill

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/goldentest"
)

// TestCorpus judges each odd package below testdata/skills. Its files are parts of an upload; one whose name ends in .quoted is a Go
// string. The file "verdict" is the golden one.
func TestCorpus(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/skills/*.txtar")
	if err != nil || len(paths) < 60 {
		t.Fatalf("%d packages, want at least 60 (%v)", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			t.Parallel()
			ar, files := readCase(t, path)
			p, report := Read(files, Limits{})
			ar.Files = append(ar.Files, txtar.File{Name: "verdict", Data: []byte(verdict(p, report))})
			goldentest.Compare(t, path, ar)
		})
	}
}

// readCase returns an archive of the corpus without its verdict, and the files of the package in it.
func readCase(t testing.TB, path string) (*txtar.Archive, []File) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ar := txtar.Parse(text)
	kept, files := ar.Files[:0:0], []File{}
	for _, f := range ar.Files {
		if f.Name == "verdict" {
			continue
		}
		kept = append(kept, f)
		name, data := f.Name, f.Data
		if base, quoted := strings.CutSuffix(name, ".quoted"); quoted {
			s, err := strconv.Unquote(strings.TrimSpace(string(data)))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			name, data = base, []byte(s)
		}
		files = append(files, File{Path: name, Data: data, Exec: Runnable(data)})
	}
	ar.Files = kept
	return ar, files
}

func verdict(p *Package, report *Report) string {
	var b strings.Builder
	if report.Loads() != (p != nil) {
		b.WriteString("CONTRADICTION: ")
	}
	if p == nil {
		b.WriteString("lenient: refused\n")
	} else {
		fmt.Fprintf(&b, "lenient: loads as %s", p.Meta.Name)
		if p.Meta.Title != p.Meta.Name {
			fmt.Fprintf(&b, ", written %q", p.Meta.Title)
		}
		b.WriteString("\n")
	}
	if names := report.RefusedBy().Names(); len(names) > 0 {
		fmt.Fprintf(&b, "strict: refused by %s\n", strings.Join(names, ", "))
	} else {
		b.WriteString("strict: taken by all\n")
	}
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "[%s] %s\n", f.Code, f)
	}
	if p == nil {
		return b.String()
	}
	fmt.Fprintf(&b, "description: %s\n", excerpt(p.Meta.Description))
	for _, v := range []struct {
		name  string
		value any
		has   bool
	}{
		{"license", p.Meta.License, p.Meta.License != ""},
		{"compatibility", excerpt(p.Meta.Compatibility), p.Meta.Compatibility != ""},
		{"allowed-tools", p.Meta.AllowedTools, p.Meta.AllowedTools != nil},
		{"metadata", p.Meta.Metadata, p.Meta.Metadata != nil},
		{"other", p.Meta.Other, p.Meta.Other != nil},
	} {
		if v.has {
			fmt.Fprintf(&b, "%s: %q\n", v.name, v.value)
		}
	}
	for _, f := range p.Files {
		mode := ""
		if f.Exec {
			mode = " (runs)"
		}
		fmt.Fprintf(&b, "file: %s%s\n", f.Path, mode)
	}
	return b.String()
}
