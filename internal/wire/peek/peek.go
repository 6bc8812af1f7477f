// Package peek reads of a request what a gateway must know before it passes the request on untouched, and puts another model's name into
// it. It holds for Chat Completions and Responses alike: both have model, stream and tools at the top.
//
// It decodes nothing and checks only the outline of the JSON: the wires do that. Surfaces and package upstream import it.
package peek

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Peeked is what a gateway must know of a request that it passes on untouched.
type Peeked struct {
	// Model is the value of the last top-level model that is a string: the one that most JSON readers take.
	Model string
	// Stream is the last top-level stream.
	Stream bool
	// Tools are the types of the entries of tools, each once. An entry without a type, or that is no object, counts as "".
	Tools  []string
	models []span
}

// Has says that tools has an entry of this type.
func (p Peeked) Has(tool string) bool { return slices.Contains(p.Tools, tool) }

// SyntaxError is a body that is not JSON.
type SyntaxError struct {
	Offset int64
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset) }

type span struct{ start, end int }

// Request reads a few fields of a request without decoding it. Names and strings may be written with escapes; names may come twice. It
// checks the outline of the JSON only (*SyntaxError), not what it skips.
func Request(body []byte) (Peeked, error) {
	var out Peeked
	s := scanner{data: body}
	err := s.object(func(key string) error {
		switch key {
		case "model":
			start := s.pos
			if s.peek() != '"' {
				return s.skip()
			}
			model, err := s.text()
			if err != nil {
				return err
			}
			out.Model = model
			out.models = append(out.models, span{start, s.pos})
		case "stream":
			start := s.pos
			if err := s.skip(); err != nil {
				return err
			}
			out.Stream = string(body[start:s.pos]) == "true"
		case "tools":
			return s.tools(&out)
		default:
			return s.skip()
		}
		return nil
	})
	if err != nil {
		return Peeked{}, err
	}
	s.space()
	if s.pos < len(body) {
		return Peeked{}, s.fail("data after the JSON object")
	}
	return out, nil
}

// SpliceModel returns body with every top-level model that is a string replaced by name. All other bytes stay. body itself is returned
// where nothing is to be replaced; it is never changed.
func (p Peeked) SpliceModel(body []byte, name string) []byte {
	if p.Model == name && len(p.models) == 1 || len(p.models) == 0 {
		return body
	}
	value, err := json.Marshal(name)
	if err != nil {
		return body // a string always encodes
	}
	out := make([]byte, 0, len(body)+len(p.models)*len(value))
	at := 0
	for _, m := range p.models {
		out = append(append(out, body[at:m.start]...), value...)
		at = m.end
	}
	return append(out, body[at:]...)
}

// scanner walks over JSON by its outline.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) fail(reason string) error {
	return &SyntaxError{Offset: int64(s.pos), Reason: reason}
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the byte at the position, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// object calls value for each member with the position at its value; value must move behind it.
func (s *scanner) object(value func(key string) error) error {
	s.space()
	if s.peek() != '{' {
		return s.fail("the body must be a JSON object")
	}
	s.pos++
	s.space()
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.space()
		key, err := s.text()
		if err != nil {
			return err
		}
		s.space()
		if s.peek() != ':' {
			return s.fail("expected ':' after an object key")
		}
		s.pos++
		s.space()
		if err := value(key); err != nil {
			return err
		}
		if done, err := s.next('}'); done || err != nil {
			return err
		}
	}
}

// next moves over a comma, or over the end.
func (s *scanner) next(end byte) (done bool, err error) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		return false, nil
	case end:
		s.pos++
		return true, nil
	}
	return false, s.fail("expected ',' or '" + string(end) + "'")
}

// tools notes the types of the value at the position, where it is an array.
func (s *scanner) tools(out *Peeked) error {
	if s.peek() != '[' {
		return s.skip()
	}
	s.pos++
	s.space()
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		s.space()
		kind, err := s.tool()
		if err != nil {
			return err
		}
		if !out.Has(kind) {
			out.Tools = append(out.Tools, kind)
		}
		if done, err := s.next(']'); done || err != nil {
			return err
		}
	}
}

// tool is the type of the tool at the position, the last where it has several.
func (s *scanner) tool() (kind string, err error) {
	if s.peek() != '{' {
		return "", s.skip()
	}
	err = s.object(func(key string) error {
		if key != "type" || s.peek() != '"' {
			return s.skip()
		}
		kind, err = s.text()
		return err
	})
	return kind, err
}

// text reads a string.
func (s *scanner) text() (string, error) {
	start := s.pos
	if err := s.skipText(); err != nil {
		return "", err
	}
	raw := s.data[start:s.pos]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var out string
	if err := json.Unmarshal(raw, &out); err != nil {
		s.pos = start
		return "", s.fail("invalid string")
	}
	return out, nil
}

func (s *scanner) skipText() error {
	if s.peek() != '"' {
		return s.fail("expected a string")
	}
	at := s.pos + 1
	for {
		i := bytes.IndexByte(s.data[at:], '"')
		if i < 0 {
			s.pos = len(s.data)
			return s.fail("unexpected end of a string")
		}
		at += i
		slashes := 0
		for s.data[at-1-slashes] == '\\' {
			slashes++
		}
		at++
		if slashes%2 == 0 {
			s.pos = at
			return nil
		}
	}
}

// skip moves behind the value at the position.
func (s *scanner) skip() error {
	depth := 0
	for {
		switch c := s.peek(); c {
		case '"':
			if err := s.skipText(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			s.pos++
		case '}', ']':
			if depth == 0 {
				return s.fail("expected a value")
			}
			depth--
			s.pos++
		case ' ', '\t', '\n', '\r', ',', ':':
			if depth == 0 {
				return s.fail("expected a value")
			}
			s.pos++
			continue
		case 0:
			return s.fail("unexpected end of JSON")
		default:
			s.literal()
		}
		if depth == 0 {
			return nil
		}
	}
}

// literal moves over a number or a word.
func (s *scanner) literal() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r', ',', ':', '}', ']', '{', '[', '"':
			return
		}
		s.pos++
	}
}
