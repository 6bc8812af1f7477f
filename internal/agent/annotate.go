package agent

import (
	"context"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// maxLinks bounds the lookups that one message can cause.
const maxLinks = 200

// annotate finds the files that a message links (wire/openai.md 1.7). Images that code displayed and no message has cited yet come
// first, with an empty span; then each link to a file that exists, its span exactly the sandbox: URL in code points. The message is
// returned with them; the text stays as it is.
func (l *loop) annotate(ctx context.Context, m turn.Message) (turn.Message, []turn.Annotation) {
	if !l.namesContainer() && len(l.files)+len(l.known)+len(l.shown) == 0 && l.ws == nil {
		return m, nil
	}
	var all []turn.Annotation
	parts := append([]turn.Part(nil), m.Parts...)
	for i, p := range parts {
		t, ok := p.(turn.Text)
		if !ok {
			continue
		}
		var found []turn.Annotation
		for _, f := range l.shown {
			found = append(found, turn.Annotation{File: &f})
		}
		l.shown = nil
		found = append(found, l.links(ctx, t.Text)...)
		t.Annotations = append(t.Annotations[:len(t.Annotations):len(t.Annotations)], found...)
		parts[i] = t
		all = append(all, found...)
	}
	m.Parts = parts
	return m, all
}

const scheme = "sandbox:"

func (l *loop) links(ctx context.Context, text string) []turn.Annotation {
	var out []turn.Annotation
	runes, counted := 0, 0 // code points up to byte counted
	for at, tries := 0, 0; tries < maxLinks; tries++ {
		i := strings.Index(text[at:], scheme)
		if i < 0 {
			break
		}
		start := at + i
		at = start + len(scheme)
		f, length, ok := l.link(ctx, text, start)
		if !ok {
			continue
		}
		runes += utf8.RuneCountInString(text[counted:start])
		counted = start
		out = append(out, turn.Annotation{File: &f, Start: runes, End: runes + utf8.RuneCountInString(text[start:start+length])})
		at = start + length
	}
	return out
}

// link finds the file of the URL that begins at start. Models write links loosely, so several ends are tried, the longest first.
func (l *loop) link(ctx context.Context, text string, start int) (turn.File, int, bool) {
	for _, end := range linkEnds(text, start) {
		raw := text[start+len(scheme) : end]
		decoded, err := url.PathUnescape(raw)
		if err == nil {
			if f, ok := l.lookup(ctx, decoded); ok {
				return f, end - start, true
			}
		}
		if decoded != raw {
			if f, ok := l.lookup(ctx, raw); ok {
				return f, end - start, true
			}
		}
	}
	return turn.File{}, 0, false
}

// linkEnds are the places where a URL may end: in a Markdown link at its parenthesis (a name may have parentheses and, wrongly, blanks),
// at a blank before a title, else at the first character that no URL has, less the punctuation of the sentence around it.
func linkEnds(text string, start int) []int {
	line := len(text)
	if i := strings.IndexByte(text[start:], '\n'); i >= 0 {
		line = start + i
	}
	var ends []int
	add := func(end int) {
		if end > start+len(scheme) && (len(ends) == 0 || end < ends[len(ends)-1]) {
			ends = append(ends, end)
		}
	}
	opener := byte(0)
	if start > 0 {
		opener = text[start-1]
	}
	switch opener {
	case '(':
		if end, ok := balanced(text[:line], start); ok {
			add(end)
		}
	case '<':
		if i := strings.IndexByte(text[start:line], '>'); i >= 0 {
			add(start + i)
		}
	}
	end := line
	if i := strings.IndexAny(text[start:line], " \t\r<>\"`|"); i >= 0 {
		end = start + i
	}
	if len(ends) == 0 || end < ends[0] {
		for end > start {
			add(end)
			if strings.IndexByte(".,;:!?)]}*_'", text[end-1]) < 0 {
				break
			}
			end--
		}
	}
	if opener == '(' {
		if i := strings.IndexByte(text[start:line], ')'); i >= 0 {
			add(start + i)
		}
	}
	return ends
}

// balanced finds the parenthesis that closes the one before start.
func balanced(line string, start int) (int, bool) {
	depth := 0
	for i := start; i < len(line); i++ {
		switch line[i] {
		case '(':
			depth++
		case ')':
			if depth == 0 {
				return i, true
			}
			depth--
		}
	}
	return 0, false
}

// lookup finds a file by the path of a link, absolute or relative to the working folder.
func (l *loop) lookup(ctx context.Context, p string) (turn.File, bool) {
	if !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return turn.File{}, false
	}
	trimmed := strings.TrimLeft(p, "/")
	if trimmed != p || strings.HasPrefix(trimmed, strings.TrimPrefix(tool.Root, "/")+"/") {
		p = "/" + trimmed
	} else {
		p = tool.Root + "/" + p
	}
	p = path.Clean(p)
	if !strings.HasPrefix(p, tool.Root+"/") {
		return turn.File{}, false
	}
	if f, ok := l.files[p]; ok {
		return f, true
	}
	if l.ws != nil {
		if f, ok := l.ws.Find(ctx, p); ok {
			return f, true
		}
	}
	if f, ok := l.known[p]; ok || l.ws != nil || !l.namesContainer() {
		return f, ok
	}
	// An answer without a call may link what an earlier turn made in the container that the request names.
	ws, err := l.cfg.Workspaces.Open(ctx, l.req.Hosted)
	if err != nil {
		l.cfg.Logger.WarnContext(ctx, "opening a container to look for a linked file", "error", err.Error())
		return turn.File{}, false
	}
	l.ws = ws
	return ws.Find(ctx, p)
}

// namesContainer says that the request has a container of its own, so that opening it makes none.
func (l *loop) namesContainer() bool {
	return l.set.Len() > 0 && (l.req.Hosted.Container != "" || l.req.Hosted.Session != "")
}
