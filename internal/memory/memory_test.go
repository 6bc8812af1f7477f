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
	n, err := Seal(t.Context(), dir)
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
	if info, err := os.Stat(filepath.Join(Image(back), "pages.img")); err != nil || onDisk(info) >= info.Size()*3/4 {
		t.Errorf("unpacked without holes: %v", err)
	}
	if err := Verify(t.Context(), back); err != nil {
		t.Error(err)
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

func TestVerify(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(image string) error{
		"nothing": func(string) error { return nil },
		"a bit": func(image string) error {
			data, err := os.ReadFile(filepath.Join(image, "pages"))
			if err != nil {
				return err
			}
			data[12345] ^= 4
			return os.WriteFile(filepath.Join(image, "pages"), data, 0o600)
		},
		"cut short":   func(image string) error { return os.Truncate(filepath.Join(image, "pages"), 4) },
		"a file less": func(image string) error { return os.Remove(filepath.Join(image, "pages")) },
		"a file more": func(image string) error { return os.WriteFile(filepath.Join(image, "more"), nil, 0o600) },
		"another name": func(image string) error {
			return os.Rename(filepath.Join(image, "pages"), filepath.Join(image, "other"))
		},
		"no seal":         func(image string) error { return os.Remove(filepath.Join(image, "..", sealFile)) },
		"half a seal":     func(image string) error { return os.Truncate(filepath.Join(image, "..", sealFile), 9) },
		"nothing is left": func(image string) error { return os.RemoveAll(image) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := newImage(t, map[string][]byte{"pages": pages(), "state": []byte("x")})
			if _, err := Seal(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			if err := damage(Image(dir)); err != nil {
				t.Fatal(err)
			}
			if err := Verify(t.Context(), dir); (err == nil) != (name == "nothing") || err != nil && !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v", err)
			}
		})
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
