package skill

import (
	"path"
	"slices"
	"strings"
)

// layout finds the folder that holds SKILL.md, takes it off all paths and gives the manifest its right name. It says whether there is one.
func (r *reader) layout(p *Package) bool {
	if len(r.files) == 0 {
		if len(r.report.Findings) == 0 || r.report.Loads() {
			r.report.add(Finding{Code: "empty", By: everyone, Message: "there are no files", Mend: "send a folder with a SKILL.md"})
		}
		return false
	}
	if at := r.manifestIn(""); at < 0 && p.Folder == "" {
		if !r.unwrap(p) {
			return false
		}
	} else if p.Folder == "" {
		r.report.add(Finding{Code: "no-folder", By: ByAnthropic | ByOpenAI,
			Message: "the files have no folder around them", Mend: "put them into one folder that is called as the skill: OpenAI wants it, and Anthropic under the beta header skills-2025-10-02"})
	}
	at := r.manifestIn("")
	if at < 0 {
		r.missing()
		return false
	}
	if was := r.files[at].Path; was != Manifest {
		by := ByAnthropic
		if was != "skill.md" { // the reference validator takes this one
			by |= BySpec
		}
		r.report.add(Finding{Code: "manifest-case", Path: was, By: by,
			Message: "is not called SKILL.md, with capital letters", Mend: "rename it to SKILL.md; lathe stores it under that name"})
		r.files[at].Path = Manifest
	}
	r.nested()
	slices.SortFunc(r.files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	p.Files = r.files
	return true
}

// manifestIn is the index of the SKILL.md that lies directly in dir ("" is the top), in any case, or -1.
func (r *reader) manifestIn(dir string) int {
	for i, f := range r.files {
		if d, base := path.Split(f.Path); strings.TrimSuffix(d, "/") == dir && strings.EqualFold(base, Manifest) {
			return i
		}
	}
	return -1
}

// unwrap takes the one folder around all files off their paths.
func (r *reader) unwrap(p *Package) bool {
	wrapper, outside, several := "", "", []string{}
	for _, f := range r.files {
		top, _, in := strings.Cut(f.Path, "/")
		if !in {
			outside = f.Path
			continue
		}
		if len(several) == 0 || several[len(several)-1] != top {
			several = append(several, top)
		}
		if r.manifestIn(top) >= 0 {
			if wrapper != "" && wrapper != top {
				r.report.add(Finding{Code: "several-skills", Path: shown(top + "/" + Manifest), By: everyone,
					Message: "is a second skill beside " + shown(wrapper), Mend: "send each skill alone"})
				return false
			}
			wrapper = top
		}
	}
	switch {
	case wrapper == "":
		r.missing()
		return false
	case outside != "" || len(several) > 1:
		for _, top := range append(several, outside) {
			if top != wrapper && top != "" {
				outside = top
			}
		}
		r.report.add(Finding{Code: "outside-folder", Path: shown(outside), By: everyone,
			Message: "lies outside of the folder " + shown(wrapper), Mend: "put all files into the folder that holds SKILL.md"})
		return false
	}
	for i := range r.files {
		r.files[i].Path = strings.TrimPrefix(r.files[i].Path, wrapper+"/")
	}
	p.Folder = wrapper
	return true
}

// missing says that there is no SKILL.md, and where there is one that is not in the right place.
func (r *reader) missing() {
	f := Finding{Code: "manifest-missing", By: everyone, Message: "there is no SKILL.md at the top or in the one folder at the top",
		Mend: "add one, beginning with: ---, name: ..., description: ..., ---"}
	for _, file := range r.files {
		if strings.EqualFold(path.Base(file.Path), Manifest) {
			f.Path, f.Message, f.Mend = shown(file.Path), "lies too deep: SKILL.md must be at the top or in the one folder at the top", "move it up, or send its folder alone"
			break
		}
	}
	r.report.add(f)
}

// nested reports a SKILL.md further down. It is kept as any other file: a skill may hold examples of skills.
func (r *reader) nested() {
	for _, f := range r.files {
		if f.Path != Manifest && strings.EqualFold(path.Base(f.Path), Manifest) {
			r.report.add(Finding{Code: "nested-manifest", Path: shown(f.Path), By: ByAnthropic | ByOpenAI,
				Message: "is a second SKILL.md, kept as a plain file", Mend: "rename it, or send it as a skill of its own"})
		}
	}
}
