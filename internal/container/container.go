// Package container is what is durable about running code: a container is a sandbox with a name, files and a lifetime. It decides which
// container a request gets, keeps its files on a volume, starts a sandbox when code is to run, frees it when it is idle, and turns what
// a call made into immutable files.
//
// It speaks no protocol and runs no code itself: package sandbox does that behind sandbox.Backend. Surfaces, the agent (through
// tool.Workspaces) and cmd/lathe may import it.
package container

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/egress"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Config is what a Manager is made of. Store, Blobs, Backend and Dir are required; every other zero value has a default.
type Config struct {
	Store   store.Store
	Blobs   *blob.Store
	Backend sandbox.Backend
	// Egress is the way to the network for containers whose policy has one; nil is none for all.
	Egress *egress.Proxy
	// Skills are those that requests may name; nil is none.
	Skills Skills
	// Dir has the volumes. It belongs to this process: what is below it and has no row is removed.
	Dir string
	// Limits are those of every container; Limits.Memory is also the most that a client may ask for. Zero is sandbox.Defaults.
	Limits sandbox.Limits
	// ExpireAfter is how long a container lives after its last use, and the most that a client may ask for. Zero is 30 days.
	ExpireAfter time.Duration
	// IdleAfter is for how long no call may have used a sandbox before it hibernates: its memory goes to the disk. Zero is a minute.
	IdleAfter time.Duration
	// MemoryQuota caps the bytes of hibernated memory of each project; what was written first goes first, and the container goes on with
	// its files alone. Zero is 10 GiB, negative is no limit.
	MemoryQuota int64
	// RawFor is for how long hibernated memory is also kept as it was written, which resumes faster than the packed form, and RawQuota
	// how many bytes of it there may be in all. Zero is an hour, and 4 GiB.
	RawFor   time.Duration
	RawQuota int64
	// MaxMemory caps the sum of the memory limits of the sandboxes that are up at once, in bytes. Zero is three quarters of the host's
	// memory, or twice Limits.Memory if that is more.
	MaxMemory int64
	// MaxLive caps the sandboxes that are up at once. Zero is as many as fit MaxMemory at Limits.Memory each.
	MaxLive int
	// SlotWait is how long a call waits for a place. Zero is 30 seconds.
	SlotWait time.Duration
	// Images are the folders of the images of projects that have one of their own; others have the backend's default.
	Images map[string]string
	// PerProject is what a project may take; Projects are those for which something else holds.
	PerProject ProjectLimits
	Projects   map[string]ProjectLimits
	// Pool is how many spare containers wait at least (see StartPool), PoolMax how many under a burst. Zero keeps none.
	Pool, PoolMax int
	// Reserve is the free space of the host's disk, in bytes, below which nothing new is written. Zero is 1 GiB, negative is none.
	Reserve int64
	// History caps the bytes of all versions of a container's files together. Zero is twice Limits.Disk.
	History int64
	// MaxFiles caps the stored versions of a container's files. Zero is 20,000.
	MaxFiles int
	// MaxFile caps one uploaded or captured file. Zero is 512 MiB.
	MaxFile int64
	// MaxDocument caps what Uploads.Content returns. Zero is 32 MiB.
	MaxDocument int64
	// DrainTime is how long Close lets running calls go on. Zero is 10 seconds.
	DrainTime time.Duration
	// PlainVolumes keeps volumes in plain folders even where disk images could be mounted. Disk limits then do not hold.
	PlainVolumes bool
	Logger       *slog.Logger
}

func (c *Config) setDefaults() {
	if c.Limits == (sandbox.Limits{}) {
		c.Limits = sandbox.Defaults()
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.ExpireAfter, 720 * time.Hour}, {&c.IdleAfter, time.Minute}, {&c.RawFor, time.Hour}, {&c.SlotWait, 30 * time.Second},
		{&c.DrainTime, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *int64
		value int64
	}{
		{&c.Reserve, 1 << 30}, {&c.History, 2 * c.Limits.Disk}, {&c.MaxFile, 512 << 20}, {&c.MaxDocument, 32 << 20},
		{&c.MemoryQuota, 10 << 30}, {&c.RawQuota, 4 << 30},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	memory := max(c.Limits.Memory, 1<<20)
	if c.MaxMemory == 0 {
		c.MaxMemory = max(2*memory, hostMemory()*3/4)
	}
	if c.MaxLive == 0 {
		c.MaxLive = max(1, int(c.MaxMemory/memory))
	}
	if c.MaxFiles == 0 {
		c.MaxFiles = 20_000
	}
	c.PoolMax = max(c.Pool, c.PoolMax)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) validate() error {
	var errs []error
	if c.Store == nil || c.Blobs == nil || c.Backend == nil || c.Dir == "" {
		errs = append(errs, errors.New("container: Store, Blobs, Backend and Dir are required"))
	}
	if c.Limits.Disk < minDisk {
		errs = append(errs, fmt.Errorf("container: disk limit of %d bytes is below %d", c.Limits.Disk, minDisk))
	}
	if c.ExpireAfter < time.Minute || c.IdleAfter < 0 || c.MaxLive < 1 || c.Pool < 0 {
		errs = append(errs, errors.New("container: ExpireAfter must be a minute at least, IdleAfter and MaxLive positive"))
	}
	if c.MaxMemory < c.Limits.Memory {
		errs = append(errs, fmt.Errorf("container: the memory of all sandboxes (%d bytes) is less than one may have (%d)", c.MaxMemory, c.Limits.Memory))
	}
	return errors.Join(errs...)
}

// Manager owns all containers of this process. It is safe for concurrent use. Every method that a client's request reaches sees only
// the project of ctx's principal, and answers with *turn.Error.
type Manager struct {
	Config
	volumes *volumes
	uploads *Uploads
	slots   *slots
	quotas  *quotas
	pool    *pool
	log     *slog.Logger

	// owner is what rows call this process, and alive the locked file that says that it lives.
	owner string
	alive *os.File
	kick  chan struct{} // see kickMemories

	// ctx ends with Close; what outlives a request runs under it, and wg waits for it.
	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	entries map[entryKey]*entry
	closed  bool
}

var _ tool.Workspaces = (*Manager)(nil)

// New returns a Manager and starts its reaper. Call Reconcile before the first request, and Close at the end.
func New(cfg Config) (*Manager, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("container: %w", err)
	}
	if err := os.Chmod(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("container: %w", err)
	}
	// The kernel lists mounts and loop devices under their real paths.
	dir, err := filepath.Abs(cfg.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("container: %w", err)
	}
	cfg.Dir = dir
	m := &Manager{Config: cfg, log: cfg.Logger, entries: map[entryKey]*entry{}, kick: make(chan struct{}, 1)}
	if err := m.lockOwner(); err != nil {
		return nil, err
	}
	m.ctx, m.stop = context.WithCancelCause(context.Background())
	m.volumes = newVolumes(m.ctx, cfg.Dir, cfg.Limits.Disk, cfg.PlainVolumes)
	m.quotas = newQuotas(&m.Config, m.volumes)
	m.uploads = &Uploads{
		store: cfg.Store, blobs: cfg.Blobs, maxFile: cfg.MaxFile, maxDocument: cfg.MaxDocument, reserve: cfg.Reserve, quotas: m.quotas,
	}
	m.pool = newPool(m)
	m.slots = newSlots(&m.Config, m.evict)
	for _, background := range []func(){m.reap, m.renewLeases, m.keepMemories, m.tidyNowAndThen, func() { m.quotas.run(m.ctx) }} {
		m.wg.Go(background)
	}
	return m, nil
}

// Uploads returns the uploaded files, which containers share with the Files API.
func (m *Manager) Uploads() *Uploads { return m.uploads }

// errClosing is what new work gets while the process drains.
var errClosing = &turn.Error{Kind: turn.KindOverloaded, Message: "the server is shutting down; try again", RetryAfter: 5 * time.Second}

// Close refuses new work, lets running calls go on for Config.DrainTime, interrupts the rest, hibernates all sandboxes, unmounts all
// volumes and waits for everything that the Manager started. Idempotent. It closes neither Store, Blobs nor Backend.
func (m *Manager) Close() error {
	m.mu.Lock()
	again := m.closed
	m.closed = true
	m.mu.Unlock()
	if again {
		m.wg.Wait()
		return nil
	}
	m.pool.close()
	m.parkAll(false) // while the others come to their end
	m.await(m.DrainTime, m.busy)
	m.stop(errClosing) // interrupts what still runs
	m.await(interruptTime, m.calling)
	m.parkAll(true)
	m.wg.Wait()
	m.quotas.save(context.Background())
	errs := []error{m.volumes.close()}
	for _, e := range m.all() {
		errs = append(errs, m.volumes.unmount(e.detach())) // of workspaces that were not closed
	}
	return errors.Join(append(errs, m.unlockOwner())...)
}

// parkAll begins to hibernate what no call uses, or everything.
func (m *Manager) parkAll(force bool) {
	for _, e := range m.all() {
		e.parkNow(time.Now(), force)
	}
}

// begin is called by everything that may start a goroutine or meets Close; the caller defers m.wg.Done when it returns nil.
func (m *Manager) begin() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosing
	}
	m.wg.Add(1)
	return nil
}

// interruptTime is more than a call takes to end that is interrupted, and killed if it goes on.
const interruptTime = 3 * time.Second

// await waits until what is over, at most for d.
func (m *Manager) await(d time.Duration, what func() bool) {
	deadline := time.After(d)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for what() {
		select {
		case <-deadline:
			return
		case <-tick.C:
		}
	}
}

// busy says whether a workspace is open, calling whether a call runs.
func (m *Manager) busy() bool    { return slices.ContainsFunc(m.all(), (*entry).busy) }
func (m *Manager) calling() bool { return slices.ContainsFunc(m.all(), (*entry).calling) }

func (m *Manager) all() []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*entry, 0, len(m.entries))
	for _, e := range m.entries {
		out = append(out, e)
	}
	return out
}

// projectOf is the project that ctx may see.
func projectOf(ctx context.Context) (string, error) {
	project := auth.FromContext(ctx).Project
	if project == "" {
		return "", &turn.Error{Kind: turn.KindUnauthenticated, Message: "no API key was given; send it as Authorization: Bearer <key>"}
	}
	return project, nil
}

// checkSpace refuses work that would fill the host's disk.
func (m *Manager) checkSpace() error { return checkSpace(m.Dir, m.Reserve) }

func checkSpace(dir string, reserve int64) error {
	free, err := freeSpace(dir)
	if err != nil {
		return turn.Internal(fmt.Errorf("free space of %s: %w", dir, err))
	}
	if free < reserve {
		return &turn.Error{
			Kind: turn.KindOverloaded, Message: "the server's disk is nearly full; delete containers or files, or ask the operator for space",
			Cause: fmt.Errorf("%s free on the disk of %s, reserve %s", size(free), dir, size(reserve)),
		}
	}
	return nil
}

// size writes a number of bytes as people say it.
func size(n int64) string {
	for _, u := range []struct {
		unit string
		n    int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.n {
			if n%u.n == 0 {
				return fmt.Sprintf("%d %s", n/u.n, u.unit)
			}
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.n), u.unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
