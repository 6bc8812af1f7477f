package messages

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/peek"
)

// Versions of the API (wire/anthropic.md 0.1). version2026 has no sampling parameters, no documents in an assistant's message and no
// citations in a user's.
const (
	version2023 = "2023-06-01"
	version2026 = "2026-10-21"
	versionOld  = "2023-01-01"
)

// maxBody is the protocol's own limit for a request.
const maxBody = 32 << 20

// call is what HTTP says of a request, and where it goes.
type call struct {
	version string
	betas   []string
	body    []byte
	peeked  peek.Peeked
	// model answers, if found; native says that its server speaks this protocol.
	model  provider.Model
	found  bool
	native bool
}

// open reads a request as far as it must be known to decide whether it is passed on.
func (h *handler) open(w http.ResponseWriter, r *http.Request) (*call, error) {
	c := &call{version: r.Header.Get("Anthropic-Version"), betas: anthropic.Betas(r)}
	if c.version == "" {
		return nil, invalid("anthropic-version", "header is required: send %s or %s", version2026, version2023)
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		e := turn.Invalid("content-encoding", "content-encoding: %q is not supported: send the body as it is", enc)
		e.Code = "request_body_encoding_unsupported"
		return nil, e
	}
	var err error
	if c.body, err = readBody(w, r); err != nil {
		return nil, err
	}
	if c.peeked, err = peek.Request(c.body); err != nil {
		return nil, &turn.Error{Kind: turn.KindInvalid, Message: "The request body is not valid JSON: " + err.Error()}
	}
	if h.Models == nil || c.peeked.Model == "" {
		return c, nil
	}
	if c.model, err = h.Models.Model(c.peeked.Model); err != nil {
		return c, nil //nolint:nilerr // the turn ends with the same error, if the rest of the request is right
	}
	c.found = true
	f, ok := c.model.Provider.(provider.Forwarder)
	c.native = ok && f.Protocol() == protocol
	return c, nil
}

// checkVersion is for requests that are answered here; a server that gets one untouched says itself which versions it knows.
func (c *call) checkVersion() error {
	switch c.version {
	case version2023, version2026:
		return nil
	case versionOld:
		return invalid("anthropic-version", "%s streams in another form, which is not served here: send %s", versionOld, version2023)
	}
	return invalid("anthropic-version", "%q is not a valid version: send %s or %s", c.version, version2026, version2023)
}

// served are the names of betas that change something here, or ask for what is there anyway. A test holds docs/anthropic.md to them.
var served = []string{
	"advanced-tool-use-2025-11-20", "code-execution-2025-05-22", "code-execution-2025-08-25", "computer-use-2025-01-24",
	"computer-use-2025-11-24", "effort-2025-11-24", "extended-cache-ttl-2025-04-11", "files-api-2025-04-14",
	"fine-grained-tool-streaming-2025-05-14", "interleaved-thinking-2025-05-14", "message-batches-2024-09-24", "pdfs-2024-09-25",
	"prompt-caching-2024-07-31", "search-results-2025-06-09", "skills-2025-10-02", "structured-outputs-2025-11-13",
	"token-counting-2024-11-01", "token-efficient-tools-2025-02-19",
}

// ours are betas of what is run here: a server that gets them without the tools that they belong to refuses the request.
func ours(beta string) bool {
	return strings.HasPrefix(beta, "code-execution-") || strings.HasPrefix(beta, "skills-") || strings.HasPrefix(beta, "files-api-")
}

// tellIgnored names the betas that have no effect on this request.
func (c *call) tellIgnored(h http.Header) {
	if c.native {
		return
	}
	var names []string
	for _, b := range c.betas {
		if !slices.Contains(served, b) {
			names = append(names, b)
		}
	}
	if len(names) > 0 {
		h.Set("X-Lathe-Ignored-Betas", strings.Join(names, ","))
	}
}

// firstAlloc is what a Content-Length is trusted with at once.
const firstAlloc = 1 << 20

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	tooLarge := turn.Errorf(turn.KindTooLarge,
		"Request exceeds the maximum size of %d MiB: upload files with POST /v1/files and name them by id", maxBody>>20)
	if r.ContentLength > maxBody {
		return nil, tooLarge
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(r.ContentLength, 0), firstAlloc)) + bytes.MinRead)
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge
	}
	if e, ok := errors.AsType[*turn.Error](err); ok {
		return nil, e
	}
	if err != nil {
		return nil, &turn.Error{Kind: turn.KindInvalid, Message: "the request's body ended early; send it again", Cause: err}
	}
	return buf.Bytes(), nil
}
