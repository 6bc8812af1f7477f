package oci

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/image/rootfs"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// lay applies tars one over another in a folder beside which nothing may change.
func lay(t *testing.T, limits Limits, layers ...[]byte) (string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	outside := filepath.Join(filepath.Dir(dir), "outside")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "victim"), []byte("whole"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tr := &tree{fs: root, limits: limits}
	for _, l := range layers {
		if err = tr.apply(t.Context(), bytes.NewReader(l)); err != nil {
			break
		}
	}
	if got := list(t, outside); !slices.Equal(got, []string{"victim whole"}) {
		t.Errorf("outside of the root there is now %q", got)
	}
	if entries, _ := os.ReadDir(filepath.Dir(dir)); len(entries) != 2 {
		t.Errorf("beside the root there is now %v", entries)
	}
	return dir, err
}

func TestLayers(t *testing.T) {
	const dir, link, hard = tar.TypeDir, tar.TypeSymlink, tar.TypeLink
	tests := map[string]struct {
		layers [][]entry
		want   []string
	}{
		"folders that have no entry": {[][]entry{{{name: "a/b/c", body: "1"}}}, []string{"a/", "a/b/", "a/b/c 1"}},
		"names that begin with / or ./": {[][]entry{{{name: "/a", body: "1"}, {name: "./b", body: "2"}, {name: "./", kind: dir}, {name: "c//d", body: "3"}}},
			[]string{"a 1", "b 2", "c/", "c/d 3"}},
		"whiteout":                          {[][]entry{{{name: "d/a", body: "1"}, {name: "d/b", body: "2"}}, {{name: "d/.wh.a"}, {name: ".wh.none"}}}, []string{"d/", "d/b 2"}},
		"whiteout of a folder":              {[][]entry{{{name: "d/e/a", body: "1"}}, {{name: ".wh.d"}}}, nil},
		"whiteout hides only what is below": {[][]entry{{{name: "d/old", body: "1"}}, {{name: "d/new", body: "2"}, {name: ".wh.d"}}}, []string{"d/", "d/new 2"}},
		"opaque folder": {[][]entry{{{name: "d/a", body: "1"}, {name: "d/s/b", body: "2"}, {name: "d/s/t/c", body: "3"}},
			{{name: "d/s/new", body: "4"}, {name: "d/.wh..wh..opq"}}}, []string{"d/", "d/s/", "d/s/new 4"}},
		"opaque of what is not there": {[][]entry{{{name: "d/.wh..wh..opq"}}}, nil},
		"aufs' own":                   {[][]entry{{{name: ".wh..wh.plnk/1", body: "x"}, {name: ".wh..wh.aufs", body: "x"}}}, []string{".wh..wh.plnk/", ".wh..wh.plnk/1 x"}},
		"a file over a file":          {[][]entry{{{name: "a", body: "1"}}, {{name: "a", body: "2"}}}, []string{"a 2"}},
		"twice in one layer":          {[][]entry{{{name: "a", body: "1"}, {name: "a", body: "2"}}}, []string{"a 2"}},
		"a file over a folder":        {[][]entry{{{name: "a/b", body: "1"}}, {{name: "a", body: "2"}}}, []string{"a 2"}},
		"a folder over a file":        {[][]entry{{{name: "a", body: "1"}}, {{name: "a", kind: dir}, {name: "a/b", body: "2"}}}, []string{"a/", "a/b 2"}},
		"a folder over a folder":      {[][]entry{{{name: "a/b", body: "1"}}, {{name: "a", kind: dir}}}, []string{"a/", "a/b 1"}},
		"a folder over a link":        {[][]entry{{{name: "lib", kind: link, link: "usr"}}, {{name: "lib", kind: dir}}}, []string{"lib/"}},
		"through a link": {[][]entry{{{name: "usr/lib/a", body: "1"}, {name: "lib", kind: link, link: "usr/lib"}}, {{name: "lib/b", body: "2"}, {name: "lib/.wh.a"}}},
			[]string{"lib -> usr/lib", "usr/", "usr/lib/", "usr/lib/b 2"}},
		"through an absolute link": {[][]entry{{{name: "run/x", body: "1"}, {name: "var/run", kind: link, link: "/run"}}, {{name: "var/run/y", body: "2"}}},
			[]string{"run/", "run/x 1", "run/y 2", "var/", "var/run -> /run"}},
		"hard links": {[][]entry{{{name: "a", body: "1"}, {name: "d/b", kind: hard, link: "a"}}, {{name: "a", body: "2"}}}, []string{"a 2", "d/", "d/b 1"}},
		"a hard link to a link": {[][]entry{{{name: "l", kind: link, link: "/etc/x"}, {name: "m", kind: hard, link: "/l"}}},
			[]string{"l -> /etc/x", "m -> /etc/x"}},
		"a hard link to itself": {[][]entry{{{name: "a", body: "1"}, {name: "a", kind: hard, link: "a"}}}, []string{"a 1"}},
		"devices are left out": {[][]entry{{{name: "dev/null", kind: tar.TypeChar}, {name: "dev/sda", kind: tar.TypeBlock}, {name: "dev/p", kind: tar.TypeFifo}}},
			[]string{"dev/"}},
		// What follows is hostile.
		"a link out of the root, and through it": {[][]entry{{{name: "l", kind: link, link: "../outside"}, {name: "l/victim", body: "2"}}},
			[]string{"l -> ../outside", "outside/", "outside/victim 2"}},
		"an absolute link, and through it": {[][]entry{{{name: "l", kind: link, link: "/../../outside"}, {name: "l/victim", body: "2"}}},
			[]string{"l -> /../../outside", "outside/", "outside/victim 2"}},
		"a link, then a file of its name": {[][]entry{{{name: "l", kind: link, link: "../outside/victim"}, {name: "l", body: "2"}}}, []string{"l 2"}},
		"a whiteout through a link":       {[][]entry{{{name: "l", kind: link, link: "../outside"}}, {{name: "l/.wh.victim"}}}, []string{"l -> ../outside"}},
		"an opaque link":                  {[][]entry{{{name: "l", kind: link, link: "../outside"}}, {{name: "l/.wh..wh..opq"}}}, []string{"l -> ../outside"}},
		"a hard link through a link": {[][]entry{{{name: "outside/victim", body: "inner"}, {name: "l", kind: link, link: "../outside"}, {name: "h", kind: hard, link: "l/victim"}}},
			[]string{"h inner", "l -> ../outside", "outside/", "outside/victim inner"}},
		"a chain of links": {[][]entry{{{name: "a", kind: link, link: "b/.."}, {name: "b", kind: link, link: "../.."}, {name: "a/x", body: "1"}}},
			[]string{"a -> b/..", "b -> ../..", "x 1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tt.layers {
				layers = append(layers, tarOf(t, l...))
			}
			dir, err := lay(t, DefaultLimits, layers...)
			if err != nil {
				t.Fatal(err)
			}
			if got := list(t, dir); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestHostileLayers(t *testing.T) {
	small := Limits{Bytes: 1000, Entries: 50, Names: 2000, Layers: 2}
	many := make([]entry, 60)
	for i := range many {
		many[i] = entry{name: fmt.Sprintf("f%d", i)}
	}
	tests := map[string]struct {
		entries []entry
		want    string
	}{
		"..":                          {[]entry{{name: "../outside/victim", body: "x"}}, ".. in its name"},
		".. in the middle":            {[]entry{{name: "a/../../outside/victim", body: "x"}}, ".. in its name"},
		"a hard link out":             {[]entry{{name: "h", kind: tar.TypeLink, link: "../outside/victim"}}, ".. in its name"},
		"a hard link to nothing":      {[]entry{{name: "h", kind: tar.TypeLink, link: "none"}}, "not there"},
		"a hard link to a folder":     {[]entry{{name: "d", kind: tar.TypeDir}, {name: "h", kind: tar.TypeLink, link: "d"}}, "to a folder"},
		"a hard link out by a link":   {[]entry{{name: "l", kind: tar.TypeSymlink, link: "/etc"}, {name: "h", kind: tar.TypeLink, link: "l/passwd"}}, "not there"},
		"a loop of links":             {[]entry{{name: "a", kind: tar.TypeSymlink, link: "b"}, {name: "b", kind: tar.TypeSymlink, link: "a"}, {name: "a/x"}}, "too many links"},
		"a whiteout of nothing":       {[]entry{{name: "d/.wh."}}, "whiteout of nothing"},
		"a whiteout of ..":            {[]entry{{name: "d/.wh..."}}, "whiteout of nothing"},
		"below a file":                {[]entry{{name: "f", body: "1"}, {name: "f/x", body: "2"}}, "not a directory"},
		"an unknown type":             {[]entry{{name: "x", kind: 'Z'}}, "unknown type"},
		"too many":                    {many, "more than 50 files"},
		"too large":                   {[]entry{{name: "a", body: strings.Repeat("x", 600)}, {name: "b", body: strings.Repeat("x", 600)}}, "larger than"},
		"too long names":              {[]entry{{name: strings.Repeat("n/", 1000) + "x"}, {name: strings.Repeat("m/", 1000) + "x"}}, "more than 50 files"},
		"a name longer than any":      {[]entry{{name: strings.Repeat("n", 300), body: "x"}}, "too long"},
		"folders that nobody entered": {[]entry{{name: strings.Repeat("n/", 100) + "x"}}, "more than 50 files"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := lay(t, small, tarOf(t, tt.entries...)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := lay(t, small, []byte(strings.Repeat("no tar ", 200))); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("no tar: %v", err)
	}
	// A file that says it has holes of more than a disk.
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: "sparse", Typeflag: tar.TypeReg, Size: 1 << 50})
	if _, err := lay(t, small, b.Bytes()); err == nil {
		t.Error("a file without its content was taken")
	}
}

// TestRights: neither owner nor rights are a stranger's to choose, and times are kept.
func TestRights(t *testing.T) {
	dir, err := lay(t, DefaultLimits, tarOf(t,
		entry{name: "su", body: "x", mode: 0o6755}, entry{name: "secret", body: "x", mode: 0o600}, entry{name: "run", body: "x", mode: 0o700},
		entry{name: "d", kind: tar.TypeDir, mode: 0o1700}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"su": 0o755, "secret": 0o644, "run": 0o755, "d": os.ModeDir | 0o755} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s has %v, %v, want %v", name, info.Mode(), err, want)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; int(uid) != os.Getuid() {
			t.Errorf("%s belongs to %d", name, uid)
		}
		if name == "secret" && !info.ModTime().Equal(time.Unix(1e9, 0)) {
			t.Errorf("the time is %v", info.ModTime())
		}
	}
}

// TestBomb: a layer that grows without end while it is decompressed ends at the limit.
func TestBomb(t *testing.T) {
	zeros := make([]byte, 4<<20)
	for name, plain := range map[string][]byte{"behind the tar": append(tarOf(t, entry{name: "a", body: "x"}), zeros...), "instead of one": zeros} {
		for _, pack := range []func(*testing.T, []byte) blob{zipped, zstandard} {
			img, err := Config{Keychain: anonymous.Keychain, Limits: Limits{Bytes: 1 << 20, Entries: 10, Names: 1000, Layers: 2}}.Open(layoutOf(t, imageOf(t, pack(t, plain))))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := unpack(t, img); err == nil || !strings.Contains(err.Error(), "larger than") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// FuzzLayer: whatever a tar says, nothing outside of the root changes.
func FuzzLayer(f *testing.F) {
	f.Add([]byte("l"), []byte("../outside"), byte(tar.TypeSymlink), []byte("l/victim"), byte(tar.TypeReg))
	f.Add([]byte("l"), []byte("/"), byte(tar.TypeSymlink), []byte("l/.wh.outside"), byte(tar.TypeReg))
	f.Add([]byte("a/../b"), []byte("l"), byte(tar.TypeLink), []byte(".wh..wh..opq"), byte(tar.TypeDir))
	f.Fuzz(func(t *testing.T, name, link []byte, kind byte, second []byte, secondKind byte) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []*tar.Header{
			{Name: string(name), Linkname: string(link), Typeflag: kind, Mode: 0o777},
			{Name: string(second), Linkname: string(link), Typeflag: secondKind, Mode: 0o777},
			{Name: string(second), Linkname: string(name), Typeflag: tar.TypeLink, Mode: 0o777},
		} {
			_ = w.WriteHeader(h) // what tar cannot say is left out
		}
		_ = w.Close()
		_, _ = lay(t, Limits{Bytes: 1000, Entries: 100, Names: 10000, Layers: 1}, b.Bytes())
	})
}
