package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func (b *bench) filled(n int) {
	b.t.Helper()
	eventually(b.t, "the pool is filled", func() bool { return b.Spares() == n })
}

func TestClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Pool, c.PoolMax = 2, 2 })
	if s := b.pool.claim("p"); s != nil {
		t.Error("there is a pool before StartPool")
	}
	b.StartPool()
	b.filled(2)
	b.pool.mu.Lock()
	oldest := b.pool.ready[0].vol.id
	b.pool.mu.Unlock()

	w := b.open(turn.Hosted{})
	if got := w.Container().ID; got != oldest {
		t.Errorf("the new container is %s, want the spare %s", got, oldest)
	}
	row, err := b.Store.Containers().Get(t.Context(), "p", oldest)
	must(t, err)
	if row.State != store.StateLive {
		t.Errorf("its state is %s", row.State)
	}
	out := python(t, w, "open('made', 'w').write('kept')\nx = 1")
	if got := names(out.Files); !slices.Equal(got, []string{"made"}) {
		t.Errorf("files %q", got)
	}
	b.filled(2)
	b.slots.mu.Lock()
	if p, spares := b.slots.by["p"], b.slots.by[noProject]; p == nil || p.live != 1 || spares.live != 2 || b.slots.live != 3 {
		t.Errorf("places: %+v", b.slots.by)
	}
	b.slots.mu.Unlock()

	f := b.upload("a.csv", "1,2")
	made, err := b.Create(as(t, "p"), NewContainer{Name: "named", FileIDs: []string{f.ID}})
	must(t, err)
	if got := text(python(t, b.open(turn.Hosted{Container: made.ID}), "print(open('a.csv').read())")); got != "1,2\n" {
		t.Errorf("a spare that was given a file: %q", got)
	}
	started := b.backend.started.Load()
	other := b.open(turn.Hosted{MemoryLimit: 512 << 20})
	python(t, other, "1")
	if b.pool.has(other.Container().ID) || b.backend.started.Load() == started {
		t.Error("a container with limits of its own took a spare")
	}

	// The sandbox dies: files stay, as with any other.
	b.entry("p", oldest).freeSandbox()
	eventually(t, "it is gone", func() bool { return !b.isLive(oldest) })
	if got := text(python(t, w, "print('x' in dir(), open('made').read())")); got != "False kept\n" {
		t.Errorf("after its sandbox ended: %q", got)
	}
}

func (b *bench) entry(project, id string) *entry {
	b.Manager.mu.Lock()
	defer b.Manager.mu.Unlock()
	return b.entries[entryKey{project, id}]
}

func (b *bench) isLive(id string) bool {
	e := b.entry("p", id)
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live != nil
}

// No spare goes to two containers, and none is lost.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Pool, c.PoolMax, c.MaxLive, c.PlainVolumes = 6, 6, 100, true })
	b.StartPool()
	b.filled(6)
	var mu sync.Mutex
	seen := map[string]bool{}
	var racers sync.WaitGroup
	for range 24 {
		racers.Go(func() {
			row, err := b.Create(as(t, "p"), NewContainer{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[row.ID] {
				t.Errorf("container %s twice, or %v", row.ID, err)
			}
			seen[row.ID] = true
		})
	}
	racers.Wait()
	b.filled(6)
	live := map[sandbox.Sandbox]string{}
	for _, e := range b.all() {
		e.mu.Lock()
		if e.live != nil {
			if other := live[e.live.Sandbox]; other != "" {
				t.Errorf("%s and %s share a sandbox", other, e.key.id)
			}
			live[e.live.Sandbox] = e.key.id
		}
		e.mu.Unlock()
	}
	b.slots.mu.Lock()
	defer b.slots.mu.Unlock()
	if n := b.slots.by["p"].live; n != len(live) || len(live) < 6 || b.slots.live != n+6 {
		t.Errorf("%d places of the project, %d sandboxes, %d in all", n, len(live), b.slots.live)
	}
}

// Spares have their places only until somebody needs them, and nothing of one that was given up stays.
func TestSparesGiveWay(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Pool, c.PoolMax, c.MaxLive, c.SlotWait = 2, 2, 2, patience })
	b.StartPool()
	b.filled(2)
	one, two := b.open(turn.Hosted{MemoryLimit: 512 << 20}), b.open(turn.Hosted{MemoryLimit: 512 << 20})
	python(t, one, "1")
	python(t, two, "1")
	if n := b.Spares(); n != 0 {
		t.Errorf("%d spares on a full machine", n)
	}
	eventually(t, "the folders of the spares are gone", func() bool {
		dirs, err := filepath.Glob(filepath.Join(b.Dir, "cntr_*"))
		return err == nil && len(dirs) == 2
	})
	must(t, one.Close(), b.Delete(as(t, "p"), one.Container().ID))
	b.filled(1)
}

func TestSpareThatDies(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Pool, c.PoolMax = 1, 1 })
	b.StartPool()
	b.filled(1)
	b.pool.mu.Lock()
	dead := b.pool.ready[0]
	b.pool.mu.Unlock()
	must(t, dead.sandbox.Close())
	eventually(t, "it is replaced", func() bool {
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		return len(b.pool.ready) == 1 && b.pool.ready[0] != dead
	})
	eventually(t, "nothing of it stays", func() bool {
		_, err := os.Stat(filepath.Join(b.Dir, dead.vol.id))
		return errors.Is(err, os.ErrNotExist) && !b.pool.has(dead.vol.id)
	})
}

// A project that is at its limit gets no spare, and a session that two requests begin at once no second container.
func TestClaimIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) {
		c.Pool, c.PoolMax, c.PerProject = 2, 2, ProjectLimits{Live: 1}
	})
	b.StartPool()
	b.filled(2)
	w := b.open(turn.Hosted{Session: "s"})
	python(t, w, "1")
	b.filled(2)
	row, err := b.Create(as(t, "p"), NewContainer{})
	must(t, err)
	if row.State != store.StateIdle || b.Spares() != 2 {
		t.Errorf("a container past the limit is %s, %d spares are left", row.State, b.Spares())
	}
	second := b.open(turn.Hosted{Container: row.ID})
	_, err = second.Run(t.Context(), tool.Call{Tool: tool.Python, Code: "1"}, nil)
	wantKind(t, "past the limit of live containers", err, turn.KindRateLimited, `project "p" may have 1 live containers (its limit "live")`)
	must(t, w.Close()) // idle from now on: it makes way
	python(t, second, "1")

	e, err := b.make(as(t, "q"), store.Container{Project: "q", Session: "same"})
	must(t, err)
	b.release(e)
	b.filled(2)
	if _, err := b.make(as(t, "q"), store.Container{Project: "q", Session: "same"}); !errors.Is(err, store.ErrExists) {
		t.Errorf("a session that exists: %v", err)
	}
	b.filled(2)
}

// kill -9: the volumes of spares have no row.
func TestSparesLeftBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := turn.NewID("cntr_")
	vol, err := b.volumes.mount(t.Context(), id)
	must(t, err)
	must(t, vol.data.Close()) // as the end of a process does
	must(t, b.Reconcile(t.Context()))
	if _, err := os.Stat(filepath.Join(b.Dir, id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the spare's folder is still there: %v", err)
	}
}

func TestPoolEndsWithTheManager(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Pool, c.PoolMax = 3, 3 })
	b.StartPool()
	eventually(t, "a spare is there", func() bool { return b.Spares() > 0 })
	must(t, b.Close())
	dirs, err := filepath.Glob(filepath.Join(b.Dir, "cntr_*"))
	if err != nil || len(dirs) != 0 || b.slots.live != 0 || b.Spares() != 0 {
		t.Errorf("left: %q, %d places, %d spares, %v", dirs, b.slots.live, b.Spares(), err)
	}
}

// Close may come while the image is still being prepared: no spare is started then.
func TestPoolThatBeginsTooLate(t *testing.T) {
	t.Parallel()
	slow := &slowPrepare{begun: make(chan struct{}), end: make(chan struct{})}
	b := newBench(t, func(c *Config) {
		slow.Backend = c.Backend
		c.Pool, c.Backend, c.DrainTime = 1, slow, patience
	})
	w := b.open(turn.Hosted{}) // Close waits for it
	b.StartPool()
	<-slow.begun
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	eventually(t, "the pool is closed", func() bool {
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		return b.pool.closed
	})
	close(slow.end)
	must(t, w.Close(), <-closed)
	if b.Spares() != 0 || b.slots.live != 0 || len(b.pool.ids) != 0 {
		t.Errorf("%d spares, %d places", b.Spares(), b.slots.live)
	}
}

type slowPrepare struct {
	sandbox.Backend
	begun, end chan struct{}
}

func (s *slowPrepare) Prepare(context.Context, string) error {
	close(s.begun)
	<-s.end
	return nil
}

// A backend that cannot start anything is asked less and less often.
func TestPoolWithoutBackend(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Pool, c.PoolMax = 1, 1 })
	b.backend.mu.Lock()
	b.backend.refuse = errors.New("no")
	b.backend.mu.Unlock()
	if took, err := b.pool.add(t.Context()); err == nil || took != 0 {
		t.Fatalf("a start that fails: %v, %v", took, err)
	}
	dirs, err := filepath.Glob(filepath.Join(b.Dir, "cntr_*"))
	if err != nil || len(dirs) != 0 || b.slots.live != 0 || len(b.pool.ids) != 0 {
		t.Errorf("left: %q, %d places, %v, %v", dirs, b.slots.live, b.pool.ids, err)
	}
}

func TestPoolSize(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	s := poolSize{least: 2, most: 9, target: 2, calmSince: now}
	var got []int
	for range 4 {
		s.missed(now)
		got = append(got, s.target)
	}
	for range 9 {
		s.shrink(now.Add(calmTime / 2))
		now = now.Add(calmTime)
		s.shrink(now)
		got = append(got, s.target)
	}
	if want := []int{4, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("targets %v, want %v", got, want)
	}
	s = poolSize{least: 1, most: 3, target: 1}
	s.missed(now)
	if s.target != 2 {
		t.Errorf("from one spare to %d", s.target)
	}
}

// BenchmarkClaim is a new container from the pool, its row included; the sandbox is a stub.
func BenchmarkClaim(b *testing.B) {
	bench := newBench(b, func(c *Config) {
		c.Pool, c.PoolMax, c.MaxLive, c.MaxMemory, c.PlainVolumes, c.Backend = 1, 1, 1<<30, 1<<60, true, stubBackend{}
	})
	bench.pool.on = true
	ctx := as(b, "p")
	for b.Loop() {
		b.StopTimer()
		if _, err := bench.pool.add(ctx); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		e, err := bench.make(ctx, store.Container{Project: "p"})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		bench.release(e)
		b.StartTimer()
	}
}

// stubBackend starts nothing at all.
type stubBackend struct{ sandbox.Backend }

func (stubBackend) Start(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return &stubSandbox{done: make(chan struct{})}, nil
}

type stubSandbox struct {
	sandbox.Sandbox
	once sync.Once
	done chan struct{}
}

func (s *stubSandbox) Done() <-chan struct{} { return s.done }

func (s *stubSandbox) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}
