package skills

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/skill/catalog"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// The indexes of Agent Skills Discovery (github.com/cloudflare/agent-skills-discovery-rfc): version 0.1 at /.well-known/skills lists each
// skill's files, which are fetched one by one; version 0.2 at /.well-known/agent-skills lists archives with their hashes. Both show what
// the request's key may read, in its default version. Names are the keys of both, so of two skills with one name the newer is shown.

// filesIndex mirrors version 0.1.
type filesIndex struct {
	Skills []filesEntry `json:"skills"`
}

type filesEntry struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Files       []string `json:"files"`
}

// archivesIndex mirrors version 0.2.
type archivesIndex struct {
	Schema string          `json:"$schema"`
	Skills []archivesEntry `json:"skills"`
}

type archivesEntry struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Description string `json:"description"`
	URL         string `json:"url"`
	Digest      string `json:"digest"`
}

const (
	discoverySchema = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
	archivesPath    = "/.well-known/agent-skills/"
)

// each calls fn for every skill that the caller may read, by name once, with its default version.
func (h *Handler) each(ctx context.Context, fn func(context.Context, store.Skill, store.SkillVersion) error) error {
	seen := map[string]bool{}
	page := store.SkillPage{Limit: 1000}
	for {
		rows, more, err := h.skills.List(ctx, page)
		if err != nil {
			return err
		}
		for _, s := range rows {
			page.After, page.AfterTime = s.ID, s.CreatedAt
			if seen[s.Name] || s.Default == 0 {
				continue
			}
			seen[s.Name] = true
			_, v, err := h.skills.Version(ctx, s.ID, catalog.Default)
			if e := turn.AsError(err); e != nil && e.Kind == turn.KindNotFound {
				continue // deleted meanwhile
			}
			if err == nil {
				err = fn(ctx, s, v)
			}
			if err != nil {
				return err
			}
		}
		if !more || len(rows) == 0 {
			return nil
		}
	}
}

func (h *Handler) named(ctx context.Context, name string) (store.SkillVersion, error) {
	var found store.SkillVersion
	err := h.each(ctx, func(_ context.Context, s store.Skill, v store.SkillVersion) error {
		if s.Name == name {
			found = v
		}
		return nil
	})
	if err == nil && found.ID == "" {
		err = turn.NotFound("Skill not found: %s", cut(name))
	}
	return found, err
}

func (h *Handler) indexOfFiles(_ dialect, w http.ResponseWriter, r *http.Request) error {
	index := filesIndex{Skills: []filesEntry{}}
	err := h.each(r.Context(), func(ctx context.Context, _ store.Skill, v store.SkillVersion) error {
		files, err := h.filesOf(ctx, v)
		if err == nil {
			index.Skills = append(index.Skills, filesEntry{v.Name, v.Description, files})
		}
		return err
	})
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "private, max-age=60")
	oai.WriteJSON(w, http.StatusOK, index)
	return nil
}

func (h *Handler) indexOfArchives(_ dialect, w http.ResponseWriter, r *http.Request) error {
	index := archivesIndex{Schema: discoverySchema, Skills: []archivesEntry{}}
	err := h.each(r.Context(), func(_ context.Context, _ store.Skill, v store.SkillVersion) error {
		index.Skills = append(index.Skills, archivesEntry{
			v.Name, "archive", v.Description, archivesPath + url.PathEscape(v.Name) + ".zip", "sha256:" + v.SHA256,
		})
		return nil
	})
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "private, max-age=60")
	oai.WriteJSON(w, http.StatusOK, index)
	return nil
}

func (h *Handler) wellKnownArchive(_ dialect, w http.ResponseWriter, r *http.Request) error {
	name, ok := strings.CutSuffix(r.PathValue("archive"), ".zip")
	if !ok {
		return turn.NotFound("there is no %s: the index is %sindex.json", cut(r.PathValue("archive")), archivesPath)
	}
	v, err := h.named(r.Context(), name)
	if err != nil {
		return err
	}
	return h.archive(w, r, v)
}

func (h *Handler) wellKnownFile(_ dialect, w http.ResponseWriter, r *http.Request) error {
	v, err := h.named(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	folder, err := h.skills.Materialize(r.Context(), v) // the index is fetched file by file: unpack once
	if err != nil {
		return err
	}
	defer folder.Release()
	root, err := os.OpenRoot(folder.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	name := r.PathValue("path")
	f, err := root.Open(filepath.FromSlash(name))
	if err != nil {
		return turn.NotFound("the skill %s has no file %s", cut(v.Name), cut(name))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return turn.NotFound("the skill %s has no file %s", cut(v.Name), cut(name))
	}
	oai.WriteContent(w, r, path.Base(name), v.SHA256+"-"+url.PathEscape(name), v.CreatedAt, f)
	return nil
}

func (h *Handler) open(ctx context.Context, v store.SkillVersion) (*skill.Package, error) {
	body, err := h.skills.Content(ctx, v)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	p, _, err := skill.ReadZip(bytes.NewReader(data), int64(len(data)), skill.Limits{ZipBytes: v.Bytes})
	if err == nil && p == nil {
		err = turn.Errorf(turn.KindInternal, "the skill %s is damaged", v.Skill)
	}
	return p, err
}

// fileLists remembers the paths of versions, which never change, by the hash of their archive.
type fileLists struct {
	mu    sync.Mutex
	lists map[string][]string
}

// mostLists bounds what is remembered.
const mostLists = 2000

func (h *Handler) filesOf(ctx context.Context, v store.SkillVersion) ([]string, error) {
	h.files.mu.Lock()
	list, known := h.files.lists[v.SHA256]
	h.files.mu.Unlock()
	if known {
		return list, nil
	}
	p, err := h.open(ctx, v)
	if err != nil {
		return nil, err
	}
	for _, f := range p.Files {
		list = append(list, f.Path)
	}
	h.files.mu.Lock()
	defer h.files.mu.Unlock()
	if h.files.lists == nil || len(h.files.lists) >= mostLists {
		h.files.lists = map[string][]string{}
	}
	h.files.lists[v.SHA256] = list
	return list, nil
}
