package gvisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// spares keeps vessels ready for the next start or restore, which spares both what runsc takes to create one: about half of their time. A
// vessel is for one root file system, layout and set of limits, its key; whose it will be need not be known. Only where mounts can come
// later (see tree).
type spares struct {
	b    *Backend
	most int

	ctx    context.Context    //nolint:containedctx // of what is being made
	cancel context.CancelFunc // ends ctx
	wg     sync.WaitGroup

	mu     sync.Mutex
	ready  []spare
	making map[string]chan struct{} // by key; closed when one has been made, or has failed
	last   string                   // the key that was asked for last
	closed bool
}

type spare struct {
	key    string
	vessel *vessel
}

// spareTime bounds how long runsc create may take in the background.
const spareTime = time.Minute

func newSpares(b *Backend, most int) *spares {
	s := &spares{b: b, most: most, making: map[string]chan struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func spareKey(root *rootfs, mark imageMark, l sandbox.Limits) string {
	return fmt.Sprint(root.path, mark.Runsc, mark.Guest, mark.Image, mark.Layout, l.Memory, l.CPUs, l.Processes)
}

// take returns a vessel for key, waits for one that is being made, or returns nil.
func (s *spares) take(ctx context.Context, key string) *vessel {
	for {
		s.mu.Lock()
		i := slices.IndexFunc(s.ready, func(r spare) bool { return r.key == key })
		if i >= 0 {
			v := s.ready[i].vessel
			s.ready = slices.Delete(s.ready, i, i+1)
			s.mu.Unlock()
			if v.alive() {
				return v
			}
			s.discard(v)
			continue
		}
		made := s.making[key]
		s.mu.Unlock()
		if made == nil {
			return nil
		}
		select {
		case <-made:
		case <-ctx.Done():
			return nil
		}
	}
}

// fill makes one more for key in the background if there are too few. Those of another key give way to it when it has been asked for twice
// in a row.
func (s *spares) fill(key string, root *rootfs, spec sandbox.Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.last == key
	s.last = key
	have := 0
	for _, r := range s.ready {
		if r.key == key {
			have++
		}
	}
	if s.closed || s.making[key] != nil || have >= s.most || !s.b.late {
		return
	}
	var out *vessel
	if len(s.ready)+len(s.making) >= s.most {
		i := slices.IndexFunc(s.ready, func(r spare) bool { return r.key != key })
		if i < 0 || !again {
			return
		}
		out = s.ready[i].vessel
		s.ready = slices.Delete(s.ready, i, i+1)
	}
	made := make(chan struct{})
	s.making[key] = made
	s.wg.Go(func() {
		defer close(made)
		if out != nil {
			s.discard(out)
		}
		s.add(key, root, spec)
	})
}

func (s *spares) add(key string, root *rootfs, spec sandbox.Spec) {
	ctx, cancel := context.WithTimeout(s.ctx, spareTime)
	defer cancel()
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	of := sandbox.Spec{Limits: spec.Limits, Mounts: slotMounts(spec.Mounts)}
	v, err := s.b.newVessel(ctx, fmt.Sprintf("spare-%x", id), root, of)
	s.mu.Lock()
	delete(s.making, key)
	closed := s.closed
	if err == nil && !closed {
		s.ready = append(s.ready, spare{key, v})
	}
	s.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil:
		s.b.cfg.Logger.WarnContext(ctx, "a sandbox could not be created ahead", "error", err)
	case err == nil && closed:
		s.discard(v)
	}
}

func (s *spares) discard(v *vessel) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	if err := v.remove(ctx); err != nil {
		s.b.cfg.Logger.WarnContext(ctx, "a sandbox that was created ahead was not removed whole", "error", err)
	}
}

// close ends them all, and with them what is being made.
func (s *spares) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	s.mu.Lock()
	ready := s.ready
	s.ready = nil
	s.mu.Unlock()
	for _, r := range ready {
		s.discard(r.vessel)
	}
}

// vessel returns one for spec, a spare one if there is any.
func (b *Backend) vessel(ctx context.Context, root *rootfs, spec sandbox.Spec, mark imageMark) (*vessel, error) {
	if v := b.spares.take(ctx, spareKey(root, mark, spec.Limits)); v != nil {
		return v, nil
	}
	return b.newVessel(ctx, spec.ID, root, spec)
}

// alive says whether its processes still run.
func (v *vessel) alive() bool {
	for _, p := range v.procs {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
	return len(v.procs) == 2
}
