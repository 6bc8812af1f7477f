package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// queue is slots without a Manager. What evict frees is up to the test.
func queue(maxLive int, maxMemory int64, per map[string]ProjectLimits, evict func(string) bool) *slots {
	cfg := &Config{MaxLive: maxLive, MaxMemory: maxMemory, SlotWait: 30 * time.Second, Projects: per}
	if evict == nil {
		evict = func(string) bool { return false }
	}
	return newSlots(cfg, evict)
}

// order has waiters note whose turn it was. Which of those that get their places together comes first is not to be seen.
type order struct {
	t   *testing.T
	s   *slots
	mu  sync.Mutex
	got []string
}

// wait queues a request and returns when it waits, or has its place.
func (o *order) wait(project, name string, bytes int64) {
	go func() {
		if err := o.s.acquire(o.t.Context(), project, bytes, true); err != nil {
			name += " refused"
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.got = append(o.got, name)
	}()
	synctest.Wait()
}

func (o *order) want(names ...string) {
	o.t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.Sort(o.got)
	if !slices.Equal(o.got, names) {
		o.t.Errorf("got %v, want %v", o.got, names)
	}
	o.got = nil
}

// One project with a thousand requests does not keep another from its next.
func TestQueueIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &order{t: t, s: queue(2, 100, nil, nil)}
		o.wait("greedy", "g0", 1)
		o.wait("greedy", "g0", 1)
		o.want("g0", "g0")
		for i := range 1000 {
			o.wait("greedy", fmt.Sprint("g", i+1), 1)
		}
		o.wait("modest", "m1", 1)
		o.wait("modest", "m2", 1)
		o.wait("other", "o1", 1)
		for _, want := range []string{"g1", "m1", "o1", "g2", "m2", "g3", "g4"} {
			o.s.release("greedy", 1) // whose place comes free does not matter
			o.want(want)
			o.s.mu.Lock()
			o.s.by["greedy"].live, o.s.by["greedy"].bytes = 2, 2 // so that the test can go on releasing
			o.s.mu.Unlock()
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if n := o.s.waiting(); n != 0 {
			t.Errorf("%d still wait after the deadline", n)
		}
	})
}

func TestQueueDeadlineAndLeaving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := queue(1, 100, nil, nil)
		must(t, s.acquire(t.Context(), "a", 60, true))
		begin := time.Now()
		err := s.acquire(t.Context(), "b", 1, true)
		wantKind(t, "no place", err, turn.KindOverloaded, "all 1 sandboxes")
		if e := turn.AsError(err); e.RetryAfter == 0 || time.Since(begin) != 30*time.Second {
			t.Errorf("after %v: %+v", time.Since(begin), e)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		left := errors.New("the client left")
		time.AfterFunc(time.Second, func() { cancel(left) })
		if err := s.acquire(ctx, "b", 1, true); !errors.Is(err, left) {
			t.Errorf("a waiter that left: %v", err)
		}
		if err := s.acquire(t.Context(), "b", 1, false); !errors.Is(err, errNoSlot) {
			t.Errorf("one that does not wait: %v", err)
		}
		s.maxLive = 2
		err = s.acquire(t.Context(), "b", 50, true)
		wantKind(t, "no memory", err, turn.KindOverloaded, "all of the 100 bytes of memory")
		must(t, s.acquire(t.Context(), "b", 40, true))
		s.release("a", 60)
		s.release("b", 40)
		if len(s.by) != 0 || s.live != 0 || s.bytes != 0 {
			t.Errorf("left over: %+v", s)
		}
	})
}

// A large request is not passed by small ones for ever, and one at its project's own limit keeps nobody waiting.
func TestQueueOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &order{t: t, s: queue(10, 100, nil, nil)}
		o.wait("a", "a1", 50)
		o.wait("a", "a2", 50)
		o.want("a1", "a2")
		o.wait("big", "b1", 80)
		o.wait("small", "s1", 10)
		o.s.release("a", 50)
		o.want() // 50 are free, and big is first
		o.s.release("a", 50)
		o.want("b1", "s1")
	})
	synctest.Test(t, func(t *testing.T) {
		var evicted []string
		o := &order{t: t, s: queue(2, 100, map[string]ProjectLimits{"a": {Live: 1}}, func(p string) bool {
			evicted = append(evicted, p)
			return true
		})}
		o.wait("a", "a1", 1)
		o.wait("a", "a2", 1) // its own limit; evict says that something of a's will come free
		o.wait("b", "b1", 1)
		o.want("a1", "b1")
		o.wait("b", "b2", 1)
		o.s.release("b", 1)
		o.want("b2")
		o.s.release("a", 1)
		o.want("a2")
		if !slices.Equal(evicted, []string{"a", ""}) {
			t.Errorf("evicted for %q", evicted)
		}
	})
}

// For one who waits one goes, however often something becomes idle meanwhile; and another one if that was not enough.
func TestNoMoreGoThanWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		evicted := 0
		o := &order{t: t, s: queue(10, 100, nil, func(string) bool { evicted++; return true })}
		for range 10 {
			o.wait("a", "a", 10)
		}
		o.want("a", "a", "a", "a", "a", "a", "a", "a", "a", "a")
		want := func(n int) {
			t.Helper()
			if evicted != n {
				t.Errorf("%d went, want %d", evicted, n)
			}
		}
		o.wait("b", "b", 20)
		want(1)
		for range 5 {
			o.s.eased("a")
		}
		want(1)
		o.s.release("a", 10) // half of what b needs
		want(2)
		o.s.eased("a")
		want(2)
		o.s.release("a", 10)
		o.want("b")
		o.s.eased("a")
		want(2)
	})
}

func TestProjectLimitsOfLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := queue(10, 1000, map[string]ProjectLimits{"a": {Live: 2}, "m": {Memory: 100}}, nil)
		begin := time.Now()
		must(t, s.acquire(t.Context(), "a", 1, true), s.acquire(t.Context(), "a", 1, true), s.acquire(t.Context(), "m", 60, true))
		err := s.acquire(t.Context(), "a", 1, true)
		wantKind(t, "live", err, turn.KindRateLimited, `project "a" may have 2 live containers (its limit "live")`)
		if turn.AsError(err).RetryAfter == 0 || !time.Now().Equal(begin) {
			t.Error("no Retry-After, or it waited for what will not come")
		}
		err = s.acquire(t.Context(), "m", 60, true)
		wantKind(t, "memory", err, turn.KindRateLimited, `(its limit "memory")`)
		must(t, s.acquire(t.Context(), "m", 40, true))
		if s.move("m", "a", 40) {
			t.Error("a place was moved past a limit")
		}
		s.release("a", 1)
		if !s.move("m", "a", 40) || s.by["a"].live != 2 || s.by["a"].bytes != 41 || s.by["m"].live != 1 {
			t.Error("a place was not moved")
		}
	})
}

// Whatever happens: no limit is passed, nothing is lost, a project's requests are served in order of arrival, and nobody who waits for the
// machine is passed by another project more than once for each of its own turns.
func TestQueueProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		// All is drawn before: rapid and synctest both want to own the goroutine.
		plan := queuePlan{maxLive: rapid.IntRange(1, 5).Draw(rt, "max_live"), liveOfB: rapid.IntRange(0, 2).Draw(rt, "live of b")}
		plan.steps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) queueStep {
			return queueStep{
				arrives: rapid.SampledFrom([]bool{true, true, false}).Draw(t, "arrives"), project: rapid.SampledFrom([]string{"a", "a", "a", "b", "c"}).Draw(t, "project"),
				bytes: rapid.Int64Range(1, 20).Draw(t, "bytes"), which: rapid.IntRange(0, 4).Draw(t, "which"),
			}
		}), 1, 60).Draw(rt, "steps")
		var wrong []string
		synctest.Test(t, func(*testing.T) {
			plan.run(func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) })
		})
		if len(wrong) > 0 {
			rt.Fatal(wrong[0])
		}
	})
}

type queuePlan struct {
	maxLive, liveOfB int
	steps            []queueStep
}

// queueStep is an arrival, or the end of one that has its place.
type queueStep struct {
	arrives bool
	project string
	bytes   int64
	which   int
}

type queued struct {
	project string
	bytes   int64
	n       int
}

func (plan queuePlan) run(fail func(format string, args ...any)) {
	const maxMemory = 40
	maxLive := plan.maxLive
	per := map[string]ProjectLimits{"b": {Live: plan.liveOfB}, "c": {Memory: 20}}
	s := queue(maxLive, maxMemory, per, func(string) bool { return true })
	var mu sync.Mutex
	var held []queued
	ctx, cancel := context.WithCancel(context.Background())
	arrived, served, waiting := map[string]int{}, map[string]int{}, map[string][]int{}
	passed := map[string]map[string]int{} // who waits -> how often each other project was served meanwhile
	start := func(q queued) {
		go func() {
			if err := s.acquire(ctx, q.project, q.bytes, true); err != nil {
				if ctx.Err() == nil {
					fail("%s: request %d was refused: %v", q.project, q.n, err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			held = append(held, q)
			waiting[q.project] = slices.DeleteFunc(waiting[q.project], func(n int) bool { return n == q.n })
			served[q.project] = max(served[q.project], q.n)
			delete(passed, q.project)
			for _, others := range passed {
				others[q.project]++
			}
		}()
		synctest.Wait()
	}
	check := func() {
		synctest.Wait()
		for p, ns := range waiting {
			if len(ns) > 0 && ns[0] < served[p] {
				fail("%s: request %d was served before %d", p, served[p], ns[0])
			}
		}
		live, bytes := map[string]int{}, map[string]int64{}
		for _, q := range held {
			live[q.project]++
			bytes[q.project] += q.bytes
			live[""]++
			bytes[""] += q.bytes
		}
		if live[""] > maxLive || bytes[""] > maxMemory || (per["b"].Live > 0 && live["b"] > per["b"].Live) || bytes["c"] > 20 {
			fail("past a limit: %v %v", live, bytes)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.live != live[""] || s.bytes != bytes[""] {
			fail("%d live of %d bytes are counted, %v %v are", s.live, s.bytes, live, bytes)
		}
		waits := map[string]bool{}
		for i, h := range s.ring {
			waits[h.project] = true
			w := h.waiters[0]
			if i == 0 && s.own(h, w.bytes) == nil && s.fits(w.bytes) {
				fail("%s waits although there is room", h.project)
			}
			if s.own(h, w.bytes) != nil {
				delete(passed, h.project) // its own fault
			} else if passed[h.project] == nil {
				passed[h.project] = map[string]int{}
			}
		}
		for p, others := range passed {
			if !waits[p] {
				delete(passed, p)
				continue
			}
			for other, n := range others {
				if n > 2 { // one in this round of the ring, one that had its turn before
					fail("%s waits while %s was served %d times", p, other, n)
				}
			}
		}
	}
	for _, step := range plan.steps {
		if step.arrives || len(held) == 0 {
			arrived[step.project]++
			mu.Lock()
			waiting[step.project] = append(waiting[step.project], arrived[step.project])
			mu.Unlock()
			start(queued{step.project, step.bytes, arrived[step.project]})
		} else {
			i := step.which % len(held)
			mu.Lock()
			q := held[i]
			held = slices.Delete(held, i, i+1)
			mu.Unlock()
			s.release(q.project, q.bytes)
		}
		check()
	}
	cancel()
	synctest.Wait()
	for _, q := range held {
		s.release(q.project, q.bytes)
	}
	if s.live != 0 || s.bytes != 0 || len(s.by) != 0 || len(s.ring) != 0 {
		fail("left over: %+v", s)
	}
}
