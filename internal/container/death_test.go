package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// mortal is a store whose process can die: from then on it writes nothing. die is asked before and after each edit of a container's row.
type mortal struct {
	store.Store
	mu   sync.Mutex
	die  func(after bool, was, is store.Container) bool
	dead bool
}

var errDead = errors.New("the process has been killed")

func (m *mortal) Containers() store.Containers { return mortalContainers{m.Store.Containers(), m} }
func (m *mortal) Files() store.Files           { return mortalFiles{m.Store.Files(), m} }

type mortalContainers struct {
	store.Containers
	m *mortal
}

type mortalFiles struct {
	store.Files
	m *mortal
}

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

func (m *mortal) isDead() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	return nil
}

// ask says whether the process dies now.
func (m *mortal) ask(after bool, was, is store.Container) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dead && m.die != nil && m.die(after, was, is) {
		m.dead = true
	}
	if m.dead {
		return errDead
	}
	return nil
}

func (c mortalContainers) Update(ctx context.Context, project, id string, fn func(*store.Container) error) (store.Container, error) {
	var was store.Container
	is, err := c.Containers.Update(ctx, project, id, func(row *store.Container) error {
		was = *row
		if err := fn(row); err != nil {
			return err
		}
		return c.m.ask(false, was, *row)
	})
	if err != nil {
		return is, err
	}
	return is, c.m.ask(true, was, is)
}

func (c mortalContainers) Create(ctx context.Context, row store.Container) error {
	if err := c.m.ask(false, store.Container{}, row); err != nil {
		return err
	}
	if err := c.Containers.Create(ctx, row); err != nil {
		return err
	}
	return c.m.ask(true, store.Container{}, row)
}

func (c mortalContainers) Delete(ctx context.Context, project, id string) error {
	if err := c.m.isDead(); err != nil {
		return err
	}
	return c.Containers.Delete(ctx, project, id)
}

func (c mortalContainers) Renew(ctx context.Context, owner string, lease time.Time) (int, error) {
	if err := c.m.isDead(); err != nil {
		return 0, err
	}
	return c.Containers.Renew(ctx, owner, lease)
}

func (f mortalFiles) Create(ctx context.Context, rows ...store.File) error {
	if err := f.m.isDead(); err != nil {
		return err
	}
	return f.Files.Create(ctx, rows...)
}

func (f mortalFiles) Delete(ctx context.Context, project, id string) error {
	if err := f.m.isDead(); err != nil {
		return err
	}
	return f.Files.Delete(ctx, project, id)
}

func (f mortalFiles) DeleteContainer(ctx context.Context, project, container string) ([]store.File, error) {
	if err := f.m.isDead(); err != nil {
		return nil, err
	}
	return f.Files.DeleteContainer(ctx, project, container)
}

// process is a Manager that can be killed.
type process struct {
	*bench
	life *mortal
}

func (s *shared) process(edit func(*Config)) *process {
	s.t.Helper()
	life := &mortal{Store: s.cfg.Store}
	return &process{s.manager(func(c *Config) {
		c.Store = life
		if edit != nil {
			edit(c)
		}
	}), life}
}

// kill ends the process as SIGKILL does, as far as the store, the lock and the sandboxes are concerned. Its mounts go with it here, since
// nothing else would take back what this process holds of them.
func (p *process) kill() {
	p.t.Helper()
	p.life.kill()
	must(p.t, p.alive.Close())
	p.backend.Close()
	p.DrainTime = time.Millisecond
	p.Close()
	must(p.t, os.WriteFile(p.alive.Name(), nil, 0o600)) // a process that is killed leaves its file
}

// countCode keeps the variable n and the file n the same, if nothing is lost.
const countCode = "try: n += 1\nexcept NameError: n = int(open('n').read()) + 1 if __import__('os').path.exists('n') else 1\nopen('n', 'w').write(str(n))\nprint(n)"

// TestDeathInEveryState kills the process before and after each state that it writes, and lets another one go on. Whatever happened, no
// file is lost that a client has seen, and a variable is as new as the files or gone, of which the client is told.
func TestDeathInEveryState(t *testing.T) {
	t.Parallel()
	type point struct {
		from, to string
		after    bool
	}
	var points []point
	for _, step := range [][2]string{
		{store.StateIdle, store.StateLive}, {store.StateLive, store.StateHibernating}, {store.StateHibernating, store.StateHibernated},
		{store.StateHibernated, store.StateResuming}, {store.StateResuming, store.StateLive}, {store.StateLive, store.StateIdle},
		{"", store.StateCreating}, {store.StateCreating, store.StateHibernated}, {store.StateHibernated, store.StateDeleted},
	} {
		points = append(points, point{step[0], step[1], false}, point{step[0], step[1], true})
	}
	for _, at := range points {
		when := "before"
		if at.after {
			when = "after"
		}
		t.Run(fmt.Sprintf("%s %s to %s", when, at.from, at.to), func(t *testing.T) {
			t.Parallel()
			s := newShared(t)
			p := s.process(nil)
			p.life.die = func(after bool, was, is store.Container) bool {
				return after == at.after && was.State == at.from && is.State == at.to
			}
			acked, deleted := p.live(t)
			p.kill()
			if p.life.isDead() == nil {
				t.Fatal("it never came to that")
			}
			survive(t, s, p, acked, deleted)
		})
	}
}

// live does one of everything until the process dies. acked is the last number that a client has seen of each container, deleted the one
// that a client wanted to be deleted.
func (p *process) live(t *testing.T) (acked map[string]int, deleted string) {
	t.Helper()
	ctx := auth.WithPrincipal(context.Background(), auth.Principal{Project: "p"})
	acked = map[string]int{}
	call := func(id string) bool {
		w, err := p.Open(ctx, &turn.Hosted{Container: id})
		if err != nil {
			return false
		}
		defer w.Close()
		out, err := w.Run(ctx, tool.Call{Tool: tool.Python, Code: countCode}, nil)
		if err != nil {
			return false
		}
		n := 0
		fmt.Sscan(text(out), &n)
		if n > 0 {
			acked[id] = n
		}
		return p.life.isDead() == nil
	}
	park := func(id string) {
		for _, e := range p.all() {
			if e.key.id == id {
				eventually(t, "the container is idle", func() bool { return e.park(time.Now()) || !p.uses(id) })
			}
		}
		eventually(t, "the container lies down", func() bool { return !p.uses(id) })
	}
	c, err := p.Create(ctx, NewContainer{Name: "counter"})
	if err != nil {
		return acked, ""
	}
	for range 2 {
		for range 2 {
			if !call(c.ID) {
				return acked, ""
			}
		}
		park(c.ID)
	}
	fork, err := p.Fork(ctx, c.ID, NewFork{})
	if err == nil {
		acked[fork.ID] = acked[c.ID]
	}
	if p.life.isDead() != nil || !call(fork.ID) {
		return acked, ""
	}
	p.backend.last().Close() // from live to idle
	eventually(t, "the sandbox is gone", func() bool { return !p.uses(fork.ID) })
	if p.life.isDead() != nil {
		return acked, ""
	}
	if p.Delete(ctx, c.ID) == nil {
		delete(acked, c.ID)
	}
	return acked, c.ID
}

// survive is the next process.
func survive(t *testing.T, s *shared, dead *process, acked map[string]int, deleted string) {
	t.Helper()
	b := s.manager(nil)
	rows := map[string]store.Container{}
	must(t, b.Store.Containers().All(t.Context(), func(c store.Container) error {
		rows[c.ID] = c
		if c.State != store.StateIdle && c.State != store.StateHibernated || c.Owner != "" {
			t.Errorf("after the death: %+v", c)
		}
		return nil
	}))
	for id, n := range acked {
		row, ok := rows[id]
		if !ok {
			if id != deleted {
				t.Errorf("container %s is lost", id)
			}
			continue
		}
		w := b.open(turn.Hosted{Container: id})
		out := text(python(t, w, "print('n' in dir() and n, open('n').read())"))
		notes := w.Notes()
		var variable string
		file := 0
		fmt.Sscan(out, &variable, &file)
		if file < n || file > n+1 {
			t.Errorf("the client has seen %d, the file has %d", n, file)
		}
		switch {
		case variable == fmt.Sprint(file):
			if len(notes) > 0 {
				t.Errorf("nothing is lost, and notes say %q", notes)
			}
		case variable != "False":
			t.Errorf("the variable is %s, the file %d: %+v", variable, file, row)
		case len(notes) != 1:
			t.Errorf("the variable is lost, and notes say %q", notes)
		case row.State == store.StateHibernated:
			t.Errorf("memory was lost of %+v", row)
		}
		must(t, w.Close())
	}
	must(t, b.Close())
	left, err := filepath.Glob(filepath.Join(s.cfg.Dir, "cntr_*"))
	must(t, err)
	for _, dir := range left {
		if _, ok := rows[filepath.Base(dir)]; !ok {
			t.Errorf("left: %s", dir)
		}
		images, err := os.ReadDir(filepath.Join(dir, "memory"))
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(images) > 1 {
			t.Errorf("images of %s: %v, %v", dir, images, err)
		}
	}
	if owners, err := os.ReadDir(filepath.Join(s.cfg.Dir, owners)); err != nil || len(owners) > 0 {
		t.Errorf("owners: %v, %v", owners, err)
	}
}

// Two processes over one database and one folder: what one has is not the other's until it dies.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	first := s.process(nil)
	w := first.open(turn.Hosted{Session: "s"})
	python(t, w, "x = 1\nopen('f', 'w').write('kept')")
	sleeping := first.open(turn.Hosted{Session: "t"})
	python(t, sleeping, "y = 'slept'")
	first.sleep(sleeping)

	second := s.manager(nil) // reconciles: nothing of the first is touched
	wantText(t, python(t, w, "print(x, open('f').read())"), "1 kept\n")
	id := w.Container().ID
	_, err := second.Open(as(t, "p"), &turn.Hosted{Container: id})
	if err == nil {
		other, _ := second.Open(as(t, "p"), &turn.Hosted{Container: id})
		_, err = other.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
	}
	wantKind(t, "a container of another process", err, turn.KindOverloaded, "another server")
	wantKind(t, "its deletion", second.Delete(as(t, "p"), id), turn.KindOverloaded, "another server")
	_, err = second.Fork(as(t, "p"), id, NewFork{})
	wantKind(t, "its fork", err, turn.KindOverloaded, "another server")
	// One that nobody has is either's.
	again := second.open(turn.Hosted{Session: "t"})
	wantText(t, python(t, again, "print(y)"), "slept\n")
	must(t, again.Close(), second.tidy(t.Context(), time.Now()))
	wantText(t, python(t, w, "print(x)"), "1\n")

	first.kill()
	w = second.open(turn.Hosted{Session: "s"})
	if w.Container().ID != id {
		t.Errorf("the session has another container")
	}
	wantText(t, python(t, w, "print('x' in dir(), open('f').read())"), "False kept\n")
	wantNotes(t, w, noteRestarted)
}

// An owner on another machine has no file here: its lease decides.
func TestLease(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.open(turn.Hosted{})
	python(t, w, "x = 1")
	b.sleep(w)
	id := w.Container().ID
	put := func(lease time.Time) {
		_, err := b.Store.Containers().Update(t.Context(), "p", id, func(c *store.Container) error {
			c.Owner, c.Lease, c.State = turn.NewID("own_"), lease, store.StateLive
			return nil
		})
		must(t, err)
	}
	put(time.Now().Add(time.Hour))
	w = b.open(turn.Hosted{Container: id})
	_, err := w.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
	wantKind(t, "while the lease runs", err, turn.KindOverloaded, "another server")
	if turn.AsError(err).RetryAfter == 0 {
		t.Error("no Retry-After")
	}
	must(t, b.tidy(t.Context(), time.Now()))
	put(time.Now().Add(-time.Second))
	must(t, w.Close())
	eventually(t, "the container is taken over", func() bool {
		must(t, b.tidy(t.Context(), time.Now()))
		row := b.row(w)
		return row.State == store.StateIdle && row.Owner == "" && row.Memory.ID == ""
	})
	w = b.wake(w)
	wantText(t, python(t, w, "print('x' in dir())"), "False\n")
	wantNotes(t, w, noteRestarted)
	row := b.row(w)
	if row.Owner != b.owner || time.Until(row.Lease) > leaseTime || time.Until(row.Lease) < 0 {
		t.Errorf("row %+v", row)
	}
}
