// Package anthropic is what all surfaces of Anthropic's dialect share: which requests speak it, the error body and its table, beta names
// and pages of lists. It is not a surface itself. Surfaces and package server may import it.
package anthropic

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"strconv"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// ErrorBody is the body of an error (wire/anthropic.md 1.7), and the data of a stream's error event.
type ErrorBody struct {
	Type      string `json:"type"` // error
	Error     Error  `json:"error"`
	RequestID string `json:"request_id,omitempty"`
}

// Error is the error object of an ErrorBody.
type Error struct {
	Type    string   `json:"type"`
	Message string   `json:"message"`
	Details *Details `json:"details,omitempty"`
}

// Details has the stable machine code of an error, where it has one.
type Details struct {
	ErrorCode string `json:"error_code"`
}

// errorTable is the one place where a turn.Kind becomes a status and type of Anthropic's dialect.
var errorTable = map[turn.Kind]struct {
	status int
	typ    string
}{
	turn.KindInternal:        {500, "api_error"},
	turn.KindInvalid:         {400, "invalid_request_error"},
	turn.KindUnsupported:     {400, "invalid_request_error"},
	turn.KindUnauthenticated: {401, "authentication_error"},
	turn.KindForbidden:       {403, "permission_error"},
	turn.KindNotFound:        {404, "not_found_error"},
	turn.KindConflict:        {409, "conflict_error"},
	turn.KindTooLarge:        {413, "request_too_large"},
	turn.KindRateLimited:     {429, "rate_limit_error"},
	turn.KindOverloaded:      {529, "overloaded_error"},
	turn.KindUpstream:        {502, "api_error"},
	turn.KindTimeout:         {504, "timeout_error"},
	turn.KindCancelled:       {499, "api_error"},
}

// errorCodes are the values of error.details.error_code that this dialect has; other codes of a turn.Error stay behind.
var errorCodes = map[string]bool{
	"file_not_downloadable": true, "file_expired": true, "storage_quota_exceeded": true, "image_dimensions_too_large": true,
	"request_body_encoding_invalid": true, "request_body_encoding_unsupported": true, "tool_name_conflict": true,
	"sandbox_egress_restricted": true, "thread_unsupported_request": true,
}

// Body is the error as clients read it. requestID is "" where there is none.
func Body(err error, requestID string) ErrorBody {
	e := turn.AsError(err)
	b := ErrorBody{Type: "error", Error: Error{Type: errorTable[e.Kind].typ, Message: e.Message}, RequestID: requestID}
	if errorCodes[e.Code] {
		b.Error.Details = &Details{ErrorCode: e.Code}
	}
	return b
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
	WriteJSON(w, status, Body(err, RequestID(r.Context())))
}

// WriteJSON answers with v, without HTML escapes: code is full of what they would blow up.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		http.Error(w, `{"type":"error","error":{"type":"api_error","message":"internal error"}}`, http.StatusInternalServerError)
		return
	}
	body := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client left
}
