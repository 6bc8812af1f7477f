// Package oai is what all surfaces of the OpenAI dialect share: the error body and its table, list pages and request ids. It is not a
// surface itself. Surfaces and package server may import it.
package oai

import (
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"strconv"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Error is the error object of wire/openai.md section 8: {"error": {message, type, param, code}}. Param and Code are null when empty.
type Error struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// errorTable is the one place where a turn.Kind becomes a status, type and default code of the OpenAI dialect.
var errorTable = map[turn.Kind]struct {
	status     int
	typ        string
	code       string // used where the error has none
	streamCode string // error.code of a Response object (wire/openai.md 1.5)
}{
	turn.KindInternal:        {500, "server_error", "", "server_error"},
	turn.KindInvalid:         {400, "invalid_request_error", "", "invalid_prompt"},
	turn.KindUnsupported:     {400, "invalid_request_error", "unsupported_value", "invalid_prompt"},
	turn.KindUnauthenticated: {401, "invalid_request_error", "invalid_api_key", "server_error"},
	turn.KindForbidden:       {403, "invalid_request_error", "", "server_error"},
	turn.KindNotFound:        {404, "invalid_request_error", "", "server_error"},
	turn.KindConflict:        {409, "invalid_request_error", "", "server_error"},
	turn.KindTooLarge:        {413, "invalid_request_error", "", "invalid_prompt"},
	turn.KindRateLimited:     {429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_exceeded"},
	turn.KindOverloaded:      {503, "server_error", "server_is_overloaded", "server_error"},
	turn.KindUpstream:        {502, "server_error", "", "server_error"},
	turn.KindTimeout:         {504, "server_error", "", "server_error"},
	turn.KindCancelled:       {499, "server_error", "", "server_error"},
}

// Body is the error as clients read it.
func Body(err error) Error {
	e := turn.AsError(err)
	row := errorTable[e.Kind]
	code := e.Code
	if code == "" {
		code = row.code
	}
	return Error{Message: e.Message, Type: row.typ, Param: Optional(e.Param), Code: Optional(code)}
}

// StreamCode is the code for the error of a Response object that failed after its first event.
func StreamCode(err error) string {
	e := turn.AsError(err)
	return errorTable[e.Kind].streamCode
}

// WriteError answers a request that failed before its first byte. Nothing else writes an error body on these surfaces. Internal errors
// are logged here; their text does not leave.
func WriteError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	e := turn.AsError(err)
	status := errorTable[e.Kind].status
	if status >= 500 && r.Context().Err() == nil {
		log.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "status", status, "error", e.Error())
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.CodeRan {
		w.Header().Set("X-Should-Retry", "false")
	}
	WriteJSON(w, status, map[string]Error{"error": Body(err)})
}

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, `{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client left
}

// Optional is s for a field that is null where there is nothing.
func Optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
