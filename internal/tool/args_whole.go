package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// objectText passes on a JSON object that arrives byte by byte, for tools with several arguments. It mends inside strings what stringReader
// takes there, so that what it returns is JSON: raw control characters, and escapes that JSON does not know. What stands before the first
// brace (a fence, a word) and behind the last one is left out; braces that are missing at the end are added.
type objectText struct {
	begun, done    bool
	inStr, escaped bool
	nesting        []byte // closing brackets that are to come
	quoted         bool   // the object comes as the content of a JSON string, which is decoded at the end
	lead           []byte // what came before it, or that string
	out, code      strings.Builder
	gate           utf8Gate
	err            error
}

func (o *objectText) push(delta string) string {
	for i := 0; i < len(delta) && o.err == nil; i++ {
		o.step(delta[i])
	}
	out := o.out.String()
	o.out.Reset()
	return out
}

func (o *objectText) step(c byte) {
	switch {
	case o.quoted:
		if o.lead = append(o.lead, c); len(o.lead) > 2*MaxCode {
			o.err = fmt.Errorf("the arguments are longer than %d bytes", MaxCode)
		}
	case !o.begun && c == '{':
		o.begun = true
		o.inside(c)
	case !o.begun:
		if c == '"' && strings.TrimSpace(string(o.lead)) == "" {
			o.quoted = true
			return
		}
		if o.lead = append(o.lead, c); len(o.lead) > maxBlank {
			o.err = errors.New("the arguments are not a JSON object")
		}
	case o.done:
		if c == '{' {
			o.err = errors.New("the arguments are several JSON objects; make one call for each")
		}
	case o.inStr:
		o.inString(c)
	default:
		o.inside(c)
	}
}

func (o *objectText) inside(c byte) {
	switch c {
	case '"':
		o.inStr = true
	case '{', '[':
		if len(o.nesting) == maxNesting {
			o.err = errors.New("the JSON object is nested too deeply")
			return
		}
		o.nesting = append(o.nesting, closing(c))
	case '}', ']':
		n := len(o.nesting)
		if o.nesting[n-1] != c {
			o.err = errors.New("the JSON object has brackets that do not match")
			return
		}
		o.nesting = o.nesting[:n-1]
		o.done = n == 1
	}
	o.emit(string([]byte{c}))
}

func (o *objectText) inString(c byte) {
	switch {
	case o.escaped:
		o.escaped = false
		switch {
		case c == '\'':
			o.emit("'")
		case strings.IndexByte(`"\/bfnrtu`, c) >= 0:
			o.emit(`\` + string([]byte{c}))
		default:
			o.emit(`\\`)
			o.inString(c)
		}
	case c == '\\':
		o.escaped = true
	case c == '"':
		o.inStr = false
		o.emit(`"`)
	case c < ' ':
		escaped, _ := json.Marshal(string([]byte{c})) // a string always encodes
		o.emit(string(escaped[1 : len(escaped)-1]))
	default:
		o.emit(string([]byte{c}))
	}
}

func (o *objectText) emit(s string) {
	if o.code.Len()+len(s) > MaxCode {
		o.err = fmt.Errorf("the arguments are longer than %d bytes", MaxCode)
		return
	}
	for i := range len(s) {
		if c := s[i]; c < utf8.RuneSelf && len(o.gate.held) == 0 {
			o.put(s[i : i+1])
		} else {
			o.put(o.gate.step(c))
		}
	}
}

func (o *objectText) put(s string) {
	o.out.WriteString(s)
	o.code.WriteString(s)
}

// finish returns the whole object. check says whether it is what the tool takes.
func (o *objectText) finish(check func(string) error) (string, error) {
	if o.err == nil {
		o.end()
	}
	code := o.code.String()
	switch {
	case o.err != nil:
	case !json.Valid([]byte(code)):
		o.err = errors.New("the arguments are not valid JSON")
	default:
		o.err = check(code)
	}
	if o.err != nil {
		return code, fmt.Errorf("%w. Nothing was done: send the arguments as one JSON object", o.err)
	}
	return code, nil
}

func (o *objectText) end() {
	switch {
	case o.quoted:
		content, closed, _ := decodeString(string(o.lead))
		o.quoted = false
		if !closed || !strings.HasPrefix(strings.TrimSpace(content), "{") {
			o.err = errors.New("the arguments are a JSON string, not an object")
			return
		}
		o.lead = nil
		o.push(content)
		if o.err == nil {
			o.end()
		}
	case !o.begun:
		o.err = errors.New("the arguments are not a JSON object")
	case o.inStr:
		o.err = errors.New("the JSON object ends early, in the middle of a string")
	default:
		o.put(o.gate.finish())
		for i := len(o.nesting) - 1; i >= 0; i-- {
			o.emit(string([]byte{o.nesting[i]}))
		}
	}
}
