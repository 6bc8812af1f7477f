package catalog

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// The names of versions that are not fixed.
const (
	Latest  = "latest"
	Default = "default"
)

// smallestEpoch tells epochs, which are microseconds since 1970, from numbers.
const smallestEpoch = 1e12

// versionName reads one of the fixed names of a version: skver_ id, number, or epoch.
func versionName(name string) (store.VersionName, bool) {
	if strings.HasPrefix(name, "skver_") {
		return store.VersionName{ID: name}, true
	}
	n, err := strconv.ParseInt(name, 10, 64)
	switch {
	case err != nil || n < 1 || strconv.FormatInt(n, 10) != name:
		return store.VersionName{}, false
	case n >= smallestEpoch:
		return store.VersionName{Epoch: n}, true
	}
	return store.VersionName{Number: int(n)}, true
}

// Version finds a version of a skill that the project may read, by any of its names, or as Latest or Default.
func (c *Catalog) Version(ctx context.Context, id, name string) (store.Skill, store.SkillVersion, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	s, err := c.get(ctx, project, id)
	if err != nil {
		return s, store.SkillVersion{}, err
	}
	v, err := c.version(ctx, project, s, name)
	return s, v, err
}

func (c *Catalog) version(ctx context.Context, project string, s store.Skill, name string) (store.SkillVersion, error) {
	fixed, ok := versionName(name)
	switch name {
	case Latest:
		fixed, ok = store.VersionName{Number: s.Latest}, s.Latest != 0
	case Default:
		fixed, ok = store.VersionName{Number: s.Default}, s.Default != 0
	}
	if !ok {
		return store.SkillVersion{}, unknownVersion(s.ID, name)
	}
	v, err := c.cfg.Store.Version(ctx, project, s.ID, fixed)
	if errors.Is(err, store.ErrNotFound) {
		err = unknownVersion(s.ID, name)
	}
	return v, err
}

// Versions returns a page of a skill's versions; p.After is the id of one.
func (c *Catalog) Versions(ctx context.Context, id string, p store.Page) (store.Skill, []store.SkillVersion, bool, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return store.Skill{}, nil, false, err
	}
	s, err := c.get(ctx, project, id)
	if err != nil {
		return s, nil, false, err
	}
	rows, more, err := c.cfg.Store.Versions(ctx, project, id, p)
	if errors.Is(err, store.ErrNotFound) {
		err = turn.Invalid("after", "the cursor %q names no version of this skill: begin again without it", shorten(p.After))
	}
	return s, rows, more, err
}

// DeleteVersion removes a version of a skill of the project. fn sees the skill before, in the same transaction, and may refuse with an error.
func (c *Catalog) DeleteVersion(ctx context.Context, id, name string, fn func(store.Skill, store.SkillVersion) error) (store.Skill, store.SkillVersion, error) {
	s, err := c.own(ctx, id)
	if err != nil {
		return s, store.SkillVersion{}, err
	}
	if _, fixed := versionName(name); !fixed {
		return s, store.SkillVersion{}, turn.Invalid("version", "name the version to delete by its own id, not as %q", shorten(name))
	}
	v, err := c.version(ctx, s.Project, s, name)
	if err != nil {
		return s, v, err
	}
	s, err = c.deleteVersion(ctx, v, fn)
	return s, v, err
}

func (c *Catalog) deleteVersion(ctx context.Context, v store.SkillVersion, fn func(store.Skill, store.SkillVersion) error) (store.Skill, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.cfg.Store.DeleteVersion(ctx, v.Project, v.Skill, v.ID, func(s *store.Skill) error {
		s.UpdatedAt = now()
		return fn(*s, v)
	})
	if errors.Is(err, store.ErrNotFound) {
		return s, unknownVersion(v.Skill, v.ID)
	}
	if err != nil {
		return s, err
	}
	return s, c.free(ctx, v)
}
