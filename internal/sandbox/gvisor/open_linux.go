package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// openPath is a file or folder that a program had open at a checkpoint, mapped, or was in. Path is inside the sandbox.
type openPath struct {
	Path string `json:"path"`
	Dir  bool   `json:"dir,omitempty"`
}

// maxOpen is how many of them are written down. Beyond it a restore fails if one is gone.
const maxOpen = 10_000

// processes asks the sandbox's kernel what runs.
func processes(ctx context.Context, ctl *control) ([]processInfo, error) {
	var running []processInfo
	if err := ctl.call(ctx, callProcesses, struct{}{}, &running); err != nil {
		return nil, fmt.Errorf("what runs in it: %w", err)
	}
	return running, nil
}

// openPaths are what processes have open below the mounts. Files that have no name any more are not among them: gVisor keeps their content
// in the image.
func openPaths(mounts []sandbox.Mount, running []processInfo) []openPath {
	var open []openPath
	seen := map[string]bool{}
	add := func(p string, dir bool) {
		if seen[p] || len(open) == maxOpen || strings.HasSuffix(p, " (deleted)") {
			return
		}
		seen[p] = true
		if m, _ := below(mounts, p); m != nil && !m.ReadOnly {
			open = append(open, openPath{p, dir})
		}
	}
	for _, p := range running {
		add(p.CWD, true)
		add(p.Exe, false)
		for _, f := range p.FDs {
			switch f.Mode & unix.S_IFMT {
			case unix.S_IFREG:
				add(f.Path, false)
			case unix.S_IFDIR:
				add(f.Path, true)
			}
		}
		for _, m := range p.Maps {
			add(m.Pathname, false)
		}
	}
	return open
}

// addressSpace is how much the largest of uid's processes has reserved, in bytes.
func addressSpace(running []processInfo, uid uint32) int64 {
	var most int64
	for _, p := range running {
		if p.Status.UID.Real == uid {
			most = max(most, p.Status.VMSize<<10)
		}
	}
	return most
}

// below returns the mount that p lies in and its path there, nil if there is none.
func below(mounts []sandbox.Mount, p string) (found *sandbox.Mount, rest string) {
	for i, m := range mounts {
		r, ok := strings.CutPrefix(p, m.Target+"/")
		if ok && r != "" && (found == nil || len(m.Target) > len(found.Target)) {
			found, rest = &mounts[i], r
		}
	}
	return found, rest
}

// standIns makes empty files and folders in the place of those that have gone since the checkpoint, since gVisor gives up a whole restore
// for one that it does not find. clear takes them away again when the restore is over, whatever became of it: the program then has what it
// would have on Linux, a file without a name, though an empty one. Read-only mounts are left alone, and so is what cannot be made: gVisor
// will say then which one it misses.
func standIns(mounts []sandbox.Mount, uid uint32, open []openPath) (clear func()) {
	var undo []func()
	roots := map[string]*os.Root{}
	for _, o := range open {
		m, rest := below(mounts, o.Path)
		if m == nil || m.ReadOnly {
			continue
		}
		root, known := roots[m.Source]
		if !known {
			root, _ = os.OpenRoot(m.Source)
			roots[m.Source] = root
		}
		if root != nil {
			undo = append(undo, standIn(root, rest, o.Dir, int(uid))...)
		}
	}
	return func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
		for _, root := range roots {
			if root != nil {
				root.Close()
			}
		}
	}
}

// standIn makes what is missing of the path name and returns what takes it away: files, and folders that are still empty.
func standIn(root *os.Root, name string, dir bool, uid int) (undo []func()) {
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		part := path.Clean(name[:i])
		if _, err := root.Lstat(part); err == nil || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var err error
		if i < len(name) || dir {
			err = root.Mkdir(part, 0o755)
		} else {
			var f *os.File
			if f, err = root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
				err = f.Close()
			}
		}
		if err != nil {
			return undo
		}
		undo = append(undo, func() { _ = root.Remove(part) })
		_ = root.Lchown(part, uid, uid)
	}
	return undo
}
