//go:build !linux

package gvisor

import (
	"context"
	"fmt"
	"runtime"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// Backend exists on Linux only; elsewhere New gives none.
type Backend struct{}

var _ sandbox.Backend = (*Backend)(nil)

// New says that there is no gVisor here.
func New(Config) (*Backend, error) { return nil, errPlatform() }

func errPlatform() error {
	return fmt.Errorf("%w: gVisor needs Linux, this is %s: run the gateway on a Linux machine or in a Linux virtual machine; "+
		"requests without hosted tools work here too", sandbox.ErrUnavailable, runtime.GOOS)
}

// Start says that there is no gVisor here.
func (*Backend) Start(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, errPlatform()
}

// Restore says that there is no gVisor here.
func (*Backend) Restore(context.Context, sandbox.Spec, string) (sandbox.Sandbox, error) {
	return nil, errPlatform()
}

// Prepare says that there is no gVisor here.
func (*Backend) Prepare(context.Context, string) error { return errPlatform() }

// Reconcile has nothing to do.
func (*Backend) Reconcile(context.Context) error { return nil }

// Check says that there is no gVisor here.
func (*Backend) Check(context.Context) []sandbox.Finding {
	return []sandbox.Finding{{
		Name: "system", Level: "fail", Detail: "gVisor needs Linux, this is " + runtime.GOOS, Mend: "run the gateway on Linux",
	}}
}

// Close has nothing to do.
func (*Backend) Close() error { return nil }
