package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Containers are those of one data directory.
type Containers struct {
	tool.Workspaces
	// Spares is how many wait in the pool, Delete removes a container, Close ends all of them.
	Spares func() int
	Delete func(ctx context.Context, id string) error
	Close  func() error
	// Hibernate puts a container that nobody uses to sleep and returns when it sleeps.
	Hibernate func(ctx context.Context, id string) error
}

// benchPool is how many spares there are; a claim is measured when all of them wait.
const benchPool = 2

// fillTime is how long the pool may take to be full again.
const fillTime = time.Minute

// claims are new containers that take over a spare: the container's row included, as a request pays for it.
func (b *sandboxBench) claims(ctx context.Context) error {
	return b.with(ctx, benchPool, func(ctx context.Context, c *Containers) error {
		var claims, outputs []time.Duration
		for range b.count(claimCount) {
			if err := c.filled(ctx); err != nil {
				return err
			}
			claim, output, err := c.fresh(ctx, bareProgram)
			if err != nil {
				return err
			}
			claims, outputs = append(claims, claim), append(outputs, output)
		}
		b.result.times("claim", claims, "a new container from the pool, its row in the database included")
		b.result.times("claim_output", outputs, "the same, to the first output of bare Python")
		return nil
	})
}

// containerStarts are new containers without a pool: volume, sandbox and interpreter.
func (b *sandboxBench) containerStarts(ctx context.Context) error {
	return b.with(ctx, 0, func(ctx context.Context, c *Containers) error {
		var samples []time.Duration
		for range b.count(startCount) {
			_, output, err := c.fresh(ctx, dataLibraries)
			if errors.Is(err, errProgram) {
				return nil // an image without the libraries has no such figure
			}
			if err != nil {
				return err
			}
			samples = append(samples, output)
		}
		b.result.times("start", samples, "a new container without a pool, to the first output with numpy, pandas and matplotlib imported")
		return nil
	})
}

func (b *sandboxBench) with(ctx context.Context, pool int, measure func(context.Context, *Containers) error) error {
	if b.Open == nil {
		return nil
	}
	c, err := b.Open(ctx, pool)
	if err != nil {
		return err
	}
	err = measure(auth.WithPrincipal(ctx, auth.Principal{Name: "bench", Project: "bench"}), c)
	return errors.Join(err, c.Close())
}

func (c *Containers) filled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fillTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for c.Spares() < benchPool {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the pool did not fill: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

var errProgram = errors.New("the program failed")

// fresh makes a container, runs code in it and deletes it. It returns when the container was there and when the first output came, both from
// the beginning.
func (c *Containers) fresh(ctx context.Context, code string) (made, output time.Duration, err error) {
	begin := time.Now()
	w, err := c.Open(ctx, &turn.Hosted{Tools: []string{tool.Python}})
	if err != nil {
		return 0, 0, err
	}
	made = time.Since(begin)
	out, err := w.Run(ctx, tool.Call{Tool: tool.Python, Code: code}, func(tool.Chunk) {
		if output == 0 {
			output = time.Since(begin)
		}
	})
	if err == nil && out.Failed() {
		err = fmt.Errorf("%w: %s %s", errProgram, out.Status, out.Error)
	}
	if err == nil && output == 0 {
		err = errors.New("the program printed nothing")
	}
	return made, output, errors.Join(err, w.Close(), c.Delete(ctx, w.Container().ID))
}

// keep makes a container with a variable and leaves it idle.
func (c *Containers) keep(ctx context.Context) (id string, err error) {
	w, err := c.Open(ctx, &turn.Hosted{Tools: []string{tool.Python}})
	if err != nil {
		return "", err
	}
	_, err = answer(ctx, w, "x = 41\nprint(1)", "1\n")
	return w.Container().ID, errors.Join(err, w.Close())
}

// answer runs code that must print want, and returns when it did.
func answer(ctx context.Context, w tool.Workspace, code, want string) (time.Time, error) {
	var first time.Time
	out, err := w.Run(ctx, tool.Call{Tool: tool.Python, Code: code}, func(tool.Chunk) {
		if first.IsZero() {
			first = time.Now()
		}
	})
	if err != nil {
		return first, err
	}
	if len(out.Outputs) != 1 || out.Outputs[0].Text != want {
		return first, fmt.Errorf("%w: %s %s %v, want %q", errProgram, out.Status, out.Error, out.Outputs, want)
	}
	return first, nil
}

// sleepers are containers that hibernate and go on: how long each takes, and what they cost while they sleep.
func (b *sandboxBench) sleepers(ctx context.Context) error {
	return b.with(ctx, 0, func(ctx context.Context, c *Containers) error {
		if c.Hibernate == nil {
			return nil
		}
		id, err := c.keep(ctx)
		if err != nil {
			return err
		}
		var down, up []time.Duration
		for range b.count(resumeCount) {
			begin := time.Now()
			if err := c.Hibernate(ctx, id); err != nil {
				return err
			}
			down = append(down, time.Since(begin))
			begin = time.Now()
			w, err := c.Open(ctx, &turn.Hosted{Tools: []string{tool.Python}, Container: id})
			if err != nil {
				return err
			}
			first, err := answer(ctx, w, "print(x + 1)", "42\n")
			if err := errors.Join(err, w.Close()); err != nil {
				return err
			}
			up = append(up, first.Sub(begin))
		}
		b.result.times("hibernate", down, "an idle container's memory to the disk, its sandbox gone")
		b.result.times("resume", up, "a hibernated container, to the first output, which needs a variable of before")
		if b.StateDir == "" {
			return nil
		}
		return b.asleep(ctx, c)
	})
}

// asleep measures the memory of this process, which is the gateway here, and of whatever else is left of containers that hibernate.
func (b *sandboxBench) asleep(ctx context.Context, c *Containers) error {
	before, err := b.resident()
	if err != nil {
		return err
	}
	n := b.count(asleepCount)
	for range n {
		id, err := c.keep(ctx)
		if err == nil {
			err = c.Hibernate(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	after, err := b.resident()
	if err != nil {
		return err
	}
	b.result.add("hibernated_mib", max(0, float64(after-before))/mib/float64(n), "MiB", fmt.Sprintf(
		"memory of a hibernated container, of %d (PSS of the gateway and of all processes of sandboxes, against before)", n))
	return nil
}

// resident is the memory of this process and of all sandboxes.
func (b *sandboxBench) resident() (int64, error) {
	debug.FreeOSMemory() // garbage is not theirs
	own, err := pss(os.Getpid())
	if err != nil {
		return 0, err
	}
	boxes, err := processMemory(b.StateDir)
	if errors.Is(err, errNoProcess) {
		err = nil
	}
	return own + boxes, err
}
