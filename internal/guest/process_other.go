//go:build !linux

package guest

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// Sandboxes are Linux. What is here lets the packages build elsewhere and their tests run on the fake backend: no limits are set, and a
// call's programs are found by their process group alone.

func (ps *processes) attributes(scope) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

func (ps *processes) find(scope) []int { return nil }

func (ps *processes) reapAll() {}

func setLimits(int, proto.Limits, bool) error { return nil }

func waitExited(int) error { return nil }

func confine() error { return unix.ENOTSUP }

func dup(from, to int) error { return unix.Dup2(from, to) }
