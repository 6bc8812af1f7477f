package gvisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/link"
)

// box is one running sandbox.
type box struct {
	b      *Backend
	id     string
	env    map[string]string
	mounts []sandbox.Mount
	vessel *vessel
	link   *link.Link
	image  imageMark // what its memory depends on, for Checkpoint

	hold sync.Mutex         // held by what the removal must wait for: Bind, and Checkpoint until gVisor has answered
	life context.Context    //nolint:containedctx // until Close; it ends what holds
	end  context.CancelFunc // ends life

	// Set before dead is closed.
	oom     bool
	endErr  error
	dead    chan struct{}
	closing sync.Once
	closed  atomic.Bool // by Close or Checkpoint, not by itself
}

var _ sandbox.Sandbox = (*box)(nil)

// newBox talks with the guest that runs in v, or is about to, and owns v from now on, errors included.
func (b *Backend) newBox(ctx context.Context, v *vessel, spec sandbox.Spec, mark imageMark) *box {
	x := &box{b: b, id: spec.ID, env: spec.Env, mounts: spec.Mounts, vessel: v, image: mark, dead: make(chan struct{})}
	x.life, x.end = context.WithCancel(context.WithoutCancel(ctx))
	x.link = link.New(v.conn, spec.Limits, b.cfg.Logger.With("sandbox", x.id))
	b.mu.Lock()
	b.boxes[x.id] = x
	b.mu.Unlock()
	go x.watch(context.WithoutCancel(ctx))
	return x
}

// ready returns when the guest has answered. After an error nothing is left.
func (x *box) ready(ctx context.Context) error {
	if err := x.link.Ready(ctx); err != nil {
		return errors.Join(x.vessel.explain("start", err), x.Close())
	}
	return nil
}

// watch waits for the end and frees everything. It is the only one to close dead.
func (x *box) watch(ctx context.Context) {
	<-x.link.Done()
	x.hold.Lock()
	ended := x.closed.Swap(true)
	x.hold.Unlock()
	x.end()
	log := x.b.cfg.Logger.With("sandbox", x.id)
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	x.oom = x.b.cgroups.oomKilled(x.vessel.name)
	x.endErr = x.vessel.remove(ctx)
	if x.endErr != nil {
		log.WarnContext(ctx, "a sandbox was not removed whole", "error", x.endErr)
	}
	if !ended {
		log.WarnContext(ctx, "a sandbox ended by itself", "out_of_memory", x.oom, "said", x.vessel.stderr.last())
	}
	x.b.release(x.id)
	close(x.dead)
}

// Exec has the contract of sandbox.Sandbox.Exec.
func (x *box) Exec(ctx context.Context, call sandbox.Call, sink func(sandbox.Output)) (*sandbox.Result, error) {
	result, err := x.link.Exec(ctx, link.WithEnv(call, x.env), sink)
	if errors.Is(err, sandbox.ErrDied) {
		<-x.dead // whether it was for want of memory is known then
		if x.oom {
			err = fmt.Errorf("%w: %w", sandbox.ErrOutOfMemory, err)
		}
	}
	return result, err
}

// Connect has the contract of sandbox.Sandbox.Connect.
func (x *box) Connect(ctx context.Context, n *sandbox.Network) error { return x.link.Connect(ctx, n) }

// OpenTerminal has the contract of sandbox.Sandbox.OpenTerminal.
func (x *box) OpenTerminal(ctx context.Context, spec sandbox.TerminalSpec) (sandbox.Terminal, error) {
	return x.link.OpenTerminal(ctx, spec)
}

// Done has the contract of sandbox.Sandbox.Done. Nothing of the sandbox is left when it is closed.
func (x *box) Done() <-chan struct{} { return x.dead }

// Close has the contract of sandbox.Sandbox.Close.
func (x *box) Close() error {
	x.closed.Store(true)
	x.end()
	x.closing.Do(func() { _ = x.link.Close() })
	<-x.dead
	return x.endErr
}
