// Package goldentest compares what a test made with a txtar archive below testdata, whose comment says what the archive pins. The flag
// -update writes the archives anew. Only tests import it, and a package whose tests do has the flag from here.
package goldentest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Each calls translate with the first file of each archive in testdata/dir, and compares the files that it returns with the others.
func Each(t *testing.T, dir string, translate func(t *testing.T, in []byte) []txtar.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(bytes.TrimSpace(ar.Comment)) == 0 {
				t.Error("the file does not say what it pins")
			}
			got := append(ar.Files[:1:1], translate(t, ar.Files[0].Data)...)
			Compare(t, path, &txtar.Archive{Comment: ar.Comment, Files: got})
		})
	}
}

// Compare compares got with the archive at path, its comment too, or writes it there.
func Compare(t *testing.T, path string, got *txtar.Archive) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, txtar.Format(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatalf("%v; -update writes it", err)
	}
	if diff := cmp.Diff(string(txtar.Format(want)), string(txtar.Format(got))); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, diff)
	}
}
