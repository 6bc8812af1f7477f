// Package image finds the root file system that sandboxes start from, and says what is in it. It makes none: that is image/build.sh,
// run by make image. The gVisor backend and the commands of cmd/lathe use it.
package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// DefaultName is the image that an empty configuration means.
const DefaultName = "python"

// ErrNotFound: there is no image of that name.
var ErrNotFound = errors.New("image: not found")

// Image is a root file system on disk.
type Image struct {
	// Name is its own, from image.json, or that of its folder.
	Name string
	// Dir is the folder under the name by which it was found, for Open: once a newer image has been built, that is the newer one.
	Dir string
	// Root is the folder that becomes / in a sandbox, with all links resolved. It stays the same image when a newer one is built, and
	// goes away when the one after that is.
	Root string
	Info Info
}

// Info is image.json, written by image/build.sh. Of a foreign root file system everything may be empty.
type Info struct {
	Name    string    `json:"name"`
	Recipe  string    `json:"recipe"`
	Created time.Time `json:"created"`
	Source  string    `json:"source,omitempty"`
	Arch    string    `json:"arch,omitempty"`
	Python  string    `json:"python,omitempty"`
	// Libraries maps a Python distribution's name to its version.
	Libraries map[string]string `json:"libraries"`
}

var (
	nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	// A registry's reference has a tag, a digest or a path without a leading slash: docker.io/library/python:3.12.
	referenceForm = regexp.MustCompile(`^[a-z0-9][\w.-]*(:\d+)?(/[\w.-]+)*(:[\w][\w.-]*|@sha256:[0-9a-f]+)?$`)
)

// Find returns the image that the configuration's sandbox.image means: a directory, or the name of an image in one of dirs, "" being
// DefaultName. The error wraps ErrNotFound if there is nothing of that name; any other tells what is wrong with it.
func Find(ref string, dirs []string) (*Image, error) {
	switch {
	case ref == "":
		ref = DefaultName
	case filepath.IsAbs(ref):
		return Open(ref)
	case strings.HasPrefix(ref, "./"), strings.HasPrefix(ref, "../"):
		abs, err := filepath.Abs(ref)
		if err != nil {
			return nil, fmt.Errorf("image: %w", err)
		}
		return Open(abs)
	}
	if !nameForm.MatchString(ref) {
		if referenceForm.MatchString(ref) {
			return nil, fmt.Errorf("image: %q looks like a registry's reference, which is not supported yet: unpack it, for example with "+
				"`docker export $(docker create %s) > image.tar; image/build.sh --name mine --from-tar image.tar`, "+
				"and set sandbox.image: mine", ref, ref)
		}
		return nil, fmt.Errorf("image: %q is neither a folder (start it with / or ./) nor the name of an image", ref)
	}
	for _, dir := range dirs {
		img, err := Open(filepath.Join(dir, ref))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		return img, err
	}
	return nil, fmt.Errorf("%w: no image %q in %s: %s", ErrNotFound, ref, strings.Join(dirs, ", "), mend(ref))
}

// mend says how to come by the image ref.
func mend(ref string) string {
	if ref == DefaultName {
		return "run `make image`"
	}
	return "build it from a root file system with `image/build.sh --name " + ref + " --from-tar FILE`, or correct sandbox.image"
}

// Open reads the image in dir, an absolute path: a folder that image/build.sh made, or any root file system with /usr/bin/python3.
func Open(dir string) (*Image, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no folder %s: run `make image`, or correct sandbox.image", ErrNotFound, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if exists(filepath.Join(resolved, "oci-layout")) {
		return nil, fmt.Errorf("image: %s is an OCI layout, which is not supported yet: unpack its root file system into a folder, "+
			"or make a tar of it and run `image/build.sh --from-tar FILE`", dir)
	}
	if filepath.Base(resolved) == "rootfs" && exists(filepath.Join(filepath.Dir(resolved), "image.json")) {
		resolved = filepath.Dir(resolved) // Image.Root, given back to us
	}
	img := &Image{Name: filepath.Base(dir), Dir: dir, Root: resolved}
	if exists(filepath.Join(resolved, "rootfs")) {
		img.Root = filepath.Join(resolved, "rootfs")
	}
	// Lstat: in a root file system a link is relative to its own root and need not lead anywhere on this machine.
	if !exists(filepath.Join(img.Root, "usr/bin/python3")) {
		return nil, fmt.Errorf("image: %s has no usr/bin/python3: it is no image for sandboxes (`make image` builds one)", img.Root)
	}
	if err := img.readInfo(resolved); err != nil {
		return nil, err
	}
	return img, nil
}

func (img *Image) readInfo(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "image.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := json.Unmarshal(data, &img.Info); err != nil {
		return fmt.Errorf("image: %s/image.json is damaged, run `image/build.sh --force`: %w", dir, err)
	}
	if img.Info.Name != "" {
		img.Name = img.Info.Name
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
