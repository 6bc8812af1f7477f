package skill

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// entry is one key of the front matter. value is a string, a list, a map, or nil; every scalar is a string, as it is written.
type entry struct {
	key   string
	line  int
	value any
	// plain says that the value is no quoted string, so that other readers of YAML may take it for a number, a date or a truth.
	plain bool
}

// parse reads the front matter. What is not YAML is mended where what was meant is plain, each time with a finding.
func (m *manifestReader) parse() []entry {
	text := strings.Join(m.front, "\n") + "\n"
	root, err := parseYAML(text)
	if err == nil {
		if entries, ok := m.entries(root, m.first); ok {
			return m.mendTexts(entries)
		}
		if root != nil && mappingOf(root) != nil {
			return nil // too large; said
		}
	}
	entries, mended := m.mend()
	if mended {
		return entries
	}
	if err == nil {
		m.add(m.first, everyone, "not-a-mapping", "has front matter that is no list of 'key: value' lines", "write: name: ..., description: ...")
		return nil
	}
	message, line := "is not YAML", m.first
	if e, ok := errors.AsType[yaml.Error](err); ok {
		message += ": " + e.GetMessage()
		if tk := e.GetToken(); tk != nil && tk.Position != nil {
			line += min(max(tk.Position.Line-1, 0), len(m.front))
		}
	}
	m.add(line, everyone, "yaml", message, "put values with special characters into double quotes")
	return nil
}

// parseYAML returns the body of the only document, nil for none.
func parseYAML(text string) (root ast.Node, err error) {
	defer func() { // the parser is fed with hostile text
		if cause := recover(); cause != nil {
			err = fmt.Errorf("unreadable: %v", cause)
		}
	}()
	file, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			return nil, errors.New("several documents")
		}
		root = doc.Body
	}
	return root, nil
}

func mappingOf(n ast.Node) []*ast.MappingValueNode {
	switch v := n.(type) {
	case *ast.MappingNode:
		return v.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{v}
	}
	return nil
}

// entries turns a mapping into values. first is the line number of the text's first line.
func (m *manifestReader) entries(root ast.Node, first int) ([]entry, bool) {
	values := mappingOf(root)
	if values == nil {
		return nil, false
	}
	c := &converter{anchors: map[string]ast.Node{}, budget: maxNodes}
	for _, n := range ast.Filter(ast.AnchorType, root) {
		if a, ok := n.(*ast.AnchorNode); ok {
			c.anchors[a.Name.String()] = a.Value
		}
	}
	if mapping, ok := root.(*ast.MappingNode); ok && mapping.IsFlowStyle {
		c.flow = true
	}
	var out []entry
	for _, v := range values {
		line := first + v.Key.GetToken().Position.Line - 1
		e := entry{key: keyOf(v.Key), line: line, value: c.value(v.Value, 0), plain: plain(v.Value)}
		if c.budget < 0 {
			m.add(line, everyone, "yaml-too-large", "has front matter that unfolds to too many values", "write the values out, without anchors")
			return nil, false
		}
		c.style(m, e)
		out = append(out, e)
	}
	return out, true
}

func keyOf(n ast.MapKeyNode) string {
	if s, ok := n.(ast.ScalarNode); ok {
		return s.GetToken().Value
	}
	if k, ok := n.(*ast.MappingKeyNode); ok {
		if s, ok := k.Value.(ast.ScalarNode); ok {
			return s.GetToken().Value
		}
	}
	return n.String()
}

func plain(n ast.Node) bool {
	tk := n.GetToken()
	return tk != nil && tk.Type != token.SingleQuoteType && tk.Type != token.DoubleQuoteType && n.Type() != ast.TagType
}

const (
	maxNodes = 10_000
	maxNest  = 64
)

// converter turns nodes into values, and notes what the reference validator refuses in them.
type converter struct {
	anchors      map[string]ast.Node
	budget       int
	flow, tagged bool
}

func (c *converter) value(n ast.Node, depth int) any {
	if c.budget--; c.budget < 0 || depth > maxNest {
		c.budget = -1
		return nil
	}
	switch v := n.(type) {
	case nil, *ast.NullNode:
		return nil
	case *ast.AnchorNode:
		c.tagged = true
		return c.value(v.Value, depth+1)
	case *ast.AliasNode:
		c.tagged = true
		return c.value(c.anchors[v.Value.String()], depth+1)
	case *ast.TagNode:
		c.tagged = true
		return c.value(v.Value, depth+1)
	case *ast.LiteralNode:
		return v.Value.Value
	case *ast.StringNode:
		return v.Value
	case *ast.SequenceNode:
		c.flow = c.flow || v.IsFlowStyle
		out := make([]any, 0, len(v.Values))
		for _, item := range v.Values {
			out = append(out, c.value(item, depth+1))
		}
		return out
	case ast.ScalarNode:
		return v.GetToken().Value
	}
	if mapping, ok := n.(*ast.MappingNode); ok {
		c.flow = c.flow || mapping.IsFlowStyle
	} else if _, ok := n.(*ast.MappingValueNode); !ok {
		return n.String()
	}
	out := map[string]any{}
	for _, item := range mappingOf(n) {
		out[keyOf(item.Key)] = c.value(item.Value, depth+1)
	}
	return out
}

// style says what the reference validator's YAML does not have.
func (c *converter) style(m *manifestReader, e entry) {
	if c.flow && e.key != "allowed-tools" { // said there in other words
		m.add(e.line, BySpec, "flow-style", "has an inline list or map in "+excerpt(e.key), "write one item a line")
	}
	if c.tagged {
		m.add(e.line, BySpec, "yaml-anchor", "uses a tag, anchor or alias of YAML in "+excerpt(e.key), "write the value itself")
	}
	c.flow, c.tagged = false, false
}

// topKey is a line at the margin that begins a value; group 2 is what follows the colon.
var topKey = regexp.MustCompile(`^(["']?[A-Za-z_][A-Za-z0-9_ .-]*["']?)[ \t]*:(.*)$`)

// chunk is one key of the front matter with the lines of its value.
type chunk struct {
	key   string
	at    int // index of its first line in front
	lines []string
}

func (m *manifestReader) chunks() ([]chunk, bool) {
	var out []chunk
	for i, line := range m.front {
		if found := topKey.FindStringSubmatch(line); found != nil {
			out = append(out, chunk{key: strings.Trim(found[1], `"' `), at: i, lines: []string{line}})
			continue
		}
		if len(out) == 0 {
			if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' {
				return nil, false
			}
			continue
		}
		last := &out[len(out)-1]
		last.lines = append(last.lines, line)
	}
	return out, len(out) > 0
}

// mend reads the front matter key by key, and puts into quotes what is no YAML without.
func (m *manifestReader) mend() ([]entry, bool) {
	chunks, ok := m.chunks()
	if !ok {
		return nil, false
	}
	keep := len(m.report.Findings)
	var out []entry
	for _, c := range chunks {
		entries, ok := m.mendChunk(c)
		if !ok {
			m.report.Findings = m.report.Findings[:keep] // the fault of the whole is said instead
			return nil, false
		}
		out = append(out, entries...)
	}
	return m.mendTexts(out), true
}

func (m *manifestReader) mendChunk(c chunk) ([]entry, bool) {
	read := func(lines []string) ([]entry, bool) {
		root, err := parseYAML(strings.Join(lines, "\n") + "\n")
		if err != nil {
			return nil, false
		}
		return m.entries(root, m.first+c.at)
	}
	if entries, ok := read(c.lines); ok {
		return entries, true
	}
	rest := topKey.FindStringSubmatch(c.lines[0])[2]
	if tabs := untab(c.lines); tabs != nil {
		if entries, ok := read(tabs); ok {
			m.add(m.first+c.at, strict, "tab", "indents the value of "+excerpt(c.key)+" with tabs", "indent with spaces")
			return entries, true
		}
		c.lines = tabs
	}
	value := strings.TrimSpace(rest)
	if value == "" {
		if quoted, at := quoteNested(c.lines); at > 0 {
			if entries, ok := read(quoted); ok {
				m.add(m.first+c.at+at, strict, "unquoted", "has a value that is no YAML without quotes", "write: "+excerpt(strings.TrimSpace(quoted[at])))
				return entries, true
			}
		}
	}
	if strings.HasPrefix(value, "|") || strings.HasPrefix(value, ">") {
		return nil, false
	}
	return []entry{m.quoted(c)}, true
}

// quoted takes the whole value of a key as text.
func (m *manifestReader) quoted(c chunk) entry {
	var words []string
	for i, line := range c.lines {
		if i == 0 {
			line = topKey.FindStringSubmatch(line)[2]
		}
		if line = strings.TrimSpace(line); line != "" {
			words = append(words, line)
		}
	}
	value := unquoted(strings.Join(words, " "))
	m.add(m.first+c.at, strict, "unquoted", "has a value for "+excerpt(c.key)+" that is no YAML without quotes (a colon with a space, or a special first character)",
		"write: "+c.key+": "+excerpt(value))
	return entry{key: c.key, line: m.first + c.at, value: value}
}

// unquoted takes the quotes off a value that somebody meant to quote: around it, or one that is never closed.
func unquoted(s string) string {
	if len(s) < 2 || s[0] != '"' && s[0] != '\'' {
		return s
	}
	if s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	if strings.Count(s, s[:1]) == 1 {
		return s[1:]
	}
	return s
}

// untab replaces tabs at the beginning of lines, nil if there are none.
func untab(lines []string) []string {
	out, found := make([]string, len(lines)), false
	for i, line := range lines {
		body := strings.TrimLeft(line, " \t")
		indent := line[:len(line)-len(body)]
		if strings.Contains(indent, "\t") {
			found = true
			indent = strings.ReplaceAll(indent, "\t", "  ")
		}
		out[i] = indent + body
	}
	if !found {
		return nil
	}
	return out
}

var nestedKey = regexp.MustCompile(`^([ \t]+[A-Za-z_][A-Za-z0-9_.-]*:[ \t]+)(\S.*)$`)

// quoteNested puts those values of a nested map into quotes that are no YAML without. at is the index of the first, 0 for none.
func quoteNested(lines []string) (out []string, at int) {
	out = append([]string{}, lines...)
	for i, line := range lines {
		found := nestedKey.FindStringSubmatch(line)
		if i == 0 || found == nil {
			continue
		}
		if _, err := parseYAML(strings.TrimSpace(line) + "\n"); err == nil || found[2][0] == '|' || found[2][0] == '>' {
			continue
		}
		out[i] = found[1] + strconv.Quote(found[2])
		if at == 0 {
			at = i
		}
	}
	return out, at
}

// mendTexts takes a description on the next line that holds a colon for the text that it is, not for a map.
func (m *manifestReader) mendTexts(entries []entry) []entry {
	chunks, ok := m.chunks()
	for i, e := range entries {
		if _, isMap := e.value.(map[string]any); !isMap || e.key != "name" && e.key != "description" || !ok {
			continue
		}
		for _, c := range chunks {
			value := topKey.FindStringSubmatch(c.lines[0])[2]
			if c.key == e.key && m.first+c.at == e.line && !strings.HasPrefix(strings.TrimSpace(value), "{") {
				entries[i] = m.quoted(c)
			}
		}
	}
	return entries
}
