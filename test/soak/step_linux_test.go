package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/tool"
)

// soak is one run of the test.
type soak struct {
	place
	g      *process
	boxes  []*box
	serial int        // makes names and contents different
	seen   []survey   // of the last look
	trace  []string   // what was done
	rng    *rand.Rand // of this step alone, so that what one step draws does not depend on the luck of those before
}

// operation is a request with what it means for the model.
type operation struct {
	box *box
	request
	// done takes the answer of a success.
	done func(a answer) error
	// maybe is for a request whose gateway was killed: it has happened, or has not, or half of it.
	maybe func()
}

func (s *soak) name(kind string) string {
	s.serial++
	return fmt.Sprintf("%s%d", kind, s.serial)
}

func (s *soak) pick() *box { return s.boxes[s.rng.IntN(len(s.boxes))] }

func (s *soak) tell(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

// program is what a call runs: an action, whose failure does not matter here, and a report of everything that there is.
func program(action string) string {
	return `import hashlib as _hashlib, json as _json, os as _os
_failed = ''
try:
` + indent(action) + `
except BaseException as _e:
    _failed = repr(_e)
_files = {}
for _folder, _prefix in (('/mnt/data', ''), (_os.path.expanduser('~'), '~/')):
    for _n in _os.listdir(_folder):
        if _os.path.isfile(_folder + '/' + _n) and not (_prefix and _n.startswith('.')):
            with open(_folder + '/' + _n, 'rb') as _f: _files[_prefix + _n] = _hashlib.file_digest(_f, 'sha256').hexdigest()
print()
print(_json.dumps({'Vars': {_k: _v for _k, _v in list(globals().items()) if _k.startswith('v_')}, 'Files': _files, 'Failed': _failed}))
`
}

func indent(code string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(code), "\n", "\n    ")
}

// effect is an action and what it changes.
type effect struct {
	action string
	change func(w *world)
	// written are the files that it writes, with the checksum of each.
	written map[string]string
}

var nothing = effect{action: "pass", change: func(*world) {}}

// write draws an action of an ordinary program.
func (s *soak) write(b *box) effect {
	text := s.name("text ")
	var files []string
	for name := range b.worlds[0].files {
		files = append(files, name)
	}
	slices.Sort(files)
	set := func(name string) effect {
		return effect{
			action: fmt.Sprintf("with open(_os.path.expanduser(%q), 'w') as _f: _f.write(%q)", pathOf(name), text),
			change: func(w *world) { w.files[name] = sum(text) }, written: map[string]string{name: sum(text)},
		}
	}
	v := fmt.Sprintf("v_%d", s.rng.IntN(4))
	setVar := effect{action: fmt.Sprintf("%s = %q", v, text), change: func(w *world) { w.vars[v] = text }}
	switch n := s.rng.IntN(10); {
	case n < 3:
		return setVar
	case n < 5 && len(files) > 0: // a file that is there gets other bytes
		return set(files[s.rng.IntN(len(files))])
	case n == 5 && len(files) > 0:
		name := files[s.rng.IntN(len(files))]
		return effect{
			action: fmt.Sprintf("_os.remove(_os.path.expanduser(%q))", pathOf(name)), change: func(w *world) { delete(w.files, name) },
		}
	case n == 6:
		return set(s.name("~/home"))
	case n == 7: // both, so that memory and files of different times can be told apart
		e := set(s.name("file"))
		file, change := e.action, e.change
		e.action, e.change = file+"\n"+setVar.action, func(w *world) { change(w); setVar.change(w) }
		return e
	}
	return set(s.name("file"))
}

func pathOf(name string) string {
	if strings.HasPrefix(name, "~/") {
		return name
	}
	return dataDir + name
}

// run is a call of a program.
func (s *soak) run(b *box, e effect) operation {
	op := operation{box: b, request: request{Op: "run", Container: b.id, Text: program(e.action)}}
	op.done = func(a answer) error {
		if a.Status != tool.StatusOK {
			return fmt.Errorf("the program ended as %s: %s", a.Status, a.Output)
		}
		r, err := parseReport(a.Output)
		if err != nil {
			return err
		}
		if r.Failed != "" {
			return fmt.Errorf("the action failed: %s", r.Failed)
		}
		if err := b.saw(r, a.Notes, e.change); err != nil {
			return err
		}
		return b.acknowledge(a.Files, slices.Collect(maps.Keys(e.written))...)
	}
	op.maybe = func() {
		b.each(func(w world) []world {
			after := w.clone()
			e.change(&after)
			out := []world{w, w.forgotten(), after.forgotten()}
			for name := range e.written { // opened, and not yet written
				half := after.clone()
				half.files[name] = sum("")
				out = append(out, half.forgotten())
			}
			return out
		})
		for _, w := range b.worlds {
			b.mayHave(w)
		}
		b.ran = true
	}
	return op
}

func (s *soak) put(b *box) operation {
	name, text := s.name("put"), s.name("text ")
	op := operation{box: b, request: request{Op: "put", Container: b.id, Name: name, Text: text}}
	known := b.worlds[0].files
	if len(known) > 0 && s.rng.IntN(3) == 0 { // one that is there must not be replaced
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(n string) bool { return strings.HasPrefix(n, "~/") })
		if len(names) > 0 {
			op.Name = names[s.rng.IntN(len(names))]
		}
	}
	op.done = func(a answer) error {
		got := strings.TrimPrefix(a.Path, dataDir)
		for _, w := range b.worlds {
			if _, ok := w.files[got]; ok {
				return fmt.Errorf("container %s: the upload took the place of %s", b.id, got)
			}
			w.files[got] = sum(text)
		}
		b.versions[a.Made] = version{a.Made, a.Path, sum(text)}
		return nil
	}
	op.maybe = func() {
		got := op.Name
		for i := 2; ; i++ {
			if _, ok := known[got]; !ok {
				break
			}
			got = fmt.Sprintf("%s (%d)", op.Name, i)
		}
		b.each(func(w world) []world {
			after := w.clone()
			after.files[got] = sum(text)
			return []world{w, after}
		})
		b.loose[looseKey(dataDir+got, sum(text))] = true
	}
	return op
}

func (s *soak) unlink(b *box) (operation, bool) {
	ids := slices.Sorted(maps.Keys(b.versions))
	if len(ids) == 0 {
		return operation{}, false
	}
	id, name := "", ""
	i := slices.IndexFunc(s.seen, func(v survey) bool { return v.ID == b.id })
	for range 4 { // rather one that is the newest of a file
		id = ids[s.rng.IntN(len(ids))]
		if name = b.newestOf(s.seen[i], id); name != "" {
			break
		}
	}
	v := b.versions[id]
	op := operation{box: b, request: request{Op: "unlink", Container: b.id, Target: id}}
	op.done = func(answer) error {
		delete(b.versions, id)
		if name != "" {
			for _, w := range b.worlds {
				delete(w.files, name)
			}
		}
		return nil
	}
	op.maybe = func() {
		delete(b.versions, id)
		b.loose[looseKey(v.Path, v.SHA256)] = true
		if name != "" {
			b.each(func(w world) []world {
				after := w.clone()
				delete(after.files, name)
				return []world{w, after}
			})
		}
	}
	return op, true
}

func (s *soak) hibernate(b *box) operation {
	return operation{
		box: b, request: request{Op: "hibernate", Container: b.id}, done: func(answer) error { return nil }, maybe: func() {},
	}
}

func (s *soak) create() operation {
	name := s.name("box")
	op := operation{request: request{Op: "create", Name: name}}
	op.done = func(a answer) error {
		s.boxes = append(s.boxes, newBox(a.Made, name))
		return nil
	}
	op.maybe = func() { s.expect(newBox("", name)) }
	return op
}

func (s *soak) fork(b *box) operation {
	name := s.name("fork")
	twin := func() *box {
		c := newBox("", name)
		c.worlds = []world{b.worlds[0].clone()}
		c.unkept, c.ran = maps.Clone(b.unkept), b.ran
		c.mayHave(c.worlds[0])
		return c
	}
	op := operation{box: b, request: request{Op: "fork", Container: b.id, Name: name}}
	op.done = func(a answer) error {
		c := twin()
		c.id = a.Made
		s.boxes = append(s.boxes, c)
		return nil
	}
	op.maybe = func() { s.expect(twin()) }
	return op
}

// expect adds a container of whose existence nobody was told: adopt sees whether it is there.
func (s *soak) expect(b *box) { s.boxes = append(s.boxes, b) }

func (s *soak) checkpoint(b *box) operation {
	name := s.name("point")
	op := operation{box: b, request: request{Op: "checkpoint", Container: b.id, Name: name}}
	was := b.worlds[0].clone()
	op.done = func(a answer) error {
		b.points[a.Made] = point{name, was}
		return nil
	}
	op.maybe = func() { b.points[""] = point{name, was} }
	return op
}

func (s *soak) rewind(b *box) (operation, bool) {
	ids := slices.Sorted(maps.Keys(b.points))
	if len(ids) == 0 {
		return operation{}, false
	}
	id := ids[s.rng.IntN(len(ids))]
	p := b.points[id]
	op := operation{box: b, request: request{Op: "rewind", Container: b.id, Target: id}}
	op.done = func(answer) error {
		w := p.world.clone()
		b.worlds = []world{w}
		b.mayHave(w)
		return nil
	}
	op.maybe = func() {
		b.each(func(w world) []world {
			after := p.world.clone()
			return []world{w, w.forgotten(), after, after.forgotten()}
		})
		b.mayHave(p.world)
	}
	return op, true
}

func (s *soak) remove(b *box) operation {
	op := operation{box: b, request: request{Op: "delete", Container: b.id}}
	op.done = func(answer) error {
		s.boxes = slices.DeleteFunc(s.boxes, func(x *box) bool { return x == b })
		return nil
	}
	op.maybe = func() { b.doomed = true }
	return op
}

// do asks for something and takes the answer, which must be a success.
func (s *soak) do(op operation) error {
	a, err := s.g.await(s.g.send(op.request))
	if err != nil {
		return err
	}
	if a.Error != "" {
		return fmt.Errorf("%s: %s", op.Op, a.Error)
	}
	return op.done(a)
}

// look asks for all that the API shows and holds it against the model.
func (s *soak) look(settled ...*box) error {
	a, err := s.g.await(s.g.send(request{Op: "survey"}))
	if err != nil {
		return err
	}
	if a.Error != "" {
		return fmt.Errorf("survey: %s", a.Error)
	}
	s.seen = a.Surveys
	s.adopt()
	if len(s.seen) != len(s.boxes) {
		return fmt.Errorf("%d containers, want %d: %+v", len(s.seen), len(s.boxes), s.seen)
	}
	for _, b := range s.boxes {
		i := slices.IndexFunc(s.seen, func(v survey) bool { return v.ID == b.id })
		if i < 0 {
			return fmt.Errorf("container %s (%s) is lost", b.id, b.name)
		}
		if err := b.look(s.seen[i], slices.Contains(settled, b)); err != nil {
			return err
		}
	}
	return nil
}

// adopt finds out which of the containers and checkpoints are there that a killed gateway was making, or removing.
func (s *soak) adopt() {
	s.boxes = slices.DeleteFunc(s.boxes, func(b *box) bool {
		i := slices.IndexFunc(s.seen, func(v survey) bool { return v.Name == b.name })
		if i < 0 {
			return b.id == "" || b.doomed
		}
		b.id, b.doomed = s.seen[i].ID, false
		if p, ok := b.points[""]; ok {
			delete(b.points, "")
			for id, name := range s.seen[i].Points {
				if name == p.name {
					b.points[id] = p
				}
			}
		}
		return false
	})
}

// all brings the worlds of every container down to one, by a call that only looks.
func (s *soak) all(boxes ...*box) error {
	for _, b := range boxes {
		if len(b.worlds) > 1 {
			if err := s.do(s.run(b, nothing)); err != nil {
				return err
			}
			if err := s.look(b); err != nil {
				return err
			}
		}
	}
	return nil
}
