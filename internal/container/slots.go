package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// slots shares the places of this machine's live sandboxes among projects: there are so many, and their memory limits have a sum. Who finds
// none waits. Places that come free go round robin over the projects that wait, and in order of arrival within each, so that a thousand
// requests of one do not keep another from its next. Nothing that runs loses its place; what is idle is freed for who waits.
type slots struct {
	maxLive   int
	maxMemory int64
	wait      time.Duration
	limits    func(project string) ProjectLimits // none for spares
	// evict begins to free something idle, of one project or, with "", of any; false says that there is nothing.
	evict func(project string) bool

	mu    sync.Mutex
	live  int
	bytes int64
	by    map[string]*holder
	// going is how many of what is idle is on its way out for those who wait.
	going int
	// ring are the projects with waiters; the next one to get a place is first.
	ring []*holder
}

// holder is a project that has places or waits for some.
type holder struct {
	project string
	live    int
	bytes   int64
	waiters []*waiter // in order of arrival
	going   int       // as slots.going, for waiters that only the project's own limit keeps waiting
}

type waiter struct {
	bytes   int64
	granted chan struct{}
}

func newSlots(cfg *Config, evict func(project string) bool) *slots {
	return &slots{
		maxLive: cfg.MaxLive, maxMemory: cfg.MaxMemory, wait: cfg.SlotWait, limits: cfg.limitsOf, evict: evict, by: map[string]*holder{},
	}
}

// errNoSlot is for those who do not wait.
var errNoSlot = errors.New("container: no free slot for a sandbox")

// acquire takes a place for a sandbox with that memory limit. With patient false it does not wait: errNoSlot says that none was free.
// A project that is at its own limit gets a *turn.Error at once, unless something idle of its own can be freed.
func (s *slots) acquire(ctx context.Context, project string, bytes int64, patient bool) error {
	s.mu.Lock()
	h := s.holder(project)
	if s.take(h, bytes) {
		s.mu.Unlock()
		return nil
	}
	if !patient {
		s.forget(h)
		s.mu.Unlock()
		return errNoSlot
	}
	if len(h.waiters) == 0 {
		s.ring = append(s.ring, h)
	}
	w := &waiter{bytes: bytes, granted: make(chan struct{})}
	h.waiters = append(h.waiters, w)
	reached := s.own(h, bytes)
	s.mu.Unlock()
	if freed := s.ease(h); reached != nil && !freed && s.leave(h, w) {
		return reached
	}
	return s.await(ctx, h, w)
}

// ease has as much that is idle go as there are waiters whom that can help: any for those whom the machine keeps waiting, h's own for
// those of h that its limit does. It says whether the first of h has something to wait for: false is the project's own limit, and nothing idle.
func (s *slots) ease(h *holder) bool {
	s.mu.Lock()
	waits := 0
	for _, other := range s.ring {
		if s.own(other, other.waiters[0].bytes) == nil {
			waits += len(other.waiters)
		}
	}
	anyones := waits > s.going
	if anyones {
		s.going++
	}
	limited := len(h.waiters) > 0 && s.own(h, h.waiters[0].bytes) != nil
	more := limited && len(h.waiters) > h.going
	if more {
		h.going++
	}
	s.mu.Unlock()
	none := anyones && !s.evict("")
	noneOwn := more && !s.evict(h.project)
	s.mu.Lock()
	defer s.mu.Unlock()
	if none {
		s.going = max(0, s.going-1)
	}
	if noneOwn {
		h.going = max(0, h.going-1)
	}
	return !limited || !noneOwn
}

func (s *slots) await(ctx context.Context, h *holder, w *waiter) error {
	waitCtx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	select {
	case <-w.granted:
		return nil
	case <-waitCtx.Done():
	}
	if !s.leave(h, w) {
		return nil // granted at the same moment
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.own(h, w.bytes); err != nil {
		return err
	}
	return s.full(w.bytes)
}

// full is what is said when the machine has no place, by which of its limits.
func (s *slots) full(bytes int64) error {
	e := &turn.Error{
		Kind: turn.KindOverloaded, RetryAfter: 10 * time.Second, Cause: errNoSlot,
		Message: fmt.Sprintf("all %d sandboxes of this server are busy; try again", s.maxLive),
	}
	if s.live < s.maxLive && s.bytes+bytes > s.maxMemory {
		e.Message = fmt.Sprintf("the sandboxes that are running have all of the %s of memory that this server has for them; try again", size(s.maxMemory))
	}
	return e
}

// own is the limit of the project itself that another sandbox of so much memory would pass, nil for none.
func (s *slots) own(h *holder, bytes int64) error {
	l := s.limits(h.project)
	if l.Live > 0 && h.live >= l.Live {
		return limitError(h.project, "live", fmt.Sprintf("%d live containers", l.Live), "wait until one is idle", retryBusy)
	}
	if l.Memory > 0 && h.bytes+bytes > l.Memory {
		return limitError(h.project, "memory", size(l.Memory)+" of memory for its live containers", "wait until one is idle, or ask for less memory", retryBusy)
	}
	return nil
}

// take gives h a place if there is one and nobody has a better right to it.
func (s *slots) take(h *holder, bytes int64) bool {
	if s.own(h, bytes) != nil || !s.fits(bytes) || len(h.waiters) > 0 || s.claimed() {
		return false
	}
	s.grant(h, bytes)
	return true
}

func (s *slots) fits(bytes int64) bool { return s.live < s.maxLive && s.bytes+bytes <= s.maxMemory }

// claimed says whether somebody waits whom only the machine's limits keep waiting.
func (s *slots) claimed() bool {
	for _, h := range s.ring {
		if s.own(h, h.waiters[0].bytes) == nil {
			return true
		}
	}
	return false
}

func (s *slots) grant(h *holder, bytes int64) {
	s.live++
	s.bytes += bytes
	h.live++
	h.bytes += bytes
}

// serve gives places to those who wait. One whom the machine has too little memory for keeps the ones behind it waiting, or it might wait for
// ever; one whose project is at its own limit keeps nobody else waiting.
func (s *slots) serve() {
	for passed := 0; passed < len(s.ring); {
		h := s.ring[0]
		w := h.waiters[0]
		if s.own(h, w.bytes) == nil {
			if !s.fits(w.bytes) {
				return
			}
			s.grant(h, w.bytes)
			close(w.granted)
			h.waiters = h.waiters[1:]
			passed = 0
		} else {
			passed++
		}
		s.ring = s.ring[1:]
		if len(h.waiters) > 0 {
			s.ring = append(s.ring, h) // behind the other projects
		}
	}
}

// leave takes a waiter out of the queue. False says that it has got its place already.
func (s *slots) leave(h *holder, w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range h.waiters {
		if other != w {
			continue
		}
		h.waiters = append(h.waiters[:i:i], h.waiters[i+1:]...)
		if len(h.waiters) == 0 {
			for j, r := range s.ring {
				if r == h {
					s.ring = append(s.ring[:j:j], s.ring[j+1:]...)
					break
				}
			}
		}
		s.forget(h)
		s.serve() // the next in line may need less
		return true
	}
	return false
}

// release gives a place back.
func (s *slots) release(project string, bytes int64) {
	s.mu.Lock()
	h := s.holder(project)
	s.live--
	s.bytes -= bytes
	h.live--
	h.bytes -= bytes
	s.going, h.going = max(0, s.going-1), max(0, h.going-1)
	s.serve()
	s.forget(h)
	s.mu.Unlock()
	s.eased(project)
}

// move hands a place on from one holder to another. False says that this would pass a limit, or that others wait.
func (s *slots) move(from, to string, bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holder(to)
	if s.claimed() || len(h.waiters) > 0 || s.own(h, bytes) != nil {
		s.forget(h)
		return false
	}
	f := s.holder(from)
	f.live--
	f.bytes -= bytes
	h.live++
	h.bytes += bytes
	s.forget(f)
	return true
}

// eased is called when a place of a project has come free or its sandbox has become idle: whoever waits may have it.
func (s *slots) eased(project string) {
	s.mu.Lock()
	h := s.by[project]
	idle := len(s.ring) == 0
	s.mu.Unlock()
	if idle {
		return
	}
	if h == nil {
		h = &holder{project: project}
	}
	s.ease(h)
}

// Waiting is how many calls wait for a place.
func (m *Manager) Waiting() int { return m.slots.waiting() }

// waiting is how many wait.
func (s *slots) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, h := range s.ring {
		n += len(h.waiters)
	}
	return n
}

func (s *slots) holder(project string) *holder {
	h := s.by[project]
	if h == nil {
		h = &holder{project: project}
		s.by[project] = h
	}
	return h
}

// forget drops a project that has nothing.
func (s *slots) forget(h *holder) {
	if h.live == 0 && len(h.waiters) == 0 {
		delete(s.by, h.project)
	}
}
