package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Extra are the fields of an object that its struct does not know, and known ones that were null or an empty string. A struct writes them behind its own,
// except where it now has a value for one.
type Extra map[string]json.RawMessage

// field is a field of a struct as JSON has it.
type field struct {
	name  string
	index int
	omit  bool // where it is zero
}

// shape is what the codec knows of a struct type.
type shape struct {
	fields []field
	extra  int // index of the field Extra
}

var shapes sync.Map // of reflect.Type to *shape

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		if known, ok := s.(*shape); ok {
			return known
		}
	}
	s := &shape{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type == reflect.TypeFor[Extra]() {
			s.extra = i
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		s.fields = append(s.fields, field{name: name, index: i, omit: options == "omitzero"})
	}
	shapes.Store(t, s)
	return s
}

// decode reads an object into the struct that into points to. Names are exact: encoding/json alone would take Type for type.
func decode(data []byte, into any) error {
	var raws map[string]json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil {
		return err
	}
	if raws == nil {
		return &json.UnmarshalTypeError{Value: "null", Type: reflect.TypeFor[map[string]json.RawMessage]()}
	}
	v := reflect.ValueOf(into).Elem()
	v.SetZero()
	s := shapeOf(v.Type())
	for _, f := range s.fields {
		raw, ok := raws[f.name]
		if !ok || isNull(raw) {
			continue // null stays in Extra
		}
		if err := json.Unmarshal(raw, v.Field(f.index).Addr().Interface()); err != nil {
			return at(f.name, err)
		}
		if !f.omit || !v.Field(f.index).IsZero() {
			delete(raws, f.name) // a zero that would be left out stays in Extra
		}
	}
	if len(raws) > 0 {
		v.Field(s.extra).Set(reflect.ValueOf(Extra(raws)))
	}
	return nil
}

// encode writes a struct: its own fields in their order, then Extra by name.
func encode(from any) ([]byte, error) {
	v := reflect.ValueOf(from)
	s := shapeOf(v.Type())
	var out bytes.Buffer
	out.WriteByte('{')
	add := func(name string, value any) error {
		raw, err := Marshal(value)
		if err != nil {
			return err
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		key, err := Marshal(name)
		if err != nil {
			return err
		}
		out.Write(key)
		out.WriteByte(':')
		out.Write(raw)
		return nil
	}
	written := map[string]bool{}
	for _, f := range s.fields {
		if fv := v.Field(f.index); !f.omit || !fv.IsZero() {
			written[f.name] = true
			if err := add(f.name, fv.Interface()); err != nil {
				return nil, err
			}
		}
	}
	extra, _ := v.Field(s.extra).Interface().(Extra)
	names := make([]string, 0, len(extra))
	for name := range extra {
		if !written[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if err := add(name, extra[name]); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// FieldError says which field could not be read. Path has names and places in lists: messages.0.content.1.text.
type FieldError struct {
	Path string
	// Err is mostly a *json.UnmarshalTypeError.
	Err error
}

func (e *FieldError) Error() string { return "anthropic: " + e.Path + ": " + e.Err.Error() }

func (e *FieldError) Unwrap() error { return e.Err }

// at puts the name of a field, or a place in a list, before the path of an error.
func at(name string, err error) error {
	if inner, ok := errors.AsType[*FieldError](err); ok {
		return &FieldError{Path: name + "." + inner.Path, Err: inner.Err}
	}
	return &FieldError{Path: name, Err: err}
}

// list reads an array whose elements are told apart in errors.
func list[T any](data []byte, read func(data []byte) (T, error)) ([]T, error) {
	var raws []json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil {
		return nil, err
	}
	out := make([]T, 0, len(raws))
	for i, raw := range raws {
		v, err := read(raw)
		if err != nil {
			return nil, at(strconv.Itoa(i), err)
		}
		out = append(out, v)
	}
	return out, nil
}

func object[T any](data []byte) (T, error) {
	var v T
	return v, json.Unmarshal(data, &v)
}
