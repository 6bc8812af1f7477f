package soak

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/store"
)

// world is what a container may have. Where nobody can know what became of a request, because its gateway was killed while it ran, a
// container has several, and what a program sees must be one of them as a whole: never the variables of one with the files of another.
type world struct {
	// files has the checksums of all files: by name for /mnt/data, with "~/" before it for the home folder.
	files map[string]string
	vars  map[string]string
	// lost says that variables were there and are gone, and that the next call has to say so.
	lost bool
}

func (w world) clone() world { return world{maps.Clone(w.files), maps.Clone(w.vars), w.lost} }

// forgotten is w after the end of its interpreter. Files are never lost.
func (w world) forgotten() world {
	return world{maps.Clone(w.files), map[string]string{}, w.lost || len(w.vars) > 0}
}

// box is a container as the model has it.
type box struct {
	id, name string
	worlds   []world
	// versions are the files that were acknowledged, and their checksums, by id.
	versions map[string]version
	// loose are versions that nobody was told of and that may be there: "path checksum".
	loose map[string]bool
	// unkept are files that are too large to become versions.
	unkept map[string]bool
	points map[string]point
	state  string // as it was last seen
	ran    bool
	doomed bool // its deletion was asked for, and nobody was told that it is done
}

// point is a checkpoint.
type point struct {
	name  string
	world world
}

func newBox(id, name string) *box {
	return &box{
		id: id, name: name, worlds: []world{{files: map[string]string{}, vars: map[string]string{}}}, versions: map[string]version{},
		loose: map[string]bool{}, unkept: map[string]bool{}, points: map[string]point{},
	}
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

const dataDir = "/mnt/data/"

func looseKey(path, sha string) string { return path + " " + sha }

// each replaces every world by those that fn makes of it.
func (b *box) each(fn func(w world) []world) {
	var out []world
	for _, w := range b.worlds {
		out = append(out, fn(w.clone())...)
	}
	b.worlds = out
}

// forget is the end of the interpreter; maybe says that nobody knows whether its memory was kept.
func (b *box) forget(maybe bool) {
	b.each(func(w world) []world {
		if maybe {
			return []world{w, w.forgotten()}
		}
		return []world{w.forgotten()}
	})
}

// mayHave notes that all files of a world may get versions that nobody is told of.
func (b *box) mayHave(w world) {
	for name, sha := range w.files {
		if !strings.HasPrefix(name, "~/") {
			b.loose[looseKey(dataDir+name, sha)] = true
		}
	}
}

// report is what a program sees.
type report struct {
	Vars, Files map[string]string
	Failed      string // why the action failed
}

func parseReport(output string) (report, error) {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	var r report
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		return r, fmt.Errorf("no report in %q: %w", output, err)
	}
	return r, nil
}

// saw holds what a program saw, and whether its client was told of lost variables, against all worlds. change is what the call did to them.
func (b *box) saw(r report, notes []string, change func(w *world)) error {
	told := len(notes) > 0
	var why []error
	for _, before := range b.worlds {
		w := before.clone()
		change(&w)
		switch {
		case !maps.Equal(w.vars, r.Vars):
			why = append(why, fmt.Errorf("variables: got %v, want %v", r.Vars, w.vars))
		case !maps.Equal(w.files, r.Files):
			why = append(why, fmt.Errorf("files (with%s lost variables): %s", map[bool]string{false: "out"}[before.lost], differ(r.Files, w.files)))
		case before.lost && !told:
			why = append(why, errors.New("variables were lost and nobody was told"))
		case told && len(before.vars) > 0:
			why = append(why, fmt.Errorf("told %q, but the variables are there", notes))
		case told && !b.ran:
			why = append(why, fmt.Errorf("told %q, but nothing ever ran", notes))
		default:
			w.lost = false
			b.worlds = []world{w}
			b.ran = true
			return nil
		}
	}
	return fmt.Errorf("container %s (%s, %d worlds): %w", b.id, b.name, len(b.worlds), errors.Join(why...))
}

func differ(got, want map[string]string) string {
	var out []string
	for name, sha := range want {
		switch g, ok := got[name]; {
		case !ok:
			out = append(out, name+" is missing")
		case g != sha:
			out = append(out, fmt.Sprintf("%s has %.12s, want %.12s", name, g, sha))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			out = append(out, name+" should not be there")
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// acknowledge takes the files that a call was said to have made. written are those that it must have.
func (b *box) acknowledge(files []version, written ...string) error {
	w := b.worlds[0]
	for _, f := range files {
		name := strings.TrimPrefix(f.Path, dataDir)
		sha, ok := w.files[name]
		if !ok || !strings.HasPrefix(f.Path, dataDir) {
			return fmt.Errorf("container %s: the call is said to have made %s", b.id, f.Path)
		}
		if !slices.Contains(written, name) && !b.loose[looseKey(f.Path, sha)] {
			return fmt.Errorf("container %s: %s is said to be new, but it is older", b.id, f.Path)
		}
		f.SHA256 = sha
		b.versions[f.ID] = f
	}
	for _, name := range written {
		if !strings.HasPrefix(name, "~/") && !slices.ContainsFunc(files, func(f version) bool { return f.Path == dataDir+name }) {
			return fmt.Errorf("container %s: %s was written and is not among the files of the call: %v", b.id, name, files)
		}
	}
	return nil
}

// look holds what the API says of a container against the model. settled says that the last request was a call or a rewind.
func (b *box) look(s survey, settled bool) error {
	b.state = s.State
	if s.Name != b.name {
		return fmt.Errorf("container %s is called %q, want %q", b.id, s.Name, b.name)
	}
	if !slices.Contains([]string{store.StateIdle, store.StateLive, store.StateHibernating, store.StateHibernated}, s.State) {
		return fmt.Errorf("container %s is %s", b.id, s.State)
	}
	seen, newest := map[string]bool{}, map[string]string{}
	for _, f := range s.Files {
		seen[f.ID] = true
		newest[f.Path] = f.SHA256
		known, ok := b.versions[f.ID]
		switch {
		case ok && known.SHA256 != f.SHA256:
			return fmt.Errorf("container %s: version %s of %s has %s, want %s", b.id, f.ID, f.Path, f.SHA256, known.SHA256)
		case !ok && !b.loose[looseKey(f.Path, f.SHA256)]:
			return fmt.Errorf("container %s: nobody made version %s of %s with %s", b.id, f.ID, f.Path, f.SHA256)
		}
		b.versions[f.ID] = f
	}
	for id, f := range b.versions {
		if !seen[id] {
			return fmt.Errorf("container %s: version %s of %s is lost", b.id, id, f.Path)
		}
	}
	if settled {
		for name, sha := range b.worlds[0].files {
			if !strings.HasPrefix(name, "~/") && !b.unkept[name] && newest[dataDir+name] != sha {
				return fmt.Errorf("container %s: the newest version of %s has %q, want %s", b.id, name, newest[dataDir+name], sha)
			}
		}
		b.loose = map[string]bool{}
	}
	names := map[string]string{}
	for id, p := range b.points {
		names[id] = p.name
	}
	if !maps.Equal(names, s.Points) {
		return fmt.Errorf("container %s: checkpoints %v, want %v", b.id, s.Points, names)
	}
	return nil
}

// newestOf is the file of the survey that a deletion of id would take out of the volume, "" for none.
func (b *box) newestOf(s survey, id string) (name string) {
	path, sha := b.versions[id].Path, b.versions[id].SHA256
	last := ""
	for _, f := range s.Files {
		if f.Path == path {
			last = f.ID
		}
	}
	name = strings.TrimPrefix(path, dataDir)
	if last != id || b.worlds[0].files[name] != sha {
		return ""
	}
	return name
}
