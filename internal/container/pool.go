package container

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// noProject holds the places of spares.
const noProject = ""

// pool keeps spare containers: an id that nobody knows, a fresh volume, and a sandbox that is up on it. A new container with the default
// limits takes one over. A spare has a place among the live sandboxes only until somebody needs it: who waits for a place gets that of a
// spare first. One spare is started at a time, and none while others wait or start.
type pool struct {
	m *Manager
	// starting is how many sandboxes of real containers are being started.
	starting atomic.Int32

	mu     sync.Mutex
	on     bool // the image is prepared, and Close was not called
	closed bool
	ready  []*spare
	ids    map[string]bool // of spares, also while they are made, taken over or removed
	size   poolSize
	wanted chan struct{} // has a token when there may be something to do
}

// spare is a container that has no row yet. taken is closed when it leaves the pool, whatever for.
type spare struct {
	vol     *volume
	sandbox sandbox.Sandbox
	taken   chan struct{}
}

// poolSize is how many spares there are to be. It doubles when one was missing, and shrinks by one for each calm minute.
type poolSize struct {
	least, most, target int
	calmSince           time.Time
}

const (
	calmTime = time.Minute
	// settle is how long the first call of a container has the machine to itself before the next spare is started.
	settle = 100 * time.Millisecond
	// lookEvery is when the pool looks for room by itself; longestPause is how long it leaves off after starts that failed.
	lookEvery    = time.Second
	longestPause = time.Minute
)

func (s *poolSize) missed(now time.Time) {
	s.target = min(s.most, max(2*s.target, s.target+1))
	s.calmSince = now
}

func (s *poolSize) shrink(now time.Time) {
	if s.target > s.least && now.Sub(s.calmSince) >= calmTime {
		s.target--
		s.calmSince = now
	}
}

func newPool(m *Manager) *pool {
	return &pool{
		m: m, ids: map[string]bool{}, wanted: make(chan struct{}, 1),
		size: poolSize{least: m.Pool, most: m.PoolMax, target: m.Pool},
	}
}

// StartPool prepares the images and then keeps spare containers ready, both in the background, until Close. Call it once, after Reconcile,
// when requests are being served. Without it there is no pool.
func (m *Manager) StartPool() {
	if m.begin() != nil {
		return
	}
	go func() {
		defer m.wg.Done()
		m.prepare()
		if m.Pool > 0 {
			m.pool.run(m.ctx)
		}
	}()
}

// Spares is how many spare containers are ready.
func (m *Manager) Spares() int {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return len(m.pool.ready)
}

func (m *Manager) prepare() {
	images := []string{""} // the default one first: spares wait for it
	for _, dir := range slices.Sorted(maps.Values(m.Images)) {
		if !slices.Contains(images, dir) {
			images = append(images, dir)
		}
	}
	for _, dir := range images {
		began := time.Now()
		err := m.Backend.Prepare(m.ctx, dir)
		switch {
		case m.ctx.Err() != nil || errors.Is(err, sandbox.ErrUnavailable):
		case err != nil:
			m.log.Error("preparing the image failed: new containers start slowly", "image", dir, "error", err)
		default:
			m.log.Info("image prepared", "image", dir, "took", time.Since(began).Round(time.Millisecond))
		}
	}
}

func (p *pool) run(ctx context.Context) {
	p.mu.Lock()
	p.on = !p.closed
	p.size.calmSince = time.Now()
	p.mu.Unlock()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var pause time.Duration
	for began, full := time.Now(), false; ctx.Err() == nil && p.isOn(); {
		if p.lacks() {
			took, err := p.add(ctx)
			switch {
			case err == nil:
				pause = 0
				if p.m.busy() {
					pause = took // half of the time is the running code's
				}
			case errors.Is(err, errNoSlot):
				pause = lookEvery
			case ctx.Err() == nil:
				pause = min(longestPause, max(lookEvery, 2*pause))
				p.m.log.Warn("a spare container could not be started", "error", err, "next_try_in", pause)
			}
			sleep(ctx, pause)
			continue
		}
		if !full && p.full() {
			full = true
			p.m.log.Info("pool of spare containers filled", "spares", p.m.Pool, "took", time.Since(began).Round(time.Millisecond))
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
			p.shrink()
		case <-p.wanted:
			sleep(ctx, settle)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (p *pool) isOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on
}

func (p *pool) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready) >= p.size.target
}

// lacks says whether another spare is to be started now.
func (p *pool) lacks() bool {
	return !p.full() && p.starting.Load() == 0 && p.m.slots.waiting() == 0 && p.m.checkSpace() == nil
}

// add starts one spare if there is room for it.
func (p *pool) add(ctx context.Context) (took time.Duration, err error) {
	m := p.m
	if err := m.slots.acquire(ctx, noProject, m.Limits.Memory, false); err != nil {
		return 0, err
	}
	began := time.Now()
	id := turn.NewID("cntr_")
	p.mu.Lock()
	p.ids[id] = true
	p.mu.Unlock()
	s, err := p.start(ctx, id)
	if err != nil {
		m.slots.release(noProject, m.Limits.Memory)
		p.forget(id)
		return 0, err
	}
	p.mu.Lock()
	on := p.on
	if on {
		p.ready = append(p.ready, s)
	}
	p.mu.Unlock()
	if !on {
		p.discard(s, noProject)
		return 0, errClosing
	}
	m.wg.Go(func() { p.watch(s) })
	return time.Since(began), nil
}

func (p *pool) start(ctx context.Context, id string) (*spare, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	m := p.m
	vol, err := m.volumes.mount(ctx, id)
	if err != nil {
		return nil, errors.Join(err, m.volumes.remove(id))
	}
	var sb sandbox.Sandbox
	err = os.WriteFile(m.volumes.spareOf(id), []byte(m.owner), 0o600)
	if err == nil {
		sb, err = m.Backend.Start(ctx, m.spec(vol, noProject, m.Limits.Memory))
	}
	if err != nil {
		return nil, errors.Join(err, m.volumes.unmount(vol), m.volumes.remove(id))
	}
	return &spare{vol: vol, sandbox: sb, taken: make(chan struct{})}, nil
}

// watch replaces a spare whose sandbox ends.
func (p *pool) watch(s *spare) {
	select {
	case <-s.taken:
		return
	case <-s.sandbox.Done():
	}
	p.mu.Lock()
	here := p.take(s)
	p.mu.Unlock()
	if here {
		p.m.log.Warn("the sandbox of a spare container ended", "container", s.vol.id)
		p.discard(s, noProject)
		p.poke()
	}
}

// take removes s from the pool, of which p.mu is held. False says that somebody else has done so.
func (p *pool) take(s *spare) bool {
	i := slices.Index(p.ready, s)
	if i < 0 {
		return false
	}
	p.ready = slices.Delete(p.ready, i, i+1)
	close(s.taken)
	return true
}

// claim hands out a spare together with its place, nil if there is none for this project: spares have the default image. Each goes to one caller only, who calls forget
// when the row is made.
func (p *pool) claim(project string) *spare {
	if p.m.Images[project] != "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on {
		return nil
	}
	defer p.poke()
	for _, s := range p.ready {
		if isDone(s.sandbox.Done()) {
			continue // watch is about to remove it
		}
		if !p.m.slots.move(noProject, project, p.m.Limits.Memory) {
			return nil
		}
		p.take(s)
		return s
	}
	p.size.missed(time.Now())
	return nil
}

// giveUp begins to end a spare, so that its place comes free.
func (p *pool) giveUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) == 0 {
		return false
	}
	s := p.ready[len(p.ready)-1]
	p.take(s)
	p.m.wg.Go(func() { p.discard(s, noProject) })
	return true
}

// discard ends a spare that is no longer in the pool and removes what it had. Its place is the holder's.
func (p *pool) discard(s *spare, holder string) {
	m := p.m
	err := s.sandbox.Close()
	m.slots.release(holder, m.Limits.Memory)
	if err = errors.Join(err, m.volumes.unmount(s.vol), m.volumes.remove(s.vol.id)); err != nil {
		m.log.Error("removing a spare container failed", "container", s.vol.id, "error", err)
	}
	p.forget(s.vol.id)
}

// has says whether an id is that of a spare, so that its folder is no stray.
func (p *pool) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ids[id]
}

func (p *pool) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ids, id)
}

func (p *pool) shrink() {
	p.mu.Lock()
	p.size.shrink(time.Now())
	surplus := len(p.ready) > p.size.target
	p.mu.Unlock()
	if surplus {
		p.giveUp()
	}
}

// poke has run look.
func (p *pool) poke() {
	select {
	case p.wanted <- struct{}{}:
	default:
	}
}

// close ends all spares and lets no new one in.
func (p *pool) close() {
	p.mu.Lock()
	p.on, p.closed = false, true
	p.mu.Unlock()
	for p.giveUp() {
	}
	p.poke() // run ends
}

// adopt makes the entry of a new container that takes a spare over. It comes before the row, so that nobody finds the container without
// its sandbox. Whoever gets it calls release, or abandon if the row cannot be made.
func (m *Manager) adopt(ctx context.Context, project string, s *spare) (*entry, error) {
	e, err := m.reference(ctx, entryKey{project, s.vol.id})
	if err != nil { // closing
		m.pool.discard(s, project)
		return nil, err
	}
	l := &live{Sandbox: s.sandbox, memory: m.Limits.Memory, skills: map[string]heldSkill{}, freed: make(chan struct{})}
	e.files.mu.Lock()
	e.files.vol, e.files.known = s.vol, map[string]known{} // a fresh volume
	e.files.hidden, e.files.gone = map[string]removal{}, map[string]bool{}
	e.files.mu.Unlock()
	m.hold(e) // the sandbox's own
	e.mu.Lock()
	e.live, e.owned = l, true
	e.mu.Unlock()
	m.wg.Go(func() { e.watch(l) })
	return e, nil
}

// abandon ends a container that never was.
func (m *Manager) abandon(e *entry, why error) {
	e.end(why)
	m.release(e)
	m.pool.forget(e.key.id)
}
