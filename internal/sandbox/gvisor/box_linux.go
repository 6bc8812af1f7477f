package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/link"
)

// box is one running sandbox.
type box struct {
	b    *Backend
	id   string
	env  map[string]string
	link *link.Link

	mu    sync.Mutex
	procs []process // the sandbox's and its gofer's, while they run

	// Set before dead is closed.
	oom     bool
	endErr  error
	dead    chan struct{}
	closing sync.Once
	closed  atomic.Bool // by Close, not by itself
	stderr  *tail
}

var _ sandbox.Sandbox = (*box)(nil)

// start runs runsc until the guest answers. After an error nothing is left.
func (x *box) start(ctx context.Context, root rootfs, spec sandbox.Spec) (err error) {
	defer func() {
		if err != nil {
			cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
			defer cancel()
			err = errors.Join(err, x.remove(cleanup))
		}
	}()
	b := x.b
	if err := x.writeBundle(root, spec); err != nil {
		return err
	}
	conn, cmd, err := x.launch(ctx)
	if err != nil {
		return err
	}
	x.link = link.New(conn, spec.Limits, b.cfg.Logger.With("sandbox", x.id))
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	ready := make(chan error, 1)
	readyCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { ready <- x.link.Ready(readyCtx) }()

	// runsc leaves once the sandbox runs, a little before or after the guest's first word.
	for exited != nil || ready != nil {
		select {
		case err := <-exited:
			exited = nil
			if err != nil {
				cancel(err)
				return errors.Join(x.startError(err), x.link.Close())
			}
			x.adopt()
		case err := <-ready:
			ready = nil
			if err != nil {
				_ = cmd.Process.Kill()
				return errors.Join(x.startError(err), x.link.Close())
			}
		}
	}
	if err := b.cgroups.started(x.id, spec.Limits); err != nil {
		b.cfg.Logger.WarnContext(ctx, "the sandbox's cgroup is not complete", "sandbox", x.id, "error", err)
	}
	go x.watch(context.WithoutCancel(ctx))
	return nil
}

func (x *box) bundle() string { return filepath.Join(x.b.layout.bundles, x.id) }

func (x *box) writeBundle(root rootfs, spec sandbox.Spec) error {
	b := x.b
	data, err := json.Marshal(newSpec(specInput{
		layout: b.layout, root: root, cgroup: b.cgroups.path(x.id), swap: b.cgroups.swap, ids: b.ids(),
	}, spec))
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if err := os.Mkdir(x.bundle(), 0o755); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if err := os.WriteFile(filepath.Join(x.bundle(), "config.json"), data, 0o600); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

// launch starts runsc with the guest's standard input and output at the other end of the connection.
func (x *box) launch(ctx context.Context) (io.ReadWriteCloser, *exec.Cmd, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("gvisor: %w", err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("gvisor: %w", err), inR.Close(), inW.Close())
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("gvisor: %w", err), inR.Close(), inW.Close(), outR.Close(), outW.Close())
	}
	conn := &stdio{r: outR, w: inW}
	cmd := x.b.command(ctx, append(x.b.flags(), "run", "--detach", "--bundle="+x.bundle(), x.id)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	table, err := reserveTable(cmd)
	if err == nil {
		err = errors.Join(cmd.Start(), table.Close())
	}
	errs := []error{inR.Close(), outW.Close(), errW.Close()}
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("gvisor: %w", err), conn.Close(), errR.Close())
	}
	x.stderr = newTail(errR)
	return conn, cmd, nil
}

// flags are runsc's own, and which of its ways we chose.
func (b *Backend) flags() []string {
	flags := []string{
		b.rootFlag(),
		"--platform=systrap", // kvm wants a device, and hung where it was tried
		"--network=none",     // a loopback of its own and nothing else
		"--overlay2=none",    // the root is read-only and the mounts are meant to be written: nothing to lay over
		"--host-uds=none",    // no socket of the host, even if one lies in a mounted folder
		"--host-fifo=none",
		"--file-access-mounts=shared", // the gateway writes into /mnt/data too
		"--allow-suid=false",
		"--host-settings=ignore", // advice that nobody would read
	}
	if b.cgroups.version == 0 {
		flags = append(flags, "--ignore-cgroups")
	}
	if b.cfg.Debug {
		flags = append(flags, "--debug", "--debug-log="+b.layout.debug+"/")
	}
	return flags
}

// adopt takes hold of the processes that runsc has left running.
func (x *box) adopt() {
	var state struct {
		GoferPid int `json:"goferPid"`
		Sandbox  struct {
			Pid int `json:"pid"`
		} `json:"sandbox"`
	}
	flag := x.b.rootFlag()
	var procs []process
	data, err := os.ReadFile(filepath.Join(x.b.layout.runsc, x.id+"_sandbox:"+x.id+".state"))
	if err == nil && json.Unmarshal(data, &state) == nil {
		for _, pid := range []int{state.Sandbox.Pid, state.GoferPid} {
			if p, ok := openProcess(pid, flag); pid > 1 && ok {
				procs = append(procs, p)
			}
		}
	}
	x.mu.Lock()
	x.procs = procs
	x.mu.Unlock()
}

// startError says why a sandbox did not start, with what runsc and the guest wrote.
func (x *box) startError(err error) error {
	said := x.stderr.last()
	if said == "" {
		return fmt.Errorf("gvisor: start of sandbox %q: %w", x.id, err)
	}
	return fmt.Errorf("gvisor: start of sandbox %q: %w: %s", x.id, err, said)
}

// watch waits for the end and frees everything. It is the only one to close dead.
func (x *box) watch(ctx context.Context) {
	<-x.link.Done()
	log := x.b.cfg.Logger.With("sandbox", x.id)
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	x.oom = x.b.cgroups.oomKilled(x.id)
	x.endErr = x.remove(ctx)
	if x.endErr != nil {
		log.WarnContext(ctx, "a sandbox was not removed whole", "error", x.endErr)
	}
	if !x.closed.Load() {
		log.WarnContext(ctx, "a sandbox ended by itself", "out_of_memory", x.oom, "said", x.stderr.last())
	}
	x.b.release(x.id)
	close(x.dead)
}

// remove ends what runs and removes what was made.
func (x *box) remove(ctx context.Context) error {
	x.mu.Lock()
	procs := x.procs
	x.procs = nil
	x.mu.Unlock()
	errs := []error{killAll(ctx, procs)}
	if len(procs) < 2 {
		// runsc did not get as far as leaving its state, or it could not be read.
		_, err := killMarked(ctx, "--bundle="+x.bundle())
		errs = append(errs, err)
	}
	if x.stderr != nil {
		x.stderr.close()
	}
	if x.b.cgroups.version != 0 {
		errs = append(errs, x.b.cgroups.remove(ctx, x.id))
	}
	for _, name := range []string{x.id + "_sandbox:" + x.id + ".state", x.id + "_sandbox:" + x.id + ".lock", "runsc-" + x.id + ".sock"} {
		if err := os.Remove(filepath.Join(x.b.layout.runsc, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(x.bundle()))...)
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

// Done has the contract of sandbox.Sandbox.Done. Nothing of the sandbox is left when it is closed.
func (x *box) Done() <-chan struct{} { return x.dead }

// Close has the contract of sandbox.Sandbox.Close.
func (x *box) Close() error {
	x.closed.Store(true)
	x.closing.Do(func() { _ = x.link.Close() })
	<-x.dead
	return x.endErr
}

// stdio is the guest's standard input and output as one connection.
type stdio struct{ r, w *os.File }

func (s *stdio) Read(p []byte) (int, error)  { return s.r.Read(p) }
func (s *stdio) Write(p []byte) (int, error) { return s.w.Write(p) }
func (s *stdio) Close() error                { return errors.Join(s.w.Close(), s.r.Close()) }

// tail keeps the end of what is written to standard error by runsc, gVisor and the guest.
type tail struct {
	f    *os.File
	done chan struct{}

	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func newTail(f *os.File) *tail {
	t := &tail{f: f, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		_, _ = io.Copy(t, f)
	}()
	return t
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// last is what was written last, on one line, after giving the writer a moment to finish.
func (t *tail) last() string {
	select {
	case <-t.done:
	case <-time.After(200 * time.Millisecond):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(string(bytes.ToValidUTF8(t.buf, nil))), " ")
}

func (t *tail) close() {
	_ = t.f.Close()
	<-t.done
}

func (x *box) Checkpoint(context.Context, string) error {
	return fmt.Errorf("gvisor: checkpoint: %w", errors.ErrUnsupported)
}

func (x *box) Bind(context.Context, sandbox.Mount) error {
	return fmt.Errorf("gvisor: bind: %w", errors.ErrUnsupported)
}
