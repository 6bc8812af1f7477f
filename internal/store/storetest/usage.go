package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
)

func testUsage(t *testing.T, s store.Store) {
	ctx, u := t.Context(), s.Usage()
	noon := at(0)
	want := func(project string, at time.Time, want time.Duration) {
		t.Helper()
		got, err := u.Used(ctx, project, at)
		check(t, err)
		if got != want {
			t.Errorf("%s on %s: %v, want %v", project, at.Format(time.DateOnly), got, want)
		}
	}
	want("p", noon, 0)
	check(t, u.Add(ctx, "p", noon, 1500*time.Microsecond))
	check(t, u.Add(ctx, "p", noon.In(time.FixedZone("far", 11*3600)), time.Hour)) // the same day in UTC, tomorrow there
	check(t, u.Add(ctx, "p", noon.Add(24*time.Hour), time.Minute))
	check(t, u.Add(ctx, "other", noon, time.Second))
	want("p", noon, time.Hour+1500*time.Microsecond)
	want("p", noon.Add(11*time.Hour), time.Hour+1500*time.Microsecond)
	want("p", noon.Add(24*time.Hour), time.Minute)
	want("p", noon.Add(-24*time.Hour), 0)
	want("other", noon, time.Second)

	var adders sync.WaitGroup
	for range 8 {
		adders.Go(func() {
			if err := u.Add(ctx, "busy", noon, time.Second); err != nil {
				t.Error(err)
			}
		})
	}
	adders.Wait()
	want("busy", noon, 8*time.Second)

	if n, err := u.Expire(ctx, noon.Add(24*time.Hour)); err != nil || n != 3 {
		t.Errorf("expired %d, %v", n, err)
	}
	want("p", noon, 0)
	want("p", noon.Add(24*time.Hour), time.Minute)
}

func testStored(t *testing.T, s store.Store) {
	ctx := t.Context()
	want := func(project string, bytes int64, n int) {
		t.Helper()
		gotBytes, gotN, err := s.Files().Stored(ctx, project)
		check(t, err)
		if gotBytes != bytes || gotN != n {
			t.Errorf("%s stores %d bytes in %d files, want %d in %d", project, gotBytes, gotN, bytes, n)
		}
	}
	want("p", 0, 0)
	check(t, s.Containers().Create(ctx, container("c")))
	one, same, two, other := file("file_1", ""), file("cfile_1", "c"), file("file_2", ""), file("file_3", "")
	one.Bytes, same.Bytes, two.Bytes, other.Bytes = 100, 100, 7, 1000
	same.SHA256 = one.SHA256
	other.Project = "other"
	check(t, s.Files().Create(ctx, one, same, two, other))
	want("p", 107, 3) // the same bytes are kept once
	want("other", 1000, 1)
	check(t, s.Files().Delete(ctx, "p", "file_1"))
	want("p", 107, 2)
	check(t, s.Files().Delete(ctx, "p", "cfile_1"))
	want("p", 7, 1)
}
