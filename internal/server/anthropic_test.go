package server

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
)

// TestRefusalsInAnthropicsForm: what the server itself refuses is in the form that the client's SDK reads.
func TestRefusalsInAnthropicsForm(t *testing.T) {
	t.Parallel()
	api := http.NewServeMux()
	api.HandleFunc("GET /v1/skills", func(http.ResponseWriter, *http.Request) {})
	api.HandleFunc("GET /v1/panics", func(http.ResponseWriter, *http.Request) { panic("secret") })
	run := start(t, Config{API: api, Keys: auth.NewKeys([]auth.Key{{Secret: "sk-1234", Principal: auth.Principal{Project: "p"}}})})
	for _, test := range []struct {
		name, method, path, key string
		status                  int
		typ                     string
	}{
		{"no key", "GET", "/v1/skills", "", 401, "authentication_error"},
		{"unknown path", "GET", "/v1/none", "sk-1234", 404, "not_found_error"},
		{"wrong method", "PUT", "/v1/skills", "sk-1234", 405, "invalid_request_error"},
		{"panic", "GET", "/v1/panics", "sk-1234", 500, "api_error"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			headers := map[string]string{"Anthropic-Version": "2026-10-21"}
			if test.key != "" {
				headers["Authorization"] = "Bearer " + test.key
			}
			resp, text := run.do(t, test.method, test.path, headers, "")
			var body anthropic.ErrorBody
			if err := json.Unmarshal([]byte(text), &body); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			id := resp.Header.Get("Request-Id")
			if resp.StatusCode != test.status || body.Type != "error" || body.Error.Type != test.typ || body.RequestID == "" || body.RequestID != id {
				t.Errorf("status %d, request-id %q, body %s", resp.StatusCode, id, text)
			}
			if got := resp.Header.Get("Openai-Version"); got != "" {
				t.Errorf("an OpenAI header: %q", got)
			}
		})
	}
}
