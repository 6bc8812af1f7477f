package soak

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// restart starts a gateway after the last one was killed, and works out what must have become of each container. busy are those that
// requests were for when it was killed.
func (s *soak) restart(busy []*box, killed bool) error {
	var err error
	if s.g, err = s.start(); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	was := map[*box]string{}
	for _, b := range s.boxes {
		was[b] = b.state
	}
	if err := s.look(); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	for _, b := range s.boxes {
		switch {
		case b.state == store.StateHibernated: // its memory is there: it is resumed, or the next call fails the test
		case slices.Contains(busy, b) || len(busy) > 0 && was[b] == store.StateLive: // its place may have been taken
			b.forget(false)
		case killed && was[b] != store.StateHibernated:
			b.forget(false)
		case len(b.worlds[0].vars) > 0:
			return fmt.Errorf("container %s was %s and is %s: its variables are lost", b.id, was[b], b.state)
		}
		if b.state == store.StateLive {
			return fmt.Errorf("container %s is live in a gateway that has just started", b.id)
		}
		if killed && len(busy) == 0 && was[b] == store.StateLive && b.state == store.StateHibernated {
			return fmt.Errorf("container %s was live in the gateway that was killed, and has a memory now", b.id)
		}
	}
	return nil
}

// moment draws how long a kill waits: most often very short.
func (s *soak) moment() time.Duration {
	delay := time.Duration(1<<s.rng.IntN(10)) * time.Millisecond
	if s.rng.IntN(2) == 0 {
		delay = time.Duration(s.rng.IntN(int(delay)) + 1)
	}
	return delay
}

// killed sends requests, each for another container, and kills the gateway while it works on them, or just after.
func (s *soak) killed(ops ...operation) error {
	waits := make([]chan answer, len(ops))
	for i, op := range ops {
		waits[i] = s.g.send(op.request)
	}
	delay := s.moment()
	select {
	case a := <-waits[0]:
		waits[0] <- a // for below
	case <-time.After(delay):
	}
	if err := s.g.kill(); err != nil {
		return err
	}
	var busy []*box
	for i, op := range ops {
		select {
		case a := <-waits[i]:
			s.tell("  killed after %s, when %s was answered", delay, op.Op)
			if a.Error != "" {
				return fmt.Errorf("%s: %s", op.Op, a.Error)
			}
			if err := op.done(a); err != nil {
				return err
			}
		default:
			s.tell("  killed after %s, before %s was answered", delay, op.Op)
			op.maybe()
		}
		busy = append(busy, op.box)
	}
	return s.restart(busy, true)
}

// burst is programs for all containers at once; there are more of them than places.
func (s *soak) burst() []operation {
	var ops []operation
	for _, b := range s.boxes {
		ops = append(ops, s.run(b, s.write(b)))
	}
	return ops
}

func (s *soak) together(ops []operation) error {
	waits := make([]chan answer, len(ops))
	for i, op := range ops {
		waits[i] = s.g.send(op.request)
	}
	var errs []error
	for i, op := range ops {
		a, err := s.g.await(waits[i])
		if err == nil && a.Error != "" {
			err = errors.New(a.Error)
		}
		if err == nil {
			err = op.done(a)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.look(s.boxes...)
}

// crash kills the sandbox of a container, while it is idle or while a program runs in it.
func (s *soak) crash(b *box) error {
	if err := s.do(s.run(b, s.write(b))); err != nil {
		return err
	}
	if err := s.look(b); err != nil {
		return err
	}
	if s.rng.IntN(2) == 0 {
		if ok, err := s.killSandbox(b.id); err != nil || !ok {
			return fmt.Errorf("container %s: no sandbox to kill, %w", b.id, err)
		}
		b.forget(false)
		for deadline := time.Now().Add(patience); b.state == store.StateLive; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("container %s: the end of its sandbox is not noticed", b.id)
			}
			if err := s.look(); err != nil {
				return err
			}
		}
		return nil
	}
	e := s.write(b)
	e.action += "\nimport time\ntime.sleep(60)"
	op := s.run(b, e)
	ch := s.g.send(op.request)
	time.Sleep(time.Duration(1+s.rng.IntN(50)) * time.Millisecond) // any moment is as good as another
	if ok, err := s.killSandbox(b.id); err != nil || !ok {
		return fmt.Errorf("container %s: no sandbox to kill, %w", b.id, err)
	}
	a, err := s.g.await(ch)
	if err != nil {
		return err
	}
	if a.Error == "" { // the sandbox ended before the code began, which then ran in a new one
		b.forget(false)
		return op.done(a)
	}
	if a.Kind != turn.KindInternal || !strings.Contains(a.Error, "files are kept") {
		return fmt.Errorf("the sandbox was killed while code ran: %s", a.Error)
	}
	op.maybe()
	b.forget(false)
	if len(a.Notes) > 0 {
		b.each(func(w world) []world { w.lost = false; return []world{w} })
	}
	return s.all(b)
}

// full fills the disk of a container; then nothing more can be put into it, and everything else works.
func (s *soak) full(b *box) error {
	// The file system sets more aside for what is not on the disk yet than it needs then: so it is filled twice.
	fill := effect{change: func(*world) {}, action: `
_fd = _os.open('/mnt/data/fill', _os.O_CREAT | _os.O_WRONLY)
for _ in range(3):
    try:
        while True: _os.write(_fd, b'x' * (1 << 20))
    except OSError as _e:
        if _e.errno != 28: raise
    _os.fsync(_fd)
_os.close(_fd)
with open('/mnt/data/fill', 'rb') as _f: v_fill = _hashlib.file_digest(_f, 'sha256').hexdigest()
`}
	op := s.run(b, fill)
	a, err := s.g.await(s.g.send(op.request))
	if err != nil || a.Error != "" {
		return errors.Join(err, errors.New(a.Error))
	}
	r, err := parseReport(a.Output)
	if err != nil || r.Failed != "" {
		return errors.Join(err, errors.New("filling the disk: "+r.Failed))
	}
	notes := slices.DeleteFunc(a.Notes, func(n string) bool { return strings.Contains(n, "fill") }) // it is too large to be kept
	b.unkept["fill"] = true
	if err := b.saw(r, notes, func(w *world) { w.files["fill"], w.vars["v_fill"] = r.Vars["v_fill"], r.Vars["v_fill"] }); err != nil {
		return err
	}
	if err := b.acknowledge(a.Files); err != nil {
		return err
	}
	big := strings.Repeat("x", maxFile)
	a, err = s.g.await(s.g.send(request{Op: "put", Container: b.id, Name: "more", Text: big}))
	if err != nil || a.Kind != turn.KindTooLarge || a.Error == "" {
		return fmt.Errorf("an upload to a full disk: %+v, %v", a, err)
	}
	if s.rng.IntN(2) == 0 {
		if err := s.do(s.hibernate(b)); err != nil {
			return err
		}
	}
	if err := s.look(b); err != nil {
		return err
	}
	empty := effect{action: "_os.remove('/mnt/data/fill')\ndel v_fill", change: func(w *world) {
		delete(w.files, "fill")
		delete(w.vars, "v_fill")
	}}
	return s.do(s.run(b, empty))
}

// bombs take more memory than a container has: the first kind gets a MemoryError, the second kills the sandbox.
var bombs = []string{`
def _bomb():
    x = []
    while True: x.append(bytearray(1 << 20))
_bomb()
`, `
import time
for _i in range(8):
    if _os.fork() == 0:
        try:
            _x = bytearray(100 << 20)
            for _j in range(0, len(_x), 4096): _x[_j] = 1
        finally: time.sleep(600)
time.sleep(600)
`}

func (s *soak) bomb(b *box) error {
	n := s.rng.IntN(len(bombs))
	op := s.run(b, effect{action: bombs[n]})
	a, err := s.g.await(s.g.send(op.request))
	if err != nil || a.Error != "" {
		return errors.Join(err, errors.New("memory bomb: "+a.Error))
	}
	if a.Status == tool.StatusKilled {
		s.tell("  it was killed")
		if n == 0 {
			return fmt.Errorf("instead of a MemoryError: %s", a.Output)
		}
		b.forget(false)
		b.ran = true
		if len(a.Notes) > 0 {
			b.each(func(w world) []world { w.lost = false; return []world{w} })
		}
		if err := b.acknowledge(a.Files); err != nil {
			return err
		}
		if err := s.look(); err != nil {
			return err
		}
		return s.do(s.run(b, nothing))
	}
	r, err := parseReport(a.Output)
	if err != nil || n != 0 || !strings.Contains(r.Failed, "MemoryError") {
		return errors.Join(err, fmt.Errorf("memory bomb %d: %s %s", n, a.Status, a.Output))
	}
	if err := b.saw(r, a.Notes, func(*world) {}); err != nil {
		return err
	}
	return b.acknowledge(a.Files)
}
