package skill

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ReadFolder judges a folder of the file system, whose name is taken for that of the skill. Links are not followed, and what is neither
// file nor folder is not opened: both are findings. The error is that of the file system.
func ReadFolder(dir string, limits Limits) (*Package, *Report, error) {
	limits.setDefaults()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	r := &reader{limits: limits}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case r.full:
			return fs.SkipAll
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			r.notRegular(name, d.Type())
			return nil
		}
		return r.open(root, name)
	})
	if err != nil {
		return nil, nil, err
	}
	p, report := r.finish(filepath.Base(dir))
	return p, report, nil
}

func (r *reader) notRegular(name string, mode fs.FileMode) {
	f := Finding{Code: "special", Path: shown(name), By: everyone, Message: "is no plain file", Mend: "leave it out"}
	if mode&fs.ModeSymlink != 0 {
		f.Code, f.Message, f.Mend = "link", "is a link", "put the file itself in its place"
	}
	r.report.add(f)
}

func (r *reader) open(root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New(name + " changed while it was read: try again")
	}
	if !r.admit(name, info.Size()) {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, info.Size()))
	if err != nil {
		return err
	}
	r.files = append(r.files, File{Path: name, Data: data, Exec: info.Mode()&0o111 != 0})
	return nil
}

// Generated says whether a file of a skill's folder is made by tools, and so no part of the package that `lathe skill pack` makes.
func Generated(name string) bool {
	parts := strings.Split(name, "/")
	return filepath.Ext(name) == ".pyc" || slices.ContainsFunc(parts, func(e string) bool { return e == "__pycache__" || e == "node_modules" })
}
