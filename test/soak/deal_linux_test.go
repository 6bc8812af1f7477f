package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// maxBoxes caps the containers; there are then still more of them than places for sandboxes.
const maxBoxes = 5

// deck is the kinds of all steps in their order. Each fifty have every kind at least once.
func deck(seed uint64, steps int) []string {
	rng := rand.New(rand.NewPCG(seed, 0))
	var out []string
	for len(out) < steps {
		var fifty []string
		for _, kind := range slices.Sorted(maps.Keys(cards)) {
			for range cards[kind] / 2 {
				fifty = append(fifty, kind)
			}
		}
		rng.Shuffle(len(fifty), func(i, j int) { fifty[i], fifty[j] = fifty[j], fifty[i] })
		out = append(out, fifty...)
	}
	return out[:steps]
}

// step makes one step and holds everything against the model.
func (s *soak) step(kind string) error {
	if len(s.boxes) < 2 { // what needs a container has one
		for len(s.boxes) < 2 {
			if err := s.do(s.create()); err != nil {
				return err
			}
		}
		if err := s.look(); err != nil {
			return err
		}
	}
	b := s.pick()
	s.tell("  in %s (%s, %d worlds)", b.name, b.state, len(b.worlds))
	if kind == "kill during burst" {
		if err := s.all(s.boxes...); err != nil {
			return err
		}
		return s.killed(s.burst()...)
	}
	killed := false
	if during, ok := strings.CutPrefix(kind, "kill during "); ok {
		kind, killed = during, true
	}
	if kind != "run" { // a model of several worlds would be too much
		if err := s.all(b); err != nil {
			return err
		}
	}
	if fn, ok := map[string]func() error{
		"burst": func() error { return s.together(s.burst()) }, "crash": func() error { return s.crash(b) }, "full": func() error { return s.full(b) },
		"bomb": func() error { return s.bomb(b) }, "kill": s.kill, "restart": s.again,
	}[kind]; ok {
		if err := fn(); err != nil {
			return err
		}
		return s.look()
	}
	op, settled, err := s.draw(kind, b)
	if err != nil {
		return err
	}
	if killed {
		return s.killed(op)
	}
	if err := s.do(op); err != nil {
		return err
	}
	return s.look(settled...)
}

// draw makes an operation of a kind. settled are the containers whose files all have versions when it is done.
func (s *soak) draw(kind string, b *box) (op operation, settled []*box, err error) {
	ok := true
	switch kind {
	case "run":
	case "put":
		return s.put(b), nil, nil
	case "unlink":
		op, ok = s.unlink(b)
	case "hibernate":
		return s.hibernate(b), nil, nil
	case "checkpoint":
		return s.checkpoint(b), nil, nil
	case "rewind":
		op, ok = s.rewind(b)
		settled = []*box{b}
	case "fork":
		if ok = len(s.boxes) < maxBoxes; ok {
			return s.fork(b), nil, nil
		}
	case "create":
		if ok = len(s.boxes) < maxBoxes; ok {
			return s.create(), nil, nil
		}
	case "delete":
		return s.remove(b), nil, nil
	default:
		return op, nil, fmt.Errorf("no such step: %q", kind)
	}
	if !ok && (kind == "fork" || kind == "create") { // there is no room: make some
		return s.remove(b), nil, nil
	}
	if !ok && kind == "rewind" {
		return s.checkpoint(b), nil, nil
	}
	if kind == "run" || !ok {
		return s.run(b, s.write(b)), []*box{b}, nil
	}
	return op, settled, nil
}

// kill kills the gateway while no request is on its way, and perhaps the next one while it starts.
func (s *soak) kill() error {
	if err := s.look(); err != nil {
		return err
	}
	if err := s.g.kill(); err != nil {
		return err
	}
	if s.rng.IntN(2) == 0 {
		g, _, err := s.launch()
		if err != nil {
			return err
		}
		time.Sleep(s.moment()) // any moment of its start
		if err := g.kill(); err != nil {
			return err
		}
	}
	return s.restart(nil, true)
}

// again stops the gateway as its operator does and starts it: nothing at all is lost.
func (s *soak) again() error {
	if err := s.all(s.boxes...); err != nil {
		return err
	}
	if err := s.g.stop(); err != nil {
		return err
	}
	return s.restart(nil, false)
}
