package guest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCodeUser(t *testing.T) {
	for _, tt := range []struct {
		self    int
		env     string
		user    uint32
		isolate bool
	}{
		{0, "", 1000, true},
		{1, "", 1000, false}, // a developer's own
		{0, "1000", 1000, true},
		{1, "0", 0, true},
		{0, "0", 0, false},
		{0, "nonsense", 1000, true},
	} {
		if user, isolate := codeUser(tt.self, tt.env); user != tt.user || isolate != tt.isolate {
			t.Errorf("codeUser(%d, %q) = %d, %v", tt.self, tt.env, user, isolate)
		}
	}
}

func TestCopyDir(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "own")
	if err := os.WriteFile(filepath.Join(from, "fontlist.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copyDir(from, to); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(to, "fontlist.json"))
	if err != nil || fi.Size() != 2 || fi.Mode() != 0o666 {
		t.Errorf("%+v, %v", fi, err)
	}
	if err := copyDir(from, to); err == nil {
		t.Error("a folder that was there before was taken over")
	}
	if err := copyDir(filepath.Join(from, "none"), to+"2"); err == nil {
		t.Error("a folder that is not there was copied")
	}
}
