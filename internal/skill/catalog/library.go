package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/store"
)

// library follows the operator's folder: each folder in it with a SKILL.md is a skill that all projects may read. It looks rather than
// listens: that works on every file system, and a folder that is being copied is taken only when it has stopped changing.
type library struct {
	catalog *Catalog
	dir     string
	cancel  context.CancelFunc
	done    chan struct{}

	seen    map[string]look // folder -> how it was found
	blocked map[string]bool // folders left out for a name that another has

	mu  sync.Mutex
	ids map[string]string // folder -> the id of the skill that was loaded from it
}

// look is what a folder was like: its fingerprint, and whether that was taken.
type look struct {
	sum   string
	taken bool
}

// kept is how many versions of a library's skill stay: requests pin them.
const kept = 10

func (l *library) start(ctx context.Context) error {
	l.ids, l.seen, l.blocked = map[string]string{}, map[string]look{}, map[string]bool{}
	err := l.each(ctx, func(s store.Skill) error { // a folder that cannot be loaded now keeps its skill
		v, err := l.catalog.cfg.Store.Version(ctx, store.Library, s.ID, store.VersionName{Number: s.Latest})
		if err == nil {
			l.ids[v.Folder] = s.ID
		}
		return err
	})
	if err == nil {
		err = l.sync(ctx, true)
	}
	if err != nil {
		return fmt.Errorf("the folder skills_dir: %w", err)
	}
	if l.dir == "" {
		return nil
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.done = make(chan struct{})
	go l.watch(ctx)
	return nil
}

// each calls fn for every skill of the library.
func (l *library) each(ctx context.Context, fn func(store.Skill) error) error {
	page := store.SkillPage{Library: true, Limit: 1000, Ascending: true}
	for {
		rows, more, err := l.catalog.cfg.Store.List(ctx, store.Library, page)
		if err != nil {
			return err
		}
		for _, s := range rows {
			if err := fn(s); err != nil {
				return err
			}
			page.After, page.AfterTime = s.ID, s.CreatedAt
		}
		if !more {
			return nil
		}
	}
}

func (l *library) stop() {
	if l.cancel != nil {
		l.cancel()
		<-l.done
	}
}

func (l *library) watch(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(l.catalog.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.sync(ctx, false); err != nil && ctx.Err() == nil {
			l.catalog.cfg.Logger.WarnContext(ctx, "skills_dir cannot be read: its skills stay as they were", "error", err)
		}
	}
}

// gone says that a skill of the library has no folder any more: it is unknown at once, not only when the next look removes its row.
func (l *library) gone(s store.Skill) bool {
	if s.Project != store.Library {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for folder, id := range l.ids {
		if id == s.ID {
			_, err := os.Stat(filepath.Join(l.dir, folder))
			return errors.Is(err, fs.ErrNotExist)
		}
	}
	return true
}

// sync brings the rows of the library up to what is in the folder. At first a folder is taken as it is; later when two looks in a row saw
// the same.
func (l *library) sync(ctx context.Context, first bool) error {
	folders, err := l.list()
	if err != nil {
		return err
	}
	l.forget(folders)
	for _, name := range folders {
		sum, err := fingerprint(filepath.Join(l.dir, name))
		if err != nil {
			return err
		}
		before := l.seen[name]
		if before.taken && before.sum == sum {
			continue
		}
		take := first || before.sum == sum
		l.seen[name] = look{sum, take}
		if !take {
			continue
		}
		if err := l.load(ctx, name); err != nil {
			delete(l.seen, name)
			return err
		}
	}
	return l.prune(ctx)
}

// forget drops what is known of folders that are not there any more. One that waited for the name of such a one is looked at anew.
func (l *library) forget(folders []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.ids {
		if !slices.Contains(folders, name) {
			delete(l.ids, name)
			for waiting := range l.blocked {
				delete(l.seen, waiting)
			}
			clear(l.blocked)
		}
	}
	for name := range l.seen {
		if !slices.Contains(folders, name) {
			delete(l.seen, name)
		}
	}
}

func (l *library) list() ([]string, error) {
	if l.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		// Stat follows a link: what lies in skills_dir is the operator's word.
		if info, err := os.Stat(filepath.Join(l.dir, e.Name())); err == nil && info.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// fingerprint changes when anything in a folder does, as far as names, sizes, modes and times tell.
func fingerprint(dir string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", nil //nolint:nilerr // it went away a moment ago; the next look sees that
	}
	h := sha256.New()
	err = filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		fmt.Fprintf(h, "%q %d %s", path, info.Size(), info.Mode())
		if !d.IsDir() {
			fmt.Fprintf(h, " %d", info.ModTime().UnixNano())
		}
		h.Write([]byte{'\n'})
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

const libraryPrefix = "skill_lib_"

// libraryID is the same for a name on every machine and after every start, so that configurations of clients stay right.
func libraryID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return libraryPrefix + hex.EncodeToString(sum[:12])
}

// load reads one folder and makes a version of it if it is another than the latest one. One that cannot be loaded keeps the skill that it
// had.
func (l *library) load(ctx context.Context, folder string) error {
	log := l.catalog.cfg.Logger.With("folder", folder)
	real, err := filepath.EvalSymlinks(filepath.Join(l.dir, folder))
	if err != nil {
		return nil //nolint:nilerr // it went away a moment ago
	}
	p, report, err := skill.ReadFolder(real, skill.Limits{})
	if err != nil {
		return err
	}
	if p == nil {
		for _, f := range report.Refusals() {
			log.WarnContext(ctx, "a folder of skills_dir is no skill that can be loaded", "finding", f.String())
		}
		return nil
	}
	id := libraryID(p.Meta.Name)
	if other := l.claim(folder, id); other != "" {
		log.WarnContext(ctx, "two folders of skills_dir have skills of one name: this one is left out", "name", p.Meta.Name, "other", other)
		return nil
	}
	p.Folder = folder
	return l.keep(ctx, id, p)
}

// claim notes that a folder has the skill id, or returns the other folder that has it.
func (l *library) claim(folder, id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, has := range l.ids {
		if has == id && other != folder {
			l.blocked[folder] = true
			delete(l.ids, folder)
			return other
		}
	}
	l.ids[folder] = id
	return ""
}

func (l *library) keep(ctx context.Context, id string, p *skill.Package) error {
	c := l.catalog
	staged, err := c.pack(ctx, p)
	if err != nil {
		return err
	}
	defer staged.Discard()
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.cfg.Store.Get(ctx, store.Library, id)
	if errors.Is(err, store.ErrNotFound) {
		_, _, err := c.create(ctx, store.Library, NewSkill{ID: id, Package: p}, staged)
		return err
	}
	if err != nil {
		return err
	}
	latest, err := c.cfg.Store.Version(ctx, store.Library, id, store.VersionName{Number: s.Latest})
	if err != nil {
		return err
	}
	if latest.SHA256 == staged.SHA256 && latest.Folder == p.Folder {
		return nil
	}
	if _, _, err = c.addVersion(ctx, s, p, staged, true); err != nil {
		return err
	}
	return l.trim(ctx, id)
}

// trim removes the oldest versions of a skill that is edited again and again. catalog.mu is held.
func (l *library) trim(ctx context.Context, id string) error {
	c := l.catalog
	rows, _, err := c.cfg.Store.Versions(ctx, store.Library, id, store.Page{Limit: 1000})
	if err != nil || len(rows) <= kept {
		return err
	}
	for _, v := range rows[kept:] {
		_, err := c.cfg.Store.DeleteVersion(ctx, store.Library, id, v.ID, func(s *store.Skill) error { s.UpdatedAt = now(); return nil })
		if err != nil {
			return err
		}
		if err := c.free(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// prune removes the skills that no folder has any more.
func (l *library) prune(ctx context.Context) error {
	wanted := map[string]bool{}
	l.mu.Lock()
	for _, id := range l.ids {
		wanted[id] = true
	}
	l.mu.Unlock()
	return l.each(ctx, func(s store.Skill) error {
		if wanted[s.ID] {
			return nil
		}
		return l.catalog.delete(ctx, s)
	})
}
