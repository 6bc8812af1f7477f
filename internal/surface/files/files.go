// Package files is the surface of /v1/files in both vendors' dialects, over the same files: wire/openai.md section 4 for what clients upload,
// to be put into containers or prompts, where what programs make is served by package containers; and wire/anthropic.md section 4, which has
// both (anthropic.go). The headers of a request decide.
package files

import (
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

const (
	longestPage            = 10_000
	minSeconds, maxSeconds = 3600, 2592000
	batchLife              = 30 * 24 * time.Hour
	anchor                 = "created_at"
)

var purposes = []string{"assistants", "batch", "fine-tune", "vision", "user_data", "evals"}

// Handler serves the surface for the project of each request's principal.
type Handler struct {
	uploads *container.Uploads
	library *container.Library
	log     *slog.Logger
}

// New returns a Handler of m's files. A nil logger is slog.Default.
func New(m *container.Manager, log *slog.Logger) *Handler {
	if log == nil {
		log = slog.Default()
	}
	return &Handler{uploads: m.Uploads(), library: m.Library(), log: log}
}

// endpoint answers a request, or returns what went wrong before anything was written.
type endpoint func(http.ResponseWriter, *http.Request) error

// Register adds the surface's routes to mux.
func (h *Handler) Register(mux *http.ServeMux) {
	for pattern, serve := range map[string]struct{ openai, anthropic endpoint }{
		"POST /v1/files":             {h.create, h.upload},
		"GET /v1/files":              {h.list, h.listAll},
		"GET /v1/files/{id}":         {h.get, h.metadata},
		"DELETE /v1/files/{id}":      {h.delete, h.remove},
		"GET /v1/files/{id}/content": {h.content, h.download},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, fail := serve.openai, oai.WriteError
			if anthropic.Speaks(r) {
				answer, fail = serve.anthropic, anthropic.WriteError
			}
			if err := answer(w, r); err != nil {
				fail(w, r, h.log, err)
			}
		})
	}
}

// file mirrors the file object.
type file struct {
	ID            string  `json:"id"`
	Object        string  `json:"object"`
	Bytes         int64   `json:"bytes"`
	CreatedAt     int64   `json:"created_at"`
	ExpiresAt     *int64  `json:"expires_at"`
	Filename      string  `json:"filename"`
	Purpose       string  `json:"purpose"`
	Status        string  `json:"status"`
	StatusDetails *string `json:"status_details"`
}

func encode(f store.File) file {
	o := file{
		ID: f.ID, Object: "file", Bytes: f.Bytes, CreatedAt: f.CreatedAt.Unix(), Filename: f.Name, Purpose: f.Purpose, Status: "processed",
	}
	if !f.ExpiresAt.IsZero() {
		at := f.ExpiresAt.Unix()
		o.ExpiresAt = &at
	}
	return o
}

func (h *Handler) create(w http.ResponseWriter, r *http.Request) error {
	var staged *container.Staged
	n := container.NewUpload{}
	defer func() {
		if staged != nil {
			staged.Discard()
		}
	}()
	values, err := oai.ReadForm(w, r, h.uploads.MaxFile(), func(name string, body io.Reader) (err error) {
		n.Name = name
		staged, err = h.uploads.Stage(r.Context(), body)
		return err
	}, "purpose", "expires_after[anchor]", "expires_after[seconds]")
	if err != nil {
		return err
	}
	if staged == nil {
		return oai.Missing("file")
	}
	if n.Purpose, n.ExpireAfter, err = decode(values); err != nil {
		return err
	}
	f, err := h.uploads.Create(r.Context(), n, staged)
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, encode(f))
	return nil
}

func decode(values map[string]string) (purpose string, expire time.Duration, err error) {
	purpose = values["purpose"]
	if purpose == "" {
		return "", 0, oai.Missing("purpose")
	}
	if !slices.Contains(purposes, purpose) {
		return "", 0, turn.Invalid("purpose", "purpose must be one of %s, got %q", strings.Join(purposes, ", "), purpose)
	}
	from, seconds := values["expires_after[anchor]"], values["expires_after[seconds]"]
	switch {
	case from == "" && seconds == "" && purpose == "batch":
		return purpose, batchLife, nil
	case from == "" && seconds == "":
		return purpose, 0, nil
	case from != anchor:
		return "", 0, turn.Invalid("expires_after.anchor", "expires_after[anchor] must be %q, got %q", anchor, from)
	}
	s, err := strconv.Atoi(seconds)
	if err != nil || s < minSeconds || s > maxSeconds {
		return "", 0, turn.Invalid("expires_after.seconds",
			"expires_after[seconds] must be from %d to %d, got %q", minSeconds, maxSeconds, seconds)
	}
	return purpose, time.Duration(s) * time.Second, nil
}

func (h *Handler) list(w http.ResponseWriter, r *http.Request) error {
	p, err := oai.ReadPaging(r.URL.Query(), longestPage, longestPage)
	if err != nil {
		return err
	}
	rows, more, err := h.uploads.List(r.Context(), store.Page{
		After: p.After, Limit: p.Limit, Ascending: p.Ascending, Purpose: r.URL.Query().Get("purpose"),
	})
	if err != nil {
		return err
	}
	out := make([]file, len(rows))
	for i, f := range rows {
		out[i] = encode(f)
	}
	oai.WriteJSON(w, http.StatusOK, oai.NewList(out, more, func(f file) string { return f.ID }))
	return nil
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	f, err := h.uploads.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, encode(f))
	return nil
}

func (h *Handler) delete(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := h.uploads.Delete(r.Context(), id); err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, oai.Deleted{ID: id, Object: "file", Deleted: true})
	return nil
}

func (h *Handler) content(w http.ResponseWriter, r *http.Request) error {
	f, body, err := h.uploads.Open(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	defer body.Close()
	oai.WriteContent(w, r, f.Name, f.SHA256, f.CreatedAt, body)
	return nil
}
