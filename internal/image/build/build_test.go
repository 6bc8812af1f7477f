package build

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/image"
)

// makeTree writes files below dir; one that begins with "-> " is a link.
func makeTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = errors.Join(err, os.Symlink(target, p))
		} else {
			err = errors.Join(err, os.WriteFile(p, []byte(content), 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// debian is a root file system that looks like one of Debian with a Python 3.11.2.
func debian() map[string]string {
	return map[string]string{
		"usr/bin/python3":                     "-> python3.11",
		"usr/bin/python3.11":                  "ELF\x00other\x003.11.2\x00more",
		"bin":                                 "-> usr/bin",
		"lib":                                 "-> usr/lib",
		"etc/passwd":                          "root:x:0:0:root:/root:/bin/sh\n",
		"etc/machine-id":                      "of the machine that it was made on",
		"tmp/left":                            "x",
		"usr/lib/x86_64-linux-gnu/libc.so.6":  "GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n",
		"usr/lib/aarch64-linux-gnu/libc.so.6": "GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n",
		"usr/lib/python3/dist-packages/present-1.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: Present\nVersion: 1.5\n\nName: not this\n",
		"usr/lib/python3/dist-packages/odd-1.egg-info":                 "Name: odd\nVersion: 1.0.git\n",
	}
}

type stage struct {
	*Builder
	t    *testing.T
	said *bytes.Buffer
	dir  string
}

// newStage is a builder with a base in its folder.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, said: &bytes.Buffer{}, dir: t.TempDir()}
	store := image.Store{Dir: s.dir}
	s.Builder = &Builder{Store: store, Dirs: []string{s.dir}, Say: func(format string, args ...any) { fmt.Fprintf(s.said, format+"\n", args...) }}
	_, err := store.Make(t.Context(), "base", nil, func(_ context.Context, d *image.Draft) (image.Info, error) {
		makeTree(t, d.Root, debian())
		return image.Info{Recipe: "r", Source: "debian bookworm", Created: time.Now().Add(-time.Hour), Python: "3.11.2"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// build fails the test if the build fails.
func (s *stage) build(r Recipe) *image.Image {
	s.t.Helper()
	img, err := s.Build(s.t.Context(), r)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.said)
	}
	return img
}

func (s *stage) read(img *image.Image, name string) string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(img.Root, name))
	if err != nil {
		s.t.Error(err)
	}
	return string(data)
}

// wheel is one that a test makes.
type wheel struct {
	name, version, tag string
	requires           []string
	files              map[string]string
	script             string
}

func (w wheel) write(t *testing.T, dir string) {
	t.Helper()
	if w.tag == "" {
		w.tag = "py3-none-any"
	}
	base := w.name + "-" + w.version
	info := base + ".dist-info/"
	meta := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", w.name, w.version)
	for _, r := range w.requires {
		meta += "Requires-Dist: " + r + "\n"
	}
	files := map[string]string{info + "METADATA": meta, info + "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: " + w.tag + "\n"}
	for name, content := range w.files {
		files[name] = content
	}
	if w.script != "" {
		files[info+"entry_points.txt"] = "[console_scripts]\n" + w.script + " = " + w.name + ":main\n"
	}
	var record strings.Builder
	for name := range files {
		record.WriteString(name + ",,\n")
	}
	files[info+"RECORD"] = record.String() + info + "RECORD,,\n"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		f, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(f, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), os.WriteFile(filepath.Join(dir, base+"-"+w.tag+".whl"), b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// needPip keeps an operator's settings of pip out of the tests: -I of the driver leaves only those of files.
func needPip(t *testing.T) {
	t.Helper()
	for _, name := range []string{"PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("PIP_CONFIG_FILE", os.DevNull)
	if exec.Command("python3", "-m", "pip", "--version").Run() != nil {
		if found, _ := filepath.Glob("/usr/share/python-wheels/pip-*.whl"); len(found) == 0 {
			t.Skip("there is no pip on this machine")
		}
	}
}

const site = "usr/local/lib/python3.11/dist-packages/"

func TestPip(t *testing.T) {
	needPip(t)
	s, wheels := newStage(t), t.TempDir()
	wheel{name: "demo_pkg", version: "1.0", requires: []string{"helper>=1", "present>=1", `old; python_version < "3.9"`, `linuxonly; sys_platform == "linux"`},
		files: map[string]string{"demo_pkg/__init__.py": "def main(): print('demo')\n", "demo_pkg/data.txt": "data"}, script: "demo"}.write(t, wheels)
	wheel{name: "helper", version: "1.2", files: map[string]string{"helper.py": "x = 1\n"}}.write(t, wheels)
	wheel{name: "linuxonly", version: "2.0", tag: "cp311-cp311-manylinux_2_28_" + machine(), files: map[string]string{"linuxonly.py": "x = 1\n"}}.write(t, wheels)
	wheel{name: "linuxonly", version: "3.0", tag: "cp311-cp311-manylinux_2_40_" + machine(), files: map[string]string{"linuxonly.py": "too new\n"}}.write(t, wheels)
	wheel{name: "linuxonly", version: "4.0", tag: "cp313-cp313-manylinux_2_17_" + machine(), files: map[string]string{"linuxonly.py": "another Python\n"}}.write(t, wheels)
	wheel{name: "present", version: "9.9", files: map[string]string{"present.py": "replaced\n"}}.write(t, wheels)
	base, err := image.Find("base", s.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, base.Root)

	options := PipOptions{NoIndex: true, FindLinks: []string{wheels}}
	img := s.build(Recipe{Name: "mine", From: "base", Pip: []string{"demo-pkg"}, PipOptions: options})
	if got := s.read(img, site+"demo_pkg/data.txt") + s.read(img, site+"linuxonly.py") + s.read(img, site+"helper.py"); got != "datax = 1\nx = 1\n" {
		t.Errorf("got %q", got)
	}
	if got := s.read(img, "usr/local/bin/demo"); !strings.HasPrefix(got, "#!/usr/bin/python3\n") {
		t.Errorf("the script begins %q", got)
	}
	if _, err := os.Stat(filepath.Join(img.Root, site+"present.py")); err == nil {
		t.Error("what the base had was replaced though nobody asked for it")
	}
	if i := img.Info; i.Libraries["demo-pkg"] != "1.0" || i.Base != "base" || i.Python != "3.11.2" || !slices.Equal(i.Pip, []string{"demo-pkg"}) || i.Foreign {
		t.Errorf("image.json says %+v", i)
	}
	if got := snapshot(t, base.Root); got != before {
		t.Errorf("the base has changed:\n%s\nwas\n%s", got, before)
	}
	if total, shared := img.Size(); shared == 0 || shared >= total {
		t.Errorf("of %d bytes %d are shared", total, shared)
	}

	// On top of that one: another version takes the place of the first, and of the files that only the first had.
	wheel{name: "demo_pkg", version: "2.0", files: map[string]string{"demo_pkg/__init__.py": "two\n"}}.write(t, wheels)
	second := s.build(Recipe{Name: "second", From: "mine", Pip: []string{"demo-pkg>1", "present==9.9"}, PipOptions: options})
	if s.read(second, site+"demo_pkg/__init__.py") != "two\n" || s.read(second, site+"present.py") != "replaced\n" {
		t.Error("the new versions are not there")
	}
	for _, gone := range []string{site + "demo_pkg/data.txt", "usr/local/bin/demo", site + "demo_pkg-1.0.dist-info"} {
		if _, err := os.Stat(filepath.Join(second.Root, gone)); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	if s.read(img, site+"demo_pkg/data.txt") != "data" {
		t.Error("the image that it was made from has lost a file")
	}
	if i := second.Info; i.Libraries["demo-pkg"] != "2.0" || i.Libraries["present"] != "9.9" || len(i.Pip) != 3 {
		t.Errorf("image.json says %+v", i)
	}
}

// snapshot is everything of a tree that a build could change.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v", p, info.Mode())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			fmt.Fprintf(&b, " %v %q %v", info.ModTime(), data, err)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPipRefuses(t *testing.T) {
	needPip(t)
	s, wheels := newStage(t), t.TempDir()
	mark := filepath.Join(t.TempDir(), "ran")
	// A source distribution that would run.
	if err := os.WriteFile(filepath.Join(wheels, "source-1.0.tar.gz"), sdist(t, mark), 0o600); err != nil {
		t.Fatal(err)
	}
	wheel{name: "needs_more", version: "1.0", requires: []string{"present>=2"}}.write(t, wheels)
	evil := wheel{name: "evil", version: "1.0", files: map[string]string{"../../../../../../../../tmp/lathe-evil.py": "x", "evil.py": "x"}}
	evil.write(t, wheels)
	before := snapshot(t, s.dir)
	for name, tt := range map[string]struct {
		recipe Recipe
		want   string
	}{
		"a source distribution":     {Recipe{Pip: []string{"source"}}, "Only wheels are taken"},
		"not found":                 {Recipe{Pip: []string{"nowhere"}}, "No matching distribution found for nowhere"},
		"against the base":          {Recipe{Pip: []string{"needs-more"}}, "A package that the base has is kept"},
		"an option":                 {Recipe{Pip: []string{"--index-url=http://x"}}, "is not the name of a package"},
		"a URL":                     {Recipe{Pip: []string{"demo @ http://x/y.whl"}}, "is not the name of a package"},
		"a path":                    {Recipe{Pip: []string{"./x.whl"}}, "is not the name of a package"},
		"an option of apt":          {Recipe{Apt: []string{"-o=x"}}, "is not the name of a Debian package"},
		"a shell in apt":            {Recipe{Apt: []string{"jq;id"}}, "is not the name of a Debian package"},
		"its own base":              {Recipe{Name: "base"}, "take another name"},
		"a bad name":                {Recipe{Name: "../x"}, "is not a name for an image"},
		"no base":                   {Recipe{From: "none"}, "docker.io/library/none:latest"},
		"a wheel that climbs":       {Recipe{Pip: []string{"evil"}}, "pip: "},
		"apt on what has no Debian": {Recipe{Apt: []string{"jq"}}, "needs"},
	} {
		t.Run(name, func(t *testing.T) {
			r := tt.recipe
			if r.Name == "" {
				r.Name = "mine"
			}
			if r.From == "" {
				r.From = "base"
			}
			r.PipOptions = PipOptions{NoIndex: true, FindLinks: []string{wheels}}
			if _, err := s.Build(t.Context(), r); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	_ = os.Remove(filepath.Join(s.dir, ".mine.lock"))
	if got := snapshot(t, s.dir); got != before {
		t.Errorf("builds that failed have left\n%s\nwhere there was\n%s", got, before)
	}
	for _, p := range []string{mark, "/tmp/lathe-evil.py"} {
		if _, err := os.Stat(p); err == nil {
			t.Errorf("%s is there", p)
		}
	}
}

// TestIndex: an index on loopback, as an organisation's own would be.
func TestIndex(t *testing.T) {
	needPip(t)
	wheels := t.TempDir()
	wheel{name: "indexed", version: "1.0", files: map[string]string{"indexed.py": "x\n"}}.write(t, wheels)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/simple/indexed/":
			fmt.Fprint(w, `<a href="/files/indexed-1.0-py3-none-any.whl">indexed-1.0-py3-none-any.whl</a>`)
		case "/files/indexed-1.0-py3-none-any.whl":
			http.ServeFile(w, r, filepath.Join(wheels, "indexed-1.0-py3-none-any.whl"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	t.Setenv("no_proxy", "127.0.0.1")
	s := newStage(t)
	url := strings.Replace(server.URL, "http://", "http://user:s3cr3t@", 1) + "/simple"
	img := s.build(Recipe{Name: "mine", From: "base", Pip: []string{"indexed"}, PipOptions: PipOptions{Index: url}})
	if s.read(img, site+"indexed.py") != "x\n" {
		t.Error("it is not there")
	}
	if strings.Contains(s.said.String(), "s3cr3t") {
		t.Errorf("the password is shown:\n%s", s.said)
	}
	if _, err := s.Build(t.Context(), Recipe{Name: "other", From: "base", Pip: []string{"missing"}, PipOptions: PipOptions{Index: url}}); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("the error: %v", err)
	}
}

// TestFolder: a folder of an operator's is copied, so that it can be changed, and is not trusted.
func TestFolder(t *testing.T) {
	s, folder := newStage(t), t.TempDir()
	makeTree(t, folder, debian())
	if err := os.Chmod(filepath.Join(folder, "etc/passwd"), 0o4600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(folder, "home")); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, folder)
	img := s.build(Recipe{Name: "mine", From: folder})
	if got := snapshot(t, folder); got != before {
		t.Errorf("the folder has changed:\n%s", got)
	}
	if !img.Info.Foreign || img.Python != "/usr/bin/python3" {
		t.Errorf("%+v", img)
	}
	if got := s.read(img, "etc/passwd"); !strings.Contains(got, "user:x:1000:1000:") {
		t.Errorf("passwd is %q", got)
	}
	info, err := os.Stat(filepath.Join(img.Root, "etc/passwd"))
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	for name, there := range map[string]bool{"tmp/left": false, "etc/machine-id": false, "mnt/data": true, "home/user": true, "skills": true, ".lathe": true} {
		info, err := os.Lstat(filepath.Join(img.Root, name))
		if (err == nil) != there || there && !info.IsDir() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if _, err := s.Build(t.Context(), Recipe{Name: "more", From: "mine", Apt: []string{"jq"}}); err == nil || !strings.Contains(err.Error(), "--trust-base") && os.Geteuid() == 0 {
		t.Errorf("apt on strangers' programs: %v", err)
	}
}

func TestSafeEnv(t *testing.T) {
	got := safeEnv([]string{"PATH=/opt/venv/bin:relative::/usr/bin/../bin:/a\x01b", "LANG=C.UTF-8", "LD_PRELOAD=/evil.so", "PYTHONPATH=/x", "LATHE_CODE_UID=0", "SECRET=x", "odd"})
	want := map[string]string{"PATH": "/opt/venv/bin:/usr/bin", "LANG": "C.UTF-8"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := safeEnv([]string{"PATH=relative", "LANG=a b"}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}
