package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Source is where a configuration comes from.
type Source struct {
	// Path of the file; "" reads none and gives the defaults.
	Path string
	// Env looks up variables, as os.LookupEnv does.
	Env func(name string) (string, bool)
	// Listen overrides the file's listen where it is not "".
	Listen string
	// Root says that the process is the superuser, which moves the default image folder.
	Root bool
}

// Load reads, expands and checks a configuration. Its error is Faults, with everything that is wrong, or that of reading the file.
func Load(src Source) (*Config, error) {
	c := Default()
	c.File = src.Path
	d := &decoder{file: src.Path, env: src.Env}
	if src.Path != "" {
		text, err := os.ReadFile(src.Path)
		if err != nil {
			return nil, fmt.Errorf("the configuration cannot be read: %w", err)
		}
		d.document(text, &c)
	}
	if src.Listen != "" {
		c.Listen = src.Listen
		if err := checkListen(src.Listen); err != nil {
			d.faults = append(d.faults, Fault{Key: "--listen", Message: fmt.Sprintf("%q %s", src.Listen, err)})
		}
	}
	d.folders(&c, src)
	if len(d.faults) > 0 {
		return nil, d.faults.sorted()
	}
	return &c, nil
}

// systemImages is where root builds images for everybody.
const systemImages = "/var/lib/lathe/images"

func imageDirs(src Source, share string) []string {
	switch dir, _ := src.Env("LATHE_IMAGE_DIR"); {
	case dir != "":
		return []string{dir}
	case src.Root:
		return []string{systemImages}
	}
	return []string{filepath.Join(share, "images"), systemImages}
}

// folders sets what depends on the user, and makes paths absolute.
func (d *decoder) folders(c *Config, src Source) {
	home, _ := src.Env("HOME")
	share := filepath.Join(home, ".local", "share", "lathe")
	if c.DataDir == "" {
		c.DataDir = share
	}
	c.Runsc, _ = src.Env("LATHE_RUNSC")
	c.ImageDirs = imageDirs(src, share)
	for _, path := range []*string{&c.DataDir, &c.ImageDirs[0], &c.Sandbox.Image, &c.SkillsDir} {
		rest, inHome := strings.CutPrefix(*path, "~/")
		if inHome {
			*path = filepath.Join(home, rest)
		}
		if (inHome || strings.HasPrefix(*path, share)) && home == "" {
			d.faults = append(d.faults, Fault{File: d.file, Key: "data_dir", Message: "HOME is not set: set it, or write an absolute path"})
			return
		}
		if *path == "" || path == &c.Sandbox.Image && !strings.Contains(*path, "/") {
			continue // an image may be given by its name
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			d.faults = append(d.faults, Fault{File: d.file, Message: err.Error()})
			continue
		}
		*path = absolute
	}
}

func (d *decoder) document(text []byte, c *Config) {
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		f := Fault{File: d.file, Message: "is not YAML: " + err.Error()}
		if at, ok := errors.AsType[yaml.Error](err); ok {
			f.Message = "is not YAML: " + at.GetMessage()
			if tk := at.GetToken(); tk != nil && tk.Position != nil {
				f.Line, f.Column = tk.Position.Line, tk.Position.Column
			}
		}
		d.faults = append(d.faults, f)
		return
	}
	var root ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			d.fault(doc.Body, "", "a second document: write one document, without '---' between its parts")
			return
		}
		root = doc.Body
	}
	if root != nil {
		d.anchors = map[string]ast.Node{}
		for _, n := range ast.Filter(ast.AnchorType, root) {
			if a, ok := n.(*ast.AnchorNode); ok {
				d.anchors[a.Name.String()] = a.Value
			}
		}
		d.mapping(root, "", d.root(c))
		d.complete(c)
	}
}
