package storetest

import (
	"testing"

	"github.com/lathe-gateway/lathe/internal/store"
)

func testCheckpoints(t *testing.T, s store.Store) {
	ctx := t.Context()
	newContainers(t, s, "cntr_1", "cntr_2")
	c := s.Checkpoints()
	first := store.Checkpoint{ID: "ckpt_1", Project: "p", Container: "cntr_1", Name: "one", Memory: true, Bytes: 5 << 40, CreatedAt: at(0)}
	second := store.Checkpoint{ID: "ckpt_2", Project: "p", Container: "cntr_1", Name: "two", CreatedAt: at(0)}
	elsewhere := store.Checkpoint{ID: "ckpt_3", Project: "p", Container: "cntr_2", Name: "one", CreatedAt: at(1)}
	for _, row := range []store.Checkpoint{first, second, elsewhere} {
		check(t, c.Create(ctx, row))
		got, err := c.Get(ctx, "p", row.Container, row.ID)
		check(t, err)
		same(t, row.ID, got, row)
	}
	again := first
	again.ID = "ckpt_4"
	wantErr(t, "a second one with one name", c.Create(ctx, again), store.ErrExists)
	again.Name, again.Container = "new", "cntr_none"
	wantErr(t, "of an unknown container", c.Create(ctx, again), store.ErrNotFound)
	again.Container, again.Project = "cntr_1", "q"
	wantErr(t, "of another project's container", c.Create(ctx, again), store.ErrNotFound)

	id := func(c store.Checkpoint) string { return c.ID }
	list := func(p store.Page) ([]store.Checkpoint, bool, error) { return c.List(ctx, "p", "cntr_1", p) }
	same(t, "list", pages(t, store.Page{Limit: 1, Ascending: true}, id, list), []string{"ckpt_1", "ckpt_2"})
	same(t, "list by name", pages(t, store.Page{Limit: 5, Name: "two"}, id, list), []string{"ckpt_2"})
	for what, place := range map[string][2]string{"unknown container": {"p", "cntr_none"}, "another project": {"q", "cntr_1"}} {
		_, _, err := c.List(ctx, place[0], place[1], store.Page{Limit: 5})
		wantErr(t, "list of "+what, err, store.ErrNotFound)
		_, err = c.Get(ctx, place[0], place[1], "ckpt_1")
		wantErr(t, "get of "+what, err, store.ErrNotFound)
		wantErr(t, "delete of "+what, c.Delete(ctx, place[0], place[1], "ckpt_1"), store.ErrNotFound)
	}
	_, err := c.Get(ctx, "p", "cntr_2", "ckpt_1")
	wantErr(t, "get of another container", err, store.ErrNotFound)

	check(t, c.Delete(ctx, "p", "cntr_1", "ckpt_1"))
	wantErr(t, "delete again", c.Delete(ctx, "p", "cntr_1", "ckpt_1"), store.ErrNotFound)
	check(t, s.Containers().Delete(ctx, "p", "cntr_1"))
	_, err = c.Get(ctx, "p", "cntr_1", "ckpt_2")
	wantErr(t, "of a deleted container", err, store.ErrNotFound)
	_, err = c.Get(ctx, "p", "cntr_2", "ckpt_3")
	check(t, err)
}
