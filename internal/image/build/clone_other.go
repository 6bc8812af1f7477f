//go:build !linux

package build

import (
	"context"
	"errors"
)

// clone is for Linux: sandboxes, and so images, are of use nowhere else.
func clone(context.Context, string, string, bool) error { return errors.ErrUnsupported }
