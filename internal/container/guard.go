package container

import (
	"context"
	"errors"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// guardEvery is how often the host's disk is looked at while code runs. Within it a program writes less than half of the usual reserve.
const guardEvery = 200 * time.Millisecond

var errDiskFull = errors.New("the program was stopped: the server's disk is nearly full. Delete files, or ask the operator for space")

// guarded runs one call and counts its time. Volumes may be larger together than the host's disk, and a file system whose image finds no room
// loses writes that programs believe done; so code that runs when half of Config.Reserve is gone is interrupted.
func (w *workspace) guarded(ctx context.Context, l *live, call sandbox.Call, col *collector) (*sandbox.Result, error) {
	if err := w.show(ctx, l); err != nil {
		return nil, err
	}
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	defer func() { w.m.quotas.ran(w.key.project, time.Since(began)) }()
	if w.m.Reserve > 0 {
		w.m.wg.Go(func() {
			if w.m.fillsUp(run) {
				cancel(errDiskFull)
			}
		})
	}
	res, err := l.Exec(run, call, col.push)
	if err == nil || ctx.Err() != nil || !errors.Is(context.Cause(run), errDiskFull) || errors.Is(err, sandbox.ErrDied) {
		return res, err
	}
	w.m.log.WarnContext(ctx, "a program was stopped because the disk is nearly full", "container", w.key.id)
	stopped := &sandbox.Result{Status: sandbox.StatusInterrupted, ExitCode: 130, Error: errDiskFull.Error(), Duration: time.Since(began)}
	if res != nil {
		stopped.KernelRestarted, stopped.Truncated = res.KernelRestarted, res.Truncated
	}
	return stopped, nil
}

// fillsUp waits until the host's disk is nearly full, which is true, or ctx ends.
func (m *Manager) fillsUp(ctx context.Context) bool {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
			if free, err := freeSpace(m.Dir); err == nil && free < m.Reserve/2 {
				return true
			}
		}
	}
}
