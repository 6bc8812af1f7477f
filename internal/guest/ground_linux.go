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
	size int64 // of each folder, in bytes
}

// memoryFolders are lost with the sandbox's memory, and of no use to the guest itself.
var memoryFolders = []string{"/tmp", "/dev/shm"}

// lay mounts the folders, each with room for size bytes, and names the sandbox.
func (g *ground) lay(size int64) error {
	for _, dir := range memoryFolders {
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=1777,size=%d", size))
		if err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	g.size = size
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
	return copyDir(fontCache, ownFontCache)
}

// name makes the sandbox's host name resolve. The root file system is read-only, so /etc/hosts is a file in memory that lies over the
// image's; an image without one does without.
func (g *ground) name() error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	text := []byte("127.0.0.1\tlocalhost " + host + "\n::1\tlocalhost\n")
	if err := os.WriteFile(hosts, text, 0o644); !errors.Is(err, unix.EROFS) {
		return ignoreMissing(err)
	}
	path := filepath.Join(memoryFolders[0], ".hosts")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	return errors.Join(ignoreMissing(unix.Mount(path, hosts, "", unix.MS_BIND, "")), os.Remove(path))
}

const hosts = "/etc/hosts"

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
