package oai

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestEveryKindHasItsRow(t *testing.T) {
	for kind := turn.KindInternal; kind <= turn.KindCancelled; kind++ {
		row, ok := errorTable[kind]
		if !ok || row.status < 400 || row.typ == "" || row.streamCode == "" {
			t.Errorf("kind %d has the row %+v", kind, row)
		}
	}
}

func TestWriteError(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		status int
		body   string
		header http.Header
	}{
		{
			"a field", turn.Unsupported("input[0].type", "no"), 400,
			`{"error":{"message":"no","type":"invalid_request_error","param":"input[0].type","code":"unsupported_value"}}`, http.Header{},
		},
		{
			"to be tried later", &turn.Error{Kind: turn.KindRateLimited, Message: "slow", RetryAfter: 1100 * time.Millisecond}, 429,
			`{"error":{"message":"slow","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`, http.Header{"Retry-After": {"2"}},
		},
		{
			"not to be tried again", &turn.Error{Kind: turn.KindUpstream, Message: "gone", CodeRan: true}, 502,
			`{"error":{"message":"gone","type":"server_error","param":null,"code":null}}`, http.Header{"X-Should-Retry": {"false"}},
		},
		{
			"ours", errors.New("secret"), 500,
			`{"error":{"message":"internal error; the server's log has the details under this request's id",` +
				`"type":"server_error","param":null,"code":null}}`,
			http.Header{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			WriteError(w, httptest.NewRequest(http.MethodPost, "/", nil), slog.New(slog.DiscardHandler), tc.err)
			got := w.Header().Clone()
			got.Del("Content-Type")
			got.Del("Content-Length")
			if w.Code != tc.status || w.Body.String() != tc.body {
				t.Errorf("status %d, body %s", w.Code, w.Body)
			}
			if diff := cmp.Diff(tc.header, got); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDataURI(t *testing.T) {
	for in, want := range map[string]string{
		"data:image/png;base64,AQI=":                                    "image/png \x01\x02",
		"data:text/csv;charset=utf-8;base64,YSxi":                       "text/csv a,b",
		"data:;base64,YQ==":                                             " a",
		"data:text/plain,abc":                                           "no",
		"data:text/plain;base64":                                        "no",
		"data:text/plain;base64,%%":                                     "no",
		"https://example.com/a;base64,YQ==":                             "no",
		ImageURI(turn.Output{MIME: "image/svg", Data: []byte("<svg>")}): "image/svg <svg>",
	} {
		got := "no"
		if mime, data, ok := DataURI(in); ok {
			got = mime + " " + string(data)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

func TestMetadata(t *testing.T) {
	in := map[string]string{"session_id": "s", "a": "b"}
	rest, session, err := Metadata(in)
	if err != nil || session != "s" || !cmp.Equal(rest, map[string]string{"a": "b"}) || len(in) != 2 {
		t.Errorf("got %v, %q, %v; the client's has %d pairs left", rest, session, err, len(in))
	}
	if rest, session, err = Metadata(nil); rest != nil || session != "" || err != nil {
		t.Errorf("of nothing: %v, %q, %v", rest, session, err)
	}
	// Characters, not bytes: OpenAI counts so, too.
	if _, _, err = Metadata(map[string]string{strings.Repeat("é", 64): strings.Repeat("é", 512)}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

func TestAddFile(t *testing.T) {
	shared := append(make([]string, 0, 60), "a")
	h := &turn.Hosted{FileIDs: shared}
	for _, id := range []string{"b", "a", "", "b"} {
		if err := AddFile(h, "input[0]", id); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, h.FileIDs); diff != "" || len(shared[:2:2][1]) != 0 {
		t.Errorf("(-want +got):\n%s; the client's own list became %q", diff, shared[:2])
	}
	h.FileIDs = make([]string, maxFileIDs)
	if err := AddFile(h, "input[0]", "one more"); turn.AsError(err).Param != "input[0]" {
		t.Errorf("over the limit: %v", err)
	}
	if err := AddFile(nil, "input[0]", "x"); err != nil {
		t.Error(err)
	}
}

func TestReadBody(t *testing.T) {
	read := func(body string) (string, error) {
		got, err := ReadBody(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		return string(got), err
	}
	if got, err := read(`{"a":1}`); got != `{"a":1}` || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := read(strings.Repeat("x", MaxBody+1)); turn.AsError(err).Kind != turn.KindTooLarge {
		t.Errorf("too large: %v", err)
	}
}

func TestWriteJSON(t *testing.T) {
	w := httptest.NewRecorder()
	WriteJSON(w, http.StatusOK, func() {}) // cannot be encoded
	if w.Code != http.StatusInternalServerError || !json.Valid(w.Body.Bytes()) {
		t.Errorf("status %d, body %s", w.Code, w.Body)
	}
}
