package oairesponses

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// FieldError is the first thing that is wrong with the shape of a request. Path is as the service writes it: tools[0].container.file_ids.
type FieldError struct {
	Path string
	// Unknown says that the field does not exist; else the value is not a Want.
	Unknown bool
	Want    string
}

func (e *FieldError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("unknown parameter: %q", e.Path)
	}
	return fmt.Sprintf("%q wants %s", e.Path, e.Want)
}

// DecodeRequest decodes the body of POST /v1/responses. Other than json.Unmarshal it refuses, with a *FieldError that has the path,
// fields that do not exist and values of a wrong kind, also inside items, parts and tools of a known type. A null is the same as an
// absent field. Any other error means that body is not JSON.
func DecodeRequest(body []byte) (*Request, error) {
	var syntax json.RawMessage
	if err := json.Unmarshal(body, &syntax); err != nil {
		return nil, err
	}
	if body = bytes.TrimSpace(body); body[0] != '{' {
		return nil, &FieldError{Path: "", Want: "an object"}
	}
	if err := check("", body, reflect.TypeFor[Request]()); err != nil {
		return nil, err
	}
	req := &Request{}
	if err := json.Unmarshal(body, req); err != nil {
		return nil, err
	}
	return req, nil
}

// check holds raw, which is valid JSON, against the type that it will be decoded into.
func check(path string, raw json.RawMessage, t reflect.Type) error {
	if isNull(raw) || t == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	wrong := func(want string) error { return &FieldError{Path: path, Want: want} }
	if alt, ok := alternatives[t]; ok {
		into := alt.shapes[raw[0]]
		if into == nil {
			return wrong(alt.want)
		}
		return check(path, raw, into)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return check(path, raw, t.Elem())
	case reflect.String:
		if raw[0] != '"' {
			return wrong("a string")
		}
	case reflect.Bool:
		if raw[0] != 't' && raw[0] != 'f' {
			return wrong("a boolean")
		}
	case reflect.Int:
		if json.Unmarshal(raw, new(int)) != nil {
			return wrong("an integer")
		}
	case reflect.Float64:
		if json.Unmarshal(raw, new(float64)) != nil {
			return wrong("a number")
		}
	case reflect.Interface:
		return checkUnion(path, raw, t)
	case reflect.Slice:
		return checkSlice(path, raw, t.Elem())
	case reflect.Map, reflect.Struct:
		return checkObject(path, raw, t)
	}
	return nil
}

// alternatives are the types that come in shapes of different JSON kinds, by the first byte.
var alternatives = map[reflect.Type]struct {
	want   string
	shapes map[byte]reflect.Type
}{
	reflect.TypeFor[Input](): {"a string or an array of items", map[byte]reflect.Type{
		'"': reflect.TypeFor[string](), '[': reflect.TypeFor[[]Item]()}},
	reflect.TypeFor[Content](): {"a string or an array of parts", map[byte]reflect.Type{
		'"': reflect.TypeFor[string](), '[': reflect.TypeFor[[]Part]()}},
	reflect.TypeFor[CodeContainer](): {"a container's id or an object", map[byte]reflect.Type{
		'"': reflect.TypeFor[string](), '{': reflect.TypeFor[AutoContainer]()}},
	reflect.TypeFor[ToolChoice](): {"a string or an object", map[byte]reflect.Type{
		'"': reflect.TypeFor[string](), '{': reflect.TypeFor[Choice]()}},
}

func checkUnion(path string, raw json.RawMessage, t reflect.Type) error {
	var v any
	var err error
	switch t {
	case reflect.TypeFor[Item]():
		v, err = newItem(raw)
	case reflect.TypeFor[Part]():
		v, err = newPart(raw)
	case reflect.TypeFor[Tool]():
		v, err = newTool(raw)
	}
	if err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return &FieldError{Path: path + "." + wrong.Field, Want: "a string"} // all of a head are
		}
		return &FieldError{Path: path, Want: "an object"}
	}
	if _, ok := v.(*Raw); ok {
		return nil // of a type that has no struct: whoever reads it knows what to do with it
	}
	return check(path, raw, reflect.TypeOf(v))
}

func checkSlice(path string, raw json.RawMessage, elem reflect.Type) error {
	if raw[0] != '[' {
		return &FieldError{Path: path, Want: "an array"}
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(raw, &raws); err != nil {
		return err
	}
	for i, r := range raws {
		at := fmt.Sprintf("%s[%d]", path, i)
		if isNull(r) {
			return &FieldError{Path: at, Want: "a value"}
		}
		if err := check(at, r, elem); err != nil {
			return err
		}
	}
	return nil
}

func checkObject(path string, raw json.RawMessage, t reflect.Type) error {
	if raw[0] != '{' {
		return &FieldError{Path: path, Want: "an object"}
	}
	var raws map[string]json.RawMessage
	if err := json.Unmarshal(raw, &raws); err != nil {
		return err
	}
	names := make([]string, 0, len(raws))
	for name := range raws {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		at := name
		if path != "" {
			at = path + "." + name
		}
		into := memberOf(t, name)
		if into == nil {
			if isNull(raws[name]) {
				continue // asks for nothing: openai-python's model_dump has its own names for fields that are null
			}
			return &FieldError{Path: at, Unknown: true}
		}
		if err := check(at, raws[name], into); err != nil {
			return err
		}
	}
	return nil
}

// memberOf is the type of the member called name of a map or of a struct, nil for none. Request structs embed nothing.
func memberOf(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name && tag != "" {
			return f.Type
		}
	}
	return nil
}
