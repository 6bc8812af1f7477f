// Package image keeps the root file systems that sandboxes start from: it finds them, says what is in them, puts new ones in the place of
// old ones and removes them. What goes into one is decided by image/build.sh, run by make image, and by package image/build. The gVisor
// backend and the commands of cmd/lathe use it.
//
// An image NAME is a folder NAME-TIME-RECIPE with image.json and rootfs in it, and a link NAME that is switched to it when it is whole.
// image/build.sh keeps to the same.
package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/image/rootfs"
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
	// Python is the interpreter's path inside, "" where there is none: then only shell commands run.
	Python string
	Info   Info
}

// Info is image.json, written by image/build.sh or package image/build. Of a foreign root file system everything may be empty.
type Info struct {
	Name    string    `json:"name"`
	Recipe  string    `json:"recipe"`
	Created time.Time `json:"created"`
	Source  string    `json:"source,omitempty"`
	Arch    string    `json:"arch,omitempty"`
	Python  string    `json:"python,omitempty"`
	// Libraries maps a Python distribution's name to its version.
	Libraries map[string]string `json:"libraries"`
	// Reference is what the image was pulled from, a registry's reference or an OCI layout, and Digest that of its manifest.
	Reference string `json:"reference,omitempty"`
	Digest    string `json:"digest,omitempty"`
	// Foreign says that strangers' programs are in it, beside Debian's: none of them is run outside of a sandbox.
	Foreign bool `json:"foreign,omitempty"`
	// Base is the image that this one was made from, Pip and Apt what was asked for on top.
	Base string   `json:"base,omitempty"`
	Pip  []string `json:"pip,omitempty"`
	Apt  []string `json:"apt,omitempty"`
	// Env has what an image of a container wants in the environment of its programs and gets: PATH and LANG.
	Env map[string]string `json:"env,omitempty"`
}

// DefaultPath is where programs are looked for in an image that does not say.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Path is the PATH of programs in it.
func (img *Image) Path() string {
	if p := img.Info.Env["PATH"]; p != "" {
		return p
	}
	return DefaultPath
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// CheckName refuses what is not the name of an image.
func CheckName(name string) error {
	if !nameForm.MatchString(name) || versionForm.MatchString(name) {
		return fmt.Errorf("image: %q is not a name for an image: take lower-case letters, digits and . _ -, such as data-2", name)
	}
	return nil
}

// NameOf is the name under which an image from elsewhere, a reference or the absolute path of a layout, is kept if it gets none.
func NameOf(ref string) string {
	slug := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(ref), "-"), "-")
	sum := sha256.Sum256([]byte(ref))
	return strings.TrimLeft(slug[max(0, len(slug)-40):]+"-"+hex.EncodeToString(sum[:4]), "-")
}

// Find returns the image that the configuration's sandbox.image means: a directory, the name of an image in one of dirs, "" being
// DefaultName, or what was pulled from an OCI layout or a registry's reference. The error wraps ErrNotFound if there is nothing of that
// name, and ErrNotPulled too if it can be pulled; any other tells what is wrong with it.
func Find(ref string, dirs []string) (*Image, error) {
	switch {
	case ref == "":
		ref = DefaultName
	case filepath.IsAbs(ref), strings.HasPrefix(ref, "./"), strings.HasPrefix(ref, "../"):
		abs, err := filepath.Abs(ref)
		if err != nil {
			return nil, fmt.Errorf("image: %w", err)
		}
		if exists(filepath.Join(abs, "oci-layout")) {
			return findPulled(abs, dirs)
		}
		return Open(abs)
	}
	if !nameForm.MatchString(ref) {
		if strings.ContainsAny(ref, ":/@") && !strings.ContainsAny(ref, " \t\n") {
			return findPulled(ref, dirs)
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

// ErrNotPulled comes with ErrNotFound where an image of a container has not been unpacked here yet.
var ErrNotPulled = errors.New("not pulled yet")

// findPulled finds what was pulled from ref, under whatever name.
func findPulled(ref string, dirs []string) (*Image, error) {
	for _, dir := range dirs {
		if img, err := Open(filepath.Join(dir, NameOf(ref))); err == nil && img.Info.Reference == ref {
			return img, nil
		}
	}
	for _, img := range List(dirs) {
		if img.Err == nil && img.Info.Reference == ref {
			return img.Image, nil
		}
	}
	return nil, fmt.Errorf("%w: %s is %w: run `lathe image pull %s`", ErrNotFound, ref, ErrNotPulled, ref)
}

// mend says how to come by the image ref.
func mend(ref string) string {
	if ref == DefaultName {
		return "run `make image`"
	}
	return "`lathe image build " + ref + " --from python --pip ...` or `lathe image pull " + ref + " REFERENCE` makes it, " +
		"`lathe image list` says what there is"
}

// Open reads the image in dir, an absolute path: a folder as the package comment says, or any root file system with a python3, or a shell
// at least, in its PATH.
func Open(dir string) (*Image, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no folder %s: run `make image`, or correct sandbox.image", ErrNotFound, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if exists(filepath.Join(resolved, "oci-layout")) {
		return nil, fmt.Errorf("image: %s is an OCI layout: `lathe image pull %s` unpacks it, and sandbox.image may name it", dir, dir)
	}
	if filepath.Base(resolved) == "rootfs" && exists(filepath.Join(filepath.Dir(resolved), "image.json")) {
		resolved = filepath.Dir(resolved) // Image.Root, given back to us
	}
	img := &Image{Name: filepath.Base(dir), Dir: dir, Root: resolved}
	if exists(filepath.Join(resolved, "rootfs")) {
		img.Root = filepath.Join(resolved, "rootfs")
	}
	if err := img.readInfo(resolved); err != nil {
		return nil, err
	}
	return img, img.findPrograms()
}

// findPrograms looks for what code needs. It goes by the root file system's own links.
func (img *Image) findPrograms() error {
	root, err := rootfs.Open(img.Root)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer root.Close()
	img.Python = root.Program(img.Path(), "python3")
	if img.Python == "" && root.Program(img.Path(), "bash", "sh") == "" {
		return fmt.Errorf("image: %s has no python3 and no shell in %s: it is no image for sandboxes (`make image` builds one)", img.Root, img.Path())
	}
	return nil
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
		return fmt.Errorf("image: %s/image.json is damaged: build or pull the image again: %w", dir, err)
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
