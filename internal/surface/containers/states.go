package containers

import (
	"net/http"

	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
)

// checkpoint is an object of our own, in the form of the others.
type checkpoint struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	ContainerID string `json:"container_id"`
	CreatedAt   int64  `json:"created_at"`
	Name        string `json:"name"`
	// Bytes is what it takes on the server's disk. Memory says whether it has variables, or files alone.
	Bytes  int64 `json:"bytes"`
	Memory bool  `json:"memory"`
}

func encodeCheckpoint(c store.Checkpoint) checkpoint {
	return checkpoint{
		ID: c.ID, Object: "container.checkpoint", ContainerID: c.Container, CreatedAt: c.CreatedAt.Unix(), Name: c.Name,
		Bytes: c.Bytes, Memory: c.Memory,
	}
}

// fork takes an optional body with name and expires_after.
func (h *Handler) fork(w http.ResponseWriter, r *http.Request) error {
	var n container.NewFork
	if r.ContentLength != 0 {
		f, err := oai.ReadFields(w, r, "name", "expires_after")
		if err != nil {
			return err
		}
		if n.Name, err = decodeName(f); err != nil {
			return err
		}
		if n.ExpireAfter, err = decodeExpiry(f); err != nil {
			return err
		}
	}
	c, err := h.manager.Fork(r.Context(), r.PathValue("id"), n)
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, h.encode(c))
	return nil
}

func (h *Handler) createCheckpoint(w http.ResponseWriter, r *http.Request) error {
	f, err := oai.ReadFields(w, r, "name")
	if err != nil {
		return err
	}
	name, err := decodeName(f)
	if err != nil {
		return err
	}
	if name == "" {
		return oai.Missing("name")
	}
	c, err := h.manager.Checkpoint(r.Context(), r.PathValue("id"), name)
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, encodeCheckpoint(c))
	return nil
}

func (h *Handler) listCheckpoints(w http.ResponseWriter, r *http.Request) error {
	p, err := page(r)
	if err != nil {
		return err
	}
	p.Name = r.URL.Query().Get("name")
	rows, more, err := h.manager.Checkpoints(r.Context(), r.PathValue("id"), p)
	if err != nil {
		return err
	}
	out := make([]checkpoint, len(rows))
	for i, c := range rows {
		out[i] = encodeCheckpoint(c)
	}
	oai.WriteJSON(w, http.StatusOK, oai.NewList(out, more, func(c checkpoint) string { return c.ID }))
	return nil
}

func (h *Handler) restoreCheckpoint(w http.ResponseWriter, r *http.Request) error {
	c, err := h.manager.Rewind(r.Context(), r.PathValue("id"), r.PathValue("checkpoint"))
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, h.encode(c))
	return nil
}

func (h *Handler) deleteCheckpoint(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("checkpoint")
	if err := h.manager.DeleteCheckpoint(r.Context(), r.PathValue("id"), id); err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, oai.Deleted{ID: id, Object: "container.checkpoint.deleted", Deleted: true})
	return nil
}
