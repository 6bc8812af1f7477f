// Package catalog keeps skills: whose they are, their versions, who may read them, and their files on this machine. Package skill has
// their format, package store the rows, package blob the bytes; this package speaks no protocol and starts no sandbox. Surfaces, package
// run and cmd/lathe may import it.
//
// Every method that takes its project from the context sees only what that project may read: its own skills, those that others share with it, and the
// operator's library. Errors that clients may see are *turn.Error.
package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Config is what a Catalog is made of. Store, Blobs and Dir are required; every other zero value has a default.
type Config struct {
	Store store.Skills
	Blobs *blob.Store
	// Dir has the unpacked versions. It belongs to this process.
	Dir string
	// Library is the operator's folder of skills, "" for none. It is looked at every Poll; zero is 2 seconds.
	Library string
	Poll    time.Duration
	// MaxSkills and MaxBytes (of archives) are what one project may own. Zero is 1000 and 5 GiB.
	MaxSkills int
	MaxBytes  int64
	// CacheBytes is what Dir may hold, but for what is in use. Zero is 5 GiB.
	CacheBytes int64
	Logger     *slog.Logger
}

func (c *Config) setDefaults() {
	if c.Poll == 0 {
		c.Poll = 2 * time.Second
	}
	if c.MaxSkills == 0 {
		c.MaxSkills = 1000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 5 << 30
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 5 << 30
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Catalog is all skills of this server. It is safe for concurrent use.
type Catalog struct {
	cfg     Config
	cache   *cache
	library *library

	// mu lets bytes be freed only while no row for them is being made, and makes limits and unique titles hold.
	mu sync.Mutex
}

// New opens a catalog and brings the library up to date. Close it.
func New(ctx context.Context, cfg Config) (*Catalog, error) {
	cfg.setDefaults()
	if cfg.Store == nil || cfg.Blobs == nil || cfg.Dir == "" {
		return nil, errors.New("catalog: Store, Blobs and Dir are required")
	}
	c := &Catalog{cfg: cfg}
	var err error
	if c.cache, err = openCache(cfg.Dir, cfg.CacheBytes, cfg.Logger); err != nil {
		return nil, err
	}
	c.library = &library{catalog: c, dir: cfg.Library}
	if err := c.library.start(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the watch of the library.
func (c *Catalog) Close() error { c.library.stop(); return nil }

// now is a time that every store keeps whole.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func projectOf(ctx context.Context) (string, error) {
	project := auth.FromContext(ctx).Project
	if project == "" || project == store.Library {
		return "", &turn.Error{Kind: turn.KindUnauthenticated, Message: "no API key was given; send it as Authorization: Bearer <key>"}
	}
	return project, nil
}

// NewSkill is what a client says of a skill.
type NewSkill struct {
	// ID is "" for a new one; the import keeps those of its source.
	ID string
	// Title is the name for people, "" for none.
	Title string
	// UniqueTitle refuses a title that a skill of the project has already (Anthropic's older dialect).
	UniqueTitle bool
	SharedWith  []string
	Package     *skill.Package
	CreatedAt   time.Time // zero is now
}

// Create keeps a new skill with its first version.
func (c *Catalog) Create(ctx context.Context, n NewSkill) (store.Skill, store.SkillVersion, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	if err := checkShares(n.SharedWith, project); err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	staged, err := c.pack(ctx, n.Package)
	if err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	defer staged.Discard()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.room(ctx, project, 1, staged.Size); err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	if n.UniqueTitle && n.Title != "" {
		rows, _, err := c.cfg.Store.List(ctx, project, store.SkillPage{Title: n.Title, Limit: 1, Custom: true})
		if err != nil {
			return store.Skill{}, store.SkillVersion{}, err
		}
		if len(rows) > 0 {
			return store.Skill{}, store.SkillVersion{}, turn.Invalid("display_title", "Skill cannot reuse an existing display_title: %s", n.Title)
		}
	}
	return c.create(ctx, project, n, staged)
}

// create makes the rows of what was staged. c.mu is held.
func (c *Catalog) create(ctx context.Context, project string, n NewSkill, staged *blob.Staged) (store.Skill, store.SkillVersion, error) {
	if n.CreatedAt.IsZero() {
		n.CreatedAt = now()
	}
	if n.ID == "" {
		n.ID = turn.NewID("skill_")
	}
	v := versionOf(n.Package, staged, project)
	v.CreatedAt = n.CreatedAt
	if err := staged.Commit(v.BlobOwner()); err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	s, v, err := c.cfg.Store.Create(ctx, store.Skill{
		ID: n.ID, Project: project, Title: n.Title, Name: n.Package.Meta.Name, Description: n.Package.Meta.Description,
		SharedWith: n.SharedWith, CreatedAt: n.CreatedAt, UpdatedAt: n.CreatedAt,
	}, v)
	if err != nil {
		return s, v, errors.Join(err, c.free(ctx, v))
	}
	return s, v, nil
}

// longestBody is what the search knows of a skill's text, in bytes.
const longestBody = 64 << 10

func versionOf(p *skill.Package, staged *blob.Staged, project string) store.SkillVersion {
	body := p.Body
	if len(body) > longestBody {
		body = body[:longestBody]
	}
	return store.SkillVersion{
		ID: turn.NewID("skver_"), Project: project, Name: p.Meta.Name, Description: p.Meta.Description, Folder: p.Folder, Body: body,
		SHA256: staged.SHA256, Bytes: staged.Size, Unpacked: p.Size(), Files: len(p.Files),
	}
}

func (c *Catalog) pack(ctx context.Context, p *skill.Package) (*blob.Staged, error) {
	var b bytes.Buffer
	if err := p.WriteZip(&b); err != nil {
		return nil, err
	}
	return c.cfg.Blobs.Stage(ctx, &b, skill.Lenient.TotalBytes*2)
}

// room refuses what would be more than a project may own.
func (c *Catalog) room(ctx context.Context, project string, skills int, size int64) error {
	u, err := c.cfg.Store.Usage(ctx, project)
	if err != nil {
		return err
	}
	switch {
	case u.Skills+skills > c.cfg.MaxSkills:
		return &turn.Error{Kind: turn.KindInvalid, Code: "storage_quota_exceeded",
			Message: fmt.Sprintf("the project has %d skills, the most that it may have: delete some", u.Skills)}
	case u.Bytes+size > c.cfg.MaxBytes:
		return &turn.Error{Kind: turn.KindInvalid, Code: "storage_quota_exceeded",
			Message: fmt.Sprintf("the project's skills have %d of %d bytes: delete versions that are not needed", u.Bytes, c.cfg.MaxBytes)}
	}
	return nil
}

var projectName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkShares(projects []string, own string) error {
	const most = 100
	if len(projects) > most {
		return turn.Invalid("shared_with", "shared_with may name at most %d projects, got %d", most, len(projects))
	}
	for _, p := range projects {
		if !projectName.MatchString(p) {
			return turn.Invalid("shared_with", "shared_with: %q is not a project's name", p)
		}
		if p == own {
			return turn.Invalid("shared_with", "shared_with: %q owns the skill already; leave it out", p)
		}
	}
	return nil
}

func unknownSkill(id string) *turn.Error { return turn.NotFound("Skill not found: %s", shorten(id)) }

func unknownVersion(id, version string) *turn.Error {
	return turn.NotFound("Skill version not found: %s of %s", shorten(version), shorten(id))
}

func shorten(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}

// AddVersion keeps a new version, a full snapshot, of a skill of the project. Its name must be the skill's.
func (c *Catalog) AddVersion(ctx context.Context, id string, p *skill.Package, makeDefault bool) (store.Skill, store.SkillVersion, error) {
	s, err := c.own(ctx, id)
	if err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	if p.Meta.Name != s.Name {
		return store.Skill{}, store.SkillVersion{}, turn.Invalid("files",
			"the skill is called %q, and the new version %q: keep the name in SKILL.md, or create another skill", s.Name, p.Meta.Name)
	}
	staged, err := c.pack(ctx, p)
	if err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	defer staged.Discard()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.room(ctx, s.Project, 0, staged.Size); err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	return c.addVersion(ctx, s, p, staged, makeDefault)
}

// addVersion makes the row of what was staged. c.mu is held.
func (c *Catalog) addVersion(ctx context.Context, s store.Skill, p *skill.Package, staged *blob.Staged, makeDefault bool) (store.Skill, store.SkillVersion, error) {
	v := versionOf(p, staged, s.Project)
	v.Skill, v.CreatedAt = s.ID, now()
	if err := staged.Commit(v.BlobOwner()); err != nil {
		return store.Skill{}, store.SkillVersion{}, err
	}
	k, added, err := c.cfg.Store.AddVersion(ctx, v, makeDefault)
	if errors.Is(err, store.ErrNotFound) {
		err = unknownSkill(s.ID) // deleted meanwhile
	}
	if err != nil {
		return k, added, errors.Join(err, c.free(ctx, v))
	}
	return k, added, nil
}

// own returns a skill that the project may write. One that it may only read is refused, since it sees it anyway.
func (c *Catalog) own(ctx context.Context, id string) (store.Skill, error) {
	s, err := c.Get(ctx, id)
	if err != nil {
		return s, err
	}
	if s.Project == auth.FromContext(ctx).Project {
		return s, nil
	}
	whose := "another project, which shares it with this one"
	if s.Project == store.Library {
		whose = "the operator's library"
	}
	return s, turn.Errorf(turn.KindForbidden, "the skill %s belongs to %s: it can be used, not changed", shorten(id), whose)
}

// Get returns a skill that the project may read.
func (c *Catalog) Get(ctx context.Context, id string) (store.Skill, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return store.Skill{}, err
	}
	return c.get(ctx, project, id)
}

func (c *Catalog) get(ctx context.Context, project, id string) (store.Skill, error) {
	s, err := c.cfg.Store.Get(ctx, project, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && c.library.gone(s) {
		return store.Skill{}, unknownSkill(id)
	}
	return s, err
}

// List returns a page of the skills that the project may read.
func (c *Catalog) List(ctx context.Context, p store.SkillPage) ([]store.Skill, bool, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, false, err
	}
	rows, more, err := c.cfg.Store.List(ctx, project, p)
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, turn.Invalid("after", "the cursor %q names no skill of this list: begin again without it", shorten(p.After))
	}
	kept := rows[:0]
	for _, s := range rows {
		if !c.library.gone(s) {
			kept = append(kept, s)
		}
	}
	return kept, more, err
}

// Update changes a skill of the project. fn edits Title, Default and SharedWith; its error is returned.
func (c *Catalog) Update(ctx context.Context, id string, fn func(*store.Skill) error) (store.Skill, error) {
	s, err := c.own(ctx, id)
	if err != nil {
		return s, err
	}
	want := 0
	s, err = c.cfg.Store.Update(ctx, s.Project, id, func(s *store.Skill) error {
		s.UpdatedAt = now()
		if err := fn(s); err != nil {
			return err
		}
		want = s.Default
		return checkShares(s.SharedWith, s.Project)
	})
	if errors.Is(err, store.ErrNotFound) {
		err = turn.Invalid("default_version", "default_version: the skill %s has no version %d", shorten(id), want)
	}
	return s, err
}

// Delete removes a skill of the project with all versions. With onlyEmpty it is refused while there are any.
func (c *Catalog) Delete(ctx context.Context, id string, onlyEmpty bool) error {
	s, err := c.own(ctx, id)
	if err != nil {
		return err
	}
	if onlyEmpty && s.Latest != 0 {
		return turn.Invalid("", "Cannot delete skill with existing versions. Delete all versions first.")
	}
	return c.delete(ctx, s)
}

func (c *Catalog) delete(ctx context.Context, s store.Skill) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows, err := c.cfg.Store.Delete(ctx, s.Project, s.ID)
	if errors.Is(err, store.ErrNotFound) {
		return unknownSkill(s.ID)
	}
	if err != nil {
		return err
	}
	return c.free(ctx, rows...)
}

// free removes the bytes of versions whose rows are gone. c.mu is held.
func (c *Catalog) free(ctx context.Context, rows ...store.SkillVersion) error {
	ctx = context.WithoutCancel(ctx) // the rows are gone whether or not the client waits
	var errs []error
	for _, v := range rows {
		n, err := c.cfg.Store.References(ctx, v.Project, v.SHA256)
		if err != nil || n > 0 {
			errs = append(errs, err)
			continue
		}
		c.cache.drop(v.SHA256)
		errs = append(errs, c.cfg.Blobs.Delete(ctx, v.BlobOwner(), v.SHA256))
	}
	return errors.Join(errs...)
}

// Content opens a version's archive, a zip with one folder around the files. Close it.
func (c *Catalog) Content(ctx context.Context, v store.SkillVersion) (io.ReadSeekCloser, error) {
	body, err := c.cfg.Blobs.Open(ctx, v.BlobOwner(), v.SHA256)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, unknownVersion(v.Skill, v.ID) // deleted a moment ago
	}
	return body, err
}
