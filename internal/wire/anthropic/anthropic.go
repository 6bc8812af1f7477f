// Package anthropic is the JSON of Anthropic's Messages API, both directions: the request with its content blocks and tools, the message
// that answers, the events of a stream, and errors. The shapes are those of anthropic-sdk-go v2 and of recorded streams.
//
// Things that come in several shapes are interfaces with one struct a shape (Block, ResultContent, Delta, Event); a type that has no
// struct here is kept as a *Raw with all its JSON. Every struct has an Extra for the fields that it does not know, and for known ones that
// were null. So decoding and encoding again loses nothing, which a gateway owes to clients that are newer than itself. Structs carry
// their own discriminator: whoever builds one sets Type.
//
// It is not a translator: it knows no turn, does no I/O and imports nothing of this project. Surfaces, the provider and the scripted
// upstream of the tests import it.
package anthropic

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Version is the anthropic-version that all servers of this protocol know; 2026-10-21 has no sampling parameters.
const Version = "2023-06-01"

// Marshal encodes without HTML escapes: code and Markdown are full of <, > and &.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// Raw is an object of a type that has no struct here, as it was sent. It is a Block, a ResultContent, a Delta and an Event.
type Raw struct {
	Type string
	JSON json.RawMessage
}

// MarshalJSON returns the object as it was sent.
func (r *Raw) MarshalJSON() ([]byte, error) { return r.JSON, nil }

// BlockType, DeltaType and EventType are the object's type.
func (r *Raw) BlockType() string { return r.Type }

// DeltaType is the object's type.
func (r *Raw) DeltaType() string { return r.Type }

// EventType is the object's type.
func (r *Raw) EventType() string { return r.Type }

// ResultType is the object's type.
func (r *Raw) ResultType() string { return r.Type }

// typeOf is the discriminator of an object; an object without one, which some servers send, has "".
func typeOf(data []byte) (string, error) {
	var head struct {
		Type string `json:"type"`
	}
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		return "", &json.UnmarshalTypeError{Value: "no object", Type: reflect.TypeFor[map[string]json.RawMessage]()}
	}
	err := json.Unmarshal(data, &head)
	return head.Type, err
}

// union decodes an object into the struct that shape makes for its type, or into a *Raw where that is nil.
func union[T any](data []byte, shape func(kind string) T, raw func(*Raw) T) (T, error) {
	kind, err := typeOf(data)
	if err != nil {
		var zero T
		return zero, err
	}
	v := shape(kind)
	if any(v) == nil {
		return raw(&Raw{Type: kind, JSON: bytes.Clone(bytes.TrimSpace(data))}), nil
	}
	return v, json.Unmarshal(data, v)
}

func isNull(data []byte) bool { return string(bytes.TrimSpace(data)) == "null" }
