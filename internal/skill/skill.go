// Package skill is the format of Agent Skills: a folder with a SKILL.md, its front matter, scripts and resources (agentskills.io;
// wire/anthropic.md 3.2 to 3.4, wire/openai.md 5). It reads packages (folder, list of parts, zip), judges them, writes them as zip, and
// has the text that tells a model of them. It knows no database, no project and no HTTP: those are in its user, package catalog, and
// in the commands. It imports nothing of lathe.
//
// Everything that it reads is hostile. A package has two verdicts: whether it can be loaded safely (Report.Loads, which uploads use),
// and who would refuse it (Report.RefusedBy, which `lathe skill validate --strict` shows).
package skill

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// Manifest is the file that makes a folder a skill.
const Manifest = "SKILL.md"

// File is one file of a package.
type File struct {
	// Path is relative, with slashes and no dot elements. In a Package it is below the skill's folder.
	Path string
	Data []byte
	// Exec says that the file may be run.
	Exec bool
}

// Package is a skill that can be loaded. Read makes it; it is not changed after.
type Package struct {
	// Folder is the name of the folder that was around it, "" for none. What a model sees is Meta.Name.
	Folder string
	Meta   Meta
	// Body is SKILL.md without its front matter.
	Body string
	// Files are sorted by path. SKILL.md is among them, with exactly this name.
	Files []File
}

// Size is the sum of the files in bytes.
func (p *Package) Size() int64 {
	var n int64
	for _, f := range p.Files {
		n += int64(len(f.Data))
	}
	return n
}

// Meta is the front matter of a SKILL.md.
type Meta struct {
	// Name is the folder below /skills: letters and digits in lower case, single hyphens between, at most 64. It is the name of the front
	// matter if that is one, else made from it.
	Name string
	// Title is the name as it is written.
	Title                  string
	Description            string
	License, Compatibility string
	// AllowedTools are the entries of allowed-tools, in whatever form they were written.
	AllowedTools []string
	// Metadata and Other (keys that the format does not have) hold strings, lists and maps; every scalar is a string.
	Metadata, Other map[string]any
}

// Limits bound what is read. Zero values are those of Lenient.
type Limits struct {
	Files int
	// FileBytes and TotalBytes are uncompressed; ZipBytes is the archive itself.
	FileBytes, TotalBytes, ZipBytes int64
}

// The limits of the vendors (wire/anthropic.md 3.2, wire/openai.md 5) and our own, which bound what neither of them does.
var (
	Anthropic = Limits{Files: 10_000, TotalBytes: 30 << 20}
	OpenAI    = Limits{Files: 500, FileBytes: 25 << 20, ZipBytes: 50 << 20}
	Lenient   = Limits{Files: 10_000, FileBytes: 100 << 20, TotalBytes: 100 << 20, ZipBytes: 100 << 20}
)

func (l *Limits) setDefaults() {
	for _, v := range []struct {
		value *int64
		own   int64
	}{{&l.FileBytes, Lenient.FileBytes}, {&l.TotalBytes, Lenient.TotalBytes}, {&l.ZipBytes, Lenient.ZipBytes}} {
		if *v.value == 0 {
			*v.value = v.own
		}
	}
	if l.Files == 0 {
		l.Files = Lenient.Files
	}
}

// Read judges files that came one by one: their paths may have one folder around them all. The package is nil if the report says that it
// cannot be loaded.
func Read(files []File, limits Limits) (*Package, *Report) {
	limits.setDefaults()
	r := &reader{limits: limits}
	for _, f := range files {
		if !r.admit(f.Path, int64(len(f.Data))) {
			continue
		}
		r.files = append(r.files, f)
	}
	return r.finish("")
}

// Runnable says whether a file of an origin without modes (parts of a form, JSON) is a script: it begins with #!.
func Runnable(data []byte) bool { return bytes.HasPrefix(data, []byte("#!")) }

// reader gathers the files of one package from whatever form it has.
type reader struct {
	limits Limits
	report Report
	files  []File
	total  int64
	seen   map[string]string // folded path -> path
	count  int
	full   bool // a limit was passed: nothing more is taken
}

// admit checks a path and size before the file is kept.
func (r *reader) admit(name string, size int64) bool {
	if r.full {
		return false
	}
	if junk(name) {
		r.report.add(Finding{Code: "left-out", Path: shown(name), Message: "is a file of an operating system and was left out",
			Mend: "nothing to do; `lathe skill pack` makes archives without it"})
		return false
	}
	if problem := checkPath(name); problem != "" {
		r.report.add(Finding{Code: "path", Path: shown(name), By: everyone, Message: problem,
			Mend: "use relative paths with '/' between names, without '..', '\\' and control characters"})
		return false
	}
	if r.clashes(name) {
		return false
	}
	return r.within(name, size)
}

func (r *reader) within(name string, size int64) bool {
	r.count++
	r.total += size
	switch {
	case r.count > r.limits.Files:
		r.full = true
		r.report.add(Finding{Code: "too-many-files", Path: shown(name), By: everyone,
			Message: "is one file more than the " + number(r.limits.Files) + " that a package may have", Mend: "leave out what the skill does not need"})
	case size > r.limits.FileBytes:
		r.report.add(Finding{Code: "file-too-large", Path: shown(name), By: ByLoad | ByOpenAI,
			Message: "has " + number(size) + " bytes; a file may have " + number(r.limits.FileBytes), Mend: "make it smaller, or let the skill fetch it from /v1/files"})
		return false
	case r.total > r.limits.TotalBytes:
		r.full = true
		r.report.add(Finding{Code: "too-large", Path: shown(name), By: everyone,
			Message: "makes the package larger than " + number(r.limits.TotalBytes) + " bytes, uncompressed", Mend: "leave out what the skill does not need"})
	}
	return !r.full
}

// clashes says whether another file has the name, whatever the case of its letters: on some machines they are one file.
func (r *reader) clashes(name string) bool {
	if r.seen == nil {
		r.seen = map[string]string{}
	}
	key := fold(name)
	if other, twice := r.seen[key]; twice {
		f := Finding{Code: "duplicate", Path: shown(name), By: everyone, Message: "stands twice in the package", Mend: "keep one of them"}
		if other != name {
			f.Code, f.Message = "case-clash", "differs from "+shown(other)+" only in the case of letters or their encoding"
			f.Mend = "rename one of them"
		}
		r.report.add(f)
		return true
	}
	r.seen[key] = name
	return false
}

// finish finds the skill's folder among the files, reads its SKILL.md and judges. folder is the name of what was around all files, "" if
// it may be a part of their paths.
func (r *reader) finish(folder string) (*Package, *Report) {
	r.fileInFolderPlace()
	p := &Package{Folder: folder}
	slices.SortFunc(r.files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	if r.layout(p) {
		r.manifest(p)
	}
	r.vendorLimits(p)
	r.report.sort()
	if !r.report.Loads() {
		return nil, &r.report
	}
	return p, &r.report
}

// fileInFolderPlace finds a file whose path another one uses as a folder.
func (r *reader) fileInFolderPlace() {
	said := map[string]bool{}
	for _, f := range r.files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if other, is := r.seen[fold(dir)]; is && !said[other] {
				said[other] = true
				r.report.add(Finding{Code: "duplicate", Path: shown(other), By: everyone,
					Message: "is a file and also the folder of " + shown(f.Path), Mend: "rename one of them"})
			}
		}
	}
}

// vendorLimits are what a package within our limits is refused for elsewhere.
func (r *reader) vendorLimits(p *Package) {
	if n := p.Size(); n > Anthropic.TotalBytes {
		r.report.add(Finding{Code: "large", By: ByAnthropic, Message: "the package has " + number(n) + " bytes uncompressed; Anthropic takes less than 30 MB",
			Mend: "leave out what the skill does not need"})
	}
	if len(p.Files) > OpenAI.Files {
		r.report.add(Finding{Code: "many-files", By: ByOpenAI, Message: "the package has " + number(len(p.Files)) + " files; OpenAI takes 500",
			Mend: "leave out what the skill does not need, or pack data into one file"})
	}
	for _, f := range p.Files {
		if int64(len(f.Data)) > OpenAI.FileBytes {
			r.report.add(Finding{Code: "large-file", Path: shown(f.Path), By: ByOpenAI, Message: "has more than the 25 MB that OpenAI takes in one file",
				Mend: "make it smaller"})
		}
	}
}
