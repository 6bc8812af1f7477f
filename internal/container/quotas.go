package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// ProjectLimits is what all containers and files of one project may take together. Zero is no limit.
type ProjectLimits struct {
	// Live caps the containers that have a sandbox, Memory the sum of their memory limits in bytes.
	Live   int
	Memory int64
	// Stored caps the bytes on disk: volumes as far as they are filled, versions of files and uploads (equal ones count once), memory
	// images. Files caps the number of versions and uploads.
	Stored int64
	Files  int
	// TimePerDay caps for how long code may run in a day in UTC, the times of all calls added up. A call that has begun may pass it.
	TimePerDay time.Duration
}

// limitsOf is what holds for a project. Spares, which belong to none, have no limits.
func (c *Config) limitsOf(project string) ProjectLimits {
	if project == noProject {
		return ProjectLimits{}
	}
	if l, ok := c.Projects[project]; ok {
		return l
	}
	return c.PerProject
}

const (
	// retryBusy is the Retry-After where others must end first, retryFull where somebody must delete something.
	retryBusy = 10 * time.Second
	retryFull = time.Minute
)

// limitError is a limit of a project that is reached: 429 everywhere. limit is the key in lathe.yaml.
func limitError(project, limit, may, todo string, retry time.Duration) error {
	return &turn.Error{
		Kind: turn.KindRateLimited, Code: "project_limit_reached", RetryAfter: retry,
		Message: fmt.Sprintf("project %q may have %s (its limit %q): %s", project, may, limit, todo),
	}
}

// quotas counts what projects store and for how long their code runs. Where a project has no limit of a sort, that sort is not asked for.
type quotas struct {
	cfg     *Config
	volumes *volumes

	mu sync.Mutex
	by map[string]*quota
}

// quota is what is known of one project.
type quota struct {
	// bytes and files were measured at, and have been added to since if added. measuring is held meanwhile.
	bytes     int64
	files     int
	at        time.Time
	added     bool
	measuring sync.Mutex

	// stored is for how long code has run on day by the store, pending what it does not know of yet.
	day             time.Time
	stored, pending time.Duration
}

const (
	// measureEvery is how old a measurement of an own file system gets, walkEvery that of plain folders, which must be walked.
	measureEvery = 5 * time.Second
	walkEvery    = 30 * time.Second
	// saveEvery is how much of the time that code ran a crash can cost the count.
	saveEvery = 2 * time.Second
	// keepDays is how long days are kept.
	keepDays = 35
)

func newQuotas(cfg *Config, v *volumes) *quotas {
	return &quotas{cfg: cfg, volumes: v, by: map[string]*quota{}}
}

func (q *quotas) of(project string) *quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.by[project]
	if u == nil {
		u = &quota{}
		q.by[project] = u
	}
	return u
}

// room is what a project may still store.
type room struct {
	bytes int64
	files int
}

// left measures if the last time is long ago. What cannot be measured is no reason to refuse anybody: it is logged.
func (q *quotas) left(ctx context.Context, project string) room {
	l := q.cfg.limitsOf(project)
	free := room{math.MaxInt64, math.MaxInt}
	if l.Stored == 0 && l.Files == 0 {
		return free
	}
	u := q.of(project)
	bytes, files, err := q.measured(ctx, project, u)
	if err != nil {
		if ctx.Err() == nil {
			q.cfg.Logger.ErrorContext(ctx, "measuring what a project stores failed", "project", project, "error", err)
		}
		return free
	}
	if l.Stored > 0 {
		free.bytes = max(0, l.Stored-bytes)
	}
	if l.Files > 0 {
		free.files = max(0, l.Files-files)
	}
	return free
}

func (q *quotas) measured(ctx context.Context, project string, u *quota) (bytes int64, files int, err error) {
	u.measuring.Lock()
	defer u.measuring.Unlock()
	every := measureEvery
	if !q.volumes.images {
		every = walkEvery
	}
	q.mu.Lock()
	bytes, files, fresh := u.bytes, u.files, time.Since(u.at) < every
	if !fresh {
		u.bytes, u.files, u.added = 0, 0, false // what is added from now on comes on top
	}
	q.mu.Unlock()
	if fresh {
		return bytes, files, nil
	}
	began := time.Now()
	bytes, files, err = q.measure(ctx, project)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		u.at = time.Time{}
		return 0, 0, err
	}
	u.bytes, u.files, u.at = u.bytes+bytes, u.files+files, began
	return u.bytes, u.files, nil
}

func (q *quotas) measure(ctx context.Context, project string) (bytes int64, files int, err error) {
	bytes, files, err = q.cfg.Store.Files().Stored(ctx, project)
	if err != nil {
		return 0, 0, err
	}
	for p := (store.Page{Limit: 10_000, Ascending: true}); ; {
		rows, more, err := q.cfg.Store.Containers().List(ctx, project, p)
		if err != nil {
			return 0, 0, err
		}
		for _, row := range rows {
			if !row.Ended() {
				bytes += q.volumes.stored(row.ID) + q.volumes.checkpoints(row.ID) + max(row.Memory.Bytes, row.Memory.Packed)
			}
		}
		if !more {
			return bytes, files, nil
		}
		p.After = rows[len(rows)-1].ID
	}
}

// mayStore says why a project may not store so much more.
func (q *quotas) mayStore(ctx context.Context, project string, bytes int64, files int) error {
	free := q.left(ctx, project)
	if (bytes > free.bytes || files > free.files) && q.estimated(project) {
		free = q.left(ctx, project)
	}
	l := q.cfg.limitsOf(project)
	switch {
	case bytes > free.bytes:
		return limitError(project, "stored", size(l.Stored)+" of stored files, volumes and memory", "delete files or containers", retryFull)
	case files > free.files:
		return limitError(project, "files", fmt.Sprintf("%d stored files", l.Files), "delete some", retryFull)
	}
	return nil
}

// reserve counts rows that are about to be made, or says why they may not be. back undoes it. A nil in staged is bytes that are there already.
func (q *quotas) reserve(ctx context.Context, staged []*blob.Staged, rows []store.File) (back func(), err error) {
	if len(rows) == 0 {
		return func() {}, nil
	}
	project := rows[0].Project
	var bytes int64
	for i, f := range rows {
		if staged[i] != nil {
			bytes += f.Bytes
		}
	}
	if err := q.mayStore(ctx, project, bytes, len(rows)); err != nil {
		// Equal bytes are kept once. To ask for each of them is worth it only now.
		for i, f := range rows {
			if n, errRefs := q.cfg.Store.Files().References(ctx, project, f.SHA256); staged[i] != nil && errRefs == nil && n > 0 {
				bytes -= f.Bytes
			}
		}
		if err := q.mayStore(ctx, project, bytes, len(rows)); err != nil {
			return nil, err
		}
	}
	add := func(bytes int64, files int) {
		u := q.of(project)
		q.mu.Lock()
		defer q.mu.Unlock()
		u.bytes += bytes
		u.files += files
		u.added = true
	}
	add(bytes, len(rows))
	return func() { add(-bytes, -len(rows)) }, nil
}

// estimated says whether what is known of a project was added up since it was measured, where bytes that it had already may have counted
// twice, and has it measured anew.
func (q *quotas) estimated(project string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.by[project]
	if u == nil || !u.added {
		return false
	}
	u.at = time.Time{}
	return true
}

// forget has the next question measured anew: something was deleted.
func (q *quotas) forget(project string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u := q.by[project]; u != nil {
		u.at = time.Time{}
	}
}

// mayRun says why the code of a project may not run now.
func (q *quotas) mayRun(ctx context.Context, project string) error {
	if err := q.mayStore(ctx, project, 1, 0); err != nil {
		return err
	}
	l := q.cfg.limitsOf(project)
	if l.TimePerDay == 0 {
		return nil
	}
	used, err := q.usedToday(ctx, project)
	if err != nil {
		return fmt.Errorf("sandbox seconds of project %s: %w", project, err)
	}
	if used < l.TimePerDay {
		return nil
	}
	now := time.Now().UTC()
	tomorrow := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	return limitError(project, "time_per_day", fmt.Sprintf("its code run for %v a day", l.TimePerDay), "the next day begins at midnight UTC",
		tomorrow.Sub(now))
}

func (q *quotas) usedToday(ctx context.Context, project string) (time.Duration, error) {
	u := q.of(project)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	q.mu.Lock()
	known, used := u.day.Equal(today), u.stored+u.pending
	q.mu.Unlock()
	if known {
		return used, nil
	}
	stored, err := q.cfg.Store.Usage().Used(ctx, project, today)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u.day, u.stored = today, stored
	return u.stored + u.pending, nil
}

// ran counts a call.
func (q *quotas) ran(project string, d time.Duration) {
	u := q.of(project)
	q.mu.Lock()
	defer q.mu.Unlock()
	u.pending += d
}

// run saves what was counted until ctx ends, and once more then.
func (q *quotas) run(ctx context.Context) {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	old := time.NewTicker(time.Hour)
	defer old.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			q.save(ctx)
		case now := <-old.C:
			if _, err := q.cfg.Store.Usage().Expire(ctx, now.AddDate(0, 0, -keepDays)); err != nil && ctx.Err() == nil {
				q.cfg.Logger.ErrorContext(ctx, "removing old days of usage failed", "error", err)
			}
		}
	}
}

// save writes what is pending, and learns what other processes on the same store have counted.
func (q *quotas) save(ctx context.Context) {
	q.mu.Lock()
	pending := map[*quota]string{}
	for project, u := range q.by {
		if u.pending > 0 {
			pending[u] = project
		}
	}
	q.mu.Unlock()
	for u, project := range pending {
		if err := q.saveOne(ctx, project, u); err != nil && !errors.Is(err, context.Canceled) {
			q.cfg.Logger.ErrorContext(ctx, "saving for how long code ran failed", "project", project, "error", err)
		}
	}
}

func (q *quotas) saveOne(ctx context.Context, project string, u *quota) error {
	now := time.Now().UTC()
	q.mu.Lock()
	d := u.pending
	q.mu.Unlock()
	if err := q.cfg.Store.Usage().Add(ctx, project, now, d); err != nil {
		return err
	}
	q.mu.Lock()
	u.pending -= d
	u.stored += d
	q.mu.Unlock()
	stored, err := q.cfg.Store.Usage().Used(ctx, project, now)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u.day, u.stored = now.Truncate(24*time.Hour), stored
	return nil
}

// stored is how many bytes of the disk a container's volume takes, as far as can be seen.
func (v *volumes) stored(id string) int64 {
	dir, err := v.folder(id)
	if err != nil {
		return 0
	}
	var st unix.Stat_t
	if unix.Stat(filepath.Join(dir, "volume.img"), &st) == nil {
		return st.Blocks * 512
	}
	return onDisk(filepath.Join(dir, "vol"))
}

// checkpoints is how many bytes a container's checkpoints take.
func (v *volumes) checkpoints(id string) int64 {
	dir, err := v.folder(id)
	if err != nil {
		return 0
	}
	return onDisk(filepath.Join(dir, "checkpoints"))
}

// onDisk is how many bytes of the disk everything below dir takes.
func onDisk(dir string) int64 {
	var bytes int64
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			bytes += st.Blocks * 512
		}
		return nil // what a program hides from its owner is not counted
	})
	return bytes
}
