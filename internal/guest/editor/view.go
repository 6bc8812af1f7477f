package editor

import (
	"bytes"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

const (
	// maxEntries caps the entries of a listing, maxNames those that are read of one folder, listDepth the folders within folders.
	maxEntries = 1000
	maxNames   = 10_000
	listDepth  = 2
)

func (f *file) view(lines []int) (r proto.EditResult, err error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return r, err
	}
	if info.IsDir() {
		if len(lines) > 0 {
			return r, invalid("%s is a folder: view_range is for files only", f.shown)
		}
		return f.list()
	}
	data, err := f.read()
	if err != nil {
		return r, err
	}
	if kind, mime := media(data); kind != "" {
		return f.media(kind, mime, data, lines)
	}
	if binary(data) {
		return r, invalid("%s is neither text nor an image nor a PDF; look at it with a program", f.shown)
	}
	return f.text(strings.ToValidUTF8(string(data), "\uFFFD"), lines)
}

func (f *file) text(content string, lines []int) (r proto.EditResult, err error) {
	all := splitLines(content)
	first, last, err := f.span(lines, len(all))
	if err != nil {
		return r, err
	}
	r = proto.EditResult{FileType: "text", StartLine: first, TotalLines: len(all)}
	size := 0
	for _, l := range all[first-1 : last] {
		if size += len(l); size > maxContent && r.NumLines > 0 {
			break
		}
		r.NumLines++
	}
	r.Content = clip(strings.Join(all[first-1:first-1+r.NumLines], ""), maxContent)
	return r, nil
}

// span is the first and the last line of a range.
func (f *file) span(lines []int, total int) (first, last int, err error) {
	first, last = 1, total
	if len(lines) == 0 {
		return first, last, nil
	}
	first = lines[0]
	if len(lines) > 1 && lines[1] != -1 {
		last = min(total, lines[1])
	}
	switch {
	case len(lines) > 2, first < 1, len(lines) > 1 && lines[1] != -1 && lines[1] < first:
		return 0, 0, invalid("view_range must be [first, last] with 1 <= first <= last; -1 as last is the end of the file")
	case first > max(total, 1):
		return 0, 0, invalid("view_range begins at line %d, and %s has %d lines", first, f.shown, total)
	}
	return first, last, nil
}

// media tells by its first bytes what kind of file that is no text models can be shown.
func media(data []byte) (kind, mime string) {
	for _, m := range []struct{ magic, kind, mime string }{
		{"\x89PNG\r\n\x1a\n", "image", "image/png"}, {"\xff\xd8\xff", "image", "image/jpeg"},
		{"GIF87a", "image", "image/gif"}, {"GIF89a", "image", "image/gif"}, {"%PDF-", "pdf", "application/pdf"},
	} {
		if bytes.HasPrefix(data, []byte(m.magic)) {
			return m.kind, m.mime
		}
	}
	if len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP" {
		return "image", "image/webp"
	}
	return "", ""
}

func (f *file) media(kind, mime string, data []byte, lines []int) (r proto.EditResult, err error) {
	switch {
	case len(lines) > 0:
		return r, invalid("%s is no text: view_range is for text only", f.shown)
	case len(data) > maxMedia:
		return r, invalid("%s is larger than %d bytes; make it smaller, or read it with a program", f.shown, maxMedia)
	}
	return proto.EditResult{FileType: kind, MIME: mime, Data: data}, nil
}

// list is a folder's view: the paths in it, two levels deep, without hidden ones.
func (f *file) list() (proto.EditResult, error) {
	l := &listing{}
	if err := l.folder(f.path, strings.TrimRight(f.shown, "/"), 1); err != nil {
		return proto.EditResult{}, err
	}
	content := strings.TrimRight(f.shown, "/") + "/\n" + strings.Join(l.lines, "")
	if l.left {
		content += "... and more\n"
	}
	n := strings.Count(content, "\n")
	return proto.EditResult{FileType: "text", Content: content, StartLine: 1, NumLines: n, TotalLines: n}, nil
}

type listing struct {
	lines []string
	left  bool
}

func (l *listing) folder(path, shown string, depth int) error {
	h, err := os.Open(path)
	if err != nil {
		return err
	}
	defer h.Close()
	entries, err := h.ReadDir(maxNames)
	if err != nil && len(entries) == 0 {
		return nil // empty
	}
	l.left = l.left || len(entries) == maxNames
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.Name() == "__pycache__" || e.Name() == "lost+found" {
			continue
		}
		if len(l.lines) == maxEntries {
			l.left = true
			return nil
		}
		name := shown + "/" + printable(e.Name())
		if !e.IsDir() {
			l.lines = append(l.lines, name+"\n")
			continue
		}
		l.lines = append(l.lines, name+"/\n")
		if depth < listDepth {
			_ = l.folder(filepath.Join(path, e.Name()), name, depth+1) // one that cannot be read is shown as empty
		}
	}
	return nil
}

// printable keeps a name on its line.
func printable(name string) string {
	if q := strconv.Quote(name); q != `"`+name+`"` {
		return q
	}
	return name
}
