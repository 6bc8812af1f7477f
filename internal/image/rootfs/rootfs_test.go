package rootfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func open(t *testing.T) (*FS, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.MkdirAll(filepath.Join(dir, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, dir
}

func TestResolve(t *testing.T) {
	f, dir := open(t)
	for name, target := range map[string]string{"bin": "usr/bin", "abs": "/usr/bin", "out": "../../../etc", "up": "/../usr", "loop": "loop", "usr/bin/py": "/opt/py"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][2]string{
		"/bin/sh": {"usr/bin/sh", "usr/bin/sh"}, "abs/sh": {"usr/bin/sh", "usr/bin/sh"}, "out/passwd": {"etc/passwd", "etc/passwd"}, "bin": {"bin", "usr/bin"},
		"up/bin/": {"usr/bin", "usr/bin"}, "../../x": {"x", "x"}, "bin/py": {"usr/bin/py", "opt/py"}, "": {".", "."}, "loop/x": {"", ""},
	} {
		last, err1 := f.Resolve(name)
		full, err2 := f.Follow(name)
		if last != want[0] || full != want[1] || (err1 != nil) != (want[0] == "") || (err2 != nil) != (want[1] == "") {
			t.Errorf("%q: %q, %v and %q, %v; want %q", name, last, err1, full, err2, want)
		}
	}
}

func TestFinish(t *testing.T) {
	f, dir := open(t)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	shared := filepath.Join(filepath.Dir(dir), "shared")
	if err := os.WriteFile(shared, []byte("whole"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Mkdir(outside, 0o700), os.Symlink("../outside", filepath.Join(dir, "tmp")), os.Mkdir(filepath.Join(dir, "etc"), 0o700),
		os.Link(shared, filepath.Join(dir, "etc/hosts")), os.WriteFile(filepath.Join(dir, "usr/bin/su"), nil, 0o700), os.Chmod(filepath.Join(dir, "usr/bin/su"), 0o700|fs.ModeSetuid),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // a second time changes nothing
		if err := f.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]fs.FileMode{
		"tmp": fs.ModeDir | fs.ModeSticky | 0o777, "usr/bin/su": 0o755, "etc": fs.ModeDir | 0o755, "mnt/data": fs.ModeDir | 0o755, "etc/passwd": 0o644,
	} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v", name, info, want)
		}
	}
	if data, _ := os.ReadFile(shared); string(data) != "whole" {
		t.Errorf("a file that has another name was written to: %q", data)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a folder outside was changed: %v, %v", info, err)
	}
}
