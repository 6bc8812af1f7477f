// Package containers is the surface of /v1/containers and the files in them (wire/openai.md section 3), and of forks and checkpoints, which
// are ours. It decodes, asks package container
// and encodes; what a container is and who may see it is decided there.
package containers

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

const (
	standardPage, longestPage = 20, 100
	maxName                   = 256 // characters
	maxMinutes                = 10 * 365 * 24 * 60
	anchor                    = "last_active_at"
)

// Handler serves the surface for the project of each request's principal.
type Handler struct {
	manager *container.Manager
	log     *slog.Logger
}

// New returns a Handler. A nil logger is slog.Default.
func New(m *container.Manager, log *slog.Logger) *Handler {
	if log == nil {
		log = slog.Default()
	}
	return &Handler{manager: m, log: log}
}

// Register adds the surface's routes to mux.
func (h *Handler) Register(mux *http.ServeMux) {
	for pattern, fn := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v1/containers":                          h.create,
		"GET /v1/containers":                           h.list,
		"GET /v1/containers/{id}":                      h.get,
		"DELETE /v1/containers/{id}":                   h.delete,
		"POST /v1/containers/{id}/files":               h.createFile,
		"GET /v1/containers/{id}/files":                h.listFiles,
		"GET /v1/containers/{id}/files/{file}":         h.getFile,
		"DELETE /v1/containers/{id}/files/{file}":      h.deleteFile,
		"GET /v1/containers/{id}/files/{file}/content": h.content,

		// Extensions of ours.
		"POST /v1/containers/{id}/fork":                             h.fork,
		"POST /v1/containers/{id}/checkpoints":                      h.createCheckpoint,
		"GET /v1/containers/{id}/checkpoints":                       h.listCheckpoints,
		"POST /v1/containers/{id}/checkpoints/{checkpoint}/restore": h.restoreCheckpoint,
		"DELETE /v1/containers/{id}/checkpoints/{checkpoint}":       h.deleteCheckpoint,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := fn(w, r); err != nil {
				oai.WriteError(w, r, h.log, err)
			}
		})
	}
}

// object mirrors the container object.
type object struct {
	ID            string        `json:"id"`
	Object        string        `json:"object"`
	CreatedAt     int64         `json:"created_at"`
	Name          string        `json:"name"`
	Status        string        `json:"status"`
	LastActiveAt  int64         `json:"last_active_at"`
	ExpiresAfter  *expiresAfter `json:"expires_after,omitempty"`
	MemoryLimit   string        `json:"memory_limit"`
	NetworkPolicy networkPolicy `json:"network_policy"`
}

type expiresAfter struct {
	Anchor  string `json:"anchor"`
	Minutes int64  `json:"minutes"`
}

// networkPolicy mirrors network_policy; secrets are only ever read.
type networkPolicy struct {
	Type           string   `json:"type"`
	AllowedDomains []string `json:"allowed_domains,omitempty"`
}

func (h *Handler) encode(c store.Container) object {
	o := object{
		ID: c.ID, Object: "container", CreatedAt: c.CreatedAt.Unix(), Name: c.Name, Status: container.Status(c),
		LastActiveAt: c.LastActive.Unix(), MemoryLimit: memory(c.MemoryLimit), NetworkPolicy: networkPolicy{Type: "disabled"},
	}
	if domains := h.manager.Reaches(c); len(domains) > 0 {
		o.NetworkPolicy = networkPolicy{Type: "allowlist", AllowedDomains: domains}
	}
	if c.ExpireAfter > 0 {
		o.ExpiresAfter = &expiresAfter{Anchor: anchor, Minutes: int64(c.ExpireAfter / time.Minute)}
	}
	return o
}

// memory writes a limit as clients of the hosted service know it.
func memory(bytes int64) string {
	if bytes%(1<<30) == 0 {
		return fmt.Sprintf("%dg", bytes>>30)
	}
	return fmt.Sprintf("%dm", bytes>>20)
}

func (h *Handler) create(w http.ResponseWriter, r *http.Request) error {
	n, err := decode(w, r)
	if err != nil {
		return err
	}
	c, err := h.manager.Create(r.Context(), n)
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, h.encode(c))
	return nil
}

func decode(w http.ResponseWriter, r *http.Request) (n container.NewContainer, err error) {
	f, err := oai.ReadFields(w, r, "name", "expires_after", "file_ids", "memory_limit", "network_policy", "skills")
	if err != nil {
		return n, err
	}
	if n.Name, err = decodeName(f); err != nil {
		return n, err
	}
	if n.Name == "" {
		return n, oai.Missing("name")
	}
	if err := f.Read("file_ids", &n.FileIDs, "an array of file ids"); err != nil {
		return n, err
	}
	limit := ""
	if err := f.Read("memory_limit", &limit, "a string"); err != nil {
		return n, err
	}
	var ok bool
	if n.MemoryLimit, ok = oai.MemoryLimit(limit); !ok {
		return n, turn.Invalid("memory_limit", "memory_limit must be 1g, 4g, 16g or 64g, got %q", limit)
	}
	if n.ExpireAfter, err = decodeExpiry(f); err != nil {
		return n, err
	}
	if n.Network, err = decodeNetwork(f); err != nil {
		return n, err
	}
	var skills json.RawMessage
	if err := f.Read("skills", &skills, "an array"); err != nil {
		return n, err
	}
	if n.Skills, err = oai.Skills("skills", skills); err != nil {
		return n, err
	}
	return n, nil
}

func decodeName(f oai.Fields) (name string, err error) {
	if err := f.Read("name", &name, "a string"); err != nil {
		return "", err
	}
	if got := utf8.RuneCountInString(name); got > maxName {
		return "", oai.TooLong("name", maxName, got)
	}
	return name, nil
}

func decodeExpiry(f oai.Fields) (time.Duration, error) {
	if !f.Has("expires_after") {
		return 0, nil
	}
	e, err := f.Object("expires_after", "anchor", "minutes")
	if err != nil {
		return 0, err
	}
	var from string
	var minutes int64
	if err := e.Read("anchor", &from, "a string"); err != nil {
		return 0, err
	}
	if err := e.Read("minutes", &minutes, "a whole number"); err != nil {
		return 0, err
	}
	switch {
	case from == "":
		return 0, oai.Missing("expires_after.anchor")
	case from != anchor:
		return 0, turn.Invalid("expires_after.anchor", "expires_after.anchor must be %q, got %q", anchor, from)
	case !e.Has("minutes"):
		return 0, oai.Missing("expires_after.minutes")
	case minutes < 1 || minutes > maxMinutes:
		return 0, turn.Invalid("expires_after.minutes", "expires_after.minutes must be from 1 to %d, got %d", maxMinutes, minutes)
	}
	return time.Duration(minutes) * time.Minute, nil
}

func decodeNetwork(f oai.Fields) (*turn.Network, error) {
	if !f.Has("network_policy") {
		return nil, nil
	}
	p, err := f.Object("network_policy", "type", "allowed_domains", "domain_secrets")
	if err != nil {
		return nil, err
	}
	var policy oai.NetworkPolicy
	for _, field := range []struct {
		name string
		dst  any
		want string
	}{
		{"type", &policy.Type, "a string"}, {"allowed_domains", &policy.AllowedDomains, "an array of domains"},
		{"domain_secrets", &policy.DomainSecrets, "an array"},
	} {
		if err := p.Read(field.name, field.dst, field.want); err != nil {
			return nil, err
		}
	}
	return policy.Read("network_policy")
}

func (h *Handler) list(w http.ResponseWriter, r *http.Request) error {
	p, err := page(r)
	if err != nil {
		return err
	}
	p.Name = r.URL.Query().Get("name")
	rows, more, err := h.manager.List(r.Context(), p)
	if err != nil {
		return err
	}
	out := make([]object, len(rows))
	for i, c := range rows {
		out[i] = h.encode(c)
	}
	oai.WriteJSON(w, http.StatusOK, oai.NewList(out, more, func(o object) string { return o.ID }))
	return nil
}

func page(r *http.Request) (store.Page, error) {
	p, err := oai.ReadPaging(r.URL.Query(), standardPage, longestPage)
	return store.Page{After: p.After, Limit: p.Limit, Ascending: p.Ascending}, err
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	c, err := h.manager.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, h.encode(c))
	return nil
}

func (h *Handler) delete(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := h.manager.Delete(r.Context(), id); err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, oai.Deleted{ID: id, Object: "container.deleted", Deleted: true})
	return nil
}
