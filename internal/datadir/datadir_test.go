package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOneProcessAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deep", "data")
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Holding("http://127.0.0.1:4747"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v; want mode 0700", info, err)
	}
	_, err = Open(path)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d, http://127.0.0.1:4747)", os.Getpid())) {
		t.Errorf("the second Open says: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	again.Close()
}

func TestOpenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "data")); err == nil || !strings.Contains(err.Error(), "set data_dir to a folder") {
		t.Errorf("got %v", err)
	}
}

func TestWhole(t *testing.T) {
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	check := func(when string, whole bool) {
		t.Helper()
		if err := d.Whole("index", "a", "b"); (err == nil) != whole {
			t.Errorf("%s: %v", when, err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(d.Path(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.Path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("new", true)
	write("index", "")
	check("an index that was only begun", true)
	write("b/file", "x")
	check("files and an empty index", false)
	write("index", "x")
	check("files and an index", true)
	if err := os.Remove(d.Path("index")); err != nil {
		t.Fatal(err)
	}
	check("files and no index", false)
}
