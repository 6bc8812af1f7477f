// Package archtest holds the rules of the source tree: who may import whom, and a few habits. It reads the files with go/parser and
// builds nothing. Only its own test uses it.
//
// To add a package: a row in Imports. To allow an import: think first whether it points down, then name it in the row.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Module is the path of the module that the rules are for.
const Module = "github.com/lathe-gateway/lathe"

// maxLines is the length at which a file has more than one subject.
const maxLines = 800

// Check reads every Go file below root and returns each breach as "file:line: what".
func Check(root fs.FS) ([]string, error) {
	c := &checker{documented: map[string]bool{}, files: map[string]string{}, fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (slices.Contains(skipped, entry.Name()) || strings.HasPrefix(entry.Name(), ".") && name != ".") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return c.file(name, source)
	})
	if err != nil {
		return nil, err
	}
	for folder, file := range c.files {
		if !c.documented[folder] {
			c.breaches = append(c.breaches, fmt.Sprintf("%s:1: package %s has no package comment: say what it is, what it is not, who may import it",
				file, folder))
		}
	}
	slices.Sort(c.breaches)
	return c.breaches, nil
}

// skipped are folders that hold no source of this module. runsc and tools are modules of their own.
var skipped = []string{"testdata", "node_modules", "runsc", "tools", "bin", "dist", "lathe-demo", ".venv"}

type checker struct {
	fset       *token.FileSet
	breaches   []string
	documented map[string]bool
	files      map[string]string // folder -> one file of it that is not a test
}

func (c *checker) breach(pos token.Pos, format string, args ...any) {
	at := c.fset.Position(pos)
	c.breaches = append(c.breaches, fmt.Sprintf("%s:%d: %s", at.Filename, at.Line, fmt.Sprintf(format, args...)))
}

func (c *checker) file(name string, source []byte) error {
	f, err := parser.ParseFile(c.fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	folder, test := path.Dir(name), strings.HasSuffix(name, "_test.go")
	if !test {
		c.files[folder] = name
		if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
			c.documented[folder] = true
		}
	}
	if lines := strings.Count(string(source), "\n"); lines > maxLines {
		c.breach(f.Package, "%d lines: split what has more than one subject (at most %d)", lines, maxLines)
	}
	c.imports(f, name, folder, test)
	c.todos(f)
	if !test {
		c.habits(f, folder)
	}
	return nil
}

func (c *checker) imports(f *ast.File, name, folder string, test bool) {
	allowed, known := Imports[strings.TrimPrefix(folder, "internal/")]
	if !known && strings.HasPrefix(folder, "internal/") {
		c.breach(f.Package, "%s has no row in archtest.Imports", folder)
		return
	}
	for _, spec := range f.Imports {
		target, own := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), Module+"/")
		if !own {
			continue
		}
		target = strings.TrimPrefix(target, "internal/")
		switch {
		case strings.HasPrefix(target, "cmd/"):
			c.breach(spec.Pos(), "%s imports %s: commands are not imported", folder, target)
		case test: // a test may put anything real around its subject
		case isTestHelp(target) && !isTestHelp(strings.TrimPrefix(folder, "internal/")):
			c.breach(spec.Pos(), "%s imports %s, which is for tests only", folder, target)
		case folder == "cmd/lathe" && isImplementation(target) && !strings.HasPrefix(path.Base(name), "wire"):
			c.breach(spec.Pos(), "%s imports the implementation %s: only wire.go does", name, target)
		case strings.HasPrefix(folder, "internal/") && !slices.Contains(allowed, target):
			c.breach(spec.Pos(), "%s may not import %s (see archtest.Imports)", folder, target)
		}
	}
}

// todo is a note of unfinished work; reasoned is one that says why it is not finished.
var (
	todo     = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	reasoned = regexp.MustCompile(`\bTODO\([^)]{4,}\): \S.{9,}`)
)

func (c *checker) todos(f *ast.File) {
	for _, group := range f.Comments {
		for _, comment := range group.List {
			if todo.MatchString(comment.Text) && !reasoned.MatchString(comment.Text) {
				c.breach(comment.Pos(), "a TODO without a reason: write TODO(why it waits): what is to be done")
			}
		}
	}
}

// habits are rules for code that is not a test.
func (c *checker) habits(f *ast.File, folder string) {
	// The guest is a program of its own, whose environment is the sandbox's.
	environment := folder == "internal/config" || folder == "internal/guest" || strings.HasPrefix(folder, "cmd/") ||
		isTestHelp(strings.TrimPrefix(folder, "internal/"))
	for _, decl := range f.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			c.breach(fn.Pos(), "an init function: the wiring calls what must be called")
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "os" && slices.Contains(environmentCalls, call.Sel.Name) && !environment {
			c.breach(call.Pos(), "os.%s: only package config reads the environment", call.Sel.Name)
		}
		return true
	})
}

var environmentCalls = []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}
