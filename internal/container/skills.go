package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Skills finds skills and unpacks them. package skill/catalog implements it.
type Skills interface {
	// Open returns the skills that refs name, for the project of ctx, in their order. The caller releases each. An unknown one is a
	// *turn.Error that names it; then nothing is held.
	Open(ctx context.Context, refs []turn.SkillRef) ([]tool.Skill, error)
}

// skillFile is what a container keeps of its skills, beside its volume.
type skillFile struct {
	// Own are those that it was made with: every turn has them.
	Own []turn.SkillRef `json:"own,omitempty"`
	// Bound are those that programs have been shown, by their folder's name. A sandbox that is started or resumed has them again.
	Bound map[string]turn.SkillRef `json:"bound,omitempty"`
}

func (v *volumes) skills(id string) (skillFile, error) {
	var f skillFile
	dir, err := v.folder(id)
	if err != nil {
		return f, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "skills.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(data, &f)
}

// setSkills replaces the file: a crash leaves the old or the new one.
func (v *volumes) setSkills(id string, f skillFile) error {
	dir, err := v.folder(id)
	if err != nil {
		return err
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	part := filepath.Join(dir, "skills.json.part")
	if err := os.WriteFile(part, data, 0o600); err != nil {
		return err
	}
	if err := syncFile(part); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, "skills.json"))
}

// Skills implements tool.Workspaces.
func (m *Manager) Skills(ctx context.Context, h *turn.Hosted) ([]tool.Skill, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, err
	}
	var refs []turn.SkillRef
	if id := m.find(ctx, project, h); id != "" {
		f, err := m.volumes.skills(id)
		if err != nil {
			return nil, turn.Internal(err)
		}
		refs = f.Own
	}
	refs = append(refs[:len(refs):len(refs)], h.Skills...)
	if len(refs) == 0 {
		return nil, nil
	}
	return m.openSkills(ctx, refs)
}

func (m *Manager) openSkills(ctx context.Context, refs []turn.SkillRef) ([]tool.Skill, error) {
	if m.Config.Skills == nil {
		return nil, turn.Unsupported(refs[0].Param, "this server keeps no skills")
	}
	return m.Config.Skills.Open(ctx, refs)
}

// keepSkills makes skills a new container's own, in the versions that they have now.
func (m *Manager) keepSkills(ctx context.Context, id string, refs []turn.SkillRef) error {
	skills, err := m.openSkills(ctx, refs)
	if err != nil {
		return err
	}
	var f skillFile
	for _, s := range skills {
		f.Own = append(f.Own, pinned(s))
		s.Release()
	}
	return m.volumes.setSkills(id, f)
}

func pinned(s tool.Skill) turn.SkillRef {
	return turn.SkillRef{Type: s.Type, ID: s.ID, Version: s.Version}
}

// heldSkill is a skill's folder that a sandbox shows.
type heldSkill struct {
	version string
	release func()
}

// Mount implements tool.Workspace.
func (w *workspace) Mount(skills []tool.Skill) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skills = skills
}

// show binds the workspace's skills in a sandbox, before a call. Those that are there already cost nothing.
func (w *workspace) show(ctx context.Context, l *live) error {
	w.mu.Lock()
	skills := w.skills
	w.mu.Unlock()
	changed := false
	for _, s := range skills {
		old, bound := l.skills[s.Name]
		if bound && old.version == s.Version {
			continue
		}
		release := s.Hold()
		if err := l.Bind(ctx, sandbox.Mount{Source: s.Dir, Target: s.Path(), ReadOnly: true}); err != nil {
			release()
			return fmt.Errorf("%w: skill %s: %w", sandbox.ErrNotStarted, s.Name, err)
		}
		if bound {
			old.release()
		}
		l.skills[s.Name] = heldSkill{s.Version, release}
		changed = true
	}
	if !changed {
		return nil
	}
	f, err := w.m.volumes.skills(w.key.id)
	if err != nil {
		return err
	}
	if f.Bound == nil {
		f.Bound = map[string]turn.SkillRef{}
	}
	for _, s := range skills {
		f.Bound[s.Name] = pinned(s)
	}
	return w.m.volumes.setSkills(w.key.id, f)
}

// boundSkills are the mounts of what programs have been shown before, held for l. A version that is gone is left out: programs that had its
// files open cannot be resumed.
func (e *entry) boundSkills(ctx context.Context, l *live) []sandbox.Mount {
	l.skills = map[string]heldSkill{}
	if e.m.Config.Skills == nil {
		return nil
	}
	f, err := e.m.volumes.skills(e.key.id)
	if err != nil {
		e.m.log.WarnContext(ctx, "a container's skills are not known", "container", e.key.id, "error", err)
		return nil
	}
	ctx = auth.WithPrincipal(ctx, auth.Principal{Project: e.key.project}) // a start ahead is nobody's request
	var out []sandbox.Mount
	for name, ref := range f.Bound {
		skills, err := e.m.openSkills(ctx, []turn.SkillRef{ref})
		if err != nil {
			e.m.log.InfoContext(ctx, "a skill is not there any more", "container", e.key.id, "skill", ref.ID, "error", err)
			continue
		}
		for _, s := range skills {
			l.skills[name] = heldSkill{s.Version, s.Release}
			out = append(out, sandbox.Mount{Source: s.Dir, Target: tool.SkillsRoot + "/" + name, ReadOnly: true})
		}
	}
	return out
}

// releaseSkills gives the folders back when the sandbox has ended.
func (l *live) releaseSkills() {
	for _, s := range l.skills {
		s.release()
	}
	l.skills = nil
}
