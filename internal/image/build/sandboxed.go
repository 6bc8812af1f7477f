package build

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// tryTime bounds what is done in a sandbox.
const tryTime = 10 * time.Minute

// inSandbox runs a command in a sandbox that starts from the image as it is now, with dir as /mnt/data. Without a backend it does nothing
// and says so.
func (w *work) inSandbox(ctx context.Context, dir string, call sandbox.Call, sink func(sandbox.Output)) (*sandbox.Result, error) {
	if w.Sandbox == nil {
		return nil, nil
	}
	img, err := w.draft.Describe(w.info)
	if err != nil {
		return nil, err
	}
	backend, err := w.Sandbox(img.Dir)
	if err != nil {
		return nil, err
	}
	defer backend.Close()
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	limits := sandbox.Defaults()
	limits.ExecTime, limits.Memory = tryTime, 2<<30
	box, err := backend.Start(ctx, sandbox.Spec{
		ID: "build", Image: img.Dir, Mounts: []sandbox.Mount{{Source: dir, Target: "/mnt/data"}}, Limits: limits,
	})
	if err != nil {
		return nil, err
	}
	defer box.Close()
	return box.Exec(ctx, call, sink)
}

// compile makes the .pyc files of what was staged, in a sandbox: the root file system is read-only for programs, so that later nobody
// could. What cannot be compiled is left as it is.
func (w *work) compile(ctx context.Context, py *python, stage string) error {
	const user = 1000 // of programs in sandboxes, where there is root
	if os.Geteuid() == 0 {
		if err := own(stage, user); err != nil {
			return err
		}
	}
	_, err := w.inSandbox(ctx, stage, sandbox.Call{
		Kind: sandbox.Bash, Code: fmt.Sprintf("%s -m compileall -q -s /mnt/data -p %s /mnt/data >/dev/null 2>&1", py.program, py.site),
	}, nil)
	if err != nil {
		return fmt.Errorf("compiling in a sandbox: %w", err)
	}
	if os.Geteuid() == 0 {
		return own(stage, 0)
	}
	return nil
}

func own(dir string, user int) error {
	return filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, user, user)
	})
}

// tryScript prints the interpreter's version, then what of the named distributions cannot be imported.
//
//go:embed try.py
var tryScript string

// try starts a sandbox from the image before it gets its name, imports what was asked for, and tells what does not work. Only an image in
// which nothing runs at all is an error.
func (w *work) try(ctx context.Context) error {
	if w.Sandbox == nil {
		w.Say("not tried in a sandbox")
		return nil
	}
	w.Say("trying it in a sandbox")
	dir := filepath.Join(w.draft.Work, "try")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // a sandbox reads it
		return err
	}
	names := make([]string, len(w.Pip))
	for i, p := range w.Pip {
		names[i] = projectOf(p)
	}
	call := sandbox.Call{Kind: sandbox.Python, Code: fmt.Sprintf("NAMES = %q.split()\n%s", strings.Join(names, " "), tryScript)}
	if w.info.Python == "" {
		w.Say("there is no python3 in its PATH: only shell commands will run in it, and the python tool will be refused")
		call = sandbox.Call{Kind: sandbox.Bash, Code: "echo a shell works"}
	}
	var said strings.Builder
	r, err := w.inSandbox(ctx, dir, call, func(o sandbox.Output) { said.WriteString(o.Text) })
	if err == nil && r.Status != sandbox.StatusOK {
		err = errors.New(strings.TrimSpace(said.String() + " " + r.Error))
	}
	if err != nil {
		return fmt.Errorf("nothing runs in a sandbox with this image: %w", err)
	}
	for line := range strings.Lines(said.String()) {
		w.Say("  %s", strings.TrimSpace(line))
	}
	return nil
}
