package anthropic

import (
	"bytes"
	"errors"
)

// ErrTooDeep says that blocks of a request stand inside of each other more than any that the protocol has. Each level is read anew for the
// one that holds it, so that without this limit a small body would take minutes.
var ErrTooDeep = errors.New("anthropic: blocks are nested too deeply")

// maxNested is far above what the protocol has: messages, message, content, result, content, document, source, content, text.
const maxNested = 32

// nested is how many objects and arrays stand inside of each other in valid JSON, counted only under the fields that hold blocks. What is
// under others, such as the input of a call or a schema, is not read level by level and may be as deep as encoding/json takes.
func nested(data []byte) int {
	var counts []bool // of each open object and array
	var key []byte
	depth, most := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			start := i + 1
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
			key = data[start:min(i, len(data))]
		case '{', '[':
			count := len(counts) == 0 || counts[len(counts)-1] && holdsBlocks(key)
			if counts = append(counts, count); count {
				depth++
				most = max(most, depth)
			}
		case '}', ']':
			if n := len(counts); n > 0 {
				if counts[n-1] {
					depth--
				}
				counts = counts[:n-1]
			}
			key = nil
		case ',':
			key = nil // in an array there is none
		}
	}
	return most
}

// holdsBlocks takes a key with escapes for one that does, and an element of an array, which has no key.
func holdsBlocks(key []byte) bool {
	switch string(key) {
	case "", "messages", "system", "content", "source":
		return true
	}
	return bytes.IndexByte(key, '\\') >= 0
}
