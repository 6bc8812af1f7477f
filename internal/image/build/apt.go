package build

import (
	"context"
	"errors"
)

// AptOptions say where Debian packages come from.
type AptOptions struct {
	// Sources are lines of a sources.list instead of this machine's own.
	Sources []string
	// TrustBase lets the base's own programs run as root in a chroot though strangers' are among them.
	TrustBase bool
}

func (w *work) apt(context.Context) error { return errors.New("later") }
