package oai

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// LiveHeader is the request header that, set to 1, asks for the output of hosted code while it is printed.
const LiveHeader = "X-Lathe-Live"

// MaxBody holds the largest request the vendor takes (50 MB of files in base64); firstAlloc is what a Content-Length is trusted with at
// once.
const (
	MaxBody    = 64 << 20
	firstAlloc = 1 << 20
)

// ReadBody reads a request's body whole, up to MaxBody.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(int(min(max(r.ContentLength, 0), firstAlloc)) + bytes.MinRead)
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, turn.Errorf(turn.KindTooLarge,
			"the request is larger than %d MiB; upload files with POST /v1/files and name them by id", MaxBody>>20)
	}
	if err != nil {
		return nil, BodyError(err)
	}
	return buf.Bytes(), nil
}

// BodyError is what a failed read of a request's body means to the client. A *turn.Error of a reader below says so itself.
func BodyError(err error) error {
	if e, ok := errors.AsType[*turn.Error](err); ok {
		return e
	}
	return &turn.Error{Kind: turn.KindInvalid, Message: "the request's body ended early; send it again", Cause: err}
}

// At is the path of an element: At("tools", 1) is tools[1].
func At(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// Missing is a required field that is not there.
func Missing(param string) error {
	e := turn.Invalid(param, "missing required parameter: %q", param)
	e.Code = "missing_required_parameter"
	return e
}

// TooLong is a string of more characters than limit.
func TooLong(param string, limit, got int) error {
	e := turn.Invalid(param, "%s must have at most %d characters, got %d", param, limit, got)
	e.Code = "string_above_max_length"
	return e
}

const (
	sessionKey       = "session_id"
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

// Metadata checks a request's metadata and takes session_id out of it: it is for us, not for the model's server. rest is nil if nothing
// else is there. in is not changed.
func Metadata(in map[string]string) (rest map[string]string, session string, err error) {
	if len(in) > maxMetadata {
		return nil, "", turn.Invalid("metadata", "metadata may have at most %d pairs, got %d", maxMetadata, len(in))
	}
	for k, v := range in {
		if n := utf8.RuneCountInString(k); n > maxMetadataKey {
			return nil, "", TooLong("metadata", maxMetadataKey, n)
		}
		if n := utf8.RuneCountInString(v); n > maxMetadataValue {
			return nil, "", TooLong("metadata."+k, maxMetadataValue, n)
		}
		if k == sessionKey {
			if v == "" {
				return nil, "", turn.Invalid("metadata.session_id",
					"metadata.session_id must not be empty; leave it out for a container of this request's own")
			}
			session = v
			continue
		}
		if rest == nil {
			rest = map[string]string{}
		}
		rest[k] = v
	}
	return rest, session, nil
}

// preloadKey, with the value true, puts the whole text of the request's skills into the prompt.
const preloadKey = "preload_skills"

// TakePreload takes preload_skills out of a request's metadata, and says whether it is true.
func TakePreload(metadata map[string]string) bool {
	v := metadata[preloadKey]
	delete(metadata, preloadKey)
	return v == "true"
}

// DataURI takes data:<type>[;parameters];base64,<data> apart.
func DataURI(s string) (mime string, data []byte, ok bool) {
	rest, ok := strings.CutPrefix(s, "data:")
	if !ok {
		return "", nil, false
	}
	meta, payload, ok := strings.Cut(rest, ",")
	meta, b64 := strings.CutSuffix(meta, ";base64")
	if !ok || !b64 {
		return "", nil, false
	}
	data, err := base64.StdEncoding.DecodeString(payload)
	mime, _, _ = strings.Cut(meta, ";")
	return mime, data, err == nil
}

// ImageURI is the data URI of an image that code made.
func ImageURI(o turn.Output) string {
	return "data:" + o.MIME + ";base64," + base64.StdEncoding.EncodeToString(o.Data)
}
