package build

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/image/rootfs"
)

// PipOptions say where wheels come from. The zero value is what this machine's pip is configured for (PIP_INDEX_URL, pip.conf), else PyPI.
type PipOptions struct {
	// Index is the URL of an index instead.
	Index string
	// FindLinks are folders or pages of wheels besides.
	FindLinks []string
	// NoIndex leaves FindLinks alone.
	NoIndex bool
}

func (o PipOptions) args() []string {
	var out []string
	if o.Index != "" {
		out = append(out, "--index-url", o.Index)
	}
	if o.NoIndex {
		out = append(out, "--no-index")
	}
	for _, l := range o.FindLinks {
		out = append(out, "--find-links", l)
	}
	return out
}

// pipDriver runs pip for another interpreter than its own: pip itself can be told of all but the markers of requirements.
//
//go:embed driver.py
var pipDriver string

// pip puts wheels into the image. This machine's pip finds and unpacks them; nothing of them, and nothing of the image, is run by it.
func (w *work) pip(ctx context.Context, root *rootfs.FS) error {
	py := findPython(root, searchPath(w.info))
	if py == nil {
		return fmt.Errorf("%s has no python3 in its PATH that packages could be installed for", w.From)
	}
	run, err := w.hostPip(ctx, py)
	if err != nil {
		return err
	}
	dirs := map[string]string{}
	for _, name := range []string{"stubs", "wheels", "stage"} {
		dirs[name] = filepath.Join(w.draft.Work, name)
		if err := os.Mkdir(dirs[name], 0o755); err != nil { //nolint:gosec // a sandbox reads it
			return err
		}
	}
	installed := py.installed(root)
	constraints, err := w.stubs(installed, dirs["stubs"])
	if err != nil {
		return err
	}
	target := []string{"--progress-bar", "off", "--only-binary", ":all:", "--implementation", "cp", "--python-version", py.minor}
	for _, p := range py.platforms() {
		target = append(target, "--platform", p)
	}
	w.Say("asking pip for %s and what they need, as wheels for Python %s", strings.Join(w.Pip, ", "), py.version)
	args := append([]string{"download", "--dest", dirs["wheels"], "--find-links", dirs["stubs"], "--constraint", constraints}, target...)
	args = append(args, w.PipOptions.args()...)
	if err := run(ctx, append(append(args, "--"), w.Pip...)); err != nil {
		return fmt.Errorf("pip: %w\nOnly wheels are taken: a source distribution would run its own code to be built. "+
			"A package that the base has is kept as it is, unless it is asked for with --pip too", err)
	}
	wheels, err := chosen(dirs["wheels"])
	if err != nil {
		return err
	}
	args = append([]string{"install", "--target", dirs["stage"], "--no-deps", "--no-index", "--no-compile", "--no-warn-conflicts"}, target...)
	if err := run(ctx, append(args, wheels...)); err != nil {
		return fmt.Errorf("pip: %w", err)
	}
	if err := w.compile(ctx, py, dirs["stage"]); err != nil {
		return err
	}
	return w.settle(root, py, installed, dirs["stage"])
}

// hostPip finds pip on this machine.
func (w *work) hostPip(ctx context.Context, py *python) (func(context.Context, []string) error, error) {
	markers, err := json.Marshal(py.markers())
	if err != nil {
		return nil, err
	}
	wheels, _ := filepath.Glob("/usr/share/python-wheels/pip-*.whl") // the pattern is right
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		for _, wheel := range append([]string{""}, wheels...) {
			const probe = "import sys\nif sys.argv[1]: sys.path.insert(0, sys.argv[1])\nimport pip"
			if exec.CommandContext(ctx, python, "-I", "-c", probe, wheel).Run() == nil {
				begin := []string{"-I", "-c", pipDriver, wheel, string(markers), "--disable-pip-version-check", "--no-input", "--no-color"}
				return func(ctx context.Context, args []string) error {
					return w.runPip(ctx, python, slices.Concat(begin, args))
				}, nil
			}
		}
	}
	return nil, errors.New("there is no pip for this machine's python3, which fetches packages: install it (apt-get install python3-pip)")
}

// runPip shows of what pip says the downloads, which take the time, and has its errors in the error.
func (w *work) runPip(ctx context.Context, python string, args []string) error {
	cmd := exec.CommandContext(ctx, python, args...)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	var last []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if !strings.HasPrefix(line, "Downloading ") && !strings.HasPrefix(line, "ERROR: ") {
				continue
			}
			if after, ok := strings.CutPrefix(line, "ERROR: "); ok {
				last = append(last, after)
				continue
			}
			w.Say("  %s", line)
		}
		_, _ = io.Copy(io.Discard, out) // a line that is too long
	}()
	err := cmd.Run()
	_ = in.Close()
	<-done
	if err != nil && len(last) > 0 {
		return errors.New(strings.Join(last, "; "))
	}
	return err
}

// installedMark is in the version of a stub.
const installedMark = "lathe.installed"

var plainVersion = regexp.MustCompile(`^\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?$`)

// stubs makes an empty wheel for each distribution that the image has, so that pip's resolver knows of them and keeps them, and returns
// the file of constraints that makes it. What is asked for by name is left out.
func (w *work) stubs(installed map[string]dist, dir string) (string, error) {
	asked := map[string]bool{}
	for _, p := range w.Pip {
		asked[projectOf(p)] = true
	}
	var lines strings.Builder
	for name, d := range installed {
		version, _, _ := strings.Cut(d.version, "+")
		if asked[name] || !plainVersion.MatchString(version) {
			continue
		}
		version += "+" + installedMark
		if err := stubWheel(dir, strings.ReplaceAll(name, "-", "_"), version); err != nil {
			return "", err
		}
		fmt.Fprintf(&lines, "%s==%s\n", name, version)
	}
	file := filepath.Join(w.draft.Work, "constraints.txt")
	return file, os.WriteFile(file, []byte(lines.String()), 0o600)
}

// chosen are the wheels that are to be installed.
func chosen(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".whl") && !strings.Contains(e.Name(), installedMark) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, errors.New("pip has fetched nothing")
	}
	return out, nil
}

// settle moves what was staged into the image, in the place of earlier versions. Files of the base are never written to.
func (w *work) settle(root *rootfs.FS, py *python, installed map[string]dist, stage string) error {
	staged := (&python{paths: []string{"/"}})
	stageRoot, err := rootfs.Open(stage)
	if err != nil {
		return err
	}
	defer stageRoot.Close()
	for name := range staged.installed(stageRoot) {
		if old, ok := installed[name]; ok && path.Dir(old.info) == py.site {
			if err := uninstall(root, py, old); err != nil {
				return fmt.Errorf("removing %s %s: %w", old.name, old.version, err)
			}
		}
	}
	return filepath.WalkDir(stage, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(stage, p)
		if err != nil {
			return err
		}
		target := path.Join(py.site, rel)
		if script, ok := strings.CutPrefix(rel, "bin/"); ok {
			target = path.Join(py.scripts, script)
			if err := setInterpreter(p, d, py.program); err != nil {
				return err
			}
		}
		return w.move(root, p, target)
	})
}

// move puts a file of this machine at a name inside.
func (w *work) move(root *rootfs.FS, from, name string) error {
	at, err := root.Resolve(name)
	if err != nil {
		return err
	}
	if err := root.Root().MkdirAll(path.Dir(at), 0o755); err != nil {
		return err
	}
	if err := root.Root().RemoveAll(at); err != nil {
		return err
	}
	return os.Rename(from, filepath.Join(w.draft.Root, at)) // there is no link in at
}

// setInterpreter corrects the first line of a script that pip wrote for its own interpreter.
func setInterpreter(file string, d fs.DirEntry, program string) error {
	if !d.Type().IsRegular() {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	line, rest, found := strings.Cut(string(data), "\n")
	if !found || !strings.HasPrefix(line, "#!") || !strings.Contains(line, "python") {
		return nil
	}
	return os.WriteFile(file, []byte("#!"+program+"\n"+rest), 0o755) //nolint:gosec // a program
}

// uninstall removes the files that a distribution says are its own, as far as they lie where pip puts them.
func uninstall(root *rootfs.FS, py *python, d dist) error {
	record, err := root.ReadFile(path.Join(d.info, "RECORD"), 16<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(record)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ",")
		name = strings.Trim(name, `"`)
		file := path.Join(py.site, name)
		if dir, script := path.Split(name); dir == "../../bin/" || dir == "../../../bin/" {
			file = path.Join(py.scripts, script) // as pip --target writes it down, and as pip does
		}
		if !strings.HasPrefix(file, py.site+"/") && path.Dir(file) != py.scripts {
			continue
		}
		at, err := root.Resolve(file)
		if err != nil {
			continue // not where it could be
		}
		if info, err := root.Root().Lstat(at); err == nil && !info.IsDir() {
			if err := root.Root().Remove(at); err != nil {
				return err
			}
		}
	}
	at, err := root.Resolve(d.info)
	if err != nil {
		return err
	}
	return root.Root().RemoveAll(at)
}
