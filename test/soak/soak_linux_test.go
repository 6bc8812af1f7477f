// Package soak is a test of what is durable about containers: random steps on the real gVisor, held against a model, through the death of
// sandboxes and gateways. What it asks for goes to package container as the surfaces would; it speaks no protocol.
package soak

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 1, "the run of TestSoak; 0 draws one and prints it")
	stepsFlag = flag.Int("steps", 50, "how many steps TestSoak makes")
)

// TestMain also is the gateway that is killed.
func TestMain(m *testing.M) {
	if spec := os.Getenv(gatewayEnv); spec != "" {
		if err := serve(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// found are the seeds that have failed once, and what they found. They are run always.
var found = []struct {
	name  string
	seed  uint64
	steps int
}{}

// TestSoak does at random what clients, programs and bad luck do to containers, on the real gVisor, and holds a plain description of what
// must be against what is: no acknowledged file is lost or gets into another container, no variable is lost but by the death of its
// interpreter, of which the next call tells, and nothing is left behind.
//
// A failure prints its seed: `go test ./test/soak -seed=N -steps=N` makes the same steps. At which moment a kill strikes is not the same each
// time. A seed that has found something belongs into the table found.
func TestSoak(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d, %d steps", seed, *stepsFlag)
	soakOnce(t, seed, *stepsFlag)
}

func TestFoundBefore(t *testing.T) {
	for _, f := range found {
		t.Run(f.name, func(t *testing.T) { soakOnce(t, f.seed, f.steps) })
	}
}

// newPlace skips a test where gVisor is not built, or where a step cannot bite.
func newPlace(t *testing.T) place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: else neither disks nor memory have hard limits")
	}
	runsc, err := filepath.Abs("../../bin/runsc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(runsc); err != nil {
		t.Skip("needs bin/runsc: run `make build`")
	}
	guest := filepath.Join(t.TempDir(), "guest")
	build := exec.Command("go", "build", "-o", guest, "github.com/lathe-gateway/lathe/cmd/lathe-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v: %s", err, out)
	}
	return place{Dir: t.TempDir(), Runsc: runsc, Guest: guest}
}

func soakOnce(t *testing.T, seed uint64, steps int) {
	t.Helper()
	s := &soak{place: newPlace(t)}
	var err error
	if s.g, err = s.start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended { // a gateway that reconciles takes away what the failed one has left
			err := s.g.kill()
			if g, again := s.start(); again == nil {
				err = errors.Join(err, g.stop())
			}
			if err != nil {
				t.Logf("cleaning up: %v", err)
			}
		}
	})
	for i, kind := range deck(seed, steps) {
		s.rng = rand.New(rand.NewPCG(seed, uint64(i)+1))
		s.tell("%d: %s", i, kind)
		if err := s.step(kind); err != nil {
			at := max(0, len(s.trace)-40)
			failed := s.g
			_ = failed.kill()
			t.Fatalf("seed %d, step %d of %d, %s: %v\n\nsteps:\n%s\n\ngateway:\n%s",
				seed, i, steps, kind, err, strings.Join(s.trace[at:], "\n"), failed.err.String())
		}
	}
	if err := s.finish(); err != nil {
		t.Fatalf("seed %d, after %d steps: %v", seed, steps, err)
	}
	ended = true
	// The kernel frees devices and cgroups when the last process is gone that uses them.
	var left []string
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if left = s.leftovers(); len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("seed %d, after %d steps: left behind:\n%s", seed, steps, strings.Join(left, "\n"))
	}
}

// finish looks once more into every container, ends them all, and has a last gateway look for what is left.
func (s *soak) finish() error {
	for _, b := range s.boxes {
		if err := s.do(s.run(b, nothing)); err != nil {
			return err
		}
	}
	if err := s.look(s.boxes...); err != nil {
		return err
	}
	for len(s.boxes) > 0 {
		if err := s.do(s.remove(s.boxes[0])); err != nil {
			return err
		}
	}
	if err := s.g.stop(); err != nil {
		return err
	}
	var err error
	if s.g, err = s.start(); err != nil {
		return err
	}
	return errors.Join(s.look(), s.g.stop())
}

// cards is how often each kind of step comes in a hundred.
var cards = map[string]int{
	"run": 16, "burst": 6, "put": 6, "unlink": 6, "hibernate": 8, "fork": 6, "checkpoint": 6, "rewind": 6, "create": 4, "delete": 4,
	"kill": 4, "kill during run": 4, "kill during put": 2, "kill during hibernate": 2, "kill during fork": 2, "kill during checkpoint": 2,
	"kill during rewind": 2, "kill during burst": 2, "kill during delete": 2, "restart": 2, "crash": 4, "full": 2, "bomb": 2,
}
