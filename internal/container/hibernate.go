package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/lathe-gateway/lathe/internal/memory"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// hibernateTime bounds the writing of one container's memory.
const hibernateTime = 60 * time.Second

// memoryDir is where an image of a container lies as the backend wrote it.
func (m *Manager) memoryDir(container, id string) string {
	return filepath.Join(m.Dir, container, "memory", id)
}

// park begins to hibernate the container if nothing has used it since before, and says whether it did. What never ran code is ended
// instead: there is nothing to keep.
func (e *entry) park(before time.Time) bool {
	e.mu.Lock()
	idle := e.live != nil && e.opens == 0 && !e.row.LastActive.After(before)
	e.mu.Unlock()
	return idle && e.parkNow(before, false)
}

// parkNow is park also while a workspace is open, if force says so: then no call runs any more, since the Manager closes.
func (e *entry) parkNow(before time.Time, force bool) bool {
	e.mu.Lock()
	l := e.live
	if l == nil || l.going || (!force && (e.opens > 0 || e.row.LastActive.After(before))) {
		e.mu.Unlock()
		return false
	}
	l.going = true
	// An interpreter that was restarted has nothing to keep, and the next call has to hear of it.
	if l.ran && e.forgot == "" && e.ended == nil {
		l.saving = make(chan struct{})
	}
	saving := l.saving
	e.mu.Unlock()
	if saving == nil {
		e.close(l)
		return true
	}
	e.m.wg.Go(func() { e.hibernate(l) })
	return true
}

// hibernate writes the memory of a sandbox down and ends it. watch does the rest.
func (e *entry) hibernate(l *live) {
	defer close(l.saving)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.m.ctx), hibernateTime) // Close waits for it
	defer cancel()
	began := time.Now()
	mem, err := e.writeMemory(ctx, l)
	if err != nil && !e.hasEnded() {
		e.m.log.WarnContext(ctx, "hibernating a container failed: its variables are lost", "container", e.key.id, "error", err)
	}
	if err == nil {
		l.saved = mem
		e.m.log.DebugContext(ctx, "hibernated", "container", e.key.id, "bytes", mem.Bytes, "took", time.Since(began))
		e.m.kickMemories()
	}
	_ = l.Close() // watch gets the same error
}

func (e *entry) writeMemory(ctx context.Context, l *live) (store.Memory, error) {
	m := e.m
	if err := m.checkSpace(); err != nil {
		return store.Memory{}, err
	}
	mem := store.Memory{ID: turn.NewID("mem_"), CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
	if err := e.freeze(ctx, mem); err != nil {
		return store.Memory{}, err
	}
	dir := m.memoryDir(e.key.id, mem.ID)
	image, err := memory.Create(dir)
	if err == nil {
		err = l.Checkpoint(ctx, image)
	}
	if err == nil {
		err = e.syncVolume() // memory that is newer than the files would not fit them either
	}
	if err == nil {
		mem.Bytes, err = memory.Seal(dir)
	}
	if err != nil {
		return store.Memory{}, errors.Join(err, os.RemoveAll(dir))
	}
	// After an error of this step nobody knows whether the row names the image, so it stays; tidy removes it if not.
	return mem, e.transition(ctx, store.StateHibernating, func(c *store.Container) { c.State, c.Memory = store.StateHibernated, mem })
}

// errNoMemory is wrapped where an image can never be resumed.
var errNoMemory = errors.New("container: memory cannot be resumed")

// resume starts a sandbox from mem. An error that wraps errNoMemory says that this is not possible at any time.
func (e *entry) resume(ctx context.Context, spec sandbox.Spec, mem store.Memory) (sandbox.Sandbox, error) {
	dir := e.m.memoryDir(e.key.id, mem.ID)
	if _, ok := memory.Sealed(dir); !ok {
		if err := e.m.unpack(ctx, e.key, mem); err != nil {
			return nil, err
		}
	}
	sb, err := e.m.Backend.Restore(ctx, spec, memory.Image(dir))
	if err != nil && ctx.Err() == nil && !errors.Is(err, sandbox.ErrUnusable) && !errors.Is(err, sandbox.ErrUnavailable) {
		e.m.log.WarnContext(ctx, "resuming a container failed once", "container", e.key.id, "error", err)
		spec.ID = e.key.id + "-" + suffix()
		sb, err = e.m.Backend.Restore(ctx, spec, memory.Image(dir))
	}
	if errors.Is(err, sandbox.ErrUnusable) {
		err = fmt.Errorf("%w: %w", errNoMemory, err)
	}
	return sb, err
}

// unpack fetches an image from the blobs.
func (m *Manager) unpack(ctx context.Context, key entryKey, mem store.Memory) error {
	if mem.Packed == 0 {
		return fmt.Errorf("%w: its image is gone", errNoMemory)
	}
	r, err := m.Blobs.OpenNamed(ctx, key.project, mem.ID)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoMemory, err)
	}
	defer r.Close()
	dir := m.memoryDir(key.id, mem.ID)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	sum := &summed{r: r, h: sha256.New()}
	err = memory.Unpack(ctx, sum, dir, unpackLimit(mem))
	if errors.Is(err, memory.ErrDamaged) {
		return fmt.Errorf("%w: %w", errNoMemory, err)
	}
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, sum); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if hex.EncodeToString(sum.h.Sum(nil)) != mem.SHA256 {
		return errors.Join(fmt.Errorf("%w: its packed image has another checksum", errNoMemory), os.RemoveAll(dir))
	}
	return nil
}

// unpackLimit is what an image may take: what it took before, and something for the headers.
func unpackLimit(mem store.Memory) int64 { return mem.Bytes + 1<<20 }

// summed hashes what is read through it.
type summed struct {
	r io.Reader
	h hash.Hash
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.h.Write(p[:n])
	return n, err
}

// consumed writes down that the container has a sandbox that goes on, and removes the memory that it went on with, or could not.
func (e *entry) consumed(ctx context.Context, mem store.Memory) error {
	err := e.transition(ctx, store.StateResuming, func(c *store.Container) { c.State, c.Memory = store.StateLive, store.Memory{} })
	if err != nil {
		return err
	}
	e.m.hold(e)
	e.m.wg.Go(func() {
		defer e.m.release(e)
		e.m.dropMemory(ctx, e.key, mem)
	})
	return nil
}

// unclaim writes down that there is no sandbox after all. The memory is as good as before, unless it is spent.
func (e *entry) unclaim(ctx context.Context, mem store.Memory, spent bool) {
	if spent {
		e.setForgot()
	}
	_, err := e.edit(context.WithoutCancel(ctx), func(c *store.Container) error {
		if c.Owner != e.m.owner || c.Ended() {
			return errLost
		}
		c.State, c.Memory = store.StateIdle, store.Memory{}
		if mem.ID != "" && !spent {
			c.State, c.Memory = store.StateHibernated, mem
		}
		return nil
	})
	if err != nil && !e.hasEnded() {
		e.m.log.ErrorContext(ctx, "updating a container's row failed", "container", e.key.id, "error", err)
	}
}

// dropMemory removes an image that no row names any more. What cannot be removed is found by the next Reconcile.
func (m *Manager) dropMemory(ctx context.Context, key entryKey, mem store.Memory) {
	if mem.ID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := errors.Join(os.RemoveAll(m.memoryDir(key.id, mem.ID)), m.Blobs.DeleteNamed(ctx, key.project, mem.ID))
	if err != nil {
		m.log.Error("removing the image of a container's memory failed", "container", key.id, "error", err)
	}
}
