package blob_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/lathe-gateway/lathe/internal/blob"
)

func open(t *testing.T, dir string) *blob.Store {
	t.Helper()
	s, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t *testing.T, s *blob.Store, project, text string) string {
	t.Helper()
	sum, n, err := s.Put(t.Context(), project, strings.NewReader(text), 1<<20)
	if err != nil || n != int64(len(text)) {
		t.Fatalf("put: %d bytes, %v", n, err)
	}
	return sum
}

func read(t *testing.T, s *blob.Store, project, sum string) string {
	t.Helper()
	r, err := s.Open(t.Context(), project, sum)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// files lists what is on the disk, so that leftovers show.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPutOpenDelete(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	sum := put(t, s, "p", "hello")
	if want := sha256.Sum256([]byte("hello")); sum != hex.EncodeToString(want[:]) {
		t.Errorf("named %s", sum)
	}
	put(t, s, "p", "hello")
	put(t, s, "p", "")
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("two different blobs lie in %q", got)
	}
	if got := read(t, s, "p", sum); got != "hello" {
		t.Errorf("read %q", got)
	}
	if _, err := s.Open(t.Context(), "q", sum); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("another project's blob: %v", err)
	}
	for _, bad := range []string{"", "../../etc/passwd", sum[:63], sum + "/x", strings.ToUpper(sum[:2]) + "zz"} {
		if _, err := s.Open(t.Context(), "p", bad); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("open %q: %v", bad, err)
		}
	}
	if err := s.Delete(t.Context(), "p", sum); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "p", sum); err != nil {
		t.Errorf("deleted twice: %v", err)
	}
	if _, err := s.Open(t.Context(), "p", sum); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("open a deleted blob: %v", err)
	}
}

func TestLimitAndErrorsLeaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	endless := io.MultiReader(strings.NewReader("x"), zeroReader{})
	if _, _, err := s.Put(t.Context(), "p", endless, 300_000); !errors.Is(err, blob.ErrTooLarge) {
		t.Errorf("an endless reader: %v", err)
	}
	if _, n, err := s.Put(t.Context(), "p", strings.NewReader("12345"), 5); err != nil || n != 5 {
		t.Errorf("exactly the limit: %d, %v", n, err)
	}
	broken := errors.New("connection reset")
	if _, _, err := s.Put(t.Context(), "p", iotest.ErrReader(broken), 5); !errors.Is(err, broken) {
		t.Errorf("a broken reader: %v", err)
	}
	gone := errors.New("client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, _, err := s.Put(ctx, "p", zeroReader{}, 1<<40); !errors.Is(err, gone) {
		t.Errorf("a cancelled put: %v", err)
	}
	staged, err := s.Stage(t.Context(), strings.NewReader("discarded"), 100)
	if err != nil {
		t.Fatal(err)
	}
	staged.Discard()
	staged.Discard()
	if err := staged.Commit("p"); err == nil {
		t.Error("a discarded blob was committed")
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("left behind: %q", got)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestCrashLeavesNoSpool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.Stage(t.Context(), strings.NewReader("half"), 100); err != nil {
		t.Fatal(err)
	}
	sum := put(t, s, "p", "whole")
	s = open(t, dir) // as after kill -9
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("after a restart: %q", got)
	}
	if got := read(t, s, "p", sum); got != "whole" {
		t.Errorf("read %q", got)
	}
}

// Bug pinned: a file that ends in a hole was too short, since a seek does not make a file longer.
func TestSparse(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	rapid.Check(t, func(t *rapid.T) {
		var data []byte
		for range rapid.IntRange(0, 3).Draw(t, "runs") {
			n := rapid.SampledFrom([]int{0, 1, 4095, 4096, 128 << 10, 128<<10 + 1, 140_000}).Draw(t, "length")
			data = append(data, bytes.Repeat([]byte{rapid.SampledFrom([]byte{0, 'x'}).Draw(t, "byte")}, n)...)
		}
		sum, n, err := s.Put(context.Background(), "p", bytes.NewReader(data), 1<<30)
		if err != nil || n != int64(len(data)) {
			t.Fatalf("put: %d, %v", n, err)
		}
		r, err := s.Open(context.Background(), "p", sum)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes came back as %d, %v", len(data), len(got), err)
		}
	})
}

func TestSeek(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	r, err := s.Open(t.Context(), "p", put(t, s, "p", "0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	end, err := r.Seek(0, io.SeekEnd)
	if err != nil || end != 10 {
		t.Fatalf("seek to the end: %d, %v", end, err)
	}
	if _, err := r.Seek(4, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.LimitReader(r, 3))
	if err != nil || string(got) != "456" {
		t.Errorf("range: %q, %v", got, err)
	}
}

func TestConcurrentPutsOfTheSameBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, _, err := s.Put(context.Background(), "p", strings.NewReader("same"), 100); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	kept, lost := put(t, s, "p", "kept"), put(t, s, "q", "lost")
	n, err := s.Sweep(t.Context(), time.Now().Add(time.Hour), func(k string) bool { return k == blob.Key("p", kept) })
	if err != nil || n != 1 {
		t.Fatalf("swept %d, %v", n, err)
	}
	read(t, s, "p", kept)
	if _, err := s.Open(t.Context(), "q", lost); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("swept blob: %v", err)
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	put(t, open(t, dir), "p", "secret")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	ctx := t.Context()
	sum, n, err := s.PutNamed(ctx, "p", "mem_1", strings.NewReader("memory"))
	if want := sha256.Sum256([]byte("memory")); err != nil || n != 6 || sum != hex.EncodeToString(want[:]) {
		t.Fatalf("put: %s, %d, %v", sum, n, err)
	}
	if _, _, err := s.PutNamed(ctx, "q", "mem_1", strings.NewReader("of another project")); err != nil {
		t.Fatal(err)
	}
	failing := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("broken")))
	if _, _, err := s.PutNamed(ctx, "p", "mem_2", failing); err == nil {
		t.Error("half a blob was kept")
	}
	get := func(project, id string) (string, error) {
		r, err := s.OpenNamed(ctx, project, id)
		if err != nil {
			return "", err
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		return string(data), err
	}
	if got, err := get("p", "mem_1"); got != "memory" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, id := range []string{"mem_2", "", "..", "mem_../x", "mem", "mem_a/b", sum} {
		if _, err := get("p", id); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", id, err)
		}
		if id != "mem_2" {
			if _, _, err := s.PutNamed(ctx, "p", id, strings.NewReader("x")); err == nil {
				t.Errorf("%q is taken as a name", id)
			}
		}
	}
	keep := blob.NamedKey("p", "mem_1")
	if n, err := s.Sweep(ctx, time.Now().Add(time.Hour), func(key string) bool { return key == keep }); n != 1 || err != nil {
		t.Errorf("swept %d, %v; want the other project's", n, err)
	}
	for range 2 {
		if err := s.DeleteNamed(ctx, "p", "mem_1"); err != nil {
			t.Error(err)
		}
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// What is being written while others sweep has no row yet.
func TestSweepSparesWhatIsNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	old, again := put(t, s, "p", "old"), put(t, s, "p", "again")
	long := time.Now().Add(-time.Hour)
	for _, sum := range []string{old, again} {
		if err := os.Chtimes(filepath.Join(dir, blob.Key("p", sum)), long, long); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "p", "again")
	fresh := put(t, s, "p", "fresh")
	n, err := s.Sweep(t.Context(), time.Now().Add(-time.Minute), func(string) bool { return false })
	if n != 1 || err != nil {
		t.Errorf("swept %d, %v; want the old one", n, err)
	}
	for text, sum := range map[string]string{"again": again, "fresh": fresh} {
		if got := read(t, s, "p", sum); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
