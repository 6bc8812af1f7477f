// Package oairesponses is the JSON of the OpenAI Responses API, both directions: requests, items, tools, the response object and the
// events of a stream, as wire/openai.md sections 1 and 2 have them. It holds no behaviour, and imports nothing of this project.
// Surfaces decode requests and encode responses with it, a provider the other way round.
//
// Things that come in several shapes are interfaces with one struct a shape (Item, Part, Tool, Event). A type that has no struct here is
// kept as a Raw value with all its JSON, so that decoding and encoding again loses nothing but the difference between null and absent.
// Structs carry their own discriminator: whoever builds one sets Type.
package oairesponses

import (
	"bytes"
	"encoding/json"
	"fmt"
)

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

// Raw is an object of a type that has no struct here, as it was sent.
type Raw struct {
	Type string
	JSON json.RawMessage
}

// MarshalJSON returns the object as it was sent.
func (r *Raw) MarshalJSON() ([]byte, error) { return r.JSON, nil }

// head is what tells the shapes of a union apart.
type head struct {
	Type string `json:"type"`
	Role string `json:"role"`
	ID   string `json:"id"`
}

func headOf(data []byte) (head, error) {
	var h head
	if len(data) == 0 || data[0] != '{' {
		return h, fmt.Errorf("oairesponses: want an object, got %.20s", data)
	}
	err := json.Unmarshal(data, &h)
	return h, err
}

// decodeUnion decodes an array whose elements make makes empty, from their heads.
func decodeUnion[T any](data []byte, make func(data []byte) (T, error)) ([]T, error) {
	var raws []json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil || raws == nil {
		return nil, err
	}
	out := []T{}
	for _, raw := range raws {
		v, err := decodeOne(raw, make)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func decodeOne[T any](data []byte, make func(data []byte) (T, error)) (T, error) {
	v, err := make(data)
	if err != nil {
		return v, err
	}
	if _, ok := any(v).(interface{ raw() }); ok {
		return v, nil
	}
	return v, json.Unmarshal(data, v)
}

func (*Raw) raw() {}

func newRaw(kind string, data []byte) *Raw {
	return &Raw{Type: kind, JSON: bytes.Clone(data)}
}

func isNull(data []byte) bool { return string(data) == "null" }
