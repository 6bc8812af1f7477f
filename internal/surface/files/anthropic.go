package files

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// beta asks for the older form of this dialect.
const beta = "files-api-2025-04-14"

const (
	mostFiles  = 1000 // on a page
	mostIDs    = 100
	pagePrefix = "page_"
	// uploadPurpose is what files get that were uploaded here: OpenAI's API wants one.
	uploadPurpose = "user_data"

	minLife, maxLife = 3600, 7_776_000 // in seconds
	mostName         = 255             // characters
)

// metadata mirrors FileMetadata in its older form.
type metadata struct {
	ID           string `json:"id"`
	Type         string `json:"type"` // file
	Filename     string `json:"filename"`
	MIMEType     string `json:"mime_type"`
	SizeBytes    int64  `json:"size_bytes"`
	CreatedAt    string `json:"created_at"`
	Downloadable bool   `json:"downloadable"`
}

// current is the newer form. ExpiresAt is null for never.
type current struct {
	metadata
	ExpiresAt *string `json:"expires_at"`
}

func isBeta(r *http.Request) bool { return slices.Contains(anthropic.Betas(r), beta) }

func describe(r *http.Request, f store.File) any {
	m := metadata{
		ID: f.ID, Type: "file", Filename: f.Name, MIMEType: mimeOf(f.Name), SizeBytes: f.Bytes, CreatedAt: stamp(f.CreatedAt),
		Downloadable: container.IsMade(f),
	}
	if isBeta(r) {
		return m
	}
	c := current{metadata: m}
	if !f.ExpiresAt.IsZero() {
		at := stamp(f.ExpiresAt)
		c.ExpiresAt = &at
	}
	return c
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// mimeOf goes by the name: the type that a client sent is not kept, and what a program wrote has none.
func mimeOf(name string) string {
	kind, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(name)))
	if err != nil {
		return "application/octet-stream"
	}
	return kind
}

// missing is the dialect's own text for an id that there is not.
func missing(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) || err != nil && turn.AsError(err).Kind == turn.KindNotFound {
		return turn.NotFound("File `%s` not found.", id)
	}
	return err
}

func (h *Handler) upload(w http.ResponseWriter, r *http.Request) error {
	var staged *container.Staged
	n := container.NewUpload{Purpose: uploadPurpose}
	defer func() {
		if staged != nil {
			staged.Discard()
		}
	}()
	values, err := oai.ReadForm(w, r, h.uploads.MaxFile(), func(name string, body io.Reader) (err error) {
		if n.Name, err = uploadName(name); err != nil {
			return err
		}
		staged, err = h.uploads.Stage(r.Context(), body)
		return err
	}, "expires_in_seconds")
	if err != nil {
		return err
	}
	if staged == nil {
		return turn.Invalid("file", "file: Field required")
	}
	if s := values["expires_in_seconds"]; s != "" {
		seconds, err := strconv.Atoi(s)
		if err != nil || seconds < minLife || seconds > maxLife {
			return turn.Invalid("expires_in_seconds", "expires_in_seconds: must be from %d to %d, got %q", minLife, maxLife, s)
		}
		n.ExpireAfter = time.Duration(seconds) * time.Second
	}
	f, err := h.uploads.Create(r.Context(), n, staged)
	if err != nil {
		return err
	}
	anthropic.WriteJSON(w, http.StatusOK, describe(r, f))
	return nil
}

// uploadName checks a name, of which the form's reader has kept the last element. One that has none is called unnamed.
func uploadName(name string) (string, error) {
	switch {
	case name == "" || name == "." || name == "/":
		return "unnamed", nil
	case utf8.RuneCountInString(name) > mostName:
		return "", turn.Invalid("file", "file: the filename must have at most %d characters", mostName)
	case strings.ContainsAny(name, `<>:"|?*\/`), strings.ContainsFunc(name, func(c rune) bool { return c < ' ' }):
		return "", turn.Invalid("file", `file: the filename must not have any of < > : " | ? * \ / or control characters`)
	}
	return name, nil
}

func (h *Handler) metadata(w http.ResponseWriter, r *http.Request) error {
	f, err := h.library.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return missing(err, r.PathValue("id"))
	}
	anthropic.WriteJSON(w, http.StatusOK, describe(r, f))
	return nil
}

func (h *Handler) remove(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := h.library.Delete(r.Context(), id); err != nil {
		return missing(err, id)
	}
	anthropic.WriteJSON(w, http.StatusOK, map[string]string{"id": id, "type": "file_deleted"})
	return nil
}

func (h *Handler) download(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	f, body, err := h.library.Open(r.Context(), id)
	if err != nil {
		return missing(err, id)
	}
	defer body.Close()
	if !container.IsMade(f) {
		e := turn.Invalid("", "File `%s` is not downloadable: only files that code execution made are.", id)
		e.Code = "file_not_downloadable"
		return e
	}
	oai.WriteContent(w, r, f.Name, f.SHA256, f.CreatedAt, body)
	return nil
}

func (h *Handler) listAll(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := anthropic.ReadLimit(q, mostFiles)
	if err != nil {
		return err
	}
	if isBeta(r) {
		return h.listByID(w, r, limit)
	}
	if ids := append(q["ids[]"], q["ids"]...); len(ids) > 0 {
		return h.listSome(w, r, ids)
	}
	p := store.Page{Limit: limit}
	if page := q.Get("page"); page != "" {
		p.After = strings.TrimPrefix(page, pagePrefix)
	}
	rows, more, err := h.library.List(r.Context(), p)
	if errors.Is(err, store.ErrNotFound) {
		return turn.Invalid("page", "page: there is no page %q: send next_page of the page before", q.Get("page"))
	}
	if err != nil {
		return err
	}
	out := anthropic.Page[any]{Data: describeAll(r, rows)}
	if more {
		next := pagePrefix + rows[len(rows)-1].ID
		out.NextPage = &next
	}
	anthropic.WriteJSON(w, http.StatusOK, out)
	return nil
}

func describeAll(r *http.Request, rows []store.File) []any {
	out := make([]any, len(rows))
	for i, f := range rows {
		out[i] = describe(r, f)
	}
	return out
}

// listSome answers for the ids that are there, in the order of the list.
func (h *Handler) listSome(w http.ResponseWriter, r *http.Request, ids []string) error {
	q := r.URL.Query()
	switch {
	case len(ids) > mostIDs:
		return turn.Invalid("ids", "ids: at most %d can be asked for, got %d", mostIDs, len(ids))
	case q.Get("page") != "" || q.Get("limit") != "":
		return turn.Invalid("ids", "ids: cannot be combined with page or limit")
	}
	var rows []store.File
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		f, err := h.library.Get(r.Context(), id)
		switch err = missing(err, id); {
		case err == nil:
			rows = append(rows, f)
		case turn.AsError(err).Kind != turn.KindNotFound:
			return err
		}
	}
	slices.SortFunc(rows, func(a, b store.File) int { return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	anthropic.WriteJSON(w, http.StatusOK, anthropic.Page[any]{Data: describeAll(r, rows)})
	return nil
}

// listByID is the older form, with ids for cursors.
func (h *Handler) listByID(w http.ResponseWriter, r *http.Request, limit int) error {
	q := r.URL.Query()
	p, err := cursor(q, limit)
	if err != nil {
		return err
	}
	rows, more, err := h.library.List(r.Context(), p)
	if errors.Is(err, store.ErrNotFound) {
		return turn.Invalid("", "there is no file %q to begin at", p.After)
	}
	if err != nil {
		return err
	}
	if p.Ascending {
		slices.Reverse(rows) // the page before, newest first like all
	}
	out := anthropic.IDPage[any]{Data: describeAll(r, rows), HasMore: more}
	if n := len(rows); n > 0 {
		out.FirstID, out.LastID = &rows[0].ID, &rows[n-1].ID
	}
	anthropic.WriteJSON(w, http.StatusOK, out)
	return nil
}

func cursor(q url.Values, limit int) (store.Page, error) {
	after, before := q.Get("after_id"), q.Get("before_id")
	switch {
	case q.Get("scope_id") != "":
		return store.Page{}, turn.Unsupported("scope_id", "scope_id: files have no scopes here: leave it out")
	case after != "" && before != "":
		return store.Page{}, turn.Invalid("before_id", "before_id: cannot be combined with after_id")
	}
	return store.Page{Limit: limit, After: cmp.Or(after, before), Ascending: before != ""}, nil
}
