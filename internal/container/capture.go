package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

const (
	// maxMade caps the files of one call that become cfile_, maxMadeBytes their bytes.
	maxMade      = 1000
	maxMadeBytes = 1 << 30
	// racyTime is how far a file's ctime may lag behind the change: the kernel's clock for it ticks every 1 to 10 ms. A file that was
	// changed that shortly before a look may change again without a new stamp, so the next look compares its bytes.
	racyTime = 20 * time.Millisecond
	// maxRacy caps the files that are compared for that reason alone.
	maxRacy = 8 << 20
	// batch is how many files are held open between reading and keeping them.
	batch = 64
)

// fileState is what an entry knows of its volume.
type fileState struct {
	mu  sync.Mutex // held while the volume is looked at or written from outside
	vol *volume
	// hidden are files that were deleted while the container hibernated and are still in the volume; gone are those that were deleted
	// while its sandbox was up. See removals.go.
	hidden map[string]removal
	gone   map[string]bool
	known  map[string]known // by path below /mnt/data; nil until the volume has been looked at
	// history is the sum of bytes of all rows, versions their number.
	history  int64
	versions int
}

// known is a file of the volume as it was last seen.
type known struct {
	stamp
	id  string // "" for one that was not kept
	sha string
	// racy says that the stamp is not to be trusted: the next look compares the bytes.
	racy bool
}

// attach mounts the volume and looks at it, if that has not happened yet.
func (e *entry) attach(ctx context.Context) (*volume, error) {
	e.files.mu.Lock()
	defer e.files.mu.Unlock()
	return e.attachLocked(ctx)
}

func (e *entry) attachLocked(ctx context.Context) (*volume, error) {
	s := &e.files
	if s.vol == nil {
		if err := e.own(ctx); err != nil {
			return nil, err
		}
		hidden, err := e.m.volumes.loadRemovals(e.key.id)
		if err != nil {
			return nil, err
		}
		vol, err := e.m.volumes.mount(ctx, e.key.id)
		if err != nil {
			return nil, err
		}
		s.vol, s.hidden, s.gone = vol, hidden, map[string]bool{}
	}
	if s.known == nil {
		if err := e.baseline(ctx); err != nil {
			return nil, err
		}
	}
	return s.vol, nil
}

// detach forgets the volume and returns it for unmounting, nil if it was not mounted.
func (e *entry) detach() *volume {
	e.files.mu.Lock()
	defer e.files.mu.Unlock()
	vol := e.files.vol
	e.files.vol, e.files.known = nil, nil
	return vol
}

// baseline finds out what of the volume is known already. What a call had written when the process was killed has no row, or a
// differing one: it is left out here, so that the next call reports it.
func (e *entry) baseline(ctx context.Context) error {
	s := &e.files
	latest := map[string]store.File{}
	s.history, s.versions = 0, 0
	for p := (store.Page{Limit: 10_000, Ascending: true}); ; {
		rows, more, err := e.m.Store.Files().List(ctx, e.key.project, e.key.id, p)
		if err != nil {
			return err
		}
		for _, f := range rows {
			s.history += f.Bytes
			s.versions++
			if !f.Shown {
				latest[f.Path] = f
			}
		}
		if !more {
			break
		}
		p.After = rows[len(rows)-1].ID
	}
	l, err := lookAt(s.vol.data)
	if err != nil {
		return err
	}
	doubt := e.m.volumes.doubts(e.key.id)
	s.known = make(map[string]known, len(l.files))
	for p, st := range l.files {
		if _, ok := s.hidden[p]; ok {
			continue
		}
		if f, ok := latest[dataMount+"/"+p]; ok && f.Bytes == st.size {
			s.known[p] = known{stamp: st, id: f.ID, sha: f.SHA256, racy: doubt || racy(st, f.CreatedAt)}
		}
	}
	return nil
}

func racy(st stamp, looked time.Time) bool { return st.ctime > looked.Add(-racyTime).UnixNano() }

// remember notes what a file of the volume is since looked.
func (s *fileState) remember(p string, st stamp, id, sha string, looked time.Time) {
	s.known[p] = known{stamp: st, id: id, sha: sha, racy: st.size <= maxRacy && racy(st, looked)}
}

// capture makes immutable files of everything that has changed in /mnt/data since the last look. notes say what was left out.
func (e *entry) capture(ctx context.Context) (made []turn.File, notes []string, err error) {
	s := &e.files
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := e.attachLocked(ctx); err != nil {
		return nil, nil, err
	}
	c := &capture{entry: e, looked: time.Now().UTC().Truncate(time.Microsecond)}
	l, err := lookAt(s.vol.data)
	if err != nil {
		return nil, nil, fmt.Errorf("look at the volume: %w", err)
	}
	for _, p := range l.paths() {
		if k, ok := s.known[p]; ok && k.stamp == l.files[p] && !k.racy {
			continue
		}
		if _, ok := s.hidden[p]; ok {
			continue
		}
		if err := c.file(ctx, p, l.files[p]); err != nil {
			return nil, nil, errors.Join(err, c.flush(ctx))
		}
	}
	if err := c.flush(ctx); err != nil {
		return nil, nil, err
	}
	if l.left {
		c.note(fmt.Sprintf("there are more than %d files, or folders more than %d deep: not all were looked at", maxWalk, maxDepth))
	} else {
		for p := range s.known {
			if _, ok := l.files[p]; !ok {
				delete(s.known, p)
			}
		}
	}
	if err := e.m.volumes.noDoubt(e.key.id); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(c.made, func(a, b turn.File) int { return strings.Compare(a.Path, b.Path) })
	return c.made, c.skipped.notes(c.notes), nil
}

// capture is one run of entry.capture.
type capture struct {
	*entry
	looked  time.Time
	made    []turn.File
	bytes   int64 // of the whole call
	pending []pending
	waiting int64 // bytes of pending
	notes   []string
	skipped skipped
	space   error
	left    room // of the project
	asked   bool // whether space and left are known
}

// pending is a file that was read but not kept yet.
type pending struct {
	path   string
	stamp  stamp
	staged *blob.Staged
	row    store.File
}

func (c *capture) note(text string) { c.notes = append(c.notes, text) }

// file reads one file that may have changed and keeps it if it has.
func (c *capture) file(ctx context.Context, p string, st stamp) error {
	s := &c.files
	old, seen := s.known[p]
	doubtful := seen && old.stamp == st // most likely the version that is kept already: no cap makes us forget it
	if why := c.refuse(ctx, p, st); why != "" && !doubtful {
		c.skipped.add(why, p)
		s.known[p] = known{stamp: st} // said once
		return nil
	}
	staged, st, err := c.read(ctx, p)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		delete(s.known, p)
		if errors.Is(err, errChanging) {
			c.skipped.add("still being written, and reported once a later call finds them at rest", p)
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotRegular) {
			c.m.log.DebugContext(ctx, "reading a program's file failed", "container", c.key.id, "error", err)
			c.skipped.add("unreadable", p)
		}
		return nil
	}
	if seen && old.id != "" && old.sha == staged.SHA256 {
		staged.Discard()
		s.remember(p, st, old.id, old.sha, c.looked)
		if old.mtime != st.mtime || old.inode != st.inode {
			c.made = append(c.made, c.turnFile(old.id, p, st.size)) // written anew with the same bytes: the version is there already
		}
		return nil
	}
	c.bytes += st.size
	c.waiting += st.size
	c.pending = append(c.pending, pending{path: p, stamp: st, staged: staged, row: store.File{
		ID: turn.NewID("cfile_"), Project: c.key.project, Container: c.key.id, Path: dataMount + "/" + p, Name: path.Base(p),
		Source: "assistant", Bytes: st.size, SHA256: staged.SHA256, CreatedAt: c.looked,
	}})
	if len(c.pending) >= batch {
		return c.flush(ctx)
	}
	return nil
}

// refuse says why a file is not kept, "" if it is.
func (c *capture) refuse(ctx context.Context, p string, st stamp) string {
	if !c.asked {
		c.space, c.asked = c.m.checkSpace(), true
		c.left = c.m.quotas.left(ctx, c.key.project)
	}
	switch {
	case !utf8.ValidString(p):
		return "with a name that is not UTF-8"
	case st.size > c.m.MaxFile:
		return "larger than " + size(c.m.MaxFile)
	case len(c.made)+len(c.pending) >= maxMade:
		return fmt.Sprintf("beyond the first %d of a call", maxMade)
	case c.bytes+st.size > maxMadeBytes:
		return "beyond the first " + size(maxMadeBytes) + " of a call"
	case c.files.history+c.waiting+st.size > c.m.History:
		return "beyond the " + size(c.m.History) + " that all versions of a container's files may take; delete some"
	case c.files.versions+len(c.pending) >= c.m.MaxFiles:
		return fmt.Sprintf("beyond the %d versions of files that a container may have; delete some", c.m.MaxFiles)
	case c.bytes+st.size > c.left.bytes:
		return "beyond what project " + c.key.project + " may store; delete files or containers"
	case len(c.made)+len(c.pending) >= c.left.files:
		return "beyond the number of files that project " + c.key.project + " may store; delete some"
	case c.space != nil:
		return "refused because the server's disk is nearly full"
	}
	return ""
}

var errChanging = errors.New("container: file changes while it is read")

// read stages a file. One that changes meanwhile is tried twice more.
func (c *capture) read(ctx context.Context, p string) (*blob.Staged, stamp, error) {
	for range 3 {
		staged, st, err := c.readOnce(ctx, p)
		if !errors.Is(err, errChanging) && !errors.Is(err, blob.ErrTooLarge) {
			return staged, st, err
		}
	}
	return nil, stamp{}, errChanging
}

func (c *capture) readOnce(ctx context.Context, p string) (*blob.Staged, stamp, error) {
	f, before, err := openRegular(c.files.vol.data, p)
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	staged, err := c.m.Blobs.Stage(ctx, f, min(before.size, c.m.MaxFile))
	if err != nil {
		return nil, stamp{}, err
	}
	info, err := f.Stat()
	if err == nil && (stampOf(info) != before || staged.Size != before.size) {
		err = errChanging
	}
	if err != nil {
		staged.Discard()
		return nil, stamp{}, err
	}
	return staged, before, nil
}

// flush keeps what is pending, all in one transaction.
func (c *capture) flush(ctx context.Context) error {
	if len(c.pending) == 0 {
		return nil
	}
	batch := c.pending
	c.pending, c.waiting = nil, 0
	staged, rows := make([]*blob.Staged, len(batch)), make([]store.File, len(batch))
	for i, p := range batch {
		staged[i], rows[i] = p.staged, p.row
		defer p.staged.Discard()
	}
	if err := c.m.uploads.keep(ctx, staged, rows); err != nil {
		return fmt.Errorf("keep files of %s: %w", c.key.id, err)
	}
	for _, p := range batch {
		c.files.history += p.row.Bytes
		c.files.versions++
		c.files.remember(p.path, p.stamp, p.row.ID, p.row.SHA256, c.looked)
		c.made = append(c.made, c.turnFile(p.row.ID, p.path, p.row.Bytes))
	}
	return nil
}

func (e *entry) turnFile(id, p string, bytes int64) turn.File {
	return turn.File{ID: id, Container: e.key.id, Path: dataMount + "/" + p, Name: path.Base(p), Bytes: bytes}
}

// skipped collects files that were not kept, by reason.
type skipped struct {
	reasons []string
	byWhy   map[string][]string
}

func (s *skipped) add(why, p string) {
	if s.byWhy == nil {
		s.byWhy = map[string][]string{}
	}
	if s.byWhy[why] == nil {
		s.reasons = append(s.reasons, why)
	}
	s.byWhy[why] = append(s.byWhy[why], p)
}

// notes puts into words what was left out, with three names a reason.
func (s *skipped) notes(notes []string) []string {
	for _, why := range s.reasons {
		files := s.byWhy[why]
		var names []string
		for _, f := range files[:min(3, len(files))] {
			names = append(names, fmt.Sprintf("%q", cut(f, 100)))
		}
		more := ""
		if n := len(files) - len(names); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		notes = append(notes, "these files were not offered for download ("+why+"): "+strings.Join(names, ", ")+more)
	}
	return notes
}
