package containers

import (
	"io"
	"net/http"

	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// file mirrors the container.file object. bytes is never null here.
type file struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	ContainerID string `json:"container_id"`
	CreatedAt   int64  `json:"created_at"`
	Bytes       int64  `json:"bytes"`
	Path        string `json:"path"`
	Source      string `json:"source"`
}

func encodeFile(f store.File) file {
	return file{
		ID: f.ID, Object: "container.file", ContainerID: f.Container, CreatedAt: f.CreatedAt.Unix(),
		Bytes: f.Bytes, Path: f.Path, Source: f.Source,
	}
}

// createFile takes a file or the id of an uploaded one, in a form or, for an id, as JSON.
func (h *Handler) createFile(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	// A container that cannot take the file is told before the file is sent: clients with Expect: 100-continue save it.
	if err := h.manager.Usable(r.Context(), id); err != nil {
		return err
	}
	f, err := h.readFile(w, r, id)
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, encodeFile(f))
	return nil
}

func (h *Handler) readFile(w http.ResponseWriter, r *http.Request, id string) (store.File, error) {
	if !oai.IsForm(r) {
		fields, err := oai.ReadFields(w, r, "file_id")
		if err != nil {
			return store.File{}, err
		}
		var upload string
		if err := fields.Read("file_id", &upload, "a file's id"); err != nil {
			return store.File{}, err
		}
		if upload == "" {
			return store.File{}, oai.Missing("file_id")
		}
		return h.manager.PutUpload(r.Context(), id, upload)
	}
	var staged *container.Staged
	name := ""
	defer func() {
		if staged != nil {
			staged.Discard()
		}
	}()
	values, err := oai.ReadForm(w, r, h.manager.MaxFile, func(n string, body io.Reader) (err error) {
		name = n
		staged, err = h.manager.Uploads().Stage(r.Context(), body)
		return err
	}, "file_id")
	if err != nil {
		return store.File{}, err
	}
	upload := values["file_id"]
	switch {
	case staged != nil && upload != "":
		return store.File{}, turn.Invalid("file_id", "send either file or file_id, not both")
	case staged != nil:
		return h.manager.PutFile(r.Context(), id, name, staged)
	case upload != "":
		return h.manager.PutUpload(r.Context(), id, upload)
	}
	return store.File{}, oai.Missing("file")
}

func (h *Handler) listFiles(w http.ResponseWriter, r *http.Request) error {
	p, err := page(r)
	if err != nil {
		return err
	}
	rows, more, err := h.manager.Files(r.Context(), r.PathValue("id"), p)
	if err != nil {
		return err
	}
	out := make([]file, len(rows))
	for i, f := range rows {
		out[i] = encodeFile(f)
	}
	oai.WriteJSON(w, http.StatusOK, oai.NewList(out, more, func(f file) string { return f.ID }))
	return nil
}

func (h *Handler) getFile(w http.ResponseWriter, r *http.Request) error {
	f, err := h.manager.File(r.Context(), r.PathValue("id"), r.PathValue("file"))
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, encodeFile(f))
	return nil
}

func (h *Handler) deleteFile(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("file")
	if err := h.manager.DeleteFile(r.Context(), r.PathValue("id"), id); err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, oai.Deleted{ID: id, Object: "container.file.deleted", Deleted: true})
	return nil
}

func (h *Handler) content(w http.ResponseWriter, r *http.Request) error {
	f, body, err := h.manager.OpenFile(r.Context(), r.PathValue("id"), r.PathValue("file"))
	if err != nil {
		return err
	}
	defer body.Close()
	oai.WriteContent(w, r, f.Name, f.SHA256, f.CreatedAt, body)
	return nil
}
