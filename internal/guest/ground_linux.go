package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// ground is what the guest lays out for programs as PID 1 of a sandbox: folders in memory, and the sandbox's own name. A backend cannot do
// it, since what it mounts must be the same at a checkpoint and at every restore, whatever the limits are then.
type ground struct {
	size  int64 // of each folder, in bytes
	named bool  // hosts can be written to
}

// memoryFolders are lost with the sandbox's memory, and of no use to the guest itself.
var memoryFolders = []string{"/tmp", "/dev/shm"}

// lay mounts the folders, each with room for size bytes, and names the sandbox. No program has run yet.
func (g *ground) lay(size int64) error {
	for _, dir := range memoryFolders {
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=1777,size=%d", size))
		if err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	g.size = size
	if _, err := os.Stat(hosts); err != nil {
		return nil // an image without one does without
	}
	if !g.named {
		// The root file system is read-only: a file in memory lies over the image's.
		path := filepath.Join(memoryFolders[0], "hosts")
		err := os.WriteFile(path, nil, 0o644)
		if err == nil {
			err = errors.Join(unix.Mount(path, hosts, "", unix.MS_BIND, ""), os.Remove(path))
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", hosts, err)
		}
		g.named = true
	}
	return g.name()
}

// renew follows a restore. A sandbox in which no program has run gets new folders if they shall have another size.
func (g *ground) renew(r proto.RenewCall) error {
	if !r.Fresh || r.TmpSize == 0 || r.TmpSize == g.size {
		return g.name()
	}
	for _, dir := range memoryFolders {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	if err := g.lay(r.TmpSize); err != nil {
		return err
	}
	if _, err := os.Stat(fontCache); err != nil {
		return nil
	}
	return copyDir(fontCache, ownFontCache)
}

// name makes the sandbox's host name resolve.
func (g *ground) name() error {
	if !g.named {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return os.WriteFile(hosts, []byte("127.0.0.1\tlocalhost "+host+"\n::1\tlocalhost\n"), 0o644)
}

const hosts = "/etc/hosts"
