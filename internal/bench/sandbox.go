package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// SandboxConfig is what Sandbox measures. Backend and Spec are required.
type SandboxConfig struct {
	Backend sandbox.Backend
	// Spec returns what a new sandbox is made of, each time with an ID and folders of its own.
	Spec func() (sandbox.Spec, error)
	// Open makes containers over a fresh data directory on Backend, with so many spares in their pool. Nil leaves out what is measured of
	// containers: claim and start.
	Open func(ctx context.Context, pool int) (*Containers, error)
	// StateDir is the backend's: the processes of a sandbox are known by it. "" leaves live_mib out.
	StateDir string
	// Python is the host's interpreter, for comparison; Runsc and RootFS are for a plain run of gVisor. "" leaves a comparison out.
	Python, Runsc, RootFS string
	// Progress is told what comes next; nil says nothing.
	Progress func(what string)
	// Quick takes few samples, for tests: the figures mean nothing then.
	Quick bool
}

// Sandbox measures starts, cells and memory.
func Sandbox(ctx context.Context, cfg SandboxConfig) (*Result, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	b := &sandboxBench{SandboxConfig: cfg, result: &Result{}}
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"preparing the image", b.prepare}, {"cells in a warm kernel, output, and its memory", b.cells},
		{"starts of a sandbox", b.starts}, {"new containers from the pool", b.claims}, {"new containers without a pool", b.containerStarts},
		{"containers that hibernate and go on", b.sleepers},
		{"starts a second", b.sustained}, {"python3 -c on the host", b.pythonC}, {"a plain runsc run", b.runscRun},
	} {
		cfg.Progress(step.what)
		if err := step.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return b.result, nil
}

type sandboxBench struct {
	SandboxConfig
	result *Result
}

func (b *sandboxBench) count(n int) int { return few(n, b.Quick) }

func (b *sandboxBench) start(ctx context.Context) (sandbox.Sandbox, error) {
	spec, err := b.Spec()
	if err != nil {
		return nil, err
	}
	return b.Backend.Start(ctx, spec)
}

// firstOutput runs code and returns when its first output came.
func firstOutput(ctx context.Context, sb sandbox.Sandbox, code string) (time.Time, error) {
	var first time.Time
	result, err := sb.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: code}, func(sandbox.Output) {
		if first.IsZero() {
			first = time.Now()
		}
	})
	switch {
	case err != nil:
		return first, err
	case result.Status != sandbox.StatusOK:
		return first, fmt.Errorf("the program ended with %s: %s", result.Status, result.Error)
	case first.IsZero():
		return first, errors.New("the program printed nothing")
	}
	return first, nil
}

const (
	warmUps, cellCount  = 10, 500
	outputCount         = 10
	claimCount          = 30
	resumeCount         = 15
	asleepCount         = 20
	liveCount           = 8
	startCount          = 8
	sustainedCount      = 40
	sustainedAtOnce     = 2
	comparisonCount     = 20
	plainRunCount       = 8
	dataLibraries       = "import numpy, pandas, matplotlib.pyplot; print(1)"
	probeLibraries      = "import importlib.util as u; print(all(u.find_spec(m) for m in ('numpy', 'pandas', 'matplotlib')))"
	bareProgram         = "print(1)"
	mib                 = 1 << 20
	longestSustainedRun = 30 * time.Second
)

func (b *sandboxBench) cells(ctx context.Context) error {
	var live []sandbox.Sandbox
	defer func() {
		for _, sb := range live {
			_ = sb.Close() // the backend ends what is left
		}
	}()
	for range b.count(liveCount) {
		sb, err := b.start(ctx)
		if err != nil {
			return err
		}
		live = append(live, sb)
		if _, err := firstOutput(ctx, sb, bareProgram); err != nil {
			return err
		}
	}
	var samples []time.Duration
	for i := range warmUps + b.count(cellCount) {
		begin := time.Now()
		if _, err := firstOutput(ctx, live[0], bareProgram); err != nil {
			return err
		}
		if i >= warmUps {
			samples = append(samples, time.Since(begin))
		}
	}
	b.result.times("cell", samples, "one cell in a warm kernel, call to result")
	if err := b.memory(len(live)); err != nil {
		return err
	}
	return b.output(ctx, live[0])
}

// prepare is done once for an image and a version of gVisor; every later start profits.
func (b *sandboxBench) prepare(ctx context.Context) error {
	begin := time.Now()
	if err := b.Backend.Prepare(ctx, ""); err != nil {
		return err
	}
	b.result.add("prepare", float64(time.Since(begin))/float64(time.Millisecond), "ms", "preparing the image, once for each version of it and of gVisor")
	return nil
}

func (b *sandboxBench) memory(live int) error {
	if b.StateDir == "" {
		return nil
	}
	pss, err := processMemory(b.StateDir)
	if err != nil {
		return err
	}
	b.result.add("live_mib", float64(pss)/mib/float64(live), "MiB", fmt.Sprintf(
		"memory of a live bare kernel, of %d side by side (PSS of all processes; those that share an address space count once)", live))
	return nil
}

// output is how fast a program's output comes through.
func (b *sandboxBench) output(ctx context.Context, sb sandbox.Sandbox) error {
	const bytes = 8 * mib // below Limits.Output
	var best float64
	for range b.count(outputCount) {
		var got int
		begin := time.Now()
		result, err := sb.Exec(ctx, sandbox.Call{Kind: sandbox.Bash, Code: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", bytes)},
			func(o sandbox.Output) { got += len(o.Text) })
		took := time.Since(begin)
		if err != nil {
			return err
		}
		if result.Status != sandbox.StatusOK || got != bytes {
			return fmt.Errorf("%d bytes of output came: %s %s", got, result.Status, result.Error)
		}
		best = max(best, float64(bytes)/mib/took.Seconds())
	}
	b.result.add("output_mib_s", best, "MiB/s", "output of a command, best of some calls with 8 MiB each")
	return nil
}

func (b *sandboxBench) starts(ctx context.Context) error {
	for _, kind := range []struct{ key, code, words string }{
		{"start_bare", bareProgram, "a new sandbox, to the first output of bare Python"},
		{"start_sandbox", dataLibraries, "a new sandbox, to the first output with numpy, pandas and matplotlib imported"},
	} {
		var samples []time.Duration
		for range b.count(startCount) {
			took, ok, err := b.oneStart(ctx, kind.code)
			if err != nil {
				return err
			}
			if !ok {
				break // an image without the libraries has no such figure
			}
			samples = append(samples, took)
		}
		if len(samples) > 0 {
			b.result.times(kind.key, samples, kind.words)
		}
	}
	return nil
}

func (b *sandboxBench) oneStart(ctx context.Context, code string) (took time.Duration, ok bool, err error) {
	begin := time.Now()
	sb, err := b.start(ctx)
	if err != nil {
		return 0, false, err
	}
	defer sb.Close()
	first, err := firstOutput(ctx, sb, code)
	if err != nil && code == dataLibraries && !hasLibraries(ctx, sb) {
		return 0, false, nil
	}
	return first.Sub(begin), err == nil, err
}

func hasLibraries(ctx context.Context, sb sandbox.Sandbox) bool {
	var out string
	_, err := sb.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: probeLibraries}, func(o sandbox.Output) { out += o.Text })
	return err == nil && out == "True\n"
}

// sustained starts and ends sandboxes as fast as it can, a few at once.
func (b *sandboxBench) sustained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestSustainedRun)
	defer cancel()
	var next, done atomic.Int64
	var mu sync.Mutex
	var failed error
	var workers sync.WaitGroup
	begin := time.Now()
	for range sustainedAtOnce {
		workers.Go(func() {
			for next.Add(1) <= int64(b.count(sustainedCount)) && ctx.Err() == nil {
				if _, _, err := b.oneStart(ctx, bareProgram); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
				done.Add(1)
			}
		})
	}
	workers.Wait()
	took := time.Since(begin)
	if failed != nil && ctx.Err() == nil || done.Load() == 0 {
		return errors.Join(failed, ctx.Err())
	}
	b.result.add("starts_per_s", float64(done.Load())/took.Seconds(), "/s", "sandboxes started, used once and ended, sustained")
	return nil
}

func (b *sandboxBench) pythonC(ctx context.Context) error {
	if b.Python == "" {
		return nil
	}
	samples, err := timeCommand(ctx, b.count(comparisonCount), func(int) *exec.Cmd { return exec.CommandContext(ctx, b.Python, "-c", bareProgram) })
	if err != nil {
		return err
	}
	b.result.times("python_c", samples, "for comparison: python3 -c 'print(1)' on the host, no isolation")
	return nil
}

// runscRun is gVisor as anyone would use it by hand: a bundle, and runsc run.
func (b *sandboxBench) runscRun(ctx context.Context) error {
	if b.Runsc == "" || b.RootFS == "" {
		return nil
	}
	dir, err := os.MkdirTemp("", "lathe-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer unmountNetns(filepath.Join(dir, "root"))
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.0",
		"process": map[string]any{
			"args": []string{"/usr/bin/python3", "-c", bareProgram}, "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"},
			"user": map[string]int{"uid": 1000, "gid": 1000},
		},
		"root":   map[string]any{"path": b.RootFS, "readonly": true},
		"mounts": []any{map[string]any{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux":  map[string]any{"namespaces": []any{map[string]string{"type": "pid"}, map[string]string{"type": "network"}}},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), spec, 0o600); err != nil {
		return err
	}
	samples, err := timeCommand(ctx, b.count(plainRunCount), func(i int) *exec.Cmd {
		args := []string{"--root", filepath.Join(dir, "root"), "--network=none", "--ignore-cgroups"}
		if os.Geteuid() != 0 {
			args = append(args, "--rootless")
		}
		return exec.CommandContext(ctx, b.Runsc, append(args, "run", "--bundle", dir, "lathe-bench-"+strconv.Itoa(i))...)
	})
	if err != nil {
		return err
	}
	b.result.times("runsc_run", samples, "for comparison: runsc run python3 -c 'print(1)'")
	return nil
}

func timeCommand(ctx context.Context, n int, command func(i int) *exec.Cmd) ([]time.Duration, error) {
	var samples []time.Duration
	for i := range n {
		cmd := command(i)
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		took := time.Since(begin)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil || string(out) != "1\n" {
			return nil, fmt.Errorf("%s: %w: %.400q", filepath.Base(cmd.Path), err, out)
		}
		samples = append(samples, took)
	}
	return samples, nil
}
