package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// decoder walks the parsed tree, sets what is right and collects what is wrong. The YAML package's own strict decoder stops at the first
// fault.
type decoder struct {
	file    string
	env     func(string) (string, bool)
	anchors map[string]ast.Node
	faults  Faults
	late    []project // read when the rest is known
}

// field is one key of a mapping and how its value is read. set gets the value's path.
type field struct {
	name string
	set  func(n ast.Node, path string)
}

func (d *decoder) fault(n ast.Node, path, format string, args ...any) {
	f := Fault{File: d.file, Key: path, Message: fmt.Sprintf(format, args...)}
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		f.Line, f.Column = n.GetToken().Position.Line, n.GetToken().Position.Column
	}
	d.faults = append(d.faults, f)
}

// resolve takes anchors, aliases and tags off a node. An alias that names no anchor resolves to nil and is a fault.
func (d *decoder) resolve(n ast.Node, path string) ast.Node {
	for range 16 {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.TagNode:
			n = v.Value
		case *ast.AliasNode:
			target, ok := d.anchors[v.Value.String()]
			if !ok {
				d.fault(n, path, "*%s names no anchor", v.Value.String())
				return nil
			}
			n = target
		default:
			return n
		}
	}
	d.fault(n, path, "anchors that refer to each other")
	return nil
}

// mapping reads n with fields. It returns the keys that are present and have a value.
func (d *decoder) mapping(n ast.Node, path string, fields []field) map[string]ast.Node {
	present := map[string]ast.Node{}
	n = d.resolve(n, path)
	var values []*ast.MappingValueNode
	switch v := n.(type) {
	case nil, *ast.NullNode:
		return present
	case *ast.MappingNode:
		values = v.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{v}
	default:
		d.fault(n, path, "must hold keys with values (%s), not %s", strings.Join(names(fields), ", "), kindOf(n))
		return present
	}
	lines := map[string]int{}
	for _, v := range values {
		name := v.Key.GetToken().Value
		key := strings.TrimPrefix(path+"."+name, ".")
		if line, twice := lines[name]; twice {
			d.fault(v.Key, key, "stands twice, first in line %d: keep one", line)
			continue
		}
		lines[name] = v.Key.GetToken().Position.Line
		f := find(fields, name)
		if f == nil {
			d.fault(v.Key, key, "unknown key%s", hint(name, fields))
			continue
		}
		value := d.resolve(v.Value, key)
		if value == nil || value.Type() == ast.NullType {
			continue // an empty value is the default
		}
		present[name] = v.Key
		f.set(value, key)
	}
	return present
}

func find(fields []field, name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

func names(fields []field) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.name
	}
	return out
}

func hint(name string, fields []field) string {
	if name == "<<" {
		return ": merges are not supported, repeat the values"
	}
	if s := suggest(name, names(fields)); s != "" {
		return s
	}
	return ": allowed here are " + strings.Join(names(fields), ", ")
}

// list calls each for every element of n, with its path.
func (d *decoder) list(n ast.Node, path string, each func(n ast.Node, path string)) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(n, path, "must be a list (lines that start with '- '), not %s", kindOf(n))
		return
	}
	for i, v := range seq.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		if v = d.resolve(v, at); v != nil {
			each(v, at)
		}
	}
}

// scalar returns a value's text with its variables filled in, and how messages may show it: as it stands in the file.
func (d *decoder) scalar(n ast.Node, path string) (text, shown string, ok bool) {
	s, isScalar := n.(ast.ScalarNode)
	if !isScalar {
		d.fault(n, path, "must be a single value, not %s", kindOf(n))
		return "", "", false
	}
	raw := s.GetToken().Value
	if l, isLiteral := n.(*ast.LiteralNode); isLiteral {
		raw = strings.TrimSuffix(l.Value.Value, "\n")
	}
	text, err := expand(raw, d.env)
	if err != nil {
		d.fault(n, path, "%s", err)
		return "", "", false
	}
	return text, raw, true
}

// text sets a string that check, which may be nil, accepts. check's error is put behind the value.
func (d *decoder) text(to *string, check func(string) error) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		s, shown, ok := d.scalar(n, path)
		if !ok {
			return
		}
		if check != nil {
			if err := check(s); err != nil {
				if _, hide := errors.AsType[unquoted](err); hide {
					d.fault(n, path, "%s", err)
				} else {
					d.fault(n, path, "%q %s", shown, err)
				}
				return
			}
		}
		*to = s
	}
}

// secret is text that no message quotes.
func (d *decoder) secret(to *Secret, check func(string) error) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		s, _, ok := d.scalar(n, path)
		if !ok {
			return
		}
		if err := check(s); err != nil {
			d.fault(n, path, "%s", err)
			return
		}
		*to = NewSecret(s)
	}
}

func (d *decoder) boolean(to *bool) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		s, shown, ok := d.scalar(n, path)
		switch {
		case !ok:
		case s == "true" || s == "false":
			*to = s == "true"
		default:
			d.fault(n, path, "%q is neither true nor false", shown)
		}
	}
}

func (d *decoder) integer(to *int, low, high int) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		s, shown, ok := d.scalar(n, path)
		if !ok {
			return
		}
		i, err := strconv.Atoi(s)
		if err != nil || i < low || i > high {
			d.fault(n, path, "%q is not a whole number from %d to %d", shown, low, high)
			return
		}
		*to = i
	}
}

func (d *decoder) float(to *float64, low, high float64) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		s, shown, ok := d.scalar(n, path)
		if !ok {
			return
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || f < low || f > high {
			d.fault(n, path, "%q is not a number from %g to %g", shown, low, high)
			return
		}
		*to = f
	}
}

// unit sets a value with a unit, within bounds.
func unit[T interface {
	~int64
	fmt.Stringer
}](d *decoder, to *T, parse func(string) (T, error), low, high T) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		s, shown, ok := d.scalar(n, path)
		if !ok {
			return
		}
		v, err := parse(s)
		switch {
		case err != nil:
			d.fault(n, path, "%q %s", shown, err)
		case v < low || v > high:
			d.fault(n, path, "%q is out of bounds: allowed are %s to %s", shown, low, high)
		default:
			*to = v
		}
	}
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys with values"
	case *ast.SequenceNode:
		return "a list"
	}
	return "a single value"
}
