package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// cleanupTime bounds how long the end of a sandbox may take: the kernel frees its memory in that time.
const cleanupTime = 10 * time.Second

// Backend starts sandboxes in gVisor.
type Backend struct {
	cfg     Config
	layout  layout
	cgroups cgroups
	uid     int
	guest   string // digest of Config.Guest
	late    bool   // this process can mount; see tree
	spares  *spares

	preparing sync.Mutex

	mu     sync.Mutex
	boxes  map[string]*box    // nil where a start is under way
	roots  map[string]*rootfs // by the folder of the image
	runsc  runscID
	sound  map[string]string // stamps of prepared images that were verified, by their folder
	closed bool
}

var _ sandbox.Backend = (*Backend)(nil)

// New prepares the state directory. That runsc or the image is missing is no error here: Start and Check say so.
func New(cfg Config) (*Backend, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	// gVisor refuses a root file system that is reached through a link.
	state, err := filepath.EvalSymlinks(cfg.StateDir)
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	b := &Backend{cfg: cfg, layout: newLayout(state), uid: os.Geteuid(), guest: digest(cfg.Guest), boxes: map[string]*box{}, roots: map[string]*rootfs{}, sound: map[string]string{}}
	b.spares = newSpares(b, cfg.Spares)
	b.cgroups = detectCgroups("/sys/fs/cgroup", b.layout.cgroup, b.uid)
	if err := b.prepare(); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Backend) prepare() error {
	dirs := []string{b.layout.runsc, b.layout.bundles, b.layout.mounts, b.layout.prepared, b.layout.guest}
	if b.cfg.Debug {
		dirs = append(dirs, b.layout.debug)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("gvisor: %w", err)
		}
	}
	b.late = b.shareTrees()
	// Renamed into place: sandboxes of an earlier gateway may still be running the old one.
	path := filepath.Join(b.layout.guest, "guest")
	if err := os.WriteFile(path+".new", b.cfg.Guest, 0o755); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

// Start has the contract of sandbox.Backend.Start.
func (b *Backend) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	root, err := b.admit(spec)
	if err != nil {
		return nil, err
	}
	mark, err := b.mark(ctx, root, spec.Mounts)
	if err != nil {
		return nil, err
	}
	return b.open(ctx, root, spec, mark, func() (*box, error) {
		x, err := b.fromPrepared(ctx, root, spec, mark)
		if x != nil || err != nil {
			return x, err
		}
		return b.cold(ctx, root, spec, mark)
	})
}

// cold starts a sandbox from nothing but its image.
func (b *Backend) cold(ctx context.Context, root *rootfs, spec sandbox.Spec, mark imageMark) (*box, error) {
	v, err := b.vessel(ctx, root, spec, mark)
	if err != nil {
		return nil, err
	}
	if err := v.start(ctx, spec.Mounts); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		return nil, errors.Join(err, v.remove(cleanup))
	}
	x := b.newBox(ctx, v, spec, mark)
	return x, x.ready(ctx)
}

// admit refuses a spec that cannot be, and returns its root file system.
func (b *Backend) admit(spec sandbox.Spec) (*rootfs, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	if err := checkRunsc(b.cfg.Runsc); err != nil {
		return nil, err
	}
	root, err := b.rootfs(spec.Image)
	if err != nil {
		return nil, err
	}
	for _, m := range topMounts(spec.Mounts) {
		if !root.hasTarget(m.Target) {
			return nil, fmt.Errorf("gvisor: there is no folder %s in %s to mount on", m.Target, root.path)
		}
	}
	return root, nil
}

// open makes a sandbox under spec's ID and sees to what else that takes, and to what the next one will.
func (b *Backend) open(ctx context.Context, root *rootfs, spec sandbox.Spec, mark imageMark, create func() (*box, error)) (sandbox.Sandbox, error) {
	if err := b.reserve(spec.ID); err != nil {
		return nil, err
	}
	x, err := create()
	if err != nil && ctx.Err() == nil && !errors.Is(err, sandbox.ErrUnusable) && !errors.Is(err, sandbox.ErrUnavailable) {
		x, err = create() // the vessel that was created ahead may have died under it
	}
	if err != nil {
		b.release(spec.ID)
		return nil, err
	}
	if err := b.cgroups.started(x.vessel.name, spec.Limits); err != nil {
		b.cfg.Logger.WarnContext(ctx, "the sandbox's cgroup is not complete", "sandbox", x.id, "error", err)
	}
	if b.isClosed() {
		return nil, errors.Join(errClosed, x.Close())
	}
	b.spares.fill(spareKey(root, mark, spec.Limits), root, spec)
	return x, nil
}

var errClosed = fmt.Errorf("%w: the gateway is shutting down", sandbox.ErrUnavailable)

// rootfs opens an image, "" for the configured one, at its first start, again until that succeeds, and again when it has been replaced
// twice, which removes it: who builds one need not restart the gateway.
func (b *Backend) rootfs(dir string) (*rootfs, error) {
	if dir == "" {
		dir = b.cfg.Image
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if root := b.roots[dir]; root != nil {
		if _, err := os.Stat(root.path); err == nil {
			return root, nil
		}
	}
	root, err := openRootfs(dir, b.layout)
	if err != nil {
		return nil, err
	}
	b.roots[dir] = &root
	return &root, nil
}

func checkRunsc(path string) error {
	if path == "" {
		return fmt.Errorf("%w: runsc is missing: run `make build`, which puts it into bin/ beside lathe", sandbox.ErrUnavailable)
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return fmt.Errorf("%w: runsc cannot be run from %s (%w): run `make build`", sandbox.ErrUnavailable, path, err)
	}
	return nil
}

func (b *Backend) reserve(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if _, taken := b.boxes[id]; taken {
		return fmt.Errorf("gvisor: sandbox %q is running already", id)
	}
	b.boxes[id] = nil
	return nil
}

func (b *Backend) release(id string) {
	b.mu.Lock()
	delete(b.boxes, id)
	b.mu.Unlock()
}

// Close ends all sandboxes and takes away what they shared.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	var boxes []*box
	for _, x := range b.boxes {
		if x != nil {
			boxes = append(boxes, x)
		}
	}
	b.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(boxes)+1)
	for i, x := range boxes {
		wg.Go(func() { errs[i] = x.Close() })
	}
	wg.Wait()
	b.spares.close()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	errs[len(boxes)] = b.Reconcile(ctx)
	return errors.Join(errs...)
}

// Reconcile has the contract of sandbox.Backend.Reconcile. What it looks for carries the path of the state directory, so it finds what a
// gateway left that was killed, and nothing of another state directory.
func (b *Backend) Reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	ended, err := killMarked(ctx, b.rootFlag())
	if ended > 0 {
		b.cfg.Logger.InfoContext(ctx, "ended what sandboxes were left", "processes", ended)
	}
	errs := []error{err, unmountUnder(b.layout.runsc), b.clearTrees(), b.clearPrepared(), b.cgroups.remove(ctx, "")}
	for _, dir := range []string{b.layout.runsc, b.layout.bundles} {
		errs = append(errs, emptyDir(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("gvisor: cleaning %s: %w", b.layout.state, err)
	}
	if b.isClosed() {
		return nil
	}
	// What all sandboxes share went with the rest.
	if b.cgroups.version != 0 {
		b.cgroups = detectCgroups(b.cgroups.root, b.layout.cgroup, b.uid)
	}
	b.late = b.shareTrees()
	return nil
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// rootFlag is the argument that all processes of this state directory have.
func (b *Backend) rootFlag() string { return "--root=" + b.layout.runsc }

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
