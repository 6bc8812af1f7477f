package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
)

func testContainers(t *testing.T, s store.Store) {
	ctx := t.Context()
	c := container("cntr_1")
	c.Name, c.Session, c.Named = "ü 'quoted' \"name\"", "", true
	c.Network = []byte(`{"domains":["a.example"]}`)
	check(t, s.Containers().Create(ctx, c))
	got, err := s.Containers().Get(ctx, "p", "cntr_1")
	check(t, err)
	same(t, "container", got, c)

	wantErr(t, "second row with one id", s.Containers().Create(ctx, c), store.ErrExists)
	foreign := c
	foreign.Project = "q"
	wantErr(t, "another project's row with one id", s.Containers().Create(ctx, foreign), store.ErrExists)

	check(t, s.Containers().Delete(ctx, "p", "cntr_1"))
	_, err = s.Containers().Get(ctx, "p", "cntr_1")
	wantErr(t, "get a deleted one", err, store.ErrNotFound)
	wantErr(t, "delete it again", s.Containers().Delete(ctx, "p", "cntr_1"), store.ErrNotFound)
}

func testSession(t *testing.T, s store.Store) {
	ctx := t.Context()
	c := container("cntr_1")
	c.Session = "chat 1"
	check(t, s.Containers().Create(ctx, c))
	second := container("cntr_2")
	second.Session = "chat 1"
	wantErr(t, "second container of a session", s.Containers().Create(ctx, second), store.ErrExists)

	foreign := second
	foreign.Project, foreign.ID = "q", "cntr_q"
	check(t, s.Containers().Create(ctx, foreign))
	newContainers(t, s, "cntr_3", "cntr_4") // no session: not unique
	_, err := s.Containers().BySession(ctx, "p", "")
	wantErr(t, "the empty session", err, store.ErrNotFound)

	got, err := s.Containers().BySession(ctx, "p", "chat 1")
	check(t, err)
	same(t, "by session", got, c)

	for _, state := range []string{store.StateExpired, store.StateDeleted, store.StateFailed} {
		_, err = s.Containers().Update(ctx, "p", c.ID, func(c *store.Container) error { c.State = state; return nil })
		check(t, err)
		_, err = s.Containers().BySession(ctx, "p", "chat 1")
		wantErr(t, "session of a container that is "+state, err, store.ErrNotFound)
	}
	check(t, s.Containers().Create(ctx, second))
	got, err = s.Containers().BySession(ctx, "p", "chat 1")
	check(t, err)
	same(t, "the session's next container", got, second)

	const racers = 8
	var wg sync.WaitGroup
	errs := make([]error, racers)
	for i := range racers {
		wg.Go(func() {
			c := container(fmt.Sprintf("cntr_race%d", i))
			c.Session = "race"
			errs[i] = s.Containers().Create(ctx, c)
		})
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if !errors.Is(err, store.ErrExists) {
			t.Errorf("racing for a session: %v", err)
		}
	}
	if made != 1 {
		t.Errorf("%d containers made for one session", made)
	}
}

func testContainerPaging(t *testing.T, s store.Store) {
	ctx := t.Context()
	var oldestFirst []string
	for i := range 11 {
		c := container(fmt.Sprintf("cntr_%02d", (i*7)%11)) // ids not in order of time
		c.CreatedAt = at(i / 4)                            // several with one time
		if i%2 == 0 {
			c.Name = "even"
		}
		check(t, s.Containers().Create(ctx, c))
		oldestFirst = append(oldestFirst, c.ID)
	}
	foreign := container("cntr_q")
	foreign.Project = "q"
	check(t, s.Containers().Create(ctx, foreign))
	for _, state := range []string{store.StateCreating, store.StateDeleted} {
		c := container("cntr_" + state)
		c.State = state
		check(t, s.Containers().Create(ctx, c))
	}

	id := func(c store.Container) string { return c.ID }
	list := func(p store.Page) ([]store.Container, bool, error) { return s.Containers().List(ctx, "p", p) }
	for _, limit := range []int{1, 2, 3, 11, 100} {
		same(t, "ascending", pages(t, store.Page{Limit: limit, Ascending: true}, id, list), oldestFirst)
		same(t, "descending", pages(t, store.Page{Limit: limit}, id, list), reversed(oldestFirst))
	}
	var even []string
	for i, id := range oldestFirst {
		if i%2 == 0 {
			even = append(even, id)
		}
	}
	same(t, "by name", pages(t, store.Page{Limit: 2, Ascending: true, Name: "even"}, id, list), even)

	_, more, err := list(store.Page{Limit: 11})
	check(t, err)
	if more {
		t.Error("a page that holds everything says that there is more")
	}
	_, _, err = list(store.Page{Limit: 2, After: "cntr_none"})
	wantErr(t, "unknown cursor", err, store.ErrNotFound)
	_, _, err = list(store.Page{Limit: 2, After: oldestFirst[1], Name: "even"})
	wantErr(t, "cursor that the list does not show", err, store.ErrNotFound)
}

func testUpdate(t *testing.T, s store.Store) {
	ctx := t.Context()
	c := container("cntr_1")
	check(t, s.Containers().Create(ctx, c))
	edit := func(r *store.Container) error {
		r.State, r.LastActive, r.Named, r.ExpireAfter = store.StateHibernated, at(50), true, time.Hour
		r.Owner, r.Lease = "a process", at(60)
		r.Memory = store.Memory{ID: "mem_1", Bytes: 5 << 30, Packed: 1 << 30, SHA256: "ab", CreatedAt: at(49)}
		return nil
	}
	got, err := s.Containers().Update(ctx, "p", "cntr_1", edit)
	check(t, err)
	check(t, edit(&c))
	same(t, "answer of Update", got, c)
	got, err = s.Containers().Get(ctx, "p", "cntr_1")
	check(t, err)
	same(t, "row after Update", got, c)

	refused := errors.New("refused")
	_, err = s.Containers().Update(ctx, "p", "cntr_1", func(r *store.Container) error {
		r.State = store.StateFailed
		return refused
	})
	wantErr(t, "error of fn", err, refused)
	got, err = s.Containers().Get(ctx, "p", "cntr_1")
	check(t, err)
	same(t, "row after a refused Update", got, c)
	_, err = s.Containers().Update(ctx, "p", "cntr_none", edit)
	wantErr(t, "update an unknown one", err, store.ErrNotFound)
}

func testConcurrentUpdates(t *testing.T, s store.Store) {
	ctx := t.Context()
	newContainers(t, s, "cntr_1")
	const workers, each = 8, 10
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				_, err := s.Containers().Update(ctx, "p", "cntr_1", func(c *store.Container) error {
					c.ExpireAfter += time.Second
					return nil
				})
				if err != nil {
					t.Errorf("concurrent update: %v", err)
				}
			}
		})
	}
	wg.Wait()
	got, err := s.Containers().Get(ctx, "p", "cntr_1")
	check(t, err)
	if want := container("").ExpireAfter + workers*each*time.Second; got.ExpireAfter != want {
		t.Errorf("after %d updates: %s, want %s", workers*each, got.ExpireAfter, want)
	}
}

func testAllContainers(t *testing.T, s store.Store) {
	ctx := t.Context()
	var want, got []string
	for i := range 12 {
		c := container(fmt.Sprintf("cntr_%d", i))
		c.Project = fmt.Sprintf("project %d", i%3)
		c.CreatedAt = at(i)
		check(t, s.Containers().Create(ctx, c))
		want = append(want, c.ID)
	}
	check(t, s.Containers().All(ctx, func(c store.Container) error {
		got = append(got, c.ID)
		_, err := s.Containers().Update(ctx, c.Project, c.ID, func(c *store.Container) error { c.Named = true; return nil })
		return err
	}))
	same(t, "all containers", got, want)

	stop := errors.New("stop")
	n := 0
	err := s.Containers().All(ctx, func(store.Container) error { n++; return stop })
	wantErr(t, "error of fn", err, stop)
	if n != 1 {
		t.Errorf("fn was called %d times, want once", n)
	}
}

func testLeases(t *testing.T, s store.Store) {
	ctx := t.Context()
	for id, owner := range map[string]string{"cntr_1": "a", "cntr_2": "a", "cntr_3": "b", "cntr_4": ""} {
		c := container(id)
		c.Owner, c.Lease = owner, at(10)
		check(t, s.Containers().Create(ctx, c))
	}
	for owner, want := range map[string]int{"a": 2, "nobody": 0, "": 0} {
		n, err := s.Containers().Renew(ctx, owner, at(99))
		check(t, err)
		if n != want {
			t.Errorf("renewed %d leases of %q, want %d", n, owner, want)
		}
	}
	for id, want := range map[string]time.Time{"cntr_1": at(99), "cntr_2": at(99), "cntr_3": at(10), "cntr_4": at(10)} {
		c, err := s.Containers().Get(ctx, "p", id)
		check(t, err)
		same(t, "lease of "+id, c.Lease, want)
	}
}

func testMemories(t *testing.T, s store.Store) {
	ctx := t.Context()
	newContainers(t, s, "cntr_without")
	var want []store.Container
	for i, id := range []string{"cntr_late", "cntr_early"} {
		c := container(id)
		c.Project = id
		c.State, c.Memory = store.StateHibernated, store.Memory{ID: "mem_" + id, Bytes: 7, CreatedAt: at(20 - i)}
		check(t, s.Containers().Create(ctx, c))
		want = append([]store.Container{c}, want...)
	}
	got, err := s.Containers().WithMemory(ctx)
	check(t, err)
	same(t, "containers with a memory", got, want)
	_, err = s.Containers().Update(ctx, "cntr_late", "cntr_late", func(c *store.Container) error { c.Memory = store.Memory{}; return nil })
	check(t, err)
	got, err = s.Containers().WithMemory(ctx)
	check(t, err)
	same(t, "after one was used", got, want[:1])
}
