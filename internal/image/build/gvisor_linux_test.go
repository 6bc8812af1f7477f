package build

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lathe-gateway/lathe/internal/guest/embedded"
	"github.com/lathe-gateway/lathe/internal/image"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
)

// newRealStage has the image `python` as its base and tries what it makes in gVisor.
func newRealStage(t *testing.T) *stage {
	t.Helper()
	runsc, err := filepath.Abs("../../../bin/runsc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(runsc); err != nil {
		t.Skip("needs bin/runsc: make build")
	}
	guest, err := embedded.Guest()
	if err != nil {
		t.Skip("needs the guest: make build")
	}
	real := "/var/lib/lathe/images/python"
	if dir := os.Getenv("LATHE_IMAGE_DIR"); dir != "" {
		real = filepath.Join(dir, "python")
	}
	if real, err = filepath.EvalSymlinks(real); err != nil {
		t.Skip("needs the image python: make image")
	}
	s := &stage{t: t, said: &bytes.Buffer{}, dir: t.TempDir()}
	if err := os.Symlink(real, filepath.Join(s.dir, "base")); err != nil {
		t.Fatal(err)
	}
	s.Builder = &Builder{
		Store: image.Store{Dir: s.dir}, Dirs: []string{s.dir}, Say: func(format string, args ...any) { fmt.Fprintf(s.said, format+"\n", args...) },
		Sandbox: func(dir string) (sandbox.Backend, error) {
			return gvisor.New(gvisor.Config{Runsc: runsc, StateDir: t.TempDir(), Guest: guest, Image: dir})
		},
	}
	return s
}

// run runs Python in a sandbox of an image and returns what it printed.
func (s *stage) run(img *image.Image, kind sandbox.Kind, code string) string {
	s.t.Helper()
	b, err := s.Sandbox(img.Dir)
	if err != nil {
		s.t.Fatal(err)
	}
	defer b.Close()
	box, err := b.Start(s.t.Context(), sandbox.Spec{ID: "t", Image: img.Dir, Limits: sandbox.Defaults()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer box.Close()
	var out strings.Builder
	r, err := box.Exec(s.t.Context(), sandbox.Call{Kind: kind, Code: code, Dir: "/tmp"}, func(o sandbox.Output) { out.WriteString(o.Text) })
	if err != nil || r.Status != sandbox.StatusOK {
		s.t.Errorf("%q: %+v, %v, %s", code, r, err, out.String())
	}
	return out.String()
}

// TestPipOnGVisor: packages are compiled and imported in a sandbox, and only there.
func TestPipOnGVisor(t *testing.T) {
	needPip(t)
	s, wheels := newRealStage(t), t.TempDir()
	mark := filepath.Join(wheels, "ran")
	wheel{name: "demo", version: "1.0", requires: []string{"numpy>=1", "demo2"}, script: "demo", files: map[string]string{
		"demo.py": fmt.Sprintf("import numpy\ntry: open(%q, 'w').close()\nexcept OSError: pass\ndef main(): print('demo', numpy.sum([1, 2]))\n", mark),
	}}.write(t, wheels)
	wheel{name: "demo2", version: "1.0", files: map[string]string{"demo2/__init__.py": "import nothing_of_that_name\n", "demo2/old.py": "print 'of Python 2'\n"}}.write(t, wheels)
	img := s.build(Recipe{Name: "mine", From: "base", Pip: []string{"demo", "demo2"}, PipOptions: PipOptions{NoIndex: true, FindLinks: []string{wheels}}})
	if said := s.said.String(); !strings.Contains(said, "demo 1.0") || !strings.Contains(said, "demo2 cannot be imported: ModuleNotFoundError") {
		t.Errorf("it said\n%s", said)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a package ran outside of the sandbox")
	}
	got := s.run(img, sandbox.Python, "import demo, os, subprocess\nprint(os.path.exists(demo.__cached__), demo.__file__)\nprint(subprocess.run(['demo'], capture_output=True, text=True).stdout)")
	if got != "True /usr/local/lib/python3.11/dist-packages/demo.py\ndemo 3\n\n" {
		t.Errorf("it prints %q", got)
	}
	if total, shared := img.Size(); total-shared > 50<<20 {
		t.Errorf("%d bytes, of which only %d are shared with the base", total, shared)
	}
}

// TestLayoutOnGVisor: an image of a container whose Python is in a folder of its own, which only its PATH names.
func TestLayoutOnGVisor(t *testing.T) {
	s := newRealStage(t)
	base, err := image.Find("base", s.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	pack(t, &b, base.Root, func(name string) string {
		switch {
		case name == "usr/bin/python3.11" || name == "usr/bin/python3":
			return "opt/py/bin/" + filepath.Base(name)
		case strings.HasPrefix(name, "usr/lib/python3.11/test") || strings.HasPrefix(name, "usr/lib/python3/"):
			return ""
		case strings.HasPrefix(name, "usr/lib/python3.11"):
			return "opt/py/" + strings.TrimPrefix(name, "usr/")
		case name == "bin" || name == "lib" || name == "lib64" || name == "usr/bin/bash" || name == "usr/bin/id" || strings.Contains(name, "/ld-linux"):
			return name
		}
		for _, lib := range []string{"libc.", "libm.", "libz.", "libexpat.", "libtinfo.", "libselinux.", "libpcre2-8", "libcrypto.", "libssl.", "libffi.", "libbz2.", "liblzma."} {
			if strings.HasPrefix(filepath.Base(name), lib) && strings.HasPrefix(name, "usr/lib/") {
				return name
			}
		}
		return ""
	})
	oci, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(b.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	c, err := oci.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	c.Config.Env = []string{"PATH=/opt/py/bin:/usr/bin", "LANG=C", "PYTHONHOME=/evil"}
	if oci, err = mutate.ConfigFile(oci, c); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "layout")
	l, err := layout.Write(folder, empty.Index)
	if err == nil {
		err = l.AppendImage(oci)
	}
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Pull(t.Context(), "pulled", folder)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.said)
	}
	if img.Info.Python != "3.11.2" && !strings.HasPrefix(img.Info.Python, "3.11.") {
		t.Errorf("its Python is %q", img.Info.Python)
	}
	got := s.run(img, sandbox.Python, "import sys, os\nprint(sys.executable, os.environ['PATH'], os.environ['LANG'], 'PYTHONHOME' in os.environ, os.getuid())")
	if want := "/opt/py/bin/python3 /home/user/.local/bin:/opt/py/bin:/usr/bin C False"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// pack makes a tar of what name gives a name in it.
func pack(t *testing.T, out io.Writer, root string, name func(string) string) {
	t.Helper()
	w := tar.NewWriter(out)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		as := name(rel)
		if as == "" {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			link, _ = os.Readlink(p)
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name = as
		if err := w.WriteHeader(h); err != nil || link != "" {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestApt: a package of a repository in a folder, with a script of its maintainer's, and one that it needs.
func TestApt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: packages' scripts run in a chroot")
	}
	for _, program := range []string{"mmdebstrap", "dpkg-deb", "apt-get"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	s, repo := newRealStage(t), t.TempDir()
	if err := os.Chmod(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	var index strings.Builder
	for _, p := range []deb{
		{"lathe-demo", "Depends: lathe-need\n", "echo configured > /usr/share/lathe-demo/made; [ -d /proc/1 ]"},
		{"lathe-need", "", ""},
	} {
		index.WriteString(p.write(t, repo))
	}
	if err := os.WriteFile(filepath.Join(repo, "Packages"), []byte(index.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	base, err := image.Find("base", s.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(filepath.Join(base.Root, "var/lib/dpkg/status"))
	if err != nil {
		t.Fatal(err)
	}
	options := AptOptions{Sources: []string{"deb [trusted=yes] copy:" + repo + " ./"}}
	img := s.build(Recipe{Name: "mine", From: "base", Apt: []string{"lathe-demo"}, AptOptions: options})
	if got := s.read(img, "usr/share/lathe-demo/made") + s.read(img, "usr/share/lathe-need/file"); got != "configured\nx\n" {
		t.Errorf("got %q", got)
	}
	if now, err := os.ReadFile(filepath.Join(base.Root, "var/lib/dpkg/status")); err != nil || !bytes.Equal(now, status) {
		t.Error("the base has changed")
	}
	for _, gone := range []string{"etc/apt", "usr/share/lathe-demo/doc", "usr/share/man/lathe-demo"} {
		if _, err := os.Stat(filepath.Join(img.Root, gone)); err == nil {
			t.Errorf("%s is there", gone)
		}
	}
	if got := s.run(img, sandbox.Bash, "lathe-demo; id -u"); !strings.HasPrefix(got, "ran\n") {
		t.Errorf("it prints %q", got)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), s.dir) {
		t.Errorf("something is still mounted: %v\n%s", err, mounts)
	}
	_, err = s.Build(t.Context(), Recipe{Name: "other", From: "base", Apt: []string{"no-such-package"}, AptOptions: options})
	if err == nil || !strings.Contains(err.Error(), "Unable to locate package no-such-package") {
		t.Errorf("an unknown package: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(s.dir, "other")); err == nil {
		t.Error("a build that failed has left an image")
	}
}

// deb is a Debian package that a test makes.
type deb struct{ name, control, postinst string }

// write makes it in dir and returns its entry of the index.
func (d deb) write(t *testing.T, dir string) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), d.name)
	control := fmt.Sprintf("Package: %s\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\n%sDescription: a test\n", d.name, d.control)
	files := map[string]string{
		"DEBIAN/control": control, "usr/share/" + d.name + "/file": "x\n", "usr/share/man/" + d.name: "x", "usr/bin/" + d.name: "#!/bin/sh\necho ran\n",
	}
	if d.postinst != "" {
		files["DEBIAN/postinst"] = "#!/bin/sh\nset -e\n" + d.postinst + "\n"
	}
	makeTree(t, tree, files)
	file := d.name + "_1.0_all.deb"
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "dpkg-deb", "--root-owner-group", "--build", tree, filepath.Join(dir, file)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, file, len(data), sha256.Sum256(data))
}
