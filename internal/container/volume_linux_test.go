package container

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A copy has the bytes of the original and takes no more of the disk, also when many are made at once.
func TestCopyHoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, err := os.Create(filepath.Join(dir, "from"))
	must(t, err)
	defer from.Close()
	must(t, from.Truncate(64<<20))
	data := make([]byte, 100_000)
	rand.Read(data)
	places := []int64{0, 5 << 20, 64<<20 - int64(len(data))}
	for _, at := range places {
		_, err := from.WriteAt(data, at)
		must(t, err)
	}
	var copies sync.WaitGroup
	for i := range 8 {
		copies.Go(func() {
			path := filepath.Join(dir, string(rune('a'+i)))
			if err := copyHoles(path, from); err != nil {
				t.Error(err)
				return
			}
			want, err := os.ReadFile(from.Name())
			got, errGot := os.ReadFile(path)
			if err != nil || errGot != nil || string(got) != string(want) {
				t.Errorf("the copy differs: %v, %v", err, errGot)
			}
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil || st.Blocks*512 > 2<<20 {
				t.Errorf("the copy takes %d bytes of the disk, %v", st.Blocks*512, err)
			}
		})
	}
	copies.Wait()
}

func BenchmarkVolume(b *testing.B) {
	v := newVolumes(context.Background(), b.TempDir(), 5<<30, false)
	if !v.images {
		b.Skipf("needs disk images: %v", v.why)
	}
	for b.Loop() {
		img := filepath.Join(v.dir, "img")
		must(b, v.makeImage(b.Context(), img, v.disk), os.Remove(img))
	}
	must(b, v.close())
}
