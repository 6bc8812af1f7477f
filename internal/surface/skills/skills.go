// Package skills is the surface of /v1/skills in three dialects, over the same skills: OpenAI's (wire/openai.md section 5), Anthropic's,
// and Anthropic's older one (wire/anthropic.md section 3). The anthropic-version header decides the vendor, and the beta header
// skills-2025-10-02 the older shapes, request by request as the vendors do. It also serves /.well-known for agents that install skills
// from a URL. Only the wiring imports it.
//
// Ours beyond the dialects: ?query= on lists, shared_with, warnings in the answer to an upload, create by JSON, and POST /v1/skills/{id}
// and /content for all.
package skills

import (
	"log/slog"
	"net/http"

	"github.com/lathe-gateway/lathe/internal/skill/catalog"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Handler serves the surface for the project of each request's principal.
type Handler struct {
	skills *catalog.Catalog
	log    *slog.Logger
	// uploads bounds how many packages are in memory at once.
	uploads chan struct{}
	files   fileLists
}

// mostUploads are read at once; each is in memory whole.
const mostUploads = 8

// New returns a Handler. A nil logger is slog.Default.
func New(c *catalog.Catalog, log *slog.Logger) *Handler {
	if log == nil {
		log = slog.Default()
	}
	return &Handler{skills: c, log: log, uploads: make(chan struct{}, mostUploads)}
}

// Register adds the surface's routes to mux.
func (h *Handler) Register(mux *http.ServeMux) {
	for pattern, fn := range map[string]func(dialect, http.ResponseWriter, *http.Request) error{
		"POST /v1/skills":                                h.create,
		"GET /v1/skills":                                 h.list,
		"GET /v1/skills/{id}":                            h.get,
		"POST /v1/skills/{id}":                           h.update,
		"DELETE /v1/skills/{id}":                         h.delete,
		"GET /v1/skills/{id}/content":                    h.content,
		"POST /v1/skills/{id}/versions":                  h.addVersion,
		"GET /v1/skills/{id}/versions":                   h.versions,
		"GET /v1/skills/{id}/versions/{version}":         h.version,
		"DELETE /v1/skills/{id}/versions/{version}":      h.deleteVersion,
		"GET /v1/skills/{id}/versions/{version}/content": h.versionContent,
		"GET /.well-known/skills/index.json":             h.indexOfFiles,
		"GET /.well-known/skills/{name}/{path...}":       h.wellKnownFile,
		"GET /.well-known/agent-skills/index.json":       h.indexOfArchives,
		"GET /.well-known/agent-skills/{archive}":        h.wellKnownArchive,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			d := dialectOf(r)
			if err := fn(d, w, r); err != nil {
				d.writeError(w, r, h.log, err)
			}
		})
	}
}

func (h *Handler) create(d dialect, w http.ResponseWriter, r *http.Request) error {
	up, err := h.receive(d, w, r)
	if err != nil {
		return err
	}
	title, err := up.title(d)
	if err != nil {
		return err
	}
	s, _, err := h.skills.Create(r.Context(), catalog.NewSkill{
		Title: title, UniqueTitle: d == anthropicBeta, SharedWith: up.shared, Package: up.pkg,
	})
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, d.skill(s, own(r, s), warnings(up.report)))
	return nil
}

func (h *Handler) get(d dialect, w http.ResponseWriter, r *http.Request) error {
	s, err := h.skills.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, d.skill(s, own(r, s), nil))
	return nil
}

// update sets default_version (OpenAI's), and what is ours: the names for people and shared_with.
func (h *Handler) update(d dialect, w http.ResponseWriter, r *http.Request) error {
	f, err := oai.ReadFields(w, r, "default_version", "shared_with", "display_name", "display_title")
	if err != nil {
		return err
	}
	number, err := defaultVersion(f)
	if err != nil {
		return err
	}
	var shared []string
	if err := f.Read("shared_with", &shared, "a list of projects' names"); err != nil {
		return err
	}
	title, titled := "", false
	for _, name := range []string{"display_name", "display_title"} {
		if f.Has(name) {
			titled = true
			if err := f.Read(name, &title, "a string"); err != nil {
				return err
			}
			if err := checkTitle(name, title); err != nil {
				return err
			}
		}
	}
	if number == 0 && !titled && !f.Has("shared_with") {
		return oai.Missing("default_version")
	}
	s, err := h.skills.Update(r.Context(), r.PathValue("id"), func(s *store.Skill) error {
		if number != 0 {
			s.Default = number
		}
		if titled {
			s.Title = title
		}
		if f.Has("shared_with") {
			s.SharedWith = shared
		}
		return nil
	})
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, d.skill(s, true, nil))
	return nil
}

// defaultVersion takes the string of the SDK and the number of the documentation's example.
func defaultVersion(f oai.Fields) (int, error) {
	if !f.Has("default_version") {
		return 0, nil
	}
	const want = "the number of a version, such as \"2\""
	var number int
	if f.Read("default_version", &number, want) == nil {
		if number < 1 {
			return 0, turn.Invalid("default_version", "default_version must be %s", want)
		}
		return number, nil
	}
	var text string
	if err := f.Read("default_version", &text, want); err != nil {
		return 0, err
	}
	number, ok := positive(text)
	if !ok {
		return 0, turn.Invalid("default_version", "default_version must be %s, got %q", want, cut(text))
	}
	return number, nil
}

func (h *Handler) delete(d dialect, w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if err := h.skills.Delete(r.Context(), id, d == anthropicBeta); err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, d.deletedSkill(id))
	return nil
}

func (h *Handler) addVersion(d dialect, w http.ResponseWriter, r *http.Request) error {
	// Whose skill it is comes before the upload is read and judged.
	if _, err := h.skills.Get(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	up, err := h.receive(d, w, r)
	if err != nil {
		return err
	}
	if up.name != "" || len(up.shared) > 0 {
		return turn.Invalid("display_name", "a version has no name for people and is not shared by itself: change the skill with POST /v1/skills/{id}")
	}
	_, v, err := h.skills.AddVersion(r.Context(), r.PathValue("id"), up.pkg, up.makeDefault)
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, d.version(v, warnings(up.report)))
	return nil
}

func (h *Handler) version(d dialect, w http.ResponseWriter, r *http.Request) error {
	_, v, err := h.skills.Version(r.Context(), r.PathValue("id"), r.PathValue("version"))
	if err != nil {
		return err
	}
	oai.WriteJSON(w, http.StatusOK, d.version(v, nil))
	return nil
}

// deleteVersion has OpenAI's rules in its dialect: the default version stays, and the last one takes the skill with it.
func (h *Handler) deleteVersion(d dialect, w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	_, rows, _, err := h.skills.Versions(r.Context(), id, store.Page{Limit: 2})
	if err != nil {
		return err
	}
	s, v, err := h.skills.DeleteVersion(r.Context(), id, r.PathValue("version"), func(s store.Skill, v store.SkillVersion) error {
		if d == openai && v.Number == s.Default && len(rows) > 1 {
			return turn.Invalid("version", "the default version cannot be deleted: make another one the default first, with POST /v1/skills/{id}")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if d == openai && s.Latest == 0 {
		// Refused where a version was added meanwhile: then the skill stays.
		if err := h.skills.Delete(r.Context(), id, true); err != nil && turn.AsError(err).Kind != turn.KindInvalid {
			return err
		}
	}
	oai.WriteJSON(w, http.StatusOK, d.deletedVersion(v))
	return nil
}

// content is the default version's archive.
func (h *Handler) content(_ dialect, w http.ResponseWriter, r *http.Request) error {
	_, v, err := h.skills.Version(r.Context(), r.PathValue("id"), catalog.Default)
	if err != nil {
		return err
	}
	return h.archive(w, r, v)
}

func (h *Handler) versionContent(_ dialect, w http.ResponseWriter, r *http.Request) error {
	_, v, err := h.skills.Version(r.Context(), r.PathValue("id"), r.PathValue("version"))
	if err != nil {
		return err
	}
	return h.archive(w, r, v)
}

func (h *Handler) archive(w http.ResponseWriter, r *http.Request, v store.SkillVersion) error {
	body, err := h.skills.Content(r.Context(), v)
	if err != nil {
		return err
	}
	defer body.Close()
	header := w.Header()
	header.Set("Content-Type", "application/zip")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Disposition", oai.Attachment(v.Name+".zip"))
	header.Set("Cache-Control", "private")
	header.Set("ETag", `"`+v.SHA256+`"`)
	http.ServeContent(w, r, "", v.CreatedAt, body)
	return nil
}
