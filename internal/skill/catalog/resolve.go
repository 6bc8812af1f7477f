package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Ref is a skill as a request names it.
type Ref struct {
	// Type is custom, anthropic (one of Anthropic's own, by its short name), or "" where the protocol has no such field.
	Type string
	// ID is a skill's id, or the name of one of the operator's library.
	ID string
	// Version is one of a version's names, Latest, or Default, which "" means too. Where a protocol means the latest by a version that
	// is absent, as Messages does, its surface says Latest.
	Version string
	// Param is the reference's place in the request, for errors.
	Param string
}

// Resolved is a skill that a request may use.
type Resolved struct {
	Skill   store.Skill
	Version store.SkillVersion
	// Folder is the name below /skills: the skill's name, with a number behind it where an earlier skill of the request has that.
	Folder string
}

// Listed is what the prompt says of it; root is where the folders of skills are for the model.
func (r Resolved) Listed(root string) skill.Listed {
	return skill.Listed{Name: r.Folder, Description: r.Version.Description, Dir: root + "/" + r.Folder}
}

// anthropics are the skills that Anthropic ships itself (wire/anthropic.md 3.3).
var anthropics = []string{"pptx", "xlsx", "docx", "pdf"}

// Resolve finds the skills that a request of project names, in its order; one that is named twice in the same version is there once. An
// unknown or foreign one, or an unknown version, is a KindInvalid error that names it: nothing is skipped.
func (c *Catalog) Resolve(ctx context.Context, project string, refs []Ref) ([]Resolved, error) {
	var out []Resolved
	folders := map[string]bool{}
	for _, ref := range refs {
		s, err := c.find(ctx, project, ref)
		if err != nil {
			return nil, refusal(err, ref)
		}
		v, err := c.version(ctx, project, s, versionOr(ref.Version, Default))
		if err != nil {
			return nil, refusal(err, ref)
		}
		if slices.ContainsFunc(out, func(r Resolved) bool { return r.Version.ID == v.ID }) {
			continue
		}
		folder := v.Name
		for n := 2; folders[folder]; n++ {
			folder = fmt.Sprintf("%s-%d", v.Name, n)
		}
		folders[folder] = true
		out = append(out, Resolved{Skill: s, Version: v, Folder: folder})
	}
	return out, nil
}

func versionOr(name, standard string) string {
	if name == "" {
		return standard
	}
	return name
}

func (c *Catalog) find(ctx context.Context, project string, ref Ref) (store.Skill, error) {
	if ref.Type != "anthropic" {
		s, err := c.get(ctx, project, ref.ID)
		if e := turn.AsError(err); e == nil || e.Kind != turn.KindNotFound || ref.Type == "custom" {
			return s, err
		}
	}
	s, err := c.cfg.Store.OfLibrary(ctx, ref.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && c.library.gone(s) {
		if slices.Contains(anthropics, ref.ID) {
			return s, turn.NotFound("the skill %q is Anthropic's own and is not installed here: "+
				"the operator can put a skill of that name into skills_dir", ref.ID)
		}
		return s, unknownSkill(ref.ID)
	}
	if err == nil && ref.Type == "anthropic" && ref.Version != "" && ref.Version != Latest {
		if _, fixed := versionName(ref.Version); !fixed || len(ref.Version) == len("20251013") {
			return s, turn.NotFound("the skill %q here is the operator's, which has no version %q: ask for %q", ref.ID, shorten(ref.Version), Latest)
		}
	}
	return s, err
}

// refusal makes a bad request of what was not found, at the reference's place.
func refusal(err error, ref Ref) error {
	e := turn.AsError(err)
	if e.Kind != turn.KindNotFound {
		return err
	}
	message := e.Message
	if ref.Param != "" {
		message = ref.Param + ": " + message
	}
	return &turn.Error{Kind: turn.KindInvalid, Param: ref.Param, Code: "skill_not_found", Message: message, Cause: e.Cause}
}
