package main

import (
	"context"
	"fmt"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// absentBackend stands where this build or machine has no sandboxes, so that everything else works: what needs one says why it cannot.
type absentBackend struct{ reason error }

var _ sandbox.Backend = absentBackend{}

func (b absentBackend) Start(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, b.reason)
}

func (b absentBackend) Restore(context.Context, sandbox.Spec, string) (sandbox.Sandbox, error) {
	return nil, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, b.reason)
}

func (absentBackend) Prepare(context.Context, string) error { return nil }

func (absentBackend) Reconcile(context.Context) error { return nil }

func (b absentBackend) Check(context.Context) []sandbox.Finding {
	return []sandbox.Finding{absent(b.reason)}
}

func (absentBackend) Close() error { return nil }
