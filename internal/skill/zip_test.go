package skill

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goodManifest = "---\nname: table-cleaner\ndescription: Cleans tables.\n---\n\n# Table cleaner\n"

// entryOf is one entry of an archive that a test makes. raw sets what archive/zip would not write.
type entryOf struct {
	name string
	data string
	mode fs.FileMode // 0 is 0644
	raw  func(h *zip.FileHeader)
}

func zipOf(t testing.TB, entries ...entryOf) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Store, CRC32: crc32.ChecksumIEEE([]byte(e.data)),
			CompressedSize64: uint64(len(e.data)), UncompressedSize64: uint64(len(e.data))}
		if e.mode == 0 {
			e.mode = 0o644
		}
		h.SetMode(e.mode)
		if e.raw != nil {
			e.raw(h)
		}
		f, err := w.CreateRaw(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readZip(t testing.TB, data []byte) (*Package, *Report) {
	t.Helper()
	p, report, err := ReadZip(bytes.NewReader(data), int64(len(data)), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p, report
}

// patch replaces bytes of an archive at the first place where old stands behind from.
func patch(t *testing.T, data []byte, from int, old, with string) {
	t.Helper()
	at := bytes.Index(data[from:], []byte(old))
	if at < 0 {
		t.Fatalf("%q is not in the archive", old)
	}
	copy(data[from+at:], with)
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	good := entryOf{name: "table-cleaner/SKILL.md", data: goodManifest}
	deflated := func(size int) entryOf { // zeros
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		f, _ := w.Create("x")
		io.CopyN(f, zeros{}, int64(size))
		w.Close()
		r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := r.File[0].OpenRaw()
		packed, _ := io.ReadAll(raw)
		return entryOf{name: "table-cleaner/zeros", data: string(packed), raw: func(h *zip.FileHeader) {
			h.Method, h.CRC32, h.UncompressedSize64 = zip.Deflate, r.File[0].CRC32, uint64(size)
		}}
	}
	many := func(n int) []byte {
		var entries []entryOf
		for i := range n {
			entries = append(entries, entryOf{name: fmt.Sprintf("table-cleaner/f%06d", i)})
		}
		return zipOf(t, append(entries, good)...)
	}
	set := func(e entryOf, raw func(h *zip.FileHeader)) entryOf { e.raw = raw; return e }
	other := entryOf{name: "table-cleaner/other.txt", data: "other"}
	tests := []struct {
		name     string
		archive  func(t *testing.T) []byte
		code, at string
	}{
		{"not a zip", func(*testing.T) []byte { return []byte("hello") }, "zip", ""},
		{"empty", func(*testing.T) []byte { return nil }, "zip", ""},
		{"cut short", func(t *testing.T) []byte { b := zipOf(t, good); return b[:len(b)-30] }, "zip", ""},
		{"no entries", func(t *testing.T) []byte { return zipOf(t) }, "empty", ""},
		{"traversal", func(t *testing.T) []byte { return zipOf(t, good, entryOf{name: "table-cleaner/../../x"}) }, "path", "table-cleaner/../../x"},
		{"absolute", func(t *testing.T) []byte { return zipOf(t, good, entryOf{name: "/etc/cron.d/x"}) }, "path", "/etc/cron.d/x"},
		{"backslash", func(t *testing.T) []byte { return zipOf(t, good, entryOf{name: `table-cleaner\x`}) }, "path", `"table-cleaner\\x"`},
		{"NUL", func(t *testing.T) []byte { return zipOf(t, good, entryOf{name: "table-cleaner/a\x00.py"}) }, "path", `"table-cleaner/a\x00.py"`},
		{"not UTF-8", func(t *testing.T) []byte { return zipOf(t, good, entryOf{name: "table-cleaner/\xff"}) }, "path", `"table-cleaner/\xff"`},
		{"folder that leads out", func(t *testing.T) []byte { return zipOf(t, good, entryOf{name: "../x/", mode: fs.ModeDir | 0o755}) }, "path", "../x/"},
		{"link", func(t *testing.T) []byte {
			return zipOf(t, good, entryOf{name: "table-cleaner/passwd", data: "/etc/passwd", mode: fs.ModeSymlink | 0o777})
		}, "link", "table-cleaner/passwd"},
		{"device", func(t *testing.T) []byte {
			return zipOf(t, good, entryOf{name: "table-cleaner/null", mode: fs.ModeDevice | fs.ModeCharDevice | 0o666})
		}, "special", "table-cleaner/null"},
		{"pipe", func(t *testing.T) []byte {
			return zipOf(t, good, entryOf{name: "table-cleaner/pipe", mode: fs.ModeNamedPipe | 0o666})
		}, "special", "table-cleaner/pipe"},
		{"socket", func(t *testing.T) []byte {
			return zipOf(t, good, entryOf{name: "table-cleaner/sock", mode: fs.ModeSocket | 0o666})
		}, "special", "table-cleaner/sock"},
		{"duplicate", func(t *testing.T) []byte { return zipOf(t, good, other, other) }, "duplicate", "table-cleaner/other.txt"},
		{"case clash", func(t *testing.T) []byte { return zipOf(t, good, other, entryOf{name: "table-cleaner/OTHER.txt"}) }, "case-clash", "table-cleaner/OTHER.txt"},
		{"100,000 entries", func(*testing.T) []byte { return many(100_000) }, "zip64", ""},
		{"60,000 entries", func(*testing.T) []byte { return many(60_000) }, "too-many-files", "table-cleaner/f015000"},
		{"10,001 files", func(*testing.T) []byte { return many(10_000) }, "too-many-files", "table-cleaner/SKILL.md"},
		{"bomb that says so", func(t *testing.T) []byte { return zipOf(t, good, deflated(200<<20)) }, "too-large", "table-cleaner/zeros"},
		{"bomb that lies", func(t *testing.T) []byte {
			e := deflated(50 << 20)
			raw := e.raw
			return zipOf(t, good, set(e, func(h *zip.FileHeader) { raw(h); h.UncompressedSize64 = 10 }))
		}, "checksum", "table-cleaner/zeros"},
		{"shorter than it says", func(t *testing.T) []byte {
			return zipOf(t, good, set(other, func(h *zip.FileHeader) { h.UncompressedSize64, h.CompressedSize64 = 4, 4 }))
		}, "checksum", "table-cleaner/other.txt"},
		{"sum of many bombs", func(t *testing.T) []byte {
			a, b, c := deflated(40<<20), deflated(40<<20), deflated(40<<20)
			a.name, b.name, c.name = "table-cleaner/a", "table-cleaner/b", "table-cleaner/c"
			return zipOf(t, good, a, b, c)
		}, "too-large", "table-cleaner/c"},
		{"wrong checksum", func(t *testing.T) []byte { return zipOf(t, good, set(other, func(h *zip.FileHeader) { h.CRC32++ })) }, "checksum", "table-cleaner/other.txt"},
		{"checksum 0", func(t *testing.T) []byte { return zipOf(t, good, set(other, func(h *zip.FileHeader) { h.CRC32 = 0 })) }, "checksum", "table-cleaner/other.txt"},
		{"encrypted", func(t *testing.T) []byte { return zipOf(t, good, set(other, func(h *zip.FileHeader) { h.Flags |= 1 })) }, "encrypted", "table-cleaner/other.txt"},
		{"strongly encrypted", func(t *testing.T) []byte {
			return zipOf(t, good, set(other, func(h *zip.FileHeader) { h.Flags |= 0x40 }))
		}, "encrypted", "table-cleaner/other.txt"},
		{"unknown method", func(t *testing.T) []byte {
			return zipOf(t, good, set(other, func(h *zip.FileHeader) { h.Method = 93 }))
		}, "method", "table-cleaner/other.txt"},
		{"zip64 entry", func(t *testing.T) []byte {
			return zipOf(t, good, set(other, func(h *zip.FileHeader) { h.Extra = append([]byte{1, 0, 16, 0}, make([]byte, 16)...) }))
		}, "zip64", "table-cleaner/other.txt"},
		{"zip64 archive", func(t *testing.T) []byte {
			b := zipOf(t, good)
			at := bytes.LastIndex(b, []byte("PK\x05\x06"))
			return append(append(append([]byte{}, b[:at]...), append([]byte("PK\x06\x07"), make([]byte, 16)...)...), b[at:]...)
		}, "zip64", ""},
		{"descriptor that lies", func(t *testing.T) []byte {
			var b bytes.Buffer
			w := zip.NewWriter(&b)
			for _, e := range []entryOf{good, other} {
				f, _ := w.Create(e.name)
				io.WriteString(f, e.data)
			}
			w.Close()
			sum := binary.LittleEndian.AppendUint32([]byte("PK\x07\x08"), crc32.ChecksumIEEE([]byte(other.data)))
			patch(t, b.Bytes(), 0, string(sum), "PK\x07\x08\x00\x00\x00\x00")
			return b.Bytes()
		}, "checksum", "table-cleaner/other.txt"},
		{"another name in its own header", func(t *testing.T) []byte {
			b := zipOf(t, good, other)
			patch(t, b, 0, "table-cleaner/other.txt", "table-cleaner/OTHER.txt")
			return b
		}, "contradiction", "table-cleaner/other.txt"},
		{"another size in its own header", func(t *testing.T) []byte {
			b := zipOf(t, other, good)
			patch(t, b, 0, "\x05\x00\x00\x00\x05\x00\x00\x00", "\x05\x00\x00\x00\x06\x00\x00\x00")
			return b
		}, "contradiction", "table-cleaner/other.txt"},
		{"two entries, one place", func(t *testing.T) []byte {
			b := zipOf(t, other, entryOf{name: "table-cleaner/again.txt", data: "other"}, good)
			// The directory's entry for the second points to the first, under its name.
			end := bytes.LastIndex(b, []byte("PK\x05\x06"))
			start := int(binary.LittleEndian.Uint32(b[end+16:]))
			second := start + bytes.Index(b[start:], []byte("table-cleaner/again.txt")) - 46
			copy(b[second+46:], "table-cleaner/other.txt")
			binary.LittleEndian.PutUint32(b[second+42:], 0)
			return b
		}, "overlap", "table-cleaner/other.txt"},
		{"directory of another count", func(t *testing.T) []byte {
			b := zipOf(t, good, other)
			end := bytes.LastIndex(b, []byte("PK\x05\x06"))
			b[end+8], b[end+10] = 1, 1
			return b
		}, "zip", ""},
		{"larger than any", func(t *testing.T) []byte { return make([]byte, Lenient.ZipBytes+1) }, "zip-too-large", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, report := readZip(t, test.archive(t))
			if p != nil || report.Loads() {
				t.Fatalf("loaded, with %v", report.Findings)
			}
			for _, f := range report.Refusals() {
				if f.Code == test.code && f.Path == test.at {
					return
				}
			}
			t.Errorf("no refusal %s for %q in %v", test.code, test.at, report.Findings)
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestArchivesOfOtherPrograms: descriptors, folders as entries, a comment, a prefix, no modes.
func TestArchivesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString("#!/bin/sh\n# a prefix, as self-extracting archives have it\n")
	w := zip.NewWriter(&b)
	w.SetOffset(int64(b.Len()))
	add := func(name, data string) {
		f, err := w.Create(name) // with a data descriptor, and as if made on MS-DOS
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, data)
	}
	add("table-cleaner/", "")
	add("table-cleaner/SKILL.md", goodManifest)
	add("table-cleaner/scripts/", "")
	add("table-cleaner/scripts/a.sh", "#!/bin/sh\necho a\n")
	add("table-cleaner/scripts/b.txt", "b\n")
	w.SetComment("made by a test")
	w.Close()
	p, report := readZip(t, b.Bytes())
	if p == nil {
		t.Fatalf("%v", report.Findings)
	}
	want := []File{{Path: "SKILL.md", Data: []byte(goodManifest)}, {Path: "scripts/a.sh", Data: []byte("#!/bin/sh\necho a\n"), Exec: true},
		{Path: "scripts/b.txt", Data: []byte("b\n")}}
	if diff := cmp.Diff(want, p.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if p.Folder != "table-cleaner" || report.RefusedBy() != 0 {
		t.Errorf("folder %q, refused by %v", p.Folder, report.RefusedBy().Names())
	}
}

func TestWriteZipIsDeterministicAndReadsBack(t *testing.T) {
	t.Parallel()
	files := []File{
		{Path: "x/SKILL.md", Data: []byte(goodManifest)},
		{Path: "x/scripts/run.sh", Data: []byte("#!/bin/sh\n"), Exec: true},
		{Path: "x/data/größe.csv", Data: []byte(strings.Repeat("a,b\n", 1000))},
		{Path: "x/empty", Data: nil},
	}
	p, report := Read(files, Limits{})
	if p == nil {
		t.Fatal(report.Findings)
	}
	var first, second bytes.Buffer
	if err := p.WriteZip(&first); err != nil {
		t.Fatal(err)
	}
	files[0], files[3] = files[3], files[0]
	p2, _ := Read([]File{files[2], files[1], files[3], files[0]}, Limits{})
	if err := p2.WriteZip(&second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same files in another order give other bytes")
	}
	back, report := readZip(t, first.Bytes())
	if back == nil {
		t.Fatal(report.Findings)
	}
	if len(report.Findings) > 0 {
		t.Errorf("our own archive has faults: %v", report.Findings)
	}
	if diff := cmp.Diff(p.Files, back.Files, cmp.Transformer("text", func(b []byte) string { return string(b) })); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if back.Folder != "table-cleaner" {
		t.Errorf("the folder is %q", back.Folder)
	}
}

// TestReadersFailureIsNoFaultOfTheArchive: a broken disk must not be told to a client as a broken archive.
func TestReadersFailureIsNoFaultOfTheArchive(t *testing.T) {
	t.Parallel()
	data := zipOf(t, entryOf{name: "x/SKILL.md", data: goodManifest})
	for after := range 4 {
		_, _, err := ReadZip(&failing{data: data, after: after}, int64(len(data)), Limits{})
		if !errors.Is(err, errDisk) {
			t.Errorf("after %d reads: %v", after, err)
		}
	}
}

var errDisk = errors.New("disk")

type failing struct {
	data  []byte
	after int
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errDisk
	}
	return bytes.NewReader(f.data).ReadAt(p, off)
}

func FuzzReadZip(f *testing.F) {
	paths, _ := filepath.Glob("testdata/skills/*.txtar")
	for _, path := range paths[:min(10, len(paths))] {
		_, files := readCase(f, path)
		if p, _ := Read(files, Limits{}); p != nil {
			var b bytes.Buffer
			if err := p.WriteZip(&b); err != nil {
				f.Fatal(err)
			}
			f.Add(b.Bytes())
		}
	}
	f.Add(zipOf(f, entryOf{name: "a/SKILL.md", data: goodManifest}, entryOf{name: "a/b", mode: fs.ModeSymlink}))
	f.Fuzz(func(t *testing.T, data []byte) {
		limits := Limits{Files: 50, FileBytes: 1 << 20, TotalBytes: 1 << 20}
		p, report, err := ReadZip(bytes.NewReader(data), int64(len(data)), limits)
		if err != nil {
			t.Fatalf("an error of the reader: %v", err)
		}
		checkInvariants(t, p, report, limits)
	})
}

// checkInvariants holds for whatever was read.
func checkInvariants(t *testing.T, p *Package, report *Report, limits Limits) {
	t.Helper()
	if (p != nil) != report.Loads() {
		t.Fatalf("package %v and verdict differ: %v", p != nil, report.Findings)
	}
	if len(report.Findings) > maxFindings {
		t.Fatalf("%d findings", len(report.Findings))
	}
	for _, f := range report.Findings {
		if f.Code == "" || f.Message == "" || len(f.String()) > 2000 || strings.ContainsAny(f.String(), "\x00\x1b") {
			t.Errorf("a finding that cannot be shown: %q", f)
		}
	}
	if p == nil {
		if len(report.Refusals()) == 0 && report.More == 0 {
			t.Error("refused without a reason")
		}
		return
	}
	if p.Size() > limits.TotalBytes || len(p.Files) > limits.Files {
		t.Errorf("%d files, %d bytes", len(p.Files), p.Size())
	}
	if name := p.Meta.Name; name != Slug(name) || name == "" || len([]rune(name)) > MaxName {
		t.Errorf("the name %q is not safe", name)
	}
	if p.Meta.Description == "" {
		t.Error("no description")
	}
	manifests := 0
	for i, f := range p.Files {
		if problem := checkPath(f.Path); problem != "" {
			t.Errorf("%q %s", f.Path, problem)
		}
		if i > 0 && p.Files[i-1].Path >= f.Path {
			t.Errorf("%q behind %q", f.Path, p.Files[i-1].Path)
		}
		if f.Path == Manifest {
			manifests++
		}
	}
	if manifests != 1 {
		t.Errorf("%d manifests", manifests)
	}
	var b bytes.Buffer
	if err := p.WriteZip(&b); err != nil {
		t.Fatal(err)
	}
	again, second, err := ReadZip(bytes.NewReader(b.Bytes()), int64(b.Len()), Limits{})
	if err != nil || again == nil {
		t.Fatalf("our own archive is refused: %v %v", err, second)
	}
	if again.Meta.Name != p.Meta.Name && p.Meta.Title == p.Meta.Name {
		t.Errorf("name %q became %q", p.Meta.Name, again.Meta.Name)
	}
}

func FuzzManifest(f *testing.F) {
	paths, _ := filepath.Glob("testdata/skills/*.txtar")
	for _, path := range paths {
		_, files := readCase(f, path)
		for _, file := range files {
			if strings.EqualFold(filepath.Base(file.Path), Manifest) {
				f.Add(file.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, report := Read([]File{{Path: "folder-name/SKILL.md", Data: data}}, Limits{})
		checkInvariants(t, p, report, Lenient)
		if p != nil {
			prompt := Prompt([]Listed{{Name: p.Meta.Name, Description: p.Meta.Description, Dir: "/skills/" + p.Meta.Name}})
			if n := strings.Count(prompt, "<"); n != 10 {
				t.Errorf("%d tags in the prompt: %s", n, prompt)
			}
		}
	})
}
