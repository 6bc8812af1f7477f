package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// makeTree writes files below dir.
func makeTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, map[string]string{
		"python-2/rootfs/usr/bin/python3": "",
		"python-2/image.json": `{"name": "python", "recipe": "abc", "created": "2026-01-02T03:04:05Z", "python": "3.11.2",
			"libraries": {"numpy": "1.24.2"}}`,
		"bare/usr/bin/python3":            "",
		"layout/oci-layout":               "{}",
		"empty/etc/passwd":                "",
		"damaged/rootfs/usr/bin/python3":  "",
		"damaged/image.json":              "{",
		"foreign/rootfs/usr/bin/python3":  "",
		"foreign/rootfs/usr/lib/os-relea": "",
		"shell/bin/sh":                    "",
		"local/rootfs/opt/py/python3":     "",
		"local/image.json":                `{"name": "local", "env": {"PATH": "/nowhere:/opt/py"}}`,
		"pulled/rootfs/usr/bin/python3":   "",
		"pulled/image.json":               `{"name": "pulled", "reference": "docker.io/library/python:3.13"}`,
	})
	if err := os.Symlink("python-2", filepath.Join(dir, "python")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, ref string
		wantRoot  string
		wantName  string
		wantErr   string
	}{
		{"the default, through the link that a build switches", "", "python-2/rootfs", "python", ""},
		{"by name", "python", "python-2/rootfs", "python", ""},
		{"a root file system of its own", filepath.Join(dir, "bare"), "bare", "bare", ""},
		{"the Root of an image", filepath.Join(dir, "python-2/rootfs"), "python-2/rootfs", "python", ""},
		{"a folder without image.json", filepath.Join(dir, "foreign"), "foreign/rootfs", "foreign", ""},
		{"what was pulled, by its reference", "docker.io/library/python:3.13", "pulled/rootfs", "pulled", ""},
		{"only a shell", filepath.Join(dir, "shell"), "shell", "shell", ""},
		{"Python in a PATH of its own", "local", "local/rootfs", "local", ""},
		{"unknown name", "r", "", "", "lathe image build r"},
		{"missing folder", filepath.Join(dir, "none"), "", "", "make image"},
		{"reference", "docker.io/library/python:3.12", "", "", "lathe image pull"},
		{"short reference", "python:3.12", "", "", "lathe image pull"},
		{"nonsense", "py thon", "", "", "neither a folder"},
		{"OCI layout", filepath.Join(dir, "layout"), "", "", "lathe image pull"},
		{"no Python in it", filepath.Join(dir, "empty"), "", "", "has no python3 and no shell"},
		{"damaged", "damaged", "", "", "is damaged"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img, err := Find(tt.ref, []string{filepath.Join(dir, "nowhere"), dir})
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want one that says %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(dir, tt.wantRoot); img.Root != want || img.Name != tt.wantName {
				t.Errorf("got %s at %s, want %s at %s", img.Name, img.Root, tt.wantName, want)
			}
			if again, err := Open(img.Dir); err != nil || again.Root != img.Root {
				t.Errorf("Open(%s) is %+v, %v", img.Dir, again, err)
			}
		})
	}
	for ref, want := range map[string]string{"local": "/opt/py/python3", "python": "/usr/bin/python3", filepath.Join(dir, "shell"): ""} {
		if img, err := Find(ref, []string{dir}); err != nil || img.Python != want {
			t.Errorf("the Python of %s is %q, %v, want %q", ref, img.Python, err, want)
		}
	}
	if _, err := Find("r", []string{dir}); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown name is %v, want ErrNotFound", err)
	}
	img, err := Find("", []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if img.Info.Python != "3.11.2" || img.Info.Libraries["numpy"] != "1.24.2" || img.Info.Created.IsZero() {
		t.Errorf("image.json was read as %+v", img.Info)
	}
}
