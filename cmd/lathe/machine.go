package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/lathe-gateway/lathe/internal/config"
	"github.com/lathe-gateway/lathe/internal/image"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// runscPath is gVisor's program: where LATHE_RUNSC says, beside lathe (as make build puts it), or in PATH. Where there is none it is the
// place beside lathe, so that the message about it names one.
func runscPath(cfg *config.Config) string {
	if cfg.Runsc != "" {
		return cfg.Runsc
	}
	beside := "runsc"
	if self, err := os.Executable(); err == nil {
		if resolved, err := filepath.EvalSymlinks(self); err == nil {
			self = resolved
		}
		beside = filepath.Join(filepath.Dir(self), "runsc")
	}
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	if found, err := exec.LookPath("runsc"); err == nil {
		return found
	}
	return beside
}

// findImage is the image that the configuration means. An error that wraps image.ErrNotFound leaves the host's Python where the
// configuration names none.
func findImage(cfg *config.Config) (*image.Image, error) {
	return image.Find(cfg.Sandbox.Image, cfg.ImageDirs)
}

// rootFS is the image's folder, or "/" for the host's own Python.
func rootFS(cfg *config.Config) string {
	if img, err := findImage(cfg); err == nil {
		return img.Root
	}
	return "/"
}

// limits are the configuration's, on top of the built-in ones.
func limits(cfg *config.Config) sandbox.Limits {
	l := sandbox.Defaults()
	l.Memory, l.Disk, l.CPUs, l.Processes = int64(cfg.Sandbox.Memory), int64(cfg.Sandbox.Disk), cfg.Sandbox.CPUs, cfg.Sandbox.Processes
	l.ExecTime = time.Duration(cfg.Sandbox.ExecTimeout)
	return l
}
