package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
	"github.com/lathe-gateway/lathe/internal/sandbox/sandboxtest"
)

// spares are the sandboxes of a state directory that were created ahead.
func spares(t *testing.T, state string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(state, "runsc", "spare-*.state"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range found {
		name, _, _ := strings.Cut(filepath.Base(path), "_sandbox:")
		found[i] = name
	}
	return found
}

func needSpares(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: what a sandbox sees cannot be mounted later")
	}
}

// TestSpares: the next sandbox is there before it is asked for, and is like any other.
func TestSpares(t *testing.T) {
	needSpares(t)
	state := t.TempDir()
	b := openWith(t, state, gvisor.Config{Image: anyRoot(t), Spares: 1})
	waitSpare := func() string {
		t.Helper()
		eventually(t, "one is created ahead", func() bool { return len(spares(t, state)) == 1 })
		return spares(t, state)[0]
	}
	p := sandboxtest.Start(t, b, nil)
	p.Must(t, "open('mine', 'w').write('p')\nNone")
	for i := range 3 {
		name := waitSpare()
		q := sandboxtest.Start(t, b, nil)
		q.Must(t, "open('mine', 'w').write('q')\nNone")
		if data, err := os.ReadFile(filepath.Join(q.Data, "mine")); err != nil || string(data) != "q" {
			t.Errorf("round %d: %q, %v", i, data, err)
		}
		if _, err := os.Stat(filepath.Join(state, "mnt", name, "1", "mine")); err != nil {
			t.Errorf("round %d: it was not the one that was there: %v", i, err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if o := p.Must(t, "import os\nprint(os.listdir('.'))"); o.Text("") != "['mine']\n" {
		t.Errorf("got %q", o.Text(""))
	}
	t.Run("killed", func(t *testing.T) {
		name := waitSpare()
		for _, l := range leftovers(t, state) {
			if strings.Contains(l, name) && strings.Contains(l, " runsc-sandbox ") {
				killLine(t, l)
			}
		}
		sandboxtest.Start(t, b, nil).Must(t, "1")
	})
	t.Run("other limits", func(t *testing.T) {
		before := waitSpare()
		small := func(s *sandbox.Spec) { s.Limits.Memory = 300 << 20 }
		sandboxtest.Start(t, b, small).Must(t, "1")
		if left := spares(t, state); len(left) == 0 || left[0] != before {
			t.Errorf("after one of another kind there is %q instead of %q", left, before)
		}
		q := sandboxtest.Start(t, b, small)
		if o := q.Python(t, "bytearray(400 << 20)"); !strings.Contains(o.Error, "MemoryError") {
			t.Errorf("%+v", *o.Result)
		}
		eventually(t, "it gives way", func() bool {
			left := spares(t, state)
			return len(left) == 1 && left[0] != before
		})
		if got := memoryLimit(t, state, spares(t, state)[0]); got != 0 && got != 300<<20 {
			t.Errorf("its memory is limited to %d", got)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		done := make(chan error)
		for i := range 4 {
			go func() {
				s, err := b.Start(t.Context(), sandbox.Spec{ID: fmt.Sprintf("many-%d", i), Limits: sandbox.Defaults()})
				if err == nil {
					_, err = s.Exec(t.Context(), sandbox.Call{Kind: sandbox.Python, Code: "1", Dir: "/tmp"}, nil)
				}
				if s != nil {
					_ = s.Close()
				}
				done <- err
			}()
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	// That nothing is left at the end, what is just being created included, is looked at by openWith.
}

// memoryLimit is that of a sandbox's cgroup, 0 where it is not to be found.
func memoryLimit(t *testing.T, state, name string) (limit int64) {
	t.Helper()
	for _, dir := range gvisor.CgroupDirs(state) {
		for _, file := range []string{"memory.limit_in_bytes", "memory.max"} {
			if data, err := os.ReadFile(filepath.Join(dir, name, file)); err == nil {
				_, _ = fmt.Sscan(string(data), &limit)
			}
		}
	}
	return limit
}
