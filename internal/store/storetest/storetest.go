// Package storetest is the suite that every implementation of package store passes.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/store"
)

// Run tests the store that open returns. open is called once for each test and closes what it opened in t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"containers", testContainers},
		{"containers/session", testSession},
		{"containers/paging", testContainerPaging},
		{"containers/update", testUpdate},
		{"containers/concurrent updates", testConcurrentUpdates},
		{"containers/all", testAllContainers},
		{"containers/leases", testLeases},
		{"containers/memories", testMemories},
		{"checkpoints", testCheckpoints},
		{"files", testFiles},
		{"files/paging", testFilePaging},
		{"files/all or none", testFilesTogether},
		{"files/latest", testLatest},
		{"files/of a container", testContainerFiles},
		{"files/expired", testExpired},
		{"files/stored", testStored},
		{"steps", testSteps},
		{"skills", testSkills},
		{"skills/versions", testSkillVersions},
		{"skills/paging", testSkillPaging},
		{"skills/search", testSkillSearch},
		{"skills/sharing", testSkillSharing},
		{"usage", testUsage},
		{"isolation", testIsolation},
		{"ping", func(t *testing.T, s store.Store) { check(t, s.Ping(t.Context())) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.test(t, open(t))
		})
	}
}

// at is a time that every store can keep: whole microseconds, in UTC.
func at(seconds int) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func container(id string) store.Container {
	return store.Container{
		ID: id, Project: "p", Name: "name of " + id, State: store.StateIdle, MemoryLimit: 4 << 30, ExpireAfter: 20 * time.Minute,
		CreatedAt: at(0), LastActive: at(1),
	}
}

func file(id, container string) store.File {
	f := store.File{
		ID: id, Project: "p", Container: container, Name: "é 1.csv", Purpose: "user_data", Source: "user", Bytes: 5 << 40,
		SHA256: "sha of " + id, CreatedAt: at(0),
	}
	if container != "" {
		f.Path = "/mnt/data/é 1.csv"
	}
	return f
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// pages walks a list through its cursor and returns the ids that it saw.
func pages[T any](t *testing.T, p store.Page, id func(T) string, list func(store.Page) ([]T, bool, error)) []string {
	t.Helper()
	var ids []string
	for range 100 {
		rows, more, err := list(p)
		check(t, err)
		if len(rows) > p.Limit {
			t.Fatalf("page of %d rows, limit %d", len(rows), p.Limit)
		}
		for _, r := range rows {
			ids = append(ids, id(r))
		}
		if !more {
			return ids
		}
		p.After = id(rows[len(rows)-1])
	}
	t.Fatal("the list has no end")
	return nil
}

func reversed(ids []string) []string {
	out := make([]string, 0, len(ids))
	for i := len(ids) - 1; i >= 0; i-- {
		out = append(out, ids[i])
	}
	return out
}

func newContainers(t *testing.T, s store.Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		check(t, s.Containers().Create(t.Context(), container(id)))
	}
}

func testSteps(t *testing.T, s store.Store) {
	ctx := t.Context()
	now := time.Now().UTC().Truncate(time.Microsecond)
	kept := store.Step{ID: "call_1", Project: "p", Body: []byte(`{"a":"\u0000"}`), CreatedAt: now, ExpiresAt: now.Add(time.Hour)}
	forever := store.Step{ID: "ci_2", Project: "p", Body: []byte{0, 1, 255}, CreatedAt: now}
	old := store.Step{ID: "call_3", Project: "p", Body: []byte("x"), CreatedAt: now.Add(-time.Hour), ExpiresAt: now.Add(-time.Minute)}
	check(t, s.Steps().Put(ctx))
	check(t, s.Steps().Put(ctx, kept, forever, old))

	got, err := s.Steps().Get(ctx, "p", "call_1", "ci_2", "call_3", "call_unknown")
	check(t, err)
	same(t, "steps", got, map[string]store.Step{"call_1": kept, "ci_2": forever})

	kept.Body = []byte("replaced")
	check(t, s.Steps().Put(ctx, kept))
	foreign := store.Step{ID: "call_1", Project: "q", Body: []byte("foreign"), CreatedAt: now}
	check(t, s.Steps().Put(ctx, foreign))
	got, err = s.Steps().Get(ctx, "p", "call_1")
	check(t, err)
	same(t, "replaced step", got, map[string]store.Step{"call_1": kept})
	got, err = s.Steps().Get(ctx, "q", "call_1", "ci_2")
	check(t, err)
	same(t, "another project's step", got, map[string]store.Step{"call_1": foreign})

	many := make([]string, 0, 3000)
	for i := range 3000 {
		many = append(many, fmt.Sprintf("call_none_%d", i))
	}
	got, err = s.Steps().Get(ctx, "p", append(many, "ci_2")...)
	check(t, err)
	same(t, "one of many ids", got, map[string]store.Step{"ci_2": forever})

	n, err := s.Steps().Expire(ctx, now.Add(2*time.Hour))
	check(t, err)
	if n != 2 {
		t.Errorf("expired %d steps, want 2", n)
	}
	got, err = s.Steps().Get(context.WithoutCancel(ctx), "p", "call_1", "ci_2")
	check(t, err)
	same(t, "after expiry", got, map[string]store.Step{"ci_2": forever})
}

func testIsolation(t *testing.T, s store.Store) {
	ctx := t.Context()
	c := container("cntr_1")
	c.Session = "chat"
	check(t, s.Containers().Create(ctx, c))
	f, up := file("cfile_1", "cntr_1"), file("file_1", "")
	check(t, s.Files().Create(ctx, f, up))

	for _, project := range []string{"q", ""} {
		_, err := s.Containers().Get(ctx, project, "cntr_1")
		wantErr(t, "Containers.Get", err, store.ErrNotFound)
		_, err = s.Containers().BySession(ctx, project, "chat")
		wantErr(t, "Containers.BySession", err, store.ErrNotFound)
		_, err = s.Containers().Update(ctx, project, "cntr_1", func(*store.Container) error {
			t.Error("Update called fn with another project's row")
			return nil
		})
		wantErr(t, "Containers.Update", err, store.ErrNotFound)
		wantErr(t, "Containers.Delete", s.Containers().Delete(ctx, project, "cntr_1"), store.ErrNotFound)
		_, _, err = s.Containers().List(ctx, project, store.Page{Limit: 10, After: "cntr_1"})
		wantErr(t, "Containers.List after", err, store.ErrNotFound)
		rows, more, err := s.Containers().List(ctx, project, store.Page{Limit: 10})
		check(t, err)
		if len(rows) > 0 || more {
			t.Errorf("project %q lists %d containers of another", project, len(rows))
		}

		for _, id := range []string{"cfile_1", "file_1"} {
			_, err = s.Files().Get(ctx, project, id)
			wantErr(t, "Files.Get "+id, err, store.ErrNotFound)
			wantErr(t, "Files.Delete "+id, s.Files().Delete(ctx, project, id), store.ErrNotFound)
		}
		_, err = s.Files().Latest(ctx, project, "cntr_1", f.Path)
		wantErr(t, "Files.Latest", err, store.ErrNotFound)
		_, _, err = s.Files().List(ctx, project, "cntr_1", store.Page{Limit: 10})
		wantErr(t, "Files.List", err, store.ErrNotFound)
		_, _, err = s.Files().List(ctx, project, "", store.Page{Limit: 10, After: "file_1"})
		wantErr(t, "Files.List after", err, store.ErrNotFound)
		uploads, _, err := s.Files().List(ctx, project, "", store.Page{Limit: 10})
		check(t, err)
		if len(uploads) > 0 {
			t.Errorf("project %q lists %d uploads of another", project, len(uploads))
		}
		_, err = s.Files().DeleteContainer(ctx, project, "cntr_1")
		wantErr(t, "Files.DeleteContainer", err, store.ErrNotFound)
		stray := file("cfile_stray", "cntr_1")
		stray.Project = project
		wantErr(t, "Files.Create", s.Files().Create(ctx, stray), store.ErrNotFound)
		n, err := s.Files().References(ctx, project, f.SHA256)
		check(t, err)
		if n != 0 {
			t.Errorf("References counts %d rows of another project", n)
		}
	}
	got, err := s.Containers().Get(ctx, "p", "cntr_1")
	check(t, err)
	same(t, "the container afterwards", got, c)
}
