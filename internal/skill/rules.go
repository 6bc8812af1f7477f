package skill

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The lengths of the format (agentskills.io), in characters.
const (
	MaxName          = 64
	MaxDescription   = 1024
	maxCompatibility = 500
	// hardDescription is what is loaded at most: the text is in the prompt of every request that names the skill.
	hardDescription = 4096
)

var keys = []string{"name", "description", "license", "compatibility", "metadata", "allowed-tools"}

// check holds the front matter against the rules, all of them.
func (m *manifestReader) check(entries []entry) {
	values := m.known(entries)
	m.name(values["name"])
	m.description(values["description"])
	meta := &m.pkg.Meta
	meta.License = m.text(values["license"], "license")
	meta.Compatibility = m.text(values["compatibility"], "compatibility")
	if n := utf8.RuneCountInString(meta.Compatibility); n > maxCompatibility {
		m.add(values["compatibility"].line, strict, "compatibility-long", fmt.Sprintf("has a compatibility of %d characters; at most 500 are allowed", n), "shorten it")
	}
	m.tools(values["allowed-tools"])
	m.metadata(values["metadata"])
}

// known sorts entries by key: the last of two with one key, as most readers of YAML take it.
func (m *manifestReader) known(entries []entry) map[string]entry {
	values, other := map[string]entry{}, map[string]any{}
	for _, e := range entries {
		key := e.key
		if !slices.Contains(keys, key) {
			if spelled := strings.ReplaceAll(strings.ToLower(key), "_", "-"); slices.Contains(keys, spelled) {
				m.add(e.line, BySpec|ByAnthropic, "key-spelling", "has the key "+excerpt(key), "write "+spelled)
				key = spelled
			}
		}
		if before, twice := values[key]; twice {
			m.add(e.line, BySpec, "duplicate-key", fmt.Sprintf("has %s twice, first in line %d; the last one counts", key, before.line), "keep one")
		}
		values[key] = e
		if !slices.Contains(keys, key) {
			m.add(e.line, BySpec|ByAnthropic, "unknown-key", "has the key "+excerpt(key)+", which the format does not have", "move it below metadata:")
			other[key] = e.value
		}
	}
	if len(other) > 0 {
		m.pkg.Meta.Other = other
	}
	return values
}

// text is the value of a key that holds a string.
func (m *manifestReader) text(e entry, key string) string {
	switch v := e.value.(type) {
	case nil:
		return ""
	case string:
		return m.printable(e.line, key, strings.TrimSpace(v))
	case []any:
		m.add(e.line, strict, key+"-type", "has a list as "+key, "write one line of text")
		return m.printable(e.line, key, strings.Join(flatten(v), ", "))
	default:
		m.add(e.line, strict, key+"-type", "has a map as "+key, "write one line of text")
		return ""
	}
}

// printable takes out what changes how a terminal or a browser shows the text around it.
func (m *manifestReader) printable(line int, key, s string) string {
	out := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return -1
		}
		return r
	}, s)
	if out != s {
		m.add(line, strict, "control-characters", "has control characters in its "+key+", which are taken out", "remove them")
	}
	return out
}

// flatten are the strings of a list; what is nested in it is left out.
func flatten(list []any) []string {
	var out []string
	for _, v := range list {
		if s, ok := v.(string); ok && strings.TrimSpace(s) != "" {
			out = append(out, strings.TrimSpace(s))
		}
	}
	return out
}

var (
	asciiName = regexp.MustCompile(`^[a-z0-9-]+$`)
	xmlTag    = regexp.MustCompile(`</?[A-Za-z!?][^<>]*>`)
)

func (m *manifestReader) name(e entry) {
	title := m.text(e, "name")
	m.pkg.Meta.Title = title
	m.pkg.Meta.Name = Slug(title)
	line := max(e.line, m.first)
	if title == "" {
		m.pkg.Meta.Name = Slug(m.pkg.Folder)
		m.pkg.Meta.Title = m.pkg.Folder
		if m.pkg.Meta.Name == "" {
			m.add(line, everyone, "name-missing", "has no name", "add: name: my-skill")
			return
		}
		m.add(line, strict, "name-missing", "has no name; lathe takes that of its folder", "add: name: "+m.pkg.Meta.Name)
		return
	}
	if m.pkg.Meta.Name == "" {
		m.add(line, everyone, "name-characters", "has a name without a letter or digit: "+excerpt(title), "use lower-case letters, digits and hyphens")
		return
	}
	m.nameCharacters(line, title)
	if e.plain && otherType.MatchString(title) {
		m.add(line, ByAnthropic, "name-type", "has a name that YAML takes for another thing than text: "+excerpt(title), "put it into double quotes")
	}
	folder := m.pkg.Folder
	if folder != "" && norm.NFKC.String(folder) != norm.NFKC.String(title) {
		m.add(line, BySpec|ByAnthropic, "name-folder", "is called "+excerpt(title)+" in the folder "+excerpt(folder), "give both the same name")
	}
}

// otherType are plain values that YAML 1.1, which the vendors read, has other types for: numbers, dates and truths.
var otherType = regexp.MustCompile(`^(?i:[-+]?[0-9][0-9_]*|0x[0-9a-f]+|[-+]?[0-9.]+(e[-+]?[0-9]+)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|y|n|yes|no|on|off|true|false)$`)

// nameCharacters has the rules of those who refuse a name. The reference validator brings it into the form NFKC first; the vendors do not.
func (m *manifestReader) nameCharacters(line int, title string) {
	name := norm.NFKC.String(title)
	if n := utf8.RuneCountInString(name); n > MaxName {
		m.add(line, strict, "name-long", fmt.Sprintf("has a name of %d characters; at most 64 are allowed", n), "shorten it")
	}
	mend := "write: name: " + m.pkg.Meta.Name
	if !asciiName.MatchString(title) {
		by, odd := ByAnthropic|ByOpenAI, func(r rune) bool { return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }
		if strings.ToLower(name) != name || strings.ContainsFunc(name, odd) {
			by |= BySpec
		}
		m.add(line, by, "name-characters", "has a name with other characters than a-z, 0-9 and '-': "+excerpt(title), mend)
	}
	if strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") || strings.Contains(name, "--") {
		m.add(line, BySpec|ByOpenAI, "name-hyphens", "has a name with a hyphen at its end or two together: "+excerpt(name), mend)
	}
	for _, word := range []string{"anthropic", "claude"} {
		if strings.Contains(name, word) {
			m.add(line, ByAnthropic, "name-reserved", "has a name with the reserved word "+word, "choose another name")
		}
	}
}

// Slug makes a folder's name of a skill's name, as Meta.Name is made, "" if nothing is left of it.
func Slug(name string) string {
	odd := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) }
	words := strings.FieldsFunc(strings.ToLower(norm.NFKC.String(name)), odd)
	runes := []rune(strings.Join(words, "-"))
	return strings.TrimRight(string(runes[:min(len(runes), MaxName)]), "-")
}

func (m *manifestReader) description(e entry) {
	text := m.text(e, "description")
	m.pkg.Meta.Description = text
	line := max(e.line, m.first)
	n := utf8.RuneCountInString(text)
	switch {
	case text == "":
		m.add(line, everyone, "description-missing", "has no description", "add: description: what it does, and when to use it")
	case n > hardDescription:
		m.add(line, everyone, "description-long", fmt.Sprintf("has a description of %d characters; at most 1024 are allowed, and 4096 loaded", n), "move the most of it into the text")
	case n > MaxDescription:
		m.add(line, strict, "description-long", fmt.Sprintf("has a description of %d characters; at most 1024 are allowed", n), "shorten it")
	}
	if tag := xmlTag.FindString(text); tag != "" {
		m.add(line, ByAnthropic, "description-xml", "has an XML tag in its description: "+excerpt(tag), "write it without angle brackets")
	} else if strings.ContainsAny(text, "<>") {
		m.add(line, 0, "description-xml", "has an angle bracket in its description, which Anthropic's packager refuses", "write it without angle brackets")
	}
	if line-m.first < len(m.front) && plainComment.MatchString(m.front[line-m.first]) {
		m.add(line, 0, "comment", "has ' #' in its description: YAML takes what follows for a comment", "put the description into double quotes")
	}
}

// plainComment is a value without quotes that a comment cuts short.
var plainComment = regexp.MustCompile(`^description:\s+[^\s"'|>#].*\s#`)

func (m *manifestReader) tools(e entry) {
	switch v := e.value.(type) {
	case nil:
	case string:
		m.pkg.Meta.AllowedTools = splitTools(v)
		if strings.Contains(outsideParentheses(v), ",") {
			m.add(e.line, BySpec, "tools-commas", "separates allowed-tools with commas", "separate them with spaces")
		}
	case []any:
		m.pkg.Meta.AllowedTools = flatten(v)
		m.add(e.line, BySpec, "tools-list", "has a list as allowed-tools", "write one line: allowed-tools: "+strings.Join(m.pkg.Meta.AllowedTools, " "))
	default:
		m.add(e.line, BySpec, "tools-type", "has a map as allowed-tools, which is ignored", "write one line: allowed-tools: Read Bash(git:*)")
	}
}

// splitTools splits at spaces and commas that are not in parentheses: Bash(git add *) is one tool.
func splitTools(s string) []string {
	depth := 0
	return strings.FieldsFunc(s, func(r rune) bool {
		switch {
		case r == '(':
			depth++
		case r == ')' && depth > 0:
			depth--
		}
		return depth == 0 && (r == ',' || unicode.IsSpace(r))
	})
}

func outsideParentheses(s string) string {
	depth := 0
	return strings.Map(func(r rune) rune {
		switch {
		case r == '(':
			depth++
		case r == ')' && depth > 0:
			depth--
		}
		if depth > 0 {
			return -1
		}
		return r
	}, s)
}

func (m *manifestReader) metadata(e entry) {
	switch v := e.value.(type) {
	case nil:
	case map[string]any:
		m.pkg.Meta.Metadata = v
		for _, value := range v {
			if _, isText := value.(string); !isText && value != nil {
				m.add(e.line, BySpec, "metadata-nested", "has nested values below metadata, which are kept", "give each key one value")
				break
			}
		}
	default:
		m.pkg.Meta.Metadata = map[string]any{"metadata": v}
		m.add(e.line, BySpec, "metadata-type", "has no map as metadata", "write keys below it")
	}
}
