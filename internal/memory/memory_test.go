package memory

import (
	"bytes"
	"context"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
)

func newImage(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mem_1")
	image, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(image, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const page = 4096

// pages is data with many empty pages, and an end that is not a whole one.
func pages() []byte {
	r := rand.New(rand.NewSource(1))
	data := make([]byte, 600*page+17)
	for i := 0; i < 600; i += 1 + r.Intn(9) {
		r.Read(data[i*page : i*page+1+r.Intn(page-1)])
	}
	return data
}

func TestPackAndUnpack(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"checkpoint.img": []byte("state"), "pages.img": pages(), "empty": {}, "zeros": make([]byte, 5*page)}
	dir := newImage(t, files)
	if _, ok := Sealed(dir); ok {
		t.Error("sealed before Seal")
	}
	n, err := Seal(dir)
	if err != nil || n <= 0 {
		t.Fatalf("seal: %d, %v", n, err)
	}
	var packed bytes.Buffer
	if err := Pack(t.Context(), dir, &packed); err != nil {
		t.Fatal(err)
	}
	back := filepath.Join(t.TempDir(), "back")
	if err := Unpack(t.Context(), bytes.NewReader(packed.Bytes()), back, 1<<30); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(Image(back), name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want the %d that were packed", name, len(got), err, len(want))
		}
	}
	if got, ok := Sealed(back); !ok || got != n {
		t.Errorf("unpacked: %d bytes, sealed %v; want %d", got, ok, n)
	}
	for _, cut := range []int{0, 1, packed.Len() / 2, packed.Len() - 9} {
		broken := filepath.Join(t.TempDir(), "broken")
		if err := Unpack(t.Context(), bytes.NewReader(packed.Bytes()[:cut]), broken, 1<<30); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut to %d bytes: %v", cut, err)
		}
		if left, _ := filepath.Glob(broken + "*"); len(left) > 0 {
			t.Errorf("cut to %d bytes left %q", cut, left)
		}
	}
	if err := Unpack(t.Context(), bytes.NewReader(packed.Bytes()), filepath.Join(t.TempDir(), "x"), 1000); !errors.Is(err, ErrDamaged) {
		t.Errorf("larger than allowed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Unpack(ctx, bytes.NewReader(packed.Bytes()), filepath.Join(t.TempDir(), "x"), 1<<30); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := filepath.Join(t.TempDir(), "x")
		if err := Unpack(t.Context(), bytes.NewReader(data), dir, 1<<20); err == nil {
			t.Error("anything is an image")
		}
	})
}

func TestShare(t *testing.T) {
	t.Parallel()
	dir := newImage(t, map[string][]byte{"pages": pages(), "state": []byte("x")})
	n, err := Seal(dir)
	if err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(t.TempDir(), "deep", "mem_2")
	if err := os.Mkdir(filepath.Dir(second), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Share(dir, second); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if got, ok := Sealed(second); !ok || got != n {
		t.Errorf("%d bytes, sealed %v", got, ok)
	}
	if data, err := os.ReadFile(filepath.Join(Image(second), "pages")); err != nil || !bytes.Equal(data, pages()) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if err := Share(dir, filepath.Join(t.TempDir(), "x")); err == nil {
		t.Error("an image that is gone was shared")
	}
}
