package container

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mountImage mounts an image through a loop device that frees itself when it is no longer used, also when this process is killed
// between the two steps.
func mountImage(img, dir string) error {
	dev, err := attachLoop(img)
	if err != nil {
		return err
	}
	defer dev.Close()
	return mountDevice(dev.Name(), dir)
}

func mountDevice(dev, dir string) error {
	// Not MS_NOEXEC: gVisor maps a program's code from here, so compiled programs and Python's native modules would die of SIGSEGV.
	err := unix.Mount(dev, dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "discard,errors=remount-ro")
	if err != nil {
		return fmt.Errorf("mount %s: %w", dev, err)
	}
	return nil
}

func attachLoop(img string) (*os.File, error) {
	file, err := os.OpenFile(img, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// After an unmount the file system can live on for a while: in the mount namespace of a process that was being started then, as
	// sandboxes are. A second device for the same image would be a second file system on the same bytes, and destroy them.
	if dev := attached(file); dev != nil {
		return dev, nil
	}
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	for range 64 { // another process may take the free one first
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("no free loop device: %w", err)
		}
		dev, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		cfg := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(cfg.Info.File_name[:len(cfg.Info.File_name)-1], filepath.Base(filepath.Dir(img)))
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &cfg)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("set up loop device: %w", err)
		}
	}
	return nil, errors.New("no free loop device")
}

// attached returns the device that has an image already, nil for none.
func attached(img *os.File) *os.File {
	var st unix.Stat_t
	if err := unix.Fstat(int(img.Fd()), &st); err != nil {
		return nil
	}
	for _, path := range loopsBelow(filepath.Dir(img.Name())) {
		dev, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		// Asked of the open device, which cannot free itself any more.
		info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		if err == nil && info.Inode == st.Ino {
			return dev
		}
		dev.Close()
	}
	return nil
}

// loopsBelow lists the loop devices whose images lie below dir.
func loopsBelow(dir string) []string {
	var out []string
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is good
	for _, path := range files {
		img, err := os.ReadFile(path)
		if err == nil && below(dir, strings.TrimSuffix(strings.TrimSpace(string(img)), " (deleted)")) {
			out = append(out, filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(path)))))
		}
	}
	return out
}

// unmountImage waits a moment for a sandbox that has just ended to let go; then it detaches the mount, and the kernel finishes when
// the last user is gone.
func unmountImage(dir string) error {
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// releaseAll unmounts everything below dir, innermost first, and detaches the loop devices of images below it.
func releaseAll(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for i := len(points) - 1; i >= 0; i-- {
		errs = append(errs, unmountImage(points[i]))
	}
	for _, dev := range loopsBelow(dir) {
		errs = append(errs, detachLoop(dev))
	}
	return errors.Join(errs...)
}

func detachLoop(dev string) error {
	f, err := os.OpenFile(dev, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if err != nil && !errors.Is(err, unix.ENXIO) { // already free
		return fmt.Errorf("detach %s: %w", dev, err)
	}
	return nil
}

// mountsBelow lists mount points below dir in the order in which they were mounted.
func mountsBelow(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []string
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 {
			if point := unescapeMount(fields[4]); below(dir, point) {
				out = append(out, point)
			}
		}
	}
	return out, lines.Err()
}

// unescapeMount undoes the octal escapes of mountinfo (proc_pid_mountinfo(5)).
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func below(dir, path string) bool { return strings.HasPrefix(path, dir+string(filepath.Separator)) }

// copyHoles makes a copy of a file that has data only where that one has.
func copyHoles(path string, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := to.Truncate(info.Size()); err != nil {
		return err
	}
	// SEEK_DATA moves the offset that all who copy share, and nothing here reads by it.
	for at := int64(0); ; {
		start, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing behind at
			return to.Close()
		}
		if err != nil {
			return fmt.Errorf("find the data of %s: %w", from.Name(), err)
		}
		if at, err = unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE); err != nil {
			return fmt.Errorf("find the holes of %s: %w", from.Name(), err)
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, start), io.NewSectionReader(from, start, at-start)); err != nil {
			return err
		}
	}
}

// syncFileSystem has everything in the file system of dir reach the disk.
func syncFileSystem(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }

func freeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the types differ between architectures
}

func hostMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 4 << 30
	}
	return int64(info.Totalram) * int64(info.Unit)
}
