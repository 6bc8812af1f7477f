//go:build !linux

package guest

import (
	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// ground exists in sandboxes only, which are Linux.
type ground struct{}

func (*ground) lay(int64) error { return unix.ENOTSUP }

func (*ground) renew(proto.RenewCall) error { return unix.ENOTSUP }
