package container

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func openRoot(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

// What a program left in its folder, and what of it is looked at.
func TestLookTakesRegularFilesOnly(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "secret"), "host")
	for _, name := range []string{
		"a.csv", "sub/b.csv", "sub/deep/c", "with space ü", ".hidden", ".cache/x", "sub/.git/config", "__pycache__/m.pyc",
	} {
		write(t, filepath.Join(dir, name), "x")
	}
	must(t,
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")),
		os.Symlink(outside, filepath.Join(dir, "linkdir")),
		os.Symlink("..", filepath.Join(dir, "sub", "up")),
		os.Symlink(".", filepath.Join(dir, "self")),
		os.Symlink("a.csv", filepath.Join(dir, "inner")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666),
	)
	l, err := lookAt(openRoot(t, dir))
	must(t, err)
	want := []string{"a.csv", "sub/b.csv", "sub/deep/c", "with space ü"}
	if diff := cmp.Diff(want, l.paths()); diff != "" || l.left {
		t.Errorf("left %v, (-want +got):\n%s", l.left, diff)
	}
}

func TestOpenRegular(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "secret"), "host")
	write(t, filepath.Join(dir, "file"), "x")
	must(t,
		os.Mkdir(filepath.Join(dir, "folder"), 0o755),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "absolute")),
		os.Symlink("../"+filepath.Base(outside)+"/secret", filepath.Join(dir, "relative")),
		os.Symlink(outside, filepath.Join(dir, "linkdir")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666),
	)
	root := openRoot(t, dir)
	f, _, err := openRegular(root, "file")
	must(t, err)
	f.Close()
	for _, name := range []string{"folder", "absolute", "relative", "linkdir/secret", "fifo", "none", "../x"} {
		done := make(chan error, 1)
		go func() {
			f, _, err := openRegular(root, name)
			if err == nil {
				f.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s was opened", name)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("opening %s hangs", name)
		}
	}
}

// A program that swaps a folder for a FIFO and for links out, while we look.
func TestLookWhileTheTreeChanges(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "secret"), "host")
	target := filepath.Join(dir, "target")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			os.RemoveAll(target)
			switch i % 3 {
			case 0:
				os.Mkdir(target, 0o755)
				os.WriteFile(filepath.Join(target, "f"), nil, 0o644)
			case 1:
				syscall.Mkfifo(target, 0o666)
			case 2:
				os.Symlink(outside, target)
			}
		}
	}()
	root := openRoot(t, dir)
	looked := make(chan error, 1)
	go func() {
		for range 3000 {
			l, err := lookAt(root)
			if err != nil {
				looked <- err
				return
			}
			for p := range l.files {
				if p != "target/f" {
					looked <- fmt.Errorf("saw %q", p)
					return
				}
			}
		}
		looked <- nil
	}()
	select {
	case err := <-looked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("looking hangs")
	}
	close(stop)
	<-stopped
}

func TestLookIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := dir
	for range maxDepth + 5 {
		deep = filepath.Join(deep, "d")
	}
	write(t, filepath.Join(deep, "bottom"), "x")
	write(t, filepath.Join(dir, "z"), "x")
	write(t, filepath.Join(dir, "a"), "x")
	l, err := lookAt(openRoot(t, dir))
	must(t, err)
	if diff := cmp.Diff([]string{"a", "z"}, l.paths()); !l.left || diff != "" {
		t.Errorf("a file in %d folders: left %v, (-want +got):\n%s", maxDepth+5, l.left, diff)
	}
	wide := t.TempDir()
	for i := range 60 {
		must(t, os.Mkdir(filepath.Join(wide, fmt.Sprint(i)), 0o755))
	}
	l, err = lookAtMost(openRoot(t, wide), 50)
	must(t, err)
	if !l.left || l.seen != 51 {
		t.Errorf("60 folders: left %v, %d seen", l.left, l.seen)
	}
}

func TestStampSeesForgedTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	write(t, path, "one")
	before, err := lookAt(openRoot(t, dir))
	must(t, err)
	info, err := os.Stat(path)
	must(t, err)
	// Two clock ticks later, as sure as a forger can be.
	for {
		write(t, filepath.Join(t.TempDir(), "probe"), "x")
		write(t, path, "two")
		must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
		after, err := lookAt(openRoot(t, dir))
		must(t, err)
		if after.files["a"].ctime != before.files["a"].ctime {
			break
		}
	}
	after, err := lookAt(openRoot(t, dir))
	must(t, err)
	if after.files["a"].mtime != before.files["a"].mtime || after.files["a"] == before.files["a"] {
		t.Errorf("before %+v, after %+v: want the forged mtime and another stamp", before.files["a"], after.files["a"])
	}
}

func BenchmarkLook(b *testing.B) {
	for _, shape := range []struct {
		name, path string
		n          int
	}{{"100 files", "f%03d.csv", 100}, {"100 files 3 deep", "a/b/c/f%03d.csv", 100}, {"10000 files", "f%05d.csv", 10_000}} {
		b.Run(shape.name, func(b *testing.B) {
			dir := b.TempDir()
			for i := range shape.n {
				write(b, filepath.Join(dir, fmt.Sprintf(shape.path, i)), "x")
			}
			root := openRoot(b, dir)
			b.ReportAllocs()
			for b.Loop() {
				l, err := lookAt(root)
				if err != nil || len(l.files) != shape.n {
					b.Fatalf("%d files, %v", len(l.files), err)
				}
			}
		})
	}
}

func TestCleanName(t *testing.T) {
	t.Parallel()
	long := ""
	for range 300 {
		long += "ü"
	}
	for _, tt := range []struct{ in, want string }{
		{"a.csv", "a.csv"},
		{"dir/sub/a.csv", "a.csv"},
		{`C:\Users\me\a.csv`, "a.csv"},
		{"../../etc/passwd", "passwd"},
		{"..", "file"},
		{"", "file"},
		{"a/", "file"},
		{"...", "file"},
		{"a\x00b\nc\x7f.txt", "abc.txt"},
		{"invoice\u202efdp.exe", "invoicefdp.exe"},
		{"\xff\xfe", "file"},
		{"  spaced.txt ", "spaced.txt"},
		{".bashrc", ".bashrc"},
		{"数据.csv", "数据.csv"},
		{long + ".csv", long[:196] + ".csv"},
		{long, long[:200]},
	} {
		if got := CleanName(tt.in); got != tt.want {
			t.Errorf("CleanName(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzCleanName(f *testing.F) {
	f.Add("a/../b\x00")
	f.Fuzz(func(t *testing.T, in string) {
		got := CleanName(in)
		if got == "" || got == "." || got == ".." || len(got) > maxName || filepath.Base(got) != got || CleanName(got) != got {
			t.Errorf("CleanName(%q) = %q", in, got)
		}
	})
}

func TestNumbered(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		n    int
		want string
	}{{"a.csv", 1, "a.csv"}, {"a.csv", 2, "a (2).csv"}, {"a.tar.gz", 3, "a.tar (3).gz"}, {".env", 2, ".env (2)"}, {"none", 2, "none (2)"}} {
		if got := numbered(tt.name, tt.n); got != tt.want {
			t.Errorf("numbered(%q, %d) = %q, want %q", tt.name, tt.n, got, tt.want)
		}
	}
}
