package editor

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// context is how many lines a hunk has around a change.
const context = 3

// maxHunk is how large a hunk may be, in bytes; a larger one is left out, its place stays.
const maxHunk = 1 << 20

func (f *file) replace(from, to string) (r proto.EditResult, err error) {
	switch from {
	case "":
		return r, invalid("old_str is empty: it must be the text that is to be replaced")
	case to:
		return r, invalid("old_str and new_str are the same: nothing would change")
	}
	old, err := f.readText()
	if err != nil {
		return r, err
	}
	n := bytes.Count(old, []byte(from))
	if crlf := strings.ReplaceAll(from, "\n", "\r\n"); n == 0 && !strings.Contains(from, "\r") && bytes.Contains(old, []byte(crlf)) {
		// A model sees and writes only \n.
		from, to = crlf, strings.ReplaceAll(to, "\n", "\r\n")
		n = bytes.Count(old, []byte(from))
	}
	switch n {
	case 0:
		return r, invalid("old_str was not found in %s%s. It must be the text exactly as it is in the file, blanks and indentation included; "+
			"view the file to see it", f.shown, nearMiss(string(old), from))
	case 1:
	default:
		return r, invalid("old_str occurs %d times in %s (%s): add lines around it until it is unique", n, f.shown, places(old, from))
	}
	changed := bytes.Replace(old, []byte(from), []byte(to), 1)
	if len(changed) > maxFile {
		return r, invalid("%s would become larger than %d MiB", f.shown, maxFile>>20)
	}
	return hunk(old, changed), f.write(changed)
}

// places names the lines at which s occurs, ten at most.
func places(data []byte, s string) string {
	var lines []string
	line, from := 1, 0
	for len(lines) < 10 {
		i := bytes.Index(data[from:], []byte(s))
		if i < 0 {
			return "lines " + strings.Join(lines, ", ")
		}
		line += bytes.Count(data[from:from+i], []byte("\n"))
		lines = append(lines, fmt.Sprint(line))
		line += strings.Count(s, "\n")
		from += i + len(s)
	}
	return "lines " + strings.Join(lines, ", ") + ", ..."
}

// nearMiss says where the text would be if blanks did not count, the most frequent mistake.
func nearMiss(data, s string) string {
	want := trimmedLines(s)
	for len(want) > 0 && want[0] == "" {
		want = want[1:]
	}
	for len(want) > 0 && want[len(want)-1] == "" {
		want = want[:len(want)-1]
	}
	if len(want) == 0 {
		return ""
	}
	have := trimmedLines(data)
	for i := 0; i+len(want) <= len(have); i++ {
		if equal(have[i:i+len(want)], want) {
			return fmt.Sprintf(", but line %d has it with other blanks or indentation", i+1)
		}
	}
	return ""
}

func equal(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func trimmedLines(s string) []string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return lines
}

func (f *file) insert(after int, add string) (r proto.EditResult, err error) {
	old, err := f.readText()
	if err != nil {
		return r, err
	}
	lines := splitLines(string(old))
	if after < 0 || after > len(lines) {
		return r, invalid("insert_line is %d, and %s has %d lines: 0 inserts before the first one, %d after the last one", after, f.shown, len(lines), len(lines))
	}
	if add == "" {
		return r, invalid("insert_text is empty: nothing would change")
	}
	head, tail := strings.Join(lines[:after], ""), strings.Join(lines[after:], "")
	if !strings.HasSuffix(add, "\n") && tail != "" {
		add += "\n"
	}
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	if len(head)+len(add)+len(tail) > maxFile {
		return r, invalid("%s would become larger than %d MiB", f.shown, maxFile>>20)
	}
	changed := []byte(head + add + tail)
	return hunk(old, changed), f.write(changed)
}

// splitLines splits after each line break; what follows the last one is a line only if it is not empty.
func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// hunk is the difference of two texts that differ in one place.
func hunk(before, after []byte) (r proto.EditResult) {
	a, b := splitLines(string(before)), splitLines(string(after))
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	from := max(0, head-context)
	endA, endB := len(a)-tail, len(b)-tail
	rest := min(tail, context)
	var lines []string
	size := 0
	add := func(prefix string, part []string) {
		for _, l := range part {
			l = prefix + strings.ToValidUTF8(strings.TrimRight(l, "\r\n"), "\uFFFD")
			size += len(l)
			lines = append(lines, l)
		}
	}
	add(" ", a[from:head])
	add("-", a[head:endA])
	add("+", b[head:endB])
	add(" ", a[endA:endA+rest])
	if size <= maxHunk {
		r.Hunk = lines
	}
	r.OldStart, r.OldLines = start(from, endA+rest-from)
	r.NewStart, r.NewLines = start(from, endB+rest-from)
	return r
}

// start is how unified differences count: an empty side stands after the line before it.
func start(from, n int) (int, int) {
	if n == 0 {
		return from, 0
	}
	return from + 1, n
}
