package gvisor

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

// tableFD is the number of a file that runsc inherits for no other purpose than its number. gVisor moves its standard streams to 253 and
// up. That makes the kernel enlarge the table of open files, which it does at once in a process of one thread, but in one of several
// only after all processors have passed a grace period, about 25 ms. A table is copied to children as large as its highest number needs.
const tableFD = 300

// command is runsc with arguments, not yet started. It ends with ctx.
func (b *Backend) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.cfg.Runsc, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = b.attributes()
	return cmd
}

// attributes are how runsc is started: not in the gateway's session, since a terminal's signals are not meant for sandboxes, and for an
// ordinary user as root of a user namespace of its own. runsc --rootless would do too, but could never restore a checkpoint.
func (b *Backend) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if b.uid != 0 {
		attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// reserveTable makes cmd inherit a file as number tableFD. The caller closes it after the start.
func reserveTable(cmd *exec.Cmd) (*os.File, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = make([]*os.File, tableFD-3+1)
	cmd.ExtraFiles[tableFD-3] = null
	return null, nil
}

// ids are the users inside; see the type.
func (b *Backend) ids() ids {
	if b.uid == 0 {
		return ids{guest: 0, code: 1000}
	}
	return ids{guest: 1, code: 0}
}
