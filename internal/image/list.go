package image

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Listed is one image of a folder.
type Listed struct {
	*Image
	// Name is that of the link or folder, which stays when the image cannot be read: then Err is set, and Image nil.
	Name, Dir string
	Err       error
}

// List returns the images in dirs, in order of the folders and their names. One that is hidden by another of its name is left out.
func List(dirs []string) []Listed {
	var out []Listed
	seen := map[string]bool{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // a folder that does not exist has no images
		}
		for _, e := range entries {
			name := e.Name()
			if strings.HasPrefix(name, ".") || versionForm.MatchString(name) || !nameForm.MatchString(name) || seen[name] || e.Type().IsRegular() {
				continue
			}
			seen[name] = true
			l := Listed{Name: name, Dir: filepath.Join(dir, name)}
			l.Image, l.Err = Open(l.Dir)
			if l.Err != nil {
				l.Image = nil
			}
			out = append(out, l)
		}
	}
	return out
}

// Size is the space in bytes that an image takes on disk, and how much of it other images share.
func (img *Image) Size() (total, shared int64) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	_ = filepath.WalkDir(img.Root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be read is not counted
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || seen[inode{uint64(st.Dev), st.Ino}] { //nolint:unconvert // the type differs between platforms
			return nil
		}
		seen[inode{uint64(st.Dev), st.Ino}] = true //nolint:unconvert // as above
		total += st.Blocks * 512
		if info.Mode().IsRegular() && st.Nlink > 1 {
			shared += st.Blocks * 512
		}
		return nil
	})
	return total, shared
}
