package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lathe-gateway/lathe/internal/image"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// rootfs is what / is inside.
type rootfs struct {
	path   string
	mounts []ociMount
	image  *image.Image // nil for the host's Python
	// content is where what is in it really lies: path, or the host's root.
	content string
}

// mountPoints are the folders that every root file system must have; the root is read-only, so they cannot be made later.
var mountPoints = []string{"proc", "sys", "dev", "tmp", "mnt/data", "home/user", "skills", ".lathe"}

// openRootfs takes the configured image, or makes a root file system around the host's Python in l.rootfs.
func openRootfs(dir string, l layout) (rootfs, error) {
	if dir == "" {
		return hostRootfs(l, "/")
	}
	img, err := image.Open(dir)
	if err != nil {
		return rootfs{}, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
	root := rootfs{path: img.Root, image: img, content: img.Root}
	return root, root.makeMountPoints()
}

// makeMountPoints adds what a foreign image lacks. It goes through os.Root: links in an image must not lead out of it.
func (r rootfs) makeMountPoints() error {
	dir, err := os.OpenRoot(r.path)
	if err != nil {
		return fmt.Errorf("%w: image %s cannot be read: %w", sandbox.ErrUnavailable, r.path, err)
	}
	defer dir.Close()
	for _, p := range mountPoints {
		if fi, err := dir.Stat(p); err == nil && fi.IsDir() {
			continue
		}
		if err := dir.MkdirAll(p, 0o755); err != nil {
			return fmt.Errorf("%w: image %s has no folder /%s and it cannot be made: `mkdir -p %s`: %w",
				sandbox.ErrUnavailable, r.path, p, filepath.Join(r.path, p), err)
		}
	}
	return nil
}

// hasTarget says whether there is a folder to mount on, in the root file system itself.
func (r rootfs) hasTarget(target string) bool {
	dir, err := os.OpenRoot(r.path)
	if err != nil {
		return false
	}
	defer dir.Close()
	fi, err := dir.Stat(strings.TrimPrefix(target, "/"))
	return err == nil && fi.IsDir()
}

// publicEtc are the files of the host's /etc that programs need and that hold nothing of this machine's own.
var publicEtc = []string{"ld.so.cache", "mime.types", "services", "protocols", "matplotlibrc", "os-release", "localtime"}

// hostRootfs makes a root file system of the host's /usr, read-only, and little else: an /etc of its own, and links. host is "/" but in
// tests. Nothing of /root, /home, /opt, /srv, /var and /etc is in it.
func hostRootfs(l layout, host string) (rootfs, error) {
	python := filepath.Join(host, "usr/bin/python3")
	if _, err := os.Stat(python); err != nil {
		return rootfs{}, fmt.Errorf("%w: there is no image, and no /usr/bin/python3 on this machine: run `make image`, or install python3",
			sandbox.ErrUnavailable)
	}
	root := rootfs{path: l.rootfs, content: host}
	if err := os.RemoveAll(l.rootfs); err != nil {
		return rootfs{}, fmt.Errorf("gvisor: %w", err)
	}
	for _, p := range append([]string{"etc", "usr", "root", "home", "var/tmp", "run"}, mountPoints...) {
		if err := os.MkdirAll(filepath.Join(l.rootfs, p), 0o755); err != nil {
			return rootfs{}, fmt.Errorf("gvisor: %w", err)
		}
	}
	for _, name := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		source := filepath.Join(host, name)
		fi, err := os.Lstat(source)
		if err != nil {
			continue
		}
		if fi.Mode()&fs.ModeSymlink != 0 { // a merged /usr: bin is a link to usr/bin
			if err := copyLink(source, filepath.Join(l.rootfs, name)); err != nil {
				return rootfs{}, err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Join(l.rootfs, name), 0o755); err != nil {
			return rootfs{}, fmt.Errorf("gvisor: %w", err)
		}
		root.mounts = append(root.mounts, bind(source, "/"+name, true))
	}
	return root, writeEtc(filepath.Join(host, "etc"), filepath.Join(l.rootfs, "etc"))
}

func writeEtc(from, to string) error {
	files := map[string]string{
		"passwd":        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/mnt/data:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"group":         "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
		"hosts":         "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
		"hostname":      "sandbox\n",
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(to, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("gvisor: %w", err)
		}
	}
	for _, name := range publicEtc {
		if err := copyPublic(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	// Debian chooses between libraries and programs through links here: libblas.so.3, awk.
	links, err := os.ReadDir(filepath.Join(from, "alternatives"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(to, "alternatives"), 0o755); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	for _, link := range links {
		if link.Type()&fs.ModeSymlink != 0 {
			if err := copyLink(filepath.Join(from, "alternatives", link.Name()), filepath.Join(to, "alternatives", link.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyPublic(from, to string) error {
	fi, err := os.Lstat(from)
	if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		return copyLink(from, to)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(from)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not every machine has every file
	}
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

func copyLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if err := os.Symlink(target, to); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

// checkMount refuses sources that are no folder and targets that would hide what the sandbox itself is made of.
func checkMount(m sandbox.Mount) error {
	if !filepath.IsAbs(m.Target) || filepath.Clean(m.Target) != m.Target || m.Target == "/" {
		return fmt.Errorf("gvisor: mount target %q is not a clean absolute path", m.Target)
	}
	for _, reserved := range []string{"/proc", "/sys", "/dev", "/usr", "/etc", "/bin", "/lib", "/lib64", "/sbin", "/tmp", guestDir} {
		if m.Target == reserved || strings.HasPrefix(m.Target, reserved+"/") {
			return fmt.Errorf("gvisor: mount target %q is reserved", m.Target)
		}
	}
	if m.Hub {
		return nil
	}
	fi, err := os.Stat(m.Source)
	if err != nil {
		return fmt.Errorf("gvisor: mount: %w", err)
	}
	if !filepath.IsAbs(m.Source) || !fi.IsDir() {
		return fmt.Errorf("gvisor: mount source %q is not an absolute folder", m.Source)
	}
	return nil
}

// env is what an image of a container wants in the environment of programs, as far as package image takes it: where they are found, and
// their language.
func (r rootfs) env() []string {
	var out []string
	if r.image == nil {
		return out
	}
	for _, name := range []string{"LANG", "PATH"} {
		if value, ok := r.image.Info.Env[name]; ok {
			out = append(out, name+"="+value)
		}
	}
	return out
}
