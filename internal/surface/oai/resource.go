package oai

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// List is a page of a collection (wire/openai.md section 3). SDKs ask for the next one with after=LastID while HasMore.
type List[T any] struct {
	Object  string  `json:"object"`
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// NewList makes a page of data; id is the id of an element.
func NewList[T any](data []T, more bool, id func(T) string) List[T] {
	l := List[T]{Object: "list", Data: data, HasMore: more}
	if len(data) == 0 {
		l.Data = []T{}
		return l
	}
	first, last := id(data[0]), id(data[len(data)-1])
	l.FirstID, l.LastID = &first, &last
	return l
}

// Deleted is the answer to a DELETE.
type Deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// Paging is what a list's query asks for.
type Paging struct {
	After     string
	Limit     int
	Ascending bool
}

// ReadPaging reads limit (standard where it is not given, at most most), order (desc where it is not given) and after.
func ReadPaging(q url.Values, standard, most int) (Paging, error) {
	p := Paging{After: q.Get("after"), Limit: standard}
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > most {
			return p, turn.Invalid("limit", "limit must be a whole number from 1 to %d, got %q", most, s)
		}
		p.Limit = n
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		p.Ascending = true
	default:
		return p, turn.Invalid("order", "order must be asc or desc, got %q", q.Get("order"))
	}
	return p, nil
}

// UnknownParameter is a field that the endpoint does not have.
func UnknownParameter(param string) error {
	return &turn.Error{Kind: turn.KindInvalid, Param: param, Code: "unknown_parameter", Message: "unknown parameter: '" + param + "'"}
}

// Fields is a JSON object whose fields are known by name. A field that is null counts as absent.
type Fields struct {
	path   string
	values map[string]json.RawMessage
}

// maxObject is in bytes; a resource is described in far less.
const maxObject = 1 << 20

// ReadFields reads a request's body, which must be a JSON object with no other fields than known.
func ReadFields(w http.ResponseWriter, r *http.Request, known ...string) (Fields, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxObject))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return Fields{}, turn.Errorf(turn.KindTooLarge, "the request is larger than %d KiB", maxObject>>10)
	}
	if err != nil {
		return Fields{}, BodyError(err)
	}
	return fields("", body, known)
}

func fields(path string, body []byte, known []string) (Fields, error) {
	f := Fields{path: path}
	if err := json.Unmarshal(body, &f.values); err != nil || f.values == nil {
		what := path
		if what == "" {
			what = "the request's body"
		}
		return f, &turn.Error{Kind: turn.KindInvalid, Param: path, Message: what + " must be a JSON object", Cause: err}
	}
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !slices.Contains(known, name) {
			return f, UnknownParameter(f.param(name))
		}
		if string(f.values[name]) == "null" {
			delete(f.values, name)
		}
	}
	return f, nil
}

func (f Fields) param(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "." + name
}

// Has says whether a field is there.
func (f Fields) Has(name string) bool { return f.values[name] != nil }

// Read reads a field into dst, a pointer; want says what the field must be. An absent one leaves dst as it is.
func (f Fields) Read(name string, dst any, want string) error {
	raw := f.values[name]
	if raw == nil {
		return nil
	}
	if err := json.Unmarshal(raw, dst); err != nil {
		e := turn.Invalid(f.param(name), "%s must be %s", f.param(name), want)
		e.Code = "invalid_type"
		return e
	}
	return nil
}

// Object reads a field that is an object with no other fields than known. An absent one has no fields.
func (f Fields) Object(name string, known ...string) (Fields, error) {
	raw := f.values[name]
	if raw == nil {
		return Fields{path: f.param(name)}, nil
	}
	return fields(f.param(name), raw, known)
}
