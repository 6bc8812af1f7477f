package anthropic

import (
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestWriteError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		err     error
		status  int
		body    string
		headers map[string]string
	}{
		{"invalid", turn.Invalid("limit", "limit: too much"), 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"limit: too much"},"request_id":"req_1"}`, nil},
		{"not found", turn.NotFound("no such skill"), 404,
			`{"type":"error","error":{"type":"not_found_error","message":"no such skill"},"request_id":"req_1"}`, nil},
		{"too large", turn.Errorf(turn.KindTooLarge, "big"), 413,
			`{"type":"error","error":{"type":"request_too_large","message":"big"},"request_id":"req_1"}`, nil},
		{"overloaded", &turn.Error{Kind: turn.KindOverloaded, Message: "later", RetryAfter: 1500 * time.Millisecond}, 529,
			`{"type":"error","error":{"type":"overloaded_error","message":"later"},"request_id":"req_1"}`, map[string]string{"Retry-After": "2"}},
		{"code ran", &turn.Error{Kind: turn.KindTimeout, Message: "slow", CodeRan: true}, 504,
			`{"type":"error","error":{"type":"timeout_error","message":"slow"},"request_id":"req_1"}`,
			map[string]string{"X-Should-Retry": "false"}},
		{"a code of this dialect", &turn.Error{Kind: turn.KindInvalid, Message: "m", Code: "file_expired"}, 400,
			`{"type":"error","error":{"type":"invalid_request_error","message":"m","details":{"error_code":"file_expired"}},"request_id":"req_1"}`, nil},
		{"a secret", errors.New("password=hunter2"), 500,
			`{"type":"error","error":{"type":"api_error","message":"internal error; the server's log has the details under this request's id"},"request_id":"req_1"}`, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("GET", "/v1/skills", nil)
			r = r.WithContext(WithRequestID(r.Context(), "req_1"))
			w := httptest.NewRecorder()
			WriteError(w, r, slog.New(slog.NewTextHandler(io.Discard, nil)), test.err)
			if w.Code != test.status {
				t.Errorf("status %d, want %d", w.Code, test.status)
			}
			if diff := cmp.Diff(test.body, w.Body.String()); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			for name, value := range test.headers {
				if got := w.Header().Get(name); got != value {
					t.Errorf("%s is %q, want %q", name, got, value)
				}
			}
		})
	}
}

// TestEveryKindHasARow: a kind without one would be answered with status 0.
func TestEveryKindHasARow(t *testing.T) {
	t.Parallel()
	for kind := turn.KindInternal; kind <= turn.KindCancelled; kind++ {
		if errorTable[kind].status == 0 {
			t.Errorf("kind %d has no row", kind)
		}
	}
}

func TestSpeaks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		path, header string
		want         bool
	}{
		{"/v1/skills", "", false},
		{"/v1/skills", "Anthropic-Version", true},
		{"/v1/skills", "Anthropic-Beta", true},
		{"/v1/messages", "", true},
		{"/v1/messages/count_tokens", "", true},
		{"/v1/messagesque", "", false},
		{"/v1/responses", "", false},
	} {
		r := httptest.NewRequest("POST", test.path, nil)
		if test.header != "" {
			r.Header.Set(test.header, "x")
		}
		if got := Speaks(r); got != test.want {
			t.Errorf("%s with %q: %v", test.path, test.header, got)
		}
	}
}

func TestBetas(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Add("anthropic-beta", "skills-2025-10-02, code-execution-2025-08-25,,")
	r.Header.Add("anthropic-beta", "x,skills-2025-10-02")
	if diff := cmp.Diff([]string{"skills-2025-10-02", "code-execution-2025-08-25", "x"}, Betas(r)); diff != "" {
		t.Error(diff)
	}
}

func TestReadLimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 20, "1": 1, "1000": 1000, "0": -1, "1001": -1, "x": -1} {
		got, err := ReadLimit(url.Values{"limit": {text}}, 1000)
		if want < 0 {
			if err == nil || !strings.Contains(err.Error(), "from 1 to 1000") {
				t.Errorf("%q: %d, %v", text, got, err)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}
