package tool

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// stringReader decodes the inside of a JSON string byte by byte. It also takes raw control characters, and escapes that JSON does not
// know: \' is ', any other keeps its backslash, as in the regular expressions that models forget to escape twice.
type stringReader struct {
	escaped bool
	inHex   bool
	hex     []byte // digits after \u
	high    rune   // a first half of a surrogate pair that waits for its second
}

// idle says that the next character stands for itself if it can.
func (r *stringReader) idle() bool { return !r.escaped && !r.inHex && r.high == 0 }

// step returns what c completes, and whether c was the closing quote.
func (r *stringReader) step(c byte) (out []byte, closed bool) {
	switch {
	case r.inHex:
		return r.stepHex(c), false
	case r.escaped:
		r.escaped = false
		return r.stepEscape(c), false
	case c == '\\':
		r.escaped = true
		return nil, false
	case c == '"':
		return r.flushHigh(nil), true
	}
	return r.flushHigh([]byte{c}), false
}

func (r *stringReader) stepEscape(c byte) []byte {
	const from, to = `"\/bfnrt'`, "\"\\/\b\f\n\r\t'"
	if c == 'u' {
		r.inHex, r.hex = true, nil
		return nil
	}
	if i := strings.IndexByte(from, c); i >= 0 {
		return r.flushHigh([]byte{to[i]})
	}
	return r.flushHigh([]byte{'\\', c})
}

func (r *stringReader) stepHex(c byte) []byte {
	if !isHex(c) {
		// Not an escape after all: what was read stands for itself, and c may open something.
		out := r.flushHigh(append([]byte(`\u`), r.hex...))
		r.inHex = false
		if c == '\\' {
			r.escaped = true
			return out
		}
		return append(out, c)
	}
	r.hex = append(r.hex, c)
	if len(r.hex) < 4 {
		return nil
	}
	r.inHex = false
	n, err := strconv.ParseUint(string(r.hex), 16, 32)
	if err != nil {
		return nil // four hex digits always parse
	}
	return r.unit(rune(n))
}

// unit takes one UTF-16 unit.
func (r *stringReader) unit(u rune) []byte {
	if r.high != 0 {
		if full := utf16.DecodeRune(r.high, u); full != utf8.RuneError {
			r.high = 0
			return utf8.AppendRune(nil, full)
		}
	}
	out := r.flushHigh(nil)
	if u >= 0xD800 && u < 0xDC00 {
		r.high = u
		return out
	}
	return utf8.AppendRune(out, u) // a lone second half becomes U+FFFD here
}

// flushHigh gives up waiting for a second half and appends then.
func (r *stringReader) flushHigh(then []byte) []byte {
	if r.high == 0 {
		return then
	}
	r.high = 0
	return append(utf8.AppendRune(nil, utf8.RuneError), then...)
}

// finish returns what was held back by a string that was not closed.
func (r *stringReader) finish() []byte { return r.flushHigh(nil) }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// fence takes the fence off code that is a fenced block (```python ... ```), byte by byte. Other text passes as it is. No Python or
// shell program starts with three backquotes.
type fence struct {
	state fenceState
	held  []byte
	// What is held back in the body: a line break that is not yet out, and backquotes at the start of the line after it.
	lineBreak string
	lineStart bool
	quotes    int
}

type fenceState int

const (
	fenceStart  fenceState = iota // blanks and up to two backquotes are held
	fencePlain                    // no fence
	fenceHeader                   // the rest of the opening line
	fenceBody
	fenceAfter // held is what came behind the block
)

const ticks = "```"

func (f *fence) step(c byte) []byte {
	switch f.state {
	case fencePlain:
		return []byte{c}
	case fenceStart:
		f.held = append(f.held, c)
		word := bytes.TrimLeft(f.held, " \t\r\n")
		switch {
		case string(word) == ticks:
			f.state, f.held = fenceHeader, nil
		case strings.HasPrefix(ticks, string(word)) && len(f.held) < maxBlank:
		default:
			f.state = fencePlain
			return f.release()
		}
	case fenceHeader:
		if c == '\n' {
			f.state, f.lineStart = fenceBody, true
		}
	case fenceBody:
		return f.stepBody(c)
	case fenceAfter:
		if len(f.held) < MaxCode {
			f.held = append(f.held, c)
		}
	}
	return nil
}

// stepBody holds back what may belong to the closing line: the line break before it and its backquotes.
func (f *fence) stepBody(c byte) []byte {
	switch {
	case f.lineStart && c == '`':
		f.quotes++
		if f.quotes == len(ticks) {
			f.state = fenceAfter
		}
		return nil
	case c == '\n' && f.lineBreak == "\r" && !f.lineStart:
		f.lineBreak, f.lineStart = "\r\n", true
		return nil
	case c == '\n':
		out := f.flushLine()
		f.lineBreak, f.lineStart = "\n", true
		return out
	case c == '\r':
		out := f.flushLine()
		f.lineBreak = "\r"
		return out
	}
	return append(f.flushLine(), c)
}

func (f *fence) flushLine() []byte {
	out := []byte(f.lineBreak + ticks[:f.quotes])
	f.lineBreak, f.quotes, f.lineStart = "", 0, false
	return out
}

func (f *fence) release() []byte {
	out := f.held
	f.held = nil
	return out
}

func (f *fence) finish() (rest string, err error) {
	switch f.state {
	case fenceStart:
		return string(f.release()), nil
	case fenceBody:
		return string(f.flushLine()), nil
	case fenceHeader:
		return "", errors.New("the fenced block has no lines")
	case fenceAfter:
		if strings.Contains(string(f.held), ticks) {
			return "", errors.New("the arguments have several fenced blocks")
		}
	}
	return "", nil
}

// utf8Gate lets only whole characters through; bytes that are none become U+FFFD.
type utf8Gate struct{ held []byte }

func (g *utf8Gate) step(c byte) string {
	g.held = append(g.held, c)
	if !utf8.FullRune(g.held) {
		return ""
	}
	return g.drain()
}

func (g *utf8Gate) drain() string {
	var out []byte
	for len(g.held) > 0 && utf8.FullRune(g.held) {
		r, n := utf8.DecodeRune(g.held)
		out = utf8.AppendRune(out, r)
		g.held = g.held[n:]
	}
	return string(out)
}

func (g *utf8Gate) finish() string {
	var out []byte
	for range g.held {
		out = utf8.AppendRune(out, utf8.RuneError)
	}
	g.held = nil
	return string(out)
}
