package container

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// maxFileIDs is what the hosted service takes in one request.
const maxFileIDs = 50

// Check implements tool.Workspaces.
func (m *Manager) Check(ctx context.Context, h *turn.Hosted) ([]turn.File, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, err
	}
	if h.Container != "" {
		if _, err := m.lookup(ctx, project, h.Container); err != nil {
			return nil, err
		}
	}
	if err := m.checkMemory("container.memory_limit", h.MemoryLimit); err != nil {
		return nil, err
	}
	if _, err := m.network("container.network_policy", h.Network); err != nil {
		return nil, err
	}
	uploads, err := m.checkFiles(ctx, "container.file_ids", h.FileIDs)
	if err != nil || len(uploads) == 0 {
		return nil, err
	}
	return m.foresee(ctx, project, m.find(ctx, project, h), uploads)
}

// find returns the id of the container that Open will choose, "" if it will make one.
func (m *Manager) find(ctx context.Context, project string, h *turn.Hosted) string {
	id := h.Container
	if id == "" && h.Session != "" {
		row, err := m.Store.Containers().BySession(ctx, project, h.Session)
		if err != nil {
			return ""
		}
		id = row.ID
	} else if id == "" {
		id = h.Recent
	}
	if _, err := m.lookup(ctx, project, id); err != nil {
		return ""
	}
	return id
}

// foresee says where putAll will put uploads in a container ("" for a new one). It goes by the rows: a file that a program has made or
// removed since its last call can still change a number in a name.
func (m *Manager) foresee(ctx context.Context, project, id string, uploads []store.File) ([]turn.File, error) {
	taken := map[string]string{} // name -> hash of the bytes
	var out []turn.File
	for _, f := range uploads {
		name := ""
		if f.Container != "" && f.Container == id {
			name = strings.TrimPrefix(f.Path, dataMount+"/")
		} else if id != "" {
			rows, _, err := m.Store.Files().List(ctx, project, id, store.Page{Limit: 1, Origin: f.ID})
			if err != nil {
				return nil, err
			}
			if len(rows) > 0 {
				name = strings.TrimPrefix(rows[0].Path, dataMount+"/")
			}
		}
		for i := 1; name == ""; i++ {
			try := numbered(CleanName(f.Name), i)
			sum, used := taken[try]
			if !used && id != "" {
				row, err := m.Store.Files().Latest(ctx, project, id, dataMount+"/"+try)
				sum, used = row.SHA256, err == nil
			}
			if !used || sum == f.SHA256 {
				name = try
			}
		}
		taken[name] = f.SHA256
		out = append(out, turn.File{ID: f.ID, Container: id, Path: dataMount + "/" + name, Name: path.Base(name), Bytes: f.Bytes})
	}
	return out, nil
}

func (m *Manager) checkMemory(param string, bytes int64) error {
	if bytes < 0 || bytes > m.Limits.Memory {
		return turn.Invalid(param, "%s is more memory than the maximum of this server, which is %s.", size(bytes), size(m.Limits.Memory))
	}
	return nil
}

func (m *Manager) checkExpiry(param string, after time.Duration) error {
	if after < 0 || after > m.ExpireAfter {
		return turn.Invalid(param, "%d minutes is longer than the maximum of this server, which is %d minutes.",
			int64(after/time.Minute), int64(m.ExpireAfter/time.Minute))
	}
	return nil
}

func (m *Manager) checkFiles(ctx context.Context, param string, ids []string) ([]store.File, error) {
	if len(ids) > maxFileIDs {
		return nil, turn.Invalid(param, "%d files are too many: at most %d can be given at once.", len(ids), maxFileIDs)
	}
	files := make([]store.File, 0, len(ids))
	for _, id := range ids {
		f, err := m.uploads.any(ctx, id)
		if err != nil {
			return nil, withParam(err, param)
		}
		files = append(files, f)
	}
	return files, nil
}

// withParam names the field whose id was not found.
func withParam(err error, param string) error {
	e := *turn.AsError(err)
	if e.Kind == turn.KindNotFound {
		e.Param = param
	}
	return &e
}

// Open implements tool.Workspaces.
func (m *Manager) Open(ctx context.Context, h *turn.Hosted) (tool.Workspace, error) {
	if err := m.begin(); err != nil {
		return nil, err
	}
	defer m.wg.Done()
	project, err := projectOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.checkMemory("container.memory_limit", h.MemoryLimit); err != nil {
		return nil, err
	}
	network, err := m.network("container.network_policy", h.Network)
	if err != nil {
		return nil, err
	}
	e, note, err := m.choose(ctx, project, h, network)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.opens++
	e.mu.Unlock()
	w := &workspace{entry: e, outputDir: h.OutputDir, cellTime: h.CellTime}
	if note != "" {
		w.note(note)
	}
	e.touch(ctx)
	if err := m.putAll(ctx, e, "container.file_ids", h.FileIDs); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	m.hold(e) // the workspace may be closed before the sandbox is up
	m.wg.Go(func() {
		defer m.release(e)
		e.warm(m.ctx)
	})
	return w, nil
}

// warm starts the sandbox before it is needed. Whoever needs it meets the same failure, so this one is not an error.
func (e *entry) warm(ctx context.Context) {
	if _, err := e.sandbox(ctx, false); err != nil && !errors.Is(err, errNoSlot) && !e.hasEnded() && ctx.Err() == nil {
		e.m.log.WarnContext(ctx, "starting a sandbox ahead failed", "container", e.key.id, "error", err)
	}
}

// choose finds or makes the container of a request, in the order of DESIGN section 9.
func (m *Manager) choose(ctx context.Context, project string, h *turn.Hosted, network []byte) (e *entry, note string, err error) {
	switch {
	case h.Container != "":
		e, err = m.acquire(ctx, project, h.Container)
		if err == nil {
			err = e.setNamed(ctx)
		}
		if err != nil && e != nil {
			m.release(e)
		}
		return e, "", err
	case h.Session != "":
		e, err = m.bySession(ctx, project, h, network)
		return e, "", err
	case h.Recent != "":
		e, err = m.acquire(ctx, project, h.Recent)
		switch t := turn.AsError(err); {
		case t == nil && e.sameNetwork(h):
			return e, "", nil
		case t == nil:
			m.release(e)
			note = "the earlier container has another network policy: this is a new one, without its files and variables"
		case t.Kind == turn.KindNotFound || errors.Is(err, errExpired):
			note = "the earlier container is gone: this is a new one, without its files and variables"
		default:
			return nil, "", err
		}
	}
	e, err = m.make(ctx, store.Container{Project: project, Name: "auto", MemoryLimit: h.MemoryLimit, Network: network})
	return e, note, err
}

// bySession finds the container of a session, or makes it. Two requests that begin a session at once get the same one.
func (m *Manager) bySession(ctx context.Context, project string, h *turn.Hosted, network []byte) (*entry, error) {
	for range 5 {
		row, err := m.Store.Containers().BySession(ctx, project, h.Session)
		if errors.Is(err, store.ErrNotFound) {
			e, err := m.make(ctx, store.Container{
				Project: project, Name: CleanName(h.Session), Session: h.Session, Named: true, MemoryLimit: h.MemoryLimit, Network: network,
			})
			if errors.Is(err, store.ErrExists) {
				continue // another request was faster
			}
			return e, err
		}
		if err != nil {
			return nil, err
		}
		e, err := m.acquire(ctx, project, row.ID)
		if err == nil && !e.sameNetwork(h) {
			m.release(e)
			return nil, errOtherNetwork(row.ID)
		}
		if err == nil || (!errors.Is(err, errExpired) && turn.AsError(err).Kind != turn.KindNotFound) {
			return e, err
		}
		if errors.Is(err, errExpired) { // overdue, but the reaper has not come by: it holds the session still
			if err := m.expire(ctx, row); err != nil {
				return nil, err
			}
		}
	}
	return nil, errors.New("container: session is contended")
}

// make creates a container; zero values of c get their defaults.
func (m *Manager) make(ctx context.Context, c store.Container) (*entry, error) {
	if err := m.checkSpace(); err != nil {
		return nil, err
	}
	if err := m.quotas.mayStore(ctx, c.Project, 1, 0); err != nil {
		return nil, err
	}
	c.ID = turn.NewID("cntr_")
	if c.State == "" {
		c.State = store.StateIdle
	}
	c.CreatedAt = time.Now().UTC().Truncate(time.Microsecond)
	c.LastActive = c.CreatedAt
	if c.MemoryLimit == 0 {
		c.MemoryLimit = m.Limits.Memory
	}
	if c.ExpireAfter == 0 {
		c.ExpireAfter = m.ExpireAfter
	}
	if c.MemoryLimit == m.Limits.Memory {
		if s := m.pool.claim(c.Project); s != nil {
			return m.takeOver(ctx, c, s)
		}
	}
	if err := m.Store.Containers().Create(ctx, c); err != nil {
		return nil, err
	}
	return m.acquire(ctx, c.Project, c.ID)
}

// takeOver makes a container of a spare.
func (m *Manager) takeOver(ctx context.Context, c store.Container, s *spare) (*entry, error) {
	c.ID, c.State = s.vol.id, store.StateLive
	c.Owner, c.Lease = m.owner, leaseEnd(time.Now())
	e, err := m.adopt(ctx, c.Project, s)
	if err != nil {
		return nil, err
	}
	if err := m.Store.Containers().Create(ctx, c); err != nil {
		m.abandon(e, err)
		return nil, err
	}
	m.pool.forget(c.ID)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.row.ID == "" { // nobody has looked it up yet
		e.row, e.saved = c, c.LastActive
	}
	return e, nil
}

// setNamed remembers that a request has named the container.
func (e *entry) setNamed(ctx context.Context) error {
	e.mu.Lock()
	named := e.row.Named
	e.row.Named = true
	e.mu.Unlock()
	if named {
		return nil
	}
	_, err := e.m.Store.Containers().Update(ctx, e.key.project, e.key.id, func(c *store.Container) error { c.Named = true; return nil })
	if errors.Is(err, store.ErrNotFound) {
		return notFound(e.key.id)
	}
	return err
}
