package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Ref is a skill as a request names it.
type Ref = turn.SkillRef

// Resolved is a skill that a request may use.
type Resolved struct {
	Skill   store.Skill
	Version store.SkillVersion
	// Type is that of the reference.
	Type string
	// Folder is the name below /skills: the skill's name, with a number behind it where an earlier skill of the request has that.
	Folder string
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
		out = append(out, Resolved{Skill: s, Version: v, Type: ref.Type, Folder: folder})
	}
	return out, nil
}

// Open resolves refs for the project of ctx and unpacks what they name. The caller releases each; after an error nothing is held.
func (c *Catalog) Open(ctx context.Context, refs []turn.SkillRef) ([]tool.Skill, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, err
	}
	if refs, err = c.inline(ctx, project, refs); err != nil {
		return nil, err
	}
	resolved, err := c.Resolve(ctx, project, refs)
	if err != nil {
		return nil, err
	}
	out := make([]tool.Skill, 0, len(resolved))
	for _, r := range resolved {
		s, err := c.open(ctx, r)
		if err != nil {
			for _, held := range out {
				held.Release()
			}
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// inline keeps the archives among refs as skills of the project, under ids that are made of their content: the same archive is the same skill
// however often it is sent.
func (c *Catalog) inline(ctx context.Context, project string, refs []turn.SkillRef) ([]turn.SkillRef, error) {
	if !slices.ContainsFunc(refs, func(r turn.SkillRef) bool { return r.Archive != nil }) {
		return refs, nil
	}
	refs = slices.Clone(refs)
	for i, ref := range refs {
		if ref.Archive == nil {
			continue
		}
		sum := sha256.Sum256(append([]byte(project+"\x00"), ref.Archive...))
		id := "skill_" + hex.EncodeToString(sum[:16])
		_, err := c.get(ctx, project, id)
		if e := turn.AsError(err); e != nil && e.Kind == turn.KindNotFound {
			err = c.keepInline(ctx, id, ref)
		}
		if err != nil {
			return nil, err
		}
		refs[i] = turn.SkillRef{ID: id, Version: Latest, Param: ref.Param}
	}
	return refs, nil
}

func (c *Catalog) keepInline(ctx context.Context, id string, ref turn.SkillRef) error {
	p, report, err := skill.ReadZip(bytes.NewReader(ref.Archive), int64(len(ref.Archive)), skill.Limits{})
	if err != nil {
		return turn.Internal(err)
	}
	if p == nil || !report.Loads() {
		var why []string
		for _, f := range report.Refusals() {
			why = append(why, f.String())
		}
		return turn.Invalid(ref.Param, "%s: the archive is no skill: %s", ref.Param, strings.Join(why, "; "))
	}
	_, _, err = c.Create(ctx, NewSkill{ID: id, Package: p})
	if errors.Is(err, store.ErrExists) {
		return nil // another request was faster
	}
	return err
}

func (c *Catalog) open(ctx context.Context, r Resolved) (tool.Skill, error) {
	f, err := c.Materialize(ctx, r.Version)
	if err != nil {
		return tool.Skill{}, err
	}
	s := tool.Skill{
		ID: r.Skill.ID, Version: r.Version.ID, Type: "custom", Shown: r.Version.ID, Name: r.Folder, Description: r.Version.Description,
		Dir: f.Dir, Release: f.Release,
		Hold: func() func() {
			e := c.cache.hold(r.Version.SHA256)
			var once sync.Once
			return func() { once.Do(func() { c.cache.unhold(r.Version.SHA256, e) }) }
		},
	}
	if r.Type == "anthropic" {
		s.Type, s.ID, s.Shown = r.Type, r.Version.Name, strconv.FormatInt(r.Version.Epoch, 10)
	}
	return s, nil
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
	if errors.Is(err, store.ErrNotFound) && strings.HasPrefix(ref.ID, libraryPrefix) { // as lists show it, with anthropic as its source
		s, err = c.cfg.Store.Get(ctx, store.Library, ref.ID)
	}
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
