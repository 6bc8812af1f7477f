package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// mountPoints are what a sandbox has a mount or a folder of its own on. The root file system is read-only there.
var mountPoints = []string{"etc", "tmp", "root", "proc", "sys", "dev", "mnt/data", "home/user", "skills", ".lathe"}

// maxEtc is the most that a passwd or group file may have.
const maxEtc = 4 << 20

// Finish makes a root file system one for sandboxes: no file gives a program more rights than it has, all of it is readable, nothing of
// the machine that it was made on is in it, and what a sandbox needs is there. It is what finish in image/build.sh does for Debian.
func (f *FS) Finish() error {
	if err := f.tame("."); err != nil {
		return err
	}
	for _, dir := range mountPoints {
		if err := f.Dir(dir); err != nil {
			return fmt.Errorf("/%s: %w", dir, err)
		}
	}
	for _, name := range []string{"etc/resolv.conf", "etc/machine-id", "etc/hostname"} {
		if err := f.root.RemoveAll(name); err != nil {
			return err
		}
	}
	if err := f.WriteFile("etc/hosts", []byte("127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n"), 0o644); err != nil {
		return err
	}
	for name, line := range map[string]string{"passwd": "user:x:1000:1000:user:/mnt/data:/bin/bash\n", "group": "user:x:1000:\n"} {
		if err := f.user("etc/"+name, line); err != nil {
			return err
		}
	}
	return f.root.Chmod("tmp", 0o777|fs.ModeSticky)
}

// user adds line to a passwd or group file that has nobody of the number 1000.
func (f *FS) user(name, line string) error {
	data, err := f.ReadFile(name, maxEtc)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("/%s: %w", name, err)
	}
	for l := range strings.Lines(string(data)) {
		if fields := strings.Split(strings.TrimSpace(l), ":"); len(fields) > 2 && fields[2] == "1000" {
			return nil
		}
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		data = append(data, '\n')
	}
	return f.WriteFile(name, append(data, line...), 0o644)
}

// tame removes below dir what is neither file, folder nor link, and gives the rest the modes that it may have. A file that has them
// already is not touched: it may be shared with another image.
func (f *FS) tame(dir string) error {
	entries, err := f.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		info, err := f.root.Lstat(name)
		if err != nil {
			return err
		}
		switch mode := info.Mode(); {
		case mode&fs.ModeSymlink != 0:
		case mode.IsDir(), mode.IsRegular():
			if want := Mode(mode); mode != want {
				if err := f.root.Chmod(name, want); err != nil {
					return err
				}
			}
			if mode.IsDir() && name != "tmp" && name != "root" {
				err = f.tame(name)
			} else if mode.IsDir() {
				err = f.empty(name)
			}
		default:
			err = f.root.Remove(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Mode is what a file or folder of an image may have: no setuid, setgid or sticky bit, readable for all, and executable for all or none.
func Mode(m fs.FileMode) fs.FileMode {
	if m.IsDir() {
		return m.Perm() | 0o755 | fs.ModeDir
	}
	if m&0o111 != 0 {
		return m.Perm() | 0o755
	}
	return m.Perm() | 0o644
}

func (f *FS) empty(dir string) error {
	entries, err := f.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := f.root.RemoveAll(path.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
