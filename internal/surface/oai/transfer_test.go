package oai

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestAttachment(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, want string }{
		{"a.csv", `attachment; filename="a.csv"; filename*=UTF-8''a.csv`},
		{"a b (2).csv", `attachment; filename="a b (2).csv"; filename*=UTF-8''a%20b%20%282%29.csv`},
		{"naïve.csv", `attachment; filename="na_ve.csv"; filename*=UTF-8''na%C3%AFve.csv`},
		{"a\"; filename=\"evil.exe", `attachment; filename="a__ filename=_evil.exe"; filename*=UTF-8''a%22%3B%20filename%3D%22evil.exe`},
		{"a\r\nSet-Cookie: x=y", `attachment; filename="a__Set-Cookie: x=y"; filename*=UTF-8''aSet-Cookie%3A%20x%3Dy`},
	} {
		if got := Attachment(tt.name); got != tt.want {
			t.Errorf("Attachment(%q)\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func FuzzAttachment(f *testing.F) {
	f.Add("a\"b\\c'd;e\nf")
	f.Fuzz(func(t *testing.T, name string) {
		got := Attachment(name)
		if strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is no header: %q", name, got)
		}
		kind, params, err := mime.ParseMediaType(got)
		if err != nil || kind != "attachment" || len(params) != 1 {
			t.Errorf("%q gives %q: %v %v", name, got, params, err)
		}
	})
}

func TestReadPaging(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		query, param string
		want         Paging
	}{
		{"", "", Paging{Limit: 20}},
		{"limit=100&order=asc&after=cntr_1", "", Paging{Limit: 100, Ascending: true, After: "cntr_1"}},
		{"order=desc&limit=1", "", Paging{Limit: 1}},
		{"limit=0", "limit", Paging{}},
		{"limit=101", "limit", Paging{}},
		{"limit=many", "limit", Paging{}},
		{"order=up", "order", Paging{}},
	} {
		q, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadPaging(q, 20, 100)
		if tt.param != "" {
			if e := turn.AsError(err); e == nil || e.Kind != turn.KindInvalid || e.Param != tt.param {
				t.Errorf("%q: %v", tt.query, err)
			}
		} else if err != nil || got != tt.want {
			t.Errorf("%q: %+v, %v", tt.query, got, err)
		}
	}
}

func TestReadFields(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, body, param, code string }{
		{"good", `{"name":"x","inner":{"a":1},"none":null}`, "", ""},
		{"unknown", `{"name":"x","bogus":1}`, "bogus", "unknown_parameter"},
		{"unknown, null", `{"bogus":null}`, "bogus", "unknown_parameter"},
		{"unknown inside", `{"inner":{"a":1,"b":2}}`, "inner.b", "unknown_parameter"},
		{"wrong type", `{"name":7}`, "name", "invalid_type"},
		{"wrong type inside", `{"inner":{"a":"x"}}`, "inner.a", "invalid_type"},
		{"no object inside", `{"inner":[]}`, "inner", ""},
		{"no object", `[]`, "", ""},
		{"null", `null`, "", ""},
		{"no JSON", `{"name":`, "", ""},
		{"empty", ``, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body))
			var name string
			var a int
			f, err := ReadFields(httptest.NewRecorder(), r, "name", "inner", "none")
			if err == nil {
				err = f.Read("name", &name, "a string")
			}
			var inner Fields
			if err == nil {
				inner, err = f.Object("inner", "a")
			}
			if err == nil {
				err = inner.Read("a", &a, "a number")
			}
			if tt.name == "good" {
				if err != nil || name != "x" || a != 1 || f.Has("none") {
					t.Errorf("name %q, a %d, none %v, %v", name, a, f.Has("none"), err)
				}
				return
			}
			e := turn.AsError(err)
			if e == nil || e.Kind != turn.KindInvalid || e.Param != tt.param || e.Code != tt.code {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// form writes a form of fields in the order given; "file" is a file.
func form(t *testing.T, fields ...[2]string) *http.Request {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, f := range fields {
		var part io.Writer
		var err error
		if f[0] == "file" {
			part, err = w.CreateFormFile("file", "a.csv")
		} else {
			part, err = w.CreateFormField(f[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, f[1])
	}
	w.Close()
	r := httptest.NewRequest(http.MethodPost, "/", &body)
	r.Header.Set("Content-Type", w.FormDataContentType())
	return r
}

func TestReadForm(t *testing.T) {
	t.Parallel()
	failed := errors.New("the disk is full")
	for _, tt := range []struct {
		name   string
		fields [][2]string
		file   error
		want   string // part of the error
		kind   turn.Kind
	}{
		{"file first", [][2]string{{"file", "1,2"}, {"purpose", "user_data"}}, nil, "", 0},
		{"file last", [][2]string{{"purpose", "user_data"}, {"file", "1,2"}}, nil, "", 0},
		{"unknown", [][2]string{{"files", "x"}}, nil, "unknown parameter: 'files'", turn.KindInvalid},
		{"two files", [][2]string{{"file", "1"}, {"file", "2"}}, nil, "one file", turn.KindInvalid},
		{"long field", [][2]string{{"purpose", strings.Repeat("x", maxField+1)}}, nil, "longer than", turn.KindInvalid},
		{"file refused", [][2]string{{"file", "1,2"}}, failed, "the disk is full", turn.KindInternal},
		{"too large", [][2]string{{"purpose", "x"}, {"file", strings.Repeat("x", formOverhead+2000)}}, nil, "larger than", turn.KindTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var name string
			var data []byte
			values, err := ReadForm(httptest.NewRecorder(), form(t, tt.fields...), 1000, func(n string, body io.Reader) error {
				name = n
				var err error
				if data, err = io.ReadAll(body); err != nil {
					return formError(err)
				}
				return tt.file
			}, "purpose")
			if tt.want == "" {
				diff := cmp.Diff(map[string]string{"purpose": "user_data"}, values)
				if err != nil || diff != "" || name != "a.csv" || string(data) != "1,2" {
					t.Errorf("%v, %q %q %s", err, name, data, diff)
				}
				return
			}
			if e := turn.AsError(err); e == nil || e.Kind != tt.kind || !strings.Contains(e.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	if _, err := ReadForm(httptest.NewRecorder(), r, 10, nil); turn.AsError(err).Kind != turn.KindInvalid {
		t.Errorf("no form: %v", err)
	}
}
