package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxCode is the longest code of one call in bytes. No honest call comes near it, and a model in a loop must end somewhere.
const MaxCode = 1 << 20

// maxBlank is how much white space may stand before something that decides what the arguments are.
const maxBlank = 4 << 10

// Args reads the arguments of one hosted call while the model writes them, and decodes the code in them piece by piece. The code of the
// edit tool is the object itself (see objectText); what follows is for the others.
//
// It takes the declared object ({"code": "..."}, other members skipped) and what open models send in its place: a bare JSON string, the
// object once more encoded as a string, a fenced block, or the code itself. Inside strings it also takes what strict JSON refuses but
// can only mean one thing: raw line breaks and escapes such as \d or \'. Everything else is an error of Finish, worded for the model.
//
// The pieces that Push returns are valid UTF-8 and, in order, a prefix of the code that Finish returns without an error. Where the form
// is clear only at the end (a bare string), Push returns nothing. After an error the pieces are what had been read so far.
type Args struct {
	key   string
	whole *objectText // for a tool whose code is the object itself; the rest is for the others
	mode  argMode
	lead  []byte // what has been read before mode was known, and everything in modeLate
	obj   objectReader
	fence fence
	gate  utf8Gate
	delta strings.Builder
	code  strings.Builder
	err   error
}

type argMode int

const (
	modeUnknown argMode = iota
	modeObject          // {"code": ...}
	modeRaw             // the code itself, or a fenced block
	modeLate            // starts like a JSON value that is no object; known at the end
)

// NewArgs returns a reader for the arguments of a hosted tool.
func NewArgs(name string) *Args {
	a := &Args{key: argument(name)}
	if name == Edit {
		a.whole = &objectText{}
	}
	a.obj.key = a.key
	return a
}

// Push takes the next piece of the arguments and returns the piece of code that it brought, "" for none.
func (a *Args) Push(delta string) string {
	if a.whole != nil {
		return a.whole.push(delta)
	}
	for i := 0; i < len(delta) && a.err == nil; {
		if n := a.plain(delta[i:]); n > 0 {
			a.emit(delta[i : i+n])
			i += n
			continue
		}
		a.step(delta[i])
		i++
	}
	out := a.delta.String()
	a.delta.Reset()
	return out
}

// plain counts the first bytes of s that are code as they stand, so that the bulk of a call does not go byte by byte.
func (a *Args) plain(s string) int {
	if a.mode != modeObject || a.obj.state != inCode || !a.obj.str.idle() || a.fence.state != fencePlain || len(a.gate.held) > 0 {
		return 0
	}
	n := 0
	for n < len(s) && s[n] < utf8.RuneSelf && s[n] != '"' && s[n] != '\\' {
		n++
	}
	return n
}

// Finish returns the whole code. The error is for the model: it says what was wrong and what to send.
func (a *Args) Finish() (string, error) {
	if a.whole != nil {
		return a.whole.finish(func(code string) error {
			_, err := ParseEdit(code)
			return err
		})
	}
	if a.err == nil {
		a.end()
	}
	if a.err == nil && a.key == argument(Bash) && strings.ContainsRune(a.code.String(), 0) {
		a.fail("the %q has a NUL character", a.key) // no program can be started with one
	}
	if a.err != nil {
		return a.code.String(), fmt.Errorf(`%w. Nothing was run: send the arguments as a JSON object {%q: "..."}`, a.err, a.key)
	}
	return a.code.String(), nil
}

func (a *Args) fail(format string, args ...any) { a.err = fmt.Errorf(format, args...) }

func (a *Args) step(c byte) {
	switch a.mode {
	case modeUnknown:
		a.lead = append(a.lead, c)
		a.decide()
	case modeObject:
		a.object(c)
	case modeRaw:
		a.text(c)
	case modeLate:
		if len(a.lead) >= MaxCode {
			a.fail("the arguments are longer than %d bytes", MaxCode)
			return
		}
		a.lead = append(a.lead, c)
	}
}

// decide looks at the first characters. A Python program may start with a brace, a quote or a digit too.
func (a *Args) decide() {
	if len(a.lead) > maxBlank {
		a.fail("the arguments begin with more than %d blanks", maxBlank)
		return
	}
	s := strings.TrimLeft(string(a.lead), " \t\r\n\ufeff")
	if s == "" {
		return
	}
	switch c := s[0]; {
	case c == '{':
		rest := strings.TrimLeft(s[1:], " \t\r\n")
		switch {
		case rest == "":
		case rest[0] == '"' || rest[0] == '}':
			a.enter(modeObject, s)
		case rest[0] == '\'':
			a.fail("the arguments are not JSON, which has double quotes only")
		default:
			a.enter(modeRaw, string(a.lead))
		}
	case c == '"' || c == '[' || c == '-' || c >= '0' && c <= '9':
		a.mode = modeLate
	case isPrefixOf(s, "true", "false", "null"), isPrefixOf(s, "\ufeff"):
	default:
		a.enter(modeRaw, string(a.lead))
	}
}

func isPrefixOf(s string, words ...string) bool {
	for _, w := range words {
		if strings.HasPrefix(w, s) {
			return true
		}
	}
	return false
}

func (a *Args) enter(m argMode, s string) {
	a.mode, a.lead = m, nil
	for i := 0; i < len(s) && a.err == nil; i++ {
		a.step(s[i])
	}
}

func (a *Args) object(c byte) {
	out, err := a.obj.step(c)
	if err != nil {
		a.err = err
	}
	for _, b := range out {
		a.text(b)
	}
}

// text takes a byte of the code, before fences are taken off.
func (a *Args) text(c byte) {
	for _, b := range a.fence.step(c) {
		a.emit(a.gate.step(b))
	}
}

func (a *Args) emit(s string) {
	if s == "" || a.err != nil {
		return
	}
	if a.code.Len()+len(s) > MaxCode {
		a.fail("the code is longer than %d bytes", MaxCode)
		return
	}
	a.delta.WriteString(s)
	a.code.WriteString(s)
}

func (a *Args) end() {
	switch a.mode {
	case modeUnknown:
		a.endUnknown()
	case modeLate:
		a.endLate()
	case modeObject:
		out, err := a.obj.finish()
		a.err = err
		for _, b := range out {
			a.text(b)
		}
	case modeRaw:
	}
	if a.err != nil {
		return
	}
	rest, err := a.fence.finish()
	for _, b := range []byte(rest) {
		a.emit(a.gate.step(b))
	}
	a.emit(a.gate.finish())
	if err != nil {
		a.err = err
	}
}

func (a *Args) endUnknown() {
	switch s := strings.TrimSpace(string(a.lead)); s {
	case "":
		a.fail("the arguments are empty")
	case "true", "false", "null":
		a.fail("the arguments are the JSON literal %s, not an object", s)
	default:
		if s[0] == '{' {
			a.fail("the JSON object ends early")
			return
		}
		a.enter(modeRaw, string(a.lead))
	}
}

func (a *Args) endLate() {
	s := strings.TrimSpace(string(a.lead))
	if s[0] == '"' {
		a.endString(s)
		return
	}
	if json.Valid([]byte(s)) {
		a.fail("the arguments are a JSON value, but not an object")
		return
	}
	a.enter(modeRaw, string(a.lead))
}

func (a *Args) endString(s string) {
	content, closed, rest := decodeString(s[1:])
	switch {
	case !closed && !strings.Contains(s[1:], `"`):
		a.fail("the JSON string ends early")
	case !closed || rest != "":
		a.enter(modeRaw, string(a.lead)) // Python that starts with a string
	case startsObject(content):
		inner := &Args{key: a.key, obj: objectReader{key: a.key}}
		inner.Push(content)
		code, _ := inner.Finish()
		a.emit(code)
		if a.err == nil {
			a.err = inner.err
		}
		a.mode = modeRaw
	default:
		a.enter(modeRaw, content)
	}
}

func startsObject(s string) bool {
	s = strings.TrimLeft(s, " \t\r\n")
	return strings.HasPrefix(s, "{") && strings.HasPrefix(strings.TrimLeft(s[1:], " \t\r\n"), `"`)
}
