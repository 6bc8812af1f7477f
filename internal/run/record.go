package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// body is what is stored under an id: the items of a whole turn or one hosted call, or the id under which the same turn is stored.
type body struct {
	Items     json.RawMessage `json:"items,omitempty"`
	Container string          `json:"container,omitempty"`
	SameAs    string          `json:"same_as,omitempty"`
}

// record is what one turn leaves in the store.
type record struct {
	runner  *Runner
	project string
	calls   []turn.HostedCall // done and not yet stored
}

// saveTimeout bounds a write that goes on though the client may have left.
const saveTimeout = 10 * time.Second

// finish stores the turn before its end is told. Its error takes the place of Finished: without the steps the client could not continue
// the conversation.
func (rec *record) finish(ctx context.Context, f turn.Finished) error {
	steps, err := rec.turnSteps(f)
	if err == nil && len(steps) > 0 {
		err = rec.put(ctx, append(steps, rec.callSteps(ctx)...)...)
		if err == nil {
			rec.calls = nil
		}
	}
	switch {
	case err == nil:
		rec.saveCalls(ctx)
		return nil
	case f.HostedCalls == 0:
		// The protocol carried everything but reasoning: the next turn works without it.
		rec.runner.cfg.Logger.ErrorContext(ctx, "storing a turn", "project", rec.project, "error", err.Error())
		return nil
	}
	e := turn.Internal(err)
	e.CodeRan = true
	return e
}

// turnSteps is the turn under the id of every call that the client is to answer; nil for a turn that has none or that nobody will ask for.
func (rec *record) turnSteps(f turn.Finished) ([]store.Step, error) {
	var ids []string
	for _, c := range openCalls(f.Items) {
		if turn.IsHiddenCallID(c.CallID) {
			ids = append(ids, c.CallID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	items, err := turn.MarshalItems(f.Items)
	if err != nil {
		return nil, err
	}
	b := body{Items: items}
	if f.Container != nil {
		b.Container = f.Container.ID
	}
	var steps []store.Step
	for i, id := range ids {
		if i > 0 {
			b = body{SameAs: ids[0]}
		}
		s, err := rec.step(id, b)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// openCalls are the calls among items that have no result there.
func openCalls(items []turn.Item) []turn.Call {
	answered := map[string]bool{}
	for _, it := range items {
		if r, ok := it.(turn.Result); ok {
			answered[r.CallID] = true
		}
	}
	var open []turn.Call
	for _, it := range items {
		if c, ok := it.(turn.Call); ok && !answered[c.CallID] {
			open = append(open, c)
		}
	}
	return open
}

// saveCalls stores the hosted calls that are not stored yet. A failure costs the client only their outputs in a later turn.
func (rec *record) saveCalls(ctx context.Context) {
	steps := rec.callSteps(ctx)
	rec.calls = nil
	if len(steps) == 0 {
		return
	}
	if err := rec.put(ctx, steps...); err != nil {
		rec.runner.cfg.Logger.ErrorContext(ctx, "storing hosted calls", "project", rec.project, "error", err.Error())
	}
}

func (rec *record) callSteps(ctx context.Context) []store.Step {
	var steps []store.Step
	for _, c := range rec.calls {
		items, err := turn.MarshalItems([]turn.Item{c})
		if err == nil {
			var s store.Step
			if s, err = rec.step(c.ID, body{Items: items}); err == nil {
				steps = append(steps, s)
				continue
			}
		}
		rec.runner.cfg.Logger.ErrorContext(ctx, "encoding a hosted call", "error", err.Error())
	}
	return steps
}

func (rec *record) step(id string, b body) (store.Step, error) {
	data, err := json.Marshal(b)
	now := time.Now()
	return store.Step{ID: id, Project: rec.project, Body: data, CreatedAt: now, ExpiresAt: now.Add(rec.runner.cfg.TTL)}, err
}

func (rec *record) put(ctx context.Context, steps ...store.Step) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	return rec.runner.cfg.Steps.Put(ctx, steps...)
}
