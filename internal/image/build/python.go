package build

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"regexp"
	"runtime"
	"strings"

	"github.com/lathe-gateway/lathe/internal/image/rootfs"
)

// python is the interpreter of an image, as far as its files tell: it is never run.
type python struct {
	// program is its path inside, version such as 3.11.2, minor such as 3.11.
	program, version, minor string
	// site is the folder for what pip installs, scripts that for programs.
	site, scripts string
	// paths are where packages may be already.
	paths []string
	libc  string // glibc or musl
	glibc int    // the minor version: 36 of 2.36
}

var minorForm = regexp.MustCompile(`^python(3\.\d+)$`)

// findPython returns nil where there is none, or none that is understood.
func findPython(root *rootfs.FS, search string) *python {
	py := &python{program: root.Program(search, "python3")}
	if py.program == "" {
		return nil
	}
	real, err := root.Follow(py.program)
	if err != nil {
		return nil
	}
	m := minorForm.FindStringSubmatch(path.Base(real))
	if m == nil {
		return nil
	}
	py.minor = m[1]
	prefix := path.Join("/", path.Dir(path.Dir(real)))
	py.version = py.minor + "." + patch(root, []string{real, path.Join(prefix, "lib", "libpython"+py.minor+".so.1.0")}, py.minor)
	py.scripts = path.Join(prefix, "bin")
	py.site = path.Join(prefix, "lib/python"+py.minor, "site-packages")
	py.paths = []string{py.site, path.Join("/usr/local/lib/python"+py.minor, "site-packages")}
	if info, err := root.Stat("/usr/lib/python3/dist-packages"); err == nil && info.IsDir() && prefix == "/usr" {
		// Debian keeps /usr for its own packages.
		py.site, py.scripts = "/usr/local/lib/python"+py.minor+"/dist-packages", "/usr/local/bin"
		py.paths = []string{py.site, "/usr/lib/python3/dist-packages"}
	}
	py.findLibc(root)
	return py
}

// patch finds the last number of the version in the interpreter's or its library's constants.
func patch(root *rootfs.FS, files []string, minor string) string {
	form := regexp.MustCompile(`\x00` + regexp.QuoteMeta(minor) + `\.(\d{1,3})(?:(?:a|b|rc)\d+|\+)?\x00`)
	for _, f := range files {
		if m := search(root, f, form); m != nil {
			return string(m[1])
		}
	}
	return "0"
}

// maxProgram is how much of a program is searched.
const maxProgram = 128 << 20

func search(root *rootfs.FS, file string, form *regexp.Regexp) [][]byte {
	at, err := root.Follow(file)
	if err != nil {
		return nil
	}
	info, err := root.Root().Lstat(at)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := root.Root().Open(at)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxProgram))
	if err != nil {
		return nil
	}
	return form.FindSubmatch(data)
}

var glibcForm = regexp.MustCompile(`GNU C Library [^\x00]{0,100}(?:stable|development) release version 2\.(\d{1,3})`)

func (py *python) findLibc(root *rootfs.FS) {
	for _, dir := range []string{"/lib", "/usr/lib", "/lib64", "/usr/lib64"} {
		for _, sub := range []string{"", machine() + "-linux-gnu"} {
			if m := search(root, path.Join(dir, sub, "libc.so.6"), glibcForm); m != nil {
				py.libc = "glibc"
				_, _ = fmt.Sscan(string(m[1]), &py.glibc)
				return
			}
		}
		if _, err := root.Stat(path.Join(dir, "ld-musl-"+machine()+".so.1")); err == nil {
			py.libc = "musl"
			return
		}
	}
}

// machine is this processor as uname says it.
func machine() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// platforms are the tags of wheels that run in the image, the best first: PEP 600 and PEP 656.
func (py *python) platforms() []string {
	var out []string
	switch py.libc {
	case "glibc":
		for minor := py.glibc; minor >= 17; minor-- {
			out = append(out, fmt.Sprintf("manylinux_2_%d_%s", minor, machine()))
			if minor == 17 {
				out = append(out, "manylinux2014_"+machine())
			}
		}
		if machine() == "x86_64" && py.glibc >= 12 {
			out = append(out, "manylinux_2_12_x86_64", "manylinux2010_x86_64", "manylinux_2_5_x86_64", "manylinux1_x86_64")
		}
	case "musl":
		out = append(out, "musllinux_1_2_"+machine(), "musllinux_1_1_"+machine())
	}
	return append(out, "linux_"+machine())
}

// markers is the environment that requirements' markers are evaluated in: PEP 508.
func (py *python) markers() map[string]string {
	return map[string]string{
		"implementation_name": "cpython", "implementation_version": py.version, "os_name": "posix", "platform_machine": machine(),
		"platform_python_implementation": "CPython", "platform_release": "", "platform_system": "Linux", "platform_version": "",
		"python_full_version": py.version, "python_version": py.minor, "sys_platform": "linux",
	}
}

// dist is a distribution that is installed.
type dist struct {
	name, version string
	// info is its .dist-info folder, or .egg-info file or folder, inside.
	info string
}

// maxMetadata is how much of a METADATA file is read.
const maxMetadata = 1 << 20

// installed returns the distributions by their normal names. One that is found in several places is taken where Python does.
func (py *python) installed(root *rootfs.FS) map[string]dist {
	out := map[string]dist{}
	for _, dir := range py.paths {
		entries, err := root.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			d := dist{info: path.Join(dir, e.Name())}
			file := d.info
			switch {
			case strings.HasSuffix(e.Name(), ".dist-info"):
				file = path.Join(file, "METADATA")
			case strings.HasSuffix(e.Name(), ".egg-info") && e.IsDir():
				file = path.Join(file, "PKG-INFO")
			case !strings.HasSuffix(e.Name(), ".egg-info"):
				continue
			}
			data, err := root.ReadFile(file, maxMetadata)
			if err != nil {
				continue
			}
			d.name, d.version = header(data, "Name"), header(data, "Version")
			if _, twice := out[normal(d.name)]; !twice && nameOnly.MatchString(d.name) && versionOnly.MatchString(d.version) {
				out[normal(d.name)] = d
			}
		}
	}
	return out
}

var (
	nameOnly    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,99}[A-Za-z0-9])?$`)
	versionOnly = regexp.MustCompile(`^[A-Za-z0-9.!+_-]{1,100}$`)
	runs        = regexp.MustCompile(`[-_.]+`)
)

// header is a field of the head of a METADATA file.
func header(data []byte, name string) string {
	for line := range bytes.Lines(data) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte(name+": ")); ok {
			return strings.TrimSpace(string(value))
		}
	}
	return ""
}

// normal is a distribution's name as they are compared: PEP 503.
func normal(name string) string { return strings.ToLower(runs.ReplaceAllString(name, "-")) }

// projectOf is the name in a requirement.
func projectOf(requirement string) string {
	end := strings.IndexAny(requirement, "[=!<>~ ")
	if end < 0 {
		end = len(requirement)
	}
	return normal(requirement[:end])
}
