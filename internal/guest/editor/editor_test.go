package editor

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// bench is a folder with a file "f", and the environment of calls in it.
func bench(t *testing.T, content string) (dir string, env Env) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"INPUT_DIR": dir, "HOME": dir, "N": "f"}
	return dir, Env{Dir: dir, Lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }}
}

func ptr[T any](v T) *T { return &v }

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestView(t *testing.T) {
	const text = "one\ntwo\r\nthree"
	tests := []struct {
		name, content string
		lines         []int
		want          proto.EditResult
		err           string
	}{
		{"all", text, nil, proto.EditResult{FileType: "text", Content: text, StartLine: 1, NumLines: 3, TotalLines: 3}, ""},
		{"part", text, []int{2, 2}, proto.EditResult{FileType: "text", Content: "two\r\n", StartLine: 2, NumLines: 1, TotalLines: 3}, ""},
		{"to the end", text, []int{2, -1}, proto.EditResult{FileType: "text", Content: "two\r\nthree", StartLine: 2, NumLines: 2, TotalLines: 3}, ""},
		{"beyond the end", text, []int{3, 99}, proto.EditResult{FileType: "text", Content: "three", StartLine: 3, NumLines: 1, TotalLines: 3}, ""},
		{"first line only given", text, []int{2}, proto.EditResult{FileType: "text", Content: "two\r\nthree", StartLine: 2, NumLines: 2, TotalLines: 3}, ""},
		{"empty file", "", nil, proto.EditResult{FileType: "text", StartLine: 1}, ""},
		{"last line break", "a\n", nil, proto.EditResult{FileType: "text", Content: "a\n", StartLine: 1, NumLines: 1, TotalLines: 1}, ""},
		{"no UTF-8", "a\xffb", nil, proto.EditResult{FileType: "text", Content: "a\uFFFDb", StartLine: 1, NumLines: 1, TotalLines: 1}, ""},
		{"begins behind the end", text, []int{4, 5}, proto.EditResult{}, "has 3 lines"},
		{"backwards", text, []int{3, 2}, proto.EditResult{}, "first <= last"},
		{"line 0", text, []int{0, 2}, proto.EditResult{}, "first <= last"},
		{"binary", "a\x00b", nil, proto.EditResult{}, "neither text"},
		{"png", "\x89PNG\r\n\x1a\n123", nil, proto.EditResult{FileType: "image", MIME: "image/png", Data: []byte("\x89PNG\r\n\x1a\n123")}, ""},
		{"pdf", "%PDF-1.7 x", nil, proto.EditResult{FileType: "pdf", MIME: "application/pdf", Data: []byte("%PDF-1.7 x")}, ""},
		{"lines of a picture", "GIF89a", []int{1, 2}, proto.EditResult{}, "text only"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, env := bench(t, test.content)
			got := Run(proto.EditCall{Command: "view", Path: "f", ViewRange: test.lines}, env)
			checkError(t, got, proto.EditInvalid, test.err)
			if test.err != "" {
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func checkError(t *testing.T, r proto.EditResult, code, part string) {
	t.Helper()
	if part == "" {
		if r.Error != "" {
			t.Fatalf("%s: %s", r.Error, r.Message)
		}
		return
	}
	if r.Error != code || !strings.Contains(r.Message, part) {
		t.Errorf("got %q %q, want %q with %q", r.Error, r.Message, code, part)
	}
}

func TestViewOfMuch(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	_, env := bench(t, strings.Repeat(line, 20_000))
	r := Run(proto.EditCall{Command: "view", Path: "f", ViewRange: []int{11, -1}}, env)
	if r.Error != "" || len(r.Content) > maxContent || r.NumLines != maxContent/100 || r.TotalLines != 20_000 || r.StartLine != 11 {
		t.Errorf("%d bytes, %d lines from %d of %d: %s", len(r.Content), r.NumLines, r.StartLine, r.TotalLines, r.Message)
	}
	dir, env := bench(t, strings.Repeat("é", maxContent))
	if r := Run(proto.EditCall{Command: "view", Path: "f"}, env); r.NumLines != 1 || len(r.Content) != maxContent {
		t.Errorf("one long line: %d bytes, %d lines", len(r.Content), r.NumLines)
	}
	if err := os.Truncate(filepath.Join(dir, "f"), maxFile+1); err != nil {
		t.Fatal(err)
	}
	checkError(t, Run(proto.EditCall{Command: "view", Path: "f"}, env), proto.EditInvalid, "larger than")
}

func TestViewOfAFolder(t *testing.T) {
	dir, env := bench(t, "x")
	for _, p := range []string{"b/c/d", ".hidden", "b/new\nline"} {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, p), nil, 0o644))
	}
	must(t, os.Symlink("/", filepath.Join(dir, "link")))
	r := Run(proto.EditCall{Command: "view", Path: "$INPUT_DIR/"}, env)
	want := "$INPUT_DIR/\n$INPUT_DIR/b/\n$INPUT_DIR/b/c/\n$INPUT_DIR/b/\"new\\nline\"\n$INPUT_DIR/f\n$INPUT_DIR/link\n"
	if r.Content != want || r.NumLines != 6 {
		t.Errorf("%q, %d lines", r.Content, r.NumLines)
	}
	checkError(t, Run(proto.EditCall{Command: "view", Path: dir, ViewRange: []int{1, 2}}, env), proto.EditInvalid, "folder")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPaths(t *testing.T) {
	dir, env := bench(t, "here")
	must(t, os.WriteFile(filepath.Join(dir, "$X"), []byte("here"), 0o644))
	for _, p := range []string{"f", "./x/../f", dir + "/f", "$INPUT_DIR/f", "${INPUT_DIR}/$N", "~/f", "$X", dir + "/$X"} {
		if r := Run(proto.EditCall{Command: "view", Path: p}, env); r.Content != "here" {
			t.Errorf("%s: %+v", p, r)
		}
	}
	for _, p := range []string{"nowhere", "f/below", "$NOWHERE/f", "$", "a$", "${N"} {
		checkError(t, Run(proto.EditCall{Command: "view", Path: p}, env), proto.EditNotFound, "there is no "+p)
	}
	checkError(t, Run(proto.EditCall{Command: "view", Path: strings.Repeat("a", 300)}, env), proto.EditInvalid, "cannot be used")
}

func TestCreate(t *testing.T) {
	dir, env := bench(t, "old")
	r := Run(proto.EditCall{Command: "create", Path: "a/b/new", FileText: ptr("text\n")}, env)
	if r.Error != "" || r.Updated || content(t, filepath.Join(dir, "a/b/new")) != "text\n" {
		t.Errorf("%+v", r)
	}
	must(t, os.Symlink("f", filepath.Join(dir, "link")))
	must(t, os.Link(filepath.Join(dir, "f"), filepath.Join(dir, "twin")))
	r = Run(proto.EditCall{Command: "create", Path: "link", FileText: ptr("x")}, env)
	if !r.Updated || content(t, filepath.Join(dir, "f")) != "x" || content(t, filepath.Join(dir, "twin")) != "x" {
		t.Errorf("through a link: %+v, %q", r, content(t, filepath.Join(dir, "f")))
	}
	info, err := os.Stat(filepath.Join(dir, "f"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file's rights are %v, %v", info.Mode(), err)
	}
	checkError(t, Run(proto.EditCall{Command: "create", Path: "a", FileText: ptr("x")}, env), proto.EditInvalid, "a folder")
	checkError(t, Run(proto.EditCall{Command: "create", Path: "f/x", FileText: ptr("x")}, env), proto.EditNotFound, "there is no f/x")
}

func TestStrReplace(t *testing.T) {
	lines := ""
	for i := 1; i <= 10; i++ {
		lines += fmt.Sprintf("line %d\n", i)
	}
	tests := []struct {
		name, content, from, to, want, err string
	}{
		{"once", lines, "line 5\n", "five\nand more\n", strings.Replace(lines, "line 5\n", "five\nand more\n", 1), ""},
		{"removed", "abc", "b", "", "ac", ""},
		{"CRLF", "a\r\nb\r\n", "a\nb", "c\nd", "c\r\nd\r\n", ""},
		{"bytes that are no UTF-8 stay", "\xffa", "a", "b", "\xffb", ""},
		{"not there", "a", "b", "c", "", "was not found"},
		{"other indentation", "x\n\tif a:\n\t\tb\n", "if a:\n    b", "c", "", "line 2 has it with other blanks"},
		{"twice", "a\nb\na\n", "a", "c", "", "occurs 2 times in f (lines 1, 3)"},
		{"empty", "a", "", "c", "", "old_str is empty"},
		{"same", "a", "a", "a", "", "nothing would change"},
		{"binary", "a\x00", "a", "b", "", "not a text file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir, env := bench(t, test.content)
			r := Run(proto.EditCall{Command: "str_replace", Path: "f", OldStr: &test.from, NewStr: &test.to}, env)
			checkError(t, r, proto.EditInvalid, test.err)
			if test.err != "" {
				test.want = test.content
			}
			if got := content(t, filepath.Join(dir, "f")); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestHunk(t *testing.T) {
	_, env := bench(t, "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	r := Run(proto.EditCall{Command: "str_replace", Path: "f", OldStr: ptr("5\n6"), NewStr: ptr("five\nsix\nand")}, env)
	want := proto.EditResult{
		OldStart: 2, OldLines: 8, NewStart: 2, NewLines: 9,
		Hunk: []string{" 2", " 3", " 4", "-5", "-6", "+five", "+six", "+and", " 7", " 8", " 9"},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	for _, test := range []struct {
		name, before, after string
		want                string
	}{
		{"first line of an empty file", "", "a\n", "0,0 1,1 +a"},
		{"all removed", "a\n", "", "1,1 0,0 -a"},
		{"a line repeated", "a\na\nb\n", "a\na\na\nb\n", "1,3 1,4  a| a|+a| b"},
		{"a line removed at the start", "a\nb\nc\n", "b\nc\n", "1,3 1,2 -a| b| c"},
		{"within a line", "x\nab\ny", "x\nacb\ny", "1,3 1,3  x|-ab|+acb| y"},
	} {
		r := hunk([]byte(test.before), []byte(test.after))
		got := fmt.Sprintf("%d,%d %d,%d %s", r.OldStart, r.OldLines, r.NewStart, r.NewLines, strings.Join(r.Hunk, "|"))
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestInsert(t *testing.T) {
	for _, test := range []struct {
		content    string
		after      int
		text, want string
		err        string
	}{
		{"a\nb\n", 0, "x", "x\na\nb\n", ""},
		{"a\nb\n", 1, "x\ny\n", "a\nx\ny\nb\n", ""},
		{"a\nb", 2, "x", "a\nb\nx", ""},
		{"", 0, "x", "x", ""},
		{"a\n", 2, "x", "a\n", "has 1 lines"},
		{"a\n", -1, "x", "a\n", "has 1 lines"},
		{"a\n", 1, "", "a\n", "nothing would change"},
	} {
		dir, env := bench(t, test.content)
		r := Run(proto.EditCall{Command: "insert", Path: "f", InsertLine: &test.after, InsertText: &test.text}, env)
		checkError(t, r, proto.EditInvalid, test.err)
		if got := content(t, filepath.Join(dir, "f")); got != test.want {
			t.Errorf("%d %q into %q: %q, want %q", test.after, test.text, test.content, got, test.want)
		}
	}
}

// TestHostile: what a program puts in a file's place must neither hold the editor up nor be written to.
func TestHostile(t *testing.T) {
	dir, env := bench(t, "x")
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	for path, want := range map[string]string{
		"fifo": "regular file", "/dev/zero": "regular file", "loop": "cannot be used", "/proc/self/mem": "",
	} {
		for _, c := range []proto.EditCall{
			{Command: "view", Path: path}, {Command: "create", Path: path, FileText: ptr("x")},
			{Command: "str_replace", Path: path, OldStr: ptr("x"), NewStr: ptr("y")},
			{Command: "insert", Path: path, InsertLine: ptr(0), InsertText: ptr("y")},
		} {
			if strings.HasPrefix(path, "/proc/") && c.Command != "view" {
				continue
			}
			r := Run(c, env)
			if r.Error == "" || !strings.Contains(r.Message, want) {
				t.Errorf("%s %s: %+v", c.Command, path, r)
			}
		}
	}
}

// TestFailedWriteKeepsTheFile: an old file survives a new one that cannot be written whole.
func TestFailedWriteKeepsTheFile(t *testing.T) {
	dir, env := bench(t, "old")
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limit := before
	limit.Cur = 1 << 20
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	ignoreTooLarge(t)
	r := Run(proto.EditCall{Command: "create", Path: "f", FileText: ptr(strings.Repeat("x", 2<<20))}, env)
	made := Run(proto.EditCall{Command: "create", Path: "g", FileText: ptr(strings.Repeat("x", 2<<20))}, env)
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
	checkError(t, r, proto.EditUnavailable, "file too large")
	checkError(t, made, proto.EditUnavailable, "file too large")
	if got := content(t, filepath.Join(dir, "f")); got != "old" {
		t.Errorf("%d bytes", len(got))
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 1 {
		t.Errorf("left behind: %q", names)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
}

func ignoreTooLarge(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
}
