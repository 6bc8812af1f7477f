package build

import (
	"os/exec"
	"syscall"
	"time"
)

// apart gives a program that mounts a namespace of mounts of its own: what it leaves behind, should it be killed, is seen by nobody, and
// goes with it. Ctrl-C reaches it through ctx alone, once.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
}
