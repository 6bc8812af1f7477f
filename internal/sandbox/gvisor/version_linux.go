package gvisor

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// runscID is a build of runsc. It is read again when the file has changed: one that is built anew while the gateway runs is used from the
// next sandbox on.
type runscID struct {
	size int64
	time time.Time
	// version is for people, id for comparison.
	version, id string
}

// identifyRunsc finds out which runsc there is.
func (b *Backend) identifyRunsc(ctx context.Context) (runscID, error) {
	fi, err := os.Stat(b.cfg.Runsc)
	if err != nil {
		return runscID{}, fmt.Errorf("gvisor: %w", err)
	}
	b.mu.Lock()
	known := b.runsc
	b.mu.Unlock()
	if known.id != "" && known.size == fi.Size() && known.time.Equal(fi.ModTime()) {
		return known, nil
	}
	id := runscID{size: fi.Size(), time: fi.ModTime()}
	id.version, id.id, err = readRunsc(ctx, b.cfg.Runsc)
	if err != nil {
		return runscID{}, err
	}
	b.mu.Lock()
	b.runsc = id
	b.mu.Unlock()
	return id, nil
}

// readRunsc takes what go build has written into the program; a release of gVisor's own has not been built so and prints its version.
func readRunsc(ctx context.Context, path string) (version, id string, err error) {
	if info, err := buildinfo.ReadFile(path); err == nil {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == "gvisor.dev/gvisor" && m.Version != "" && m.Version != "(devel)" {
				return "gVisor " + m.Version, m.Version + " " + digest([]byte(stable(info))), nil
			}
		}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", path, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	version = strings.TrimSpace(first)
	return version, version + " " + digest(out), nil
}

// stable is what of a build decides how gVisor lays out its state: not where and when it was built.
func stable(info *buildinfo.BuildInfo) string {
	only := *info
	only.Main.Version, only.Main.Sum = "", ""
	only.Settings = slices.DeleteFunc(slices.Clone(info.Settings), func(s debug.BuildSetting) bool { return strings.HasPrefix(s.Key, "vcs") })
	return only.String()
}

// identityPaths are files and folders of a root file system that change with what is installed in it: a program or library that is
// replaced changes its folder's time. Patterns may match nothing.
var identityPaths = []string{
	"usr/bin", "usr/lib", "usr/lib/*-linux-gnu", "usr/lib64", "usr/lib/python3*", "usr/lib/python3*/*-packages", "usr/lib64/python3*",
	"usr/lib64/python3*/*-packages", "usr/local/lib", "usr/local/lib/python3*/*-packages", "etc/ld.so.cache", "var/lib/dpkg/status",
	"var/lib/rpm/rpmdb.sqlite", "lib/apk/db/installed",
}

// identity tells the content of root file systems apart. It is asked for each time it is needed, since this machine's own may be upgraded
// at any moment.
func (r *rootfs) identity() string {
	h := sha256.New()
	if r.image != nil {
		fmt.Fprintf(h, "%s %s %s\n", r.image.Name, r.image.Info.Recipe, r.image.Info.Created)
	}
	dir, err := os.OpenRoot(r.content)
	if err != nil {
		return ""
	}
	defer dir.Close()
	for _, pattern := range identityPaths {
		found, err := fs.Glob(dir.FS(), pattern)
		if err != nil {
			continue
		}
		for _, path := range found {
			describe(h, dir, path)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func describe(w io.Writer, dir *os.Root, path string) {
	fi, err := dir.Stat(filepath.FromSlash(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		fmt.Fprintf(w, "%s %v\n", path, err)
	case fi.IsDir():
		fmt.Fprintf(w, "%s %d\n", path, fi.ModTime().UnixNano())
	default:
		fmt.Fprintf(w, "%s %d %d\n", path, fi.ModTime().UnixNano(), fi.Size())
	}
}
