// Package gvisor runs sandboxes in gVisor: each is a kernel of its own in user space (runsc, on platform systrap), with a read-only root
// file system, no network but its own loopback, and the guest as its PID 1. It starts and ends them, limits what they take of the
// machine, and cleans up after a gateway that was killed. It knows no protocol: internal/sandbox/link talks with the guest.
//
// Everything that belongs to a state directory derives its name from that directory's path: runsc's root, the cgroups, the processes'
// command lines. So two gateways on one machine never touch each other's sandboxes. Only cmd/lathe/wire.go and tests import this package.
package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
)

// Config is what a Backend needs.
type Config struct {
	// Runsc is the path of the runsc program. If it is missing New succeeds all the same, and Start says what to do.
	Runsc string
	// Image is the folder of an image (see package image), "" for the host's /usr/bin/python3 with the host's /usr read-only.
	Image string
	// StateDir is absolute, exists or can be made, and belongs to this process alone.
	StateDir string
	// Guest is the static guest program for this architecture.
	Guest []byte
	// Logger gets what runsc and guests complain about; nil is silence.
	Logger *slog.Logger
	// Spares is how many sandboxes are kept created, with nothing in them yet, for the next start or restore. Each takes about 25 MiB. Only
	// root has them.
	Spares int
	// Debug keeps runsc's own logs in StateDir/debug. They are large and hold what programs do.
	Debug bool
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func (c *Config) validate() error {
	var errs []error
	if !filepath.IsAbs(c.StateDir) {
		errs = append(errs, fmt.Errorf("gvisor: state directory %q is not absolute", c.StateDir))
	}
	if c.Image != "" && !filepath.IsAbs(c.Image) {
		errs = append(errs, fmt.Errorf("gvisor: image %q is not absolute", c.Image))
	}
	if len(c.Guest) == 0 {
		errs = append(errs, errors.New("gvisor: there is no guest program in this build: run `make build`"))
	}
	return errors.Join(errs...)
}

// layout is where things are for one state directory.
type layout struct {
	state    string
	runsc    string // runsc's --root: its state files, control sockets and the pinned network namespace
	bundles  string // one folder a sandbox
	mounts   string // one folder a sandbox; see tree
	guest    string // mounted at guestDir
	prepared string // one folder a prepared image
	rootfs   string // the root file system when the host's Python is used
	debug    string
	cgroup   string // the cgroup that all sandboxes are under, as a path in each hierarchy
}

func newLayout(state string) layout {
	state = filepath.Clean(state)
	sum := sha256.Sum256([]byte(state))
	return layout{
		state:    state,
		runsc:    filepath.Join(state, "runsc"),
		bundles:  filepath.Join(state, "bundles"),
		mounts:   filepath.Join(state, "mnt"),
		guest:    filepath.Join(state, "guest"),
		prepared: filepath.Join(state, "prepared"),
		rootfs:   filepath.Join(state, "rootfs"),
		debug:    filepath.Join(state, "debug"),
		cgroup:   "/lathe-" + hex.EncodeToString(sum[:6]),
	}
}
