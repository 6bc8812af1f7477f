package oai

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// maxField caps a form field that is no file, formOverhead what a form may have beside its file.
const (
	maxField     = 64 << 10
	formOverhead = 1 << 20
)

// ReadForm reads a multipart form whose file is streamed: file is called with the client's name for it and its bytes when the part
// called "file" comes, and reads it to its end. Other fields must be in known; they may come before or after the file. maxFile is in
// bytes; file enforces it, ReadForm only bounds the whole.
func ReadForm(
	w http.ResponseWriter, r *http.Request, maxFile int64, file func(name string, body io.Reader) error, known ...string,
) (map[string]string, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFile+formOverhead)
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, &turn.Error{Kind: turn.KindInvalid, Message: "the body must be a multipart/form-data form", Cause: err}
	}
	values, files := map[string]string{}, 0
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return nil, formError(err)
		}
		name := part.FormName()
		switch {
		case name == "file" && files > 0:
			return nil, turn.Invalid("file", "send one file in a request")
		case name == "file":
			files++
			err = file(part.FileName(), part)
		case slices.Contains(known, name):
			values[name], err = readField(part, name)
		default:
			err = UnknownParameter(name)
		}
		if err != nil {
			return nil, err
		}
	}
}

func readField(part *multipart.Part, name string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err != nil {
		return "", formError(err)
	}
	if len(data) > maxField {
		return "", turn.Invalid(name, "%s is longer than %d bytes", name, maxField)
	}
	return string(data), nil
}

func formError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return turn.Errorf(turn.KindTooLarge, "the request is larger than %d bytes", tooLarge.Limit)
	}
	if e, ok := errors.AsType[*turn.Error](err); ok {
		return e
	}
	return &turn.Error{Kind: turn.KindInvalid, Message: "the form ended early or is malformed; send it again", Cause: err}
}

// IsForm says whether a request's body is a multipart form.
func IsForm(r *http.Request) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "multipart/")
}

// WriteContent answers with the bytes of a file, whole or the range that was asked for. Browsers neither show nor guess at what a
// stranger's program may have written: it is a download of no particular type. etag is the hash of the bytes.
func WriteContent(w http.ResponseWriter, r *http.Request, name, etag string, modified time.Time, body io.ReadSeeker) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", Attachment(name))
	h.Set("Cache-Control", "private")
	h.Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, "", modified, body)
}

// Attachment is a Content-Disposition with the name of a file in both forms: for old clients in ASCII, for others in UTF-8 (RFC 6266,
// RFC 8187). No name, however hostile, ends the header or its quotes.
func Attachment(name string) string {
	ascii := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\%/;`, r) {
			return '_'
		}
		return r
	}, name)
	shown := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, name)
	// PathEscape leaves characters that RFC 8187 does not allow.
	escaped := strings.NewReplacer("'", "%27", "(", "%28", ")", "%29", "*", "%2A", ":", "%3A", "@", "%40", "=", "%3D", ",", "%2C", ";", "%3B",
		"/", "%2F").Replace(url.PathEscape(shown))
	return fmt.Sprintf(`attachment; filename="%s"; filename*=UTF-8''%s`, ascii, escaped)
}
