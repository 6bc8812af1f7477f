// Package build makes images out of others: with more Python packages (pip, wheels only), with more Debian packages (apt), or out of
// images of containers (package oci). It needs no Docker and no account.
//
// Who is trusted with what: pip and apt are this machine's own, and so is what they are told by its configuration (indexes, mirrors,
// keys). Wheels are strangers' code: they are unpacked and never run here, source distributions are refused since building one runs it.
// Packages of apt come from an archive whose signature apt checks, and run their maintainers' scripts as root in a chroot, as they do in
// image/build.sh; that also runs the base's own programs, so a base with strangers' programs in it is refused unless the operator says
// otherwise. Whether the new image works is tried in a sandbox. Only cmd/lathe may import it.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/image"
	"github.com/lathe-gateway/lathe/internal/image/oci"
	"github.com/lathe-gateway/lathe/internal/image/rootfs"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// Builder makes images in a Store.
type Builder struct {
	Store image.Store
	// Dirs are where a base is looked for by its name.
	Dirs []string
	OCI  oci.Config
	// Sandbox opens a backend whose sandboxes start from the image in dir, to try it. nil leaves that out.
	Sandbox func(dir string) (sandbox.Backend, error)
	// Say tells a person what is being done, a line at a time.
	Say func(format string, args ...any)
}

// Recipe is what an image is to be made of.
type Recipe struct {
	// Name is the new image's.
	Name string
	// From is a name, a folder with a root file system, an OCI layout, or a registry's reference.
	From string
	// Pip are requirements, such as "requests" or "polars==1.9".
	Pip        []string
	PipOptions PipOptions
	// Apt are names of Debian packages.
	Apt        []string
	AptOptions AptOptions
}

// Pull makes an image of what from means, which is an OCI layout, a reference or a folder. "" as name is image.NameOf(from).
func (b *Builder) Pull(ctx context.Context, name, from string) (*image.Image, error) {
	if name == "" {
		if abs, err := filepath.Abs(from); err == nil && isPath(from) {
			from = abs
		}
		name = image.NameOf(from)
	}
	return b.Build(ctx, Recipe{Name: name, From: from})
}

// Build makes the image. After an error nothing of it is left, and one of that name is what it was.
func (b *Builder) Build(ctx context.Context, r Recipe) (*image.Image, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	waiting := func() { b.Say("waiting for another build of %s", r.Name) }
	img, err := b.Store.Make(ctx, r.Name, waiting, func(ctx context.Context, d *image.Draft) (image.Info, error) {
		w := &work{Builder: b, Recipe: r, draft: d}
		return w.run(ctx)
	})
	if err != nil {
		return nil, err
	}
	total, shared := img.Size()
	b.Say("%s is ready: %d MB, %d of them shared with other images", img.Name, total/1e6, shared/1e6)
	return img, nil
}

var (
	requirement = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._ -]+\])?\s*([=!<>~]=?=?\s*[A-Za-z0-9.*+!_-]+\s*,?\s*)*$`)
	debPackage  = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~-]+)?$`)
)

func (r *Recipe) check() error {
	errs := []error{image.CheckName(r.Name)}
	if r.From == r.Name {
		errs = append(errs, fmt.Errorf("the new image and the one that it is made from are both called %q: take another name", r.Name))
	}
	for _, p := range r.Pip {
		if !requirement.MatchString(p) {
			errs = append(errs, fmt.Errorf("--pip %q is not the name of a package with a version: write it as polars or polars==1.9; "+
				"files, folders and URLs are not taken, --find-links names a folder of wheels", p))
		}
	}
	for _, p := range r.Apt {
		if !debPackage.MatchString(p) {
			errs = append(errs, fmt.Errorf("--apt %q is not the name of a Debian package", p))
		}
	}
	return errors.Join(errs...)
}

// work is one build.
type work struct {
	*Builder
	Recipe
	draft *image.Draft
	info  image.Info
	// base is the folder whose files the draft begins with, "" where they were unpacked into it.
	base string
	// ours says that base was made here, so that its files are as they should be and are never written to.
	ours bool
}

func (w *work) run(ctx context.Context) (image.Info, error) {
	if err := w.begin(ctx); err != nil {
		return image.Info{}, err
	}
	if len(w.Apt) > 0 {
		if err := w.apt(ctx); err != nil {
			return image.Info{}, err
		}
	}
	root, err := rootfs.Open(w.draft.Root)
	if err != nil {
		return image.Info{}, err
	}
	defer root.Close()
	// Before packages are looked for: it makes folders of what links are in the way.
	if err := root.Finish(); err != nil {
		return image.Info{}, fmt.Errorf("the root file system of %s cannot be one of a sandbox: %w", w.From, err)
	}
	if len(w.Pip) > 0 {
		if err := w.pip(ctx, root); err != nil {
			return image.Info{}, err
		}
		if err := root.Finish(); err != nil {
			return image.Info{}, err
		}
	}
	w.describe(root)
	return w.info, w.try(ctx)
}

func isPath(s string) bool {
	return filepath.IsAbs(s) || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") || s == "." || s == ".."
}

// begin fills the draft with what the image is made from.
func (w *work) begin(ctx context.Context) error {
	switch {
	case isPath(w.From) && oci.IsLayout(w.From):
		abs, err := filepath.Abs(w.From)
		if err != nil {
			return err
		}
		img, err := w.OCI.Open(abs)
		if err != nil {
			return err
		}
		return w.unpack(ctx, img, abs)
	case !isPath(w.From) && oci.IsReference(w.From):
		w.Say("asking for %s", w.From)
		img, err := w.OCI.Fetch(ctx, w.From)
		if err != nil {
			return err
		}
		return w.unpack(ctx, img, w.From)
	}
	base, err := image.Find(w.From, w.Dirs)
	if err != nil {
		if !isPath(w.From) && errors.Is(err, image.ErrNotFound) {
			err = fmt.Errorf("%w; an image of a registry is written with its tag, such as docker.io/library/%s:latest", err, w.From)
		}
		return err
	}
	w.info = base.Info
	w.info.Base, w.info.Recipe, w.info.Created = base.Name, base.Info.Recipe+base.Root, base.Info.Created
	w.base = base.Root
	// A folder that somebody names may be anything, and may change.
	w.ours = !isPath(w.From) && base.Info.Recipe != "" && slices.Contains(w.Dirs, filepath.Dir(base.Dir))
	w.info.Foreign = w.info.Foreign || !w.ours || base.Info.Source == ""
	w.info.Created = image.Info{}.Created
	return w.clone(ctx)
}

func (w *work) clone(ctx context.Context) error {
	how := "copying"
	// apt and its packages' scripts write to files in place; pip's part here puts new ones in the place of old ones.
	share := w.ours && len(w.Apt) == 0
	if share {
		how = "linking"
	}
	w.Say("%s the files of %s", how, w.info.Base)
	if err := clone(ctx, w.base, w.draft.Root, share); err != nil {
		return fmt.Errorf("the files of %s could not be copied: %w", w.From, err)
	}
	return nil
}

func (w *work) unpack(ctx context.Context, img *oci.Image, from string) error {
	w.Say("unpacking %d layers, %d MB", img.Layers(), img.Size()/1e6)
	done := int64(0)
	err := img.Unpack(ctx, w.draft.Root, func(layer int, size int64) {
		done += size
		w.Say("  layer %d of %d, %d of %d MB", layer, img.Layers(), done/1e6, img.Size()/1e6)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	w.info = image.Info{Reference: from, Digest: img.Digest, Recipe: img.Digest, Foreign: true, Env: safeEnv(img.Env())}
	return nil
}

var langForm = regexp.MustCompile(`^[A-Za-z0-9_.@-]{1,64}$`)

// safeEnv takes what is harmless and useful of an image's environment: where its programs are, and its language.
func safeEnv(env []string) map[string]string {
	out := map[string]string{}
	for _, kv := range env {
		switch name, value, _ := strings.Cut(kv, "="); name {
		case "PATH":
			var dirs []string
			for dir := range strings.SplitSeq(value, ":") {
				if filepath.IsAbs(dir) && len(dir) < 256 && !strings.ContainsFunc(dir, func(r rune) bool { return r < ' ' || r == 0x7f }) {
					dirs = append(dirs, filepath.Clean(dir))
				}
			}
			if len(dirs) > 0 && len(dirs) <= 64 {
				out[name] = strings.Join(dirs, ":")
			}
		case "LANG":
			if langForm.MatchString(value) {
				out[name] = value
			}
		}
	}
	return out
}

// known are the libraries that are worth a line in image.json where a foreign image has them, as in image/finish.py.
var known = []string{"ipython", "numpy", "pandas", "scipy", "matplotlib", "sympy", "openpyxl", "pillow", "tabulate", "lxml"}

// describe says what is in the image now. Nothing of it is run for that.
func (w *work) describe(root *rootfs.FS) {
	i := &w.info
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q", i.Recipe, w.Pip, w.Apt))
	i.Recipe = hex.EncodeToString(sum[:16])
	i.Arch = machine()
	i.Pip = append(slices.Clone(i.Pip), w.Pip...)
	i.Apt = append(slices.Clone(i.Apt), w.Apt...)
	py := findPython(root, searchPath(*i))
	if py == nil {
		i.Python, i.Libraries = "", nil
		return
	}
	i.Python = py.version
	installed := py.installed(root)
	libraries := map[string]string{}
	for name := range i.Libraries {
		libraries[name] = installed[normal(name)].version
	}
	wanted := slices.Clone(known)
	for _, p := range i.Pip {
		wanted = append(wanted, projectOf(p))
	}
	for _, name := range wanted {
		libraries[name] = installed[normal(name)].version
	}
	for name, version := range libraries {
		if version == "" {
			delete(libraries, name)
		}
	}
	i.Libraries = libraries
}

// searchPath is the PATH of the image.
func searchPath(i image.Info) string { return (&image.Image{Info: i}).Path() }

// exists says whether there is a file of that name on this machine.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
