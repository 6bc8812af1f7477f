package skill

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// maxManifest is far above what a model can read at once (the format recommends less than 5000 tokens).
	maxManifest = 1 << 20
	// maxFront keeps hostile YAML small.
	maxFront = 64 << 10
	// longBody is the number of lines that agentskills.io recommends to stay under.
	longBody = 500
)

// manifest reads SKILL.md into p.
func (r *reader) manifest(p *Package) {
	text, ok := r.manifestText(p)
	if !ok {
		return
	}
	m := &manifestReader{reader: r, pkg: p}
	if !m.split(text) {
		return
	}
	if entries := m.parse(); entries != nil {
		m.check(entries)
	}
	m.checkBody()
}

// manifestText is SKILL.md as UTF-8 with LF line ends and without a byte order mark.
func (r *reader) manifestText(p *Package) (string, bool) {
	var data []byte
	for _, f := range p.Files {
		if f.Path == Manifest {
			data = f.Data
		}
	}
	add := func(f Finding) { f.Path = Manifest; r.report.add(f) }
	switch {
	case len(data) > maxManifest:
		add(Finding{Code: "manifest-too-large", By: everyone, Message: "has more than 1 MiB", Mend: "move the most of it into files that it refers to"})
		return "", false
	case !utf8.Valid(data):
		add(Finding{Code: "encoding", By: everyone, Message: "is not UTF-8", Mend: "save it as UTF-8"})
		return "", false
	case strings.ContainsRune(string(data), 0):
		add(Finding{Code: "encoding", By: everyone, Message: "holds a NUL character", Mend: "save it as plain UTF-8 text"})
		return "", false
	}
	text := string(data)
	if rest, bom := strings.CutPrefix(text, "\ufeff"); bom {
		text = rest
		add(Finding{Code: "bom", Line: 1, By: BySpec | ByAnthropic, Message: "begins with a byte order mark", Mend: "save it as UTF-8 without BOM"})
	}
	if strings.Contains(text, "\r") {
		add(Finding{Code: "crlf", Line: 1, By: ByAnthropic, Message: "has CR line ends", Mend: "save it with LF line ends"})
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	}
	return text, true
}

// manifestReader reads one SKILL.md. Line numbers are those of the file.
type manifestReader struct {
	*reader
	pkg      *Package
	front    []string // lines of the front matter
	first    int      // line number of front[0]
	bodyLine int      // line number of the body's first line
}

func (m *manifestReader) add(line int, by By, code, message, mend string) {
	m.report.add(Finding{Code: code, Path: Manifest, Line: line, By: by, Message: message, Mend: mend})
}

// split takes the front matter and the body apart.
func (m *manifestReader) split(text string) bool {
	lines := strings.Split(text, "\n")
	start := 0
	for start < len(lines) && strings.TrimSpace(lines[start]) == "" {
		start++
	}
	if start == len(lines) || strings.TrimRight(lines[start], " \t") != "---" {
		m.add(1, everyone, "no-front-matter", "does not begin with front matter", "begin with the lines: ---, name: ..., description: ..., ---")
		m.pkg.Body = text
		return false
	}
	if lines[start] != "---" {
		m.add(start+1, ByAnthropic, "fence", "has spaces behind ---, which Anthropic's packager refuses", "remove them")
	}
	if start > 0 {
		m.add(1, BySpec|ByAnthropic, "blank-first", "has blank lines before the front matter", "begin the file with ---")
	}
	end := start + 1
	for end < len(lines) && !closes(lines[end]) {
		end++
	}
	if end == len(lines) {
		m.add(m.unclosedAt(lines, start)+1, everyone, "unclosed-front-matter", "has front matter that is not closed", "put a line with --- before the text")
		return false
	}
	if strings.HasPrefix(lines[end], "...") {
		m.add(end+1, BySpec|ByAnthropic, "fence", "closes the front matter with '...'", "write --- instead")
	}
	m.front, m.first, m.bodyLine = lines[start+1:end], start+2, end+2
	m.pkg.Body = strings.Join(lines[end+1:], "\n")
	size := 0
	for i, line := range m.front {
		if size += len(line) + 1; size > maxFront {
			m.add(m.first+i, everyone, "front-matter-too-large", "has more than 64 KiB of front matter", "move text below the second ---")
			return false
		}
		if strings.Contains(line, "---") {
			m.add(m.first+i, BySpec, "dashes", "has --- inside the front matter, where some readers end it", "write the dashes in another way")
		}
	}
	return true
}

func closes(line string) bool {
	line = strings.TrimRight(line, " \t")
	return line == "---" || line == "..."
}

// unclosedAt is the index of the line where the front matter seems to end: the first blank line or heading.
func (m *manifestReader) unclosedAt(lines []string, start int) int {
	for i := start + 1; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == "" || strings.HasPrefix(lines[i], "# ") {
			return i
		}
	}
	return start
}

var relativeLink = regexp.MustCompile(`\]\(([A-Za-z0-9_][A-Za-z0-9_./-]*\.[A-Za-z0-9]+)(#[^)]*)?\)`)

// codeSpan is text that shows how a link is written, and is none.
var codeSpan = regexp.MustCompile("`[^`]*`")

// checkBody gives advice on the text itself.
func (m *manifestReader) checkBody() {
	if strings.TrimSpace(m.pkg.Body) == "" {
		m.add(m.bodyLine, 0, "body-empty", "has no text below the front matter", "tell the model what to do")
		return
	}
	lines := strings.Split(strings.TrimRight(m.pkg.Body, "\n"), "\n")
	if len(lines) > longBody {
		m.add(m.bodyLine+longBody, 0, "body-long", "has "+number(len(lines))+" lines of text; more than 500 are read whole for little use", "move details into files that it refers to")
	}
	has := map[string]bool{}
	for _, f := range m.pkg.Files {
		has[f.Path] = true
	}
	for i, line := range lines {
		for _, link := range relativeLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
			if target := strings.TrimPrefix(link[1], "./"); !has[target] {
				m.add(m.bodyLine+i, 0, "link", "links to "+excerpt(link[1])+", which is not in the package", "add the file or mend the link")
				has[target] = true // once
			}
		}
	}
}
