package anthropic

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Speaks says whether a request is of Anthropic's dialect where both vendors have the path: it carries one of Anthropic's headers
// (wire/anthropic.md 1.2), or goes to a path that only Anthropic has.
func Speaks(r *http.Request) bool {
	return r.Header.Get("Anthropic-Version") != "" || r.Header.Get("Anthropic-Beta") != "" ||
		r.URL.Path == "/v1/messages" || strings.HasPrefix(r.URL.Path, "/v1/messages/")
}

// Betas are the names in the anthropic-beta headers, in their order, each once.
func Betas(r *http.Request) []string {
	var out []string
	seen := map[string]bool{}
	for _, line := range r.Header.Values("Anthropic-Beta") {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" && !seen[name] {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	return out
}

type requestIDKey struct{}

// WithRequestID returns ctx with the request's id in it. Package server sets it.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID is the id of the request of ctx, "" if it has none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// Page is a list in the newer form (wire/anthropic.md 1.11): the next one is asked for with page=NextPage.
type Page[T any] struct {
	Data     []T     `json:"data"`
	NextPage *string `json:"next_page"`
}

// IDPage is a list with ids as cursors: models, batches, and files under their beta header.
type IDPage[T any] struct {
	Data    []T     `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
}

// NewIDPage makes a page of data; id is the id of an element.
func NewIDPage[T any](data []T, more bool, id func(T) string) IDPage[T] {
	p := IDPage[T]{Data: data, HasMore: more}
	if len(data) == 0 {
		p.Data = []T{}
		return p
	}
	first, last := id(data[0]), id(data[len(data)-1])
	p.FirstID, p.LastID = &first, &last
	return p
}

// StandardLimit is the length of a page where the client names none.
const StandardLimit = 20

// ReadLimit reads a list's limit: from 1 to most.
func ReadLimit(q url.Values, most int) (int, error) {
	s := q.Get("limit")
	if s == "" {
		return StandardLimit, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, turn.Invalid("limit", "limit: must be a whole number from 1 to %d, got %q", most, s)
	}
	return n, nil
}
