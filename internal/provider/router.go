package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Rest is the Name of the Model that takes every name that no other has.
const Rest = "*"

// Router finds the Model for a name and is itself the Streamer over all of them. It does not change after it was made.
type Router struct {
	models []Model
	byName map[string]Model
}

var _ turn.Streamer = (*Router)(nil)

// NewRouter returns a Router over models. It refuses models without a name or a provider, and names that come twice, all at once.
func NewRouter(models []Model) (*Router, error) {
	r := &Router{models: append([]Model(nil), models...), byName: map[string]Model{}}
	var faults []error
	for i, m := range models {
		switch _, twice := r.byName[m.Name]; {
		case m.Name == "":
			faults = append(faults, fmt.Errorf("model %d has no name", i))
		case twice:
			faults = append(faults, fmt.Errorf("model %q is there twice", m.Name))
		case m.Provider == nil:
			faults = append(faults, fmt.Errorf("model %q has no provider", m.Name))
		}
		r.byName[m.Name] = m
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return r, nil
}

// Models are all models in the order in which they were given, the one called "*" included.
func (r *Router) Models() []Model { return append([]Model(nil), r.models...) }

// Model finds the model that answers to name. Its Name is name and its Upstream is never empty. The error is a *turn.Error that lists
// the known names.
func (r *Router) Model(name string) (Model, error) {
	m, ok := r.byName[name]
	if !ok || name == Rest {
		if m, ok = r.byName[Rest]; !ok || name == "" || name == Rest {
			return Model{}, r.unknown(name)
		}
	}
	m.Name = name
	if m.Upstream == "" {
		m.Upstream = name
	}
	return m, nil
}

// maxNamed bounds the list in an error message.
const maxNamed = 20

func (r *Router) unknown(name string) error {
	var known []string
	for _, m := range r.models {
		if m.Name != Rest {
			known = append(known, m.Name)
		}
	}
	list := strings.Join(known[:min(len(known), maxNamed)], ", ")
	switch {
	case len(known) == 0:
		list = "none"
	case len(known) > maxNamed:
		list += fmt.Sprintf(" and %d more (GET /v1/models)", len(known)-maxNamed)
	}
	return &turn.Error{
		Kind: turn.KindNotFound, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("the model %q does not exist here; known models: %s", name, list),
	}
}

// Stream answers req with the model that it names.
func (r *Router) Stream(ctx context.Context, req *turn.Request) turn.Stream {
	m, err := r.Model(req.Model)
	if err != nil {
		return func(yield func(turn.Event, error) bool) { yield(nil, err) }
	}
	up := *req
	up.Model = m.Upstream
	return m.Provider.Stream(ctx, &up)
}

// ErrUsedTwice is what a Stream yields that is ranged a second time.
var ErrUsedTwice = errors.New("provider: a stream was ranged twice")

// Once makes a Stream single use, as its contract says.
func Once(s turn.Stream) turn.Stream {
	var used atomic.Bool
	return func(yield func(turn.Event, error) bool) {
		if used.Swap(true) {
			yield(nil, turn.Internal(ErrUsedTwice))
			return
		}
		s(yield)
	}
}
