package tool

import (
	"errors"
	"fmt"
	"strings"
)

// objectReader finds the string under key in a JSON object that arrives byte by byte. Other members are skipped, whatever they hold;
// of several members with that key the first one counts, since its pieces have gone out already.
type objectReader struct {
	key     string
	state   objectState
	str     stringReader
	name    []byte // of the member at hand
	nesting []byte // closing brackets that are still to come in a skipped value
	inStr   bool   // in a string of a skipped value
	found   bool
}

type objectState int

const (
	atBrace objectState = iota
	atName              // before a member's name, or the end
	inName
	atColon
	atValue
	inCode
	inSkipped // a value that is not wanted
	afterValue
	afterObject
)

// maxNesting bounds what a hostile model can make us remember.
const maxNesting = 1000

func (o *objectReader) step(c byte) (code []byte, err error) {
	space := c == ' ' || c == '\t' || c == '\r' || c == '\n'
	switch o.state {
	case atBrace:
		o.state = atName
	case atName:
		switch {
		case space:
		case c == '"':
			o.state, o.str, o.name = inName, stringReader{}, nil
		case c == '}':
			o.state = afterObject
		default:
			return nil, fmt.Errorf("the JSON object has %q where a name must come", c)
		}
	case inName:
		return nil, o.stepName(c)
	case atColon:
		switch {
		case space:
		case c == ':':
			o.state = atValue
		default:
			return nil, fmt.Errorf("the JSON object has %q where a colon must come", c)
		}
	case atValue:
		if !space {
			return nil, o.stepValue(c)
		}
	case inCode:
		out, closed := o.str.step(c)
		if closed {
			o.state = afterValue
		}
		return out, nil
	case inSkipped:
		return nil, o.skip(c)
	case afterValue:
		return nil, o.separator(c, space)
	case afterObject:
		// Ends of chat templates (</tool_call>) are no harm, a second object would be lost.
		if c == '{' {
			return nil, errors.New("the arguments are several JSON objects; make one call for each")
		}
	}
	return nil, nil
}

func (o *objectReader) stepName(c byte) error {
	out, closed := o.str.step(c)
	o.name = append(o.name, out...)
	if len(o.name) > maxNesting {
		return errors.New("the JSON object has an overlong name")
	}
	if closed {
		o.state = atColon
	}
	return nil
}

func (o *objectReader) stepValue(c byte) error {
	if string(o.name) != o.key || o.found {
		o.state, o.nesting, o.inStr = inSkipped, nil, false
		return o.skip(c)
	}
	if c != '"' {
		return fmt.Errorf("%q must be a string", o.key)
	}
	o.found = true
	o.state, o.str = inCode, stringReader{}
	return nil
}

// skip passes over a value of any kind. It need not be well formed: only where it ends matters.
func (o *objectReader) skip(c byte) error {
	if o.inStr {
		if _, closed := o.str.step(c); closed {
			o.inStr = false
			if len(o.nesting) == 0 {
				o.state = afterValue
			}
		}
		return nil
	}
	switch c {
	case '"':
		o.inStr, o.str = true, stringReader{}
	case '{', '[':
		if len(o.nesting) == maxNesting {
			return errors.New("the JSON object is nested too deeply")
		}
		o.nesting = append(o.nesting, closing(c))
	case '}', ']', ',':
		return o.skipBracket(c)
	}
	return nil
}

func (o *objectReader) skipBracket(c byte) error {
	n := len(o.nesting)
	switch {
	case n == 0 && c == ']':
		return errors.New("the JSON object has a bracket too many")
	case n == 0:
		return o.separator(c, false)
	case c == ',':
	case o.nesting[n-1] != c:
		return errors.New("the JSON object has brackets that do not match")
	default:
		o.nesting = o.nesting[:n-1]
		if n == 1 {
			o.state = afterValue
		}
	}
	return nil
}

func (o *objectReader) separator(c byte, space bool) error {
	switch {
	case space:
	case c == ',':
		o.state = atName
	case c == '}':
		o.state = afterObject
	case o.found && string(o.name) == o.key:
		return fmt.Errorf("%q is followed by %q: a quote in it is not escaped", o.key, c)
	default:
		return fmt.Errorf("the JSON object has %q where a comma must come", c)
	}
	return nil
}

func closing(open byte) byte {
	if open == '{' {
		return '}'
	}
	return ']'
}

// finish takes an object whose last brace is missing, if the code in it is whole.
func (o *objectReader) finish() ([]byte, error) {
	switch {
	case o.state == inCode:
		return o.str.finish(), fmt.Errorf("the JSON object ends early, in the middle of %q", o.key)
	case !o.found && o.state != afterObject:
		return nil, errors.New("the JSON object ends early")
	case !o.found:
		return nil, fmt.Errorf("the JSON object has no %q", o.key)
	}
	return nil, nil
}

// decodeString decodes a JSON string whose opening quote has been taken off; rest is what follows the closing one.
func decodeString(s string) (content string, closed bool, rest string) {
	var r stringReader
	var b strings.Builder
	for i := range len(s) {
		out, end := r.step(s[i])
		b.Write(out)
		if end {
			return b.String(), true, s[i+1:]
		}
	}
	b.Write(r.finish())
	return b.String(), false, ""
}
