package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fill makes a draft that Open takes.
func fill(t *testing.T, created time.Time, mark string) func(context.Context, *Draft) (Info, error) {
	return func(_ context.Context, d *Draft) (Info, error) {
		makeTree(t, d.Root, map[string]string{"usr/bin/python3": mark})
		return Info{Recipe: "0123456789", Created: created}, nil
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestMake(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "images")}
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 3 {
		img, err := s.Make(t.Context(), "mine", nil, fill(t, begin.Add(time.Duration(i)*time.Second), string(rune('a'+i))))
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(img.Root, "usr/bin/python3")); err != nil || string(data) != string(rune('a'+i)) || img.Name != "mine" {
			t.Errorf("build %d: %+v has %q, %v", i, img, data, err)
		}
	}
	// The one before the last is still there, for the sandboxes that run in it.
	want := []string{".mine.lock", "mine", "mine-20260102030406-01234567", "mine-20260102030407-01234567"}
	if got := names(t, s.Dir); !slices.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
	if _, err := s.Make(t.Context(), "mine-2", nil, fill(t, begin, "x")); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s.Dir); !slices.Equal(got, []string{".mine-2.lock", ".mine.lock", "mine-2", "mine-2-20260102030405-01234567"}) {
		t.Errorf("after removing one the folder has %q", got)
	}
	if err := s.Remove(t.Context(), "mine"); !errors.Is(err, ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}

func TestMakeLeavesNothingHalf(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	whole, err := s.Make(t.Context(), "mine", nil, fill(t, time.Now(), "whole"))
	if err != nil {
		t.Fatal(err)
	}
	before := names(t, s.Dir)
	broken := errors.New("broken")
	for name, f := range map[string]func(context.Context, *Draft) (Info, error){
		"an error": func(_ context.Context, d *Draft) (Info, error) {
			makeTree(t, d.Root, map[string]string{"usr/bin/python3": "half"})
			return Info{}, broken
		},
		"no image": func(_ context.Context, d *Draft) (Info, error) {
			makeTree(t, d.Root, map[string]string{"etc/passwd": ""})
			return Info{}, nil
		},
	} {
		if _, err := s.Make(t.Context(), "mine", nil, f); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := names(t, s.Dir); !slices.Equal(got, before) {
			t.Errorf("%s: the folder has %q, want %q", name, got, before)
		}
	}
	if img, err := Find("mine", []string{s.Dir}); err != nil || img.Root != whole.Root {
		t.Errorf("the image is now %+v, %v", img, err)
	}
	// What a process that was killed has left goes with the next build.
	makeTree(t, filepath.Join(s.Dir, ".build-mine-123"), map[string]string{"image/rootfs/x": ""})
	if _, err := s.Make(t.Context(), "mine", nil, fill(t, time.Now().Add(time.Hour), "next")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names(t, s.Dir), " "); strings.Contains(got, ".build") {
		t.Errorf("the folder has %s", got)
	}
	makeTree(t, filepath.Join(s.Dir, "folder"), map[string]string{"usr/bin/python3": "an operator's own"})
	if _, err := s.Make(t.Context(), "folder", nil, fill(t, time.Now(), "x")); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("over a folder: %v", err)
	}
}

func TestMakeWaits(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	unlock, err := s.lock(t.Context(), "mine", nil)
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := s.Make(t.Context(), "mine", func() { close(waits) }, fill(t, time.Now(), "x"))
		done <- err
	}()
	<-waits
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Make(ctx, "mine", nil, fill(t, time.Now(), "x")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	own, shared := t.TempDir(), t.TempDir()
	if _, err := (Store{own}).Make(t.Context(), "python", nil, fill(t, time.Now(), strings.Repeat("x", 5000))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"python", "data"} {
		if _, err := (Store{shared}).Make(t.Context(), name, nil, fill(t, time.Now(), "x")); err != nil {
			t.Fatal(err)
		}
	}
	makeTree(t, shared, map[string]string{"broken/etc/passwd": "", "notes.txt": ""})
	var got []string
	for _, l := range List([]string{own, shared, "/nowhere"}) {
		got = append(got, l.Name)
		if (l.Err != nil) != (l.Name == "broken") || (l.Image == nil) != (l.Name == "broken") {
			t.Errorf("%+v", l)
		}
	}
	if !slices.Equal(got, []string{"python", "broken", "data"}) {
		t.Errorf("got %q", got)
	}
	img, err := Find("python", []string{own})
	if err != nil {
		t.Fatal(err)
	}
	if total, common := img.Size(); total < 5000 || common != 0 {
		t.Errorf("size %d, shared %d", total, common)
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"data": true, "a.b-c_2": true, "": false, "Data": false, "../x": false, "a/b": false, "-x": false, ".hidden": false, "python-20260102030405-abcd": false,
		strings.Repeat("x", 65): false, "a b": false,
	} {
		if (CheckName(name) == nil) != ok {
			t.Errorf("%q: %v", name, CheckName(name))
		}
	}
	for _, ref := range []string{"docker.io/library/python:3.12", "/srv/Layout of mine", "x@sha256:" + strings.Repeat("a", 64), "://"} {
		if err := CheckName(NameOf(ref)); err != nil {
			t.Errorf("the name of %s: %v", ref, err)
		}
	}
	if NameOf("a:b") == NameOf("a-b:") {
		t.Error("two references have one name")
	}
}
