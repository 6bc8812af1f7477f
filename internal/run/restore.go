package run

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// stored is what the store had for the ids of a request.
type stored struct {
	turns map[string]*storedTurn // by call id; ids of one turn share it
	calls map[string]turn.HostedCall
}

type storedTurn struct {
	items     []turn.Item
	container string
}

// missingNote tells the model that it cannot see everything that was done.
const missingNote = "Some steps of earlier turns (code that was run, and its output) are no longer available."

// restore puts back what the protocol could not carry. A store that fails is treated as one that has forgotten: the turn goes on.
func (r *Runner) restore(ctx context.Context, project string, req *turn.Request) {
	turnIDs, callIDs := idsOf(req.Items)
	if len(turnIDs)+len(callIDs) == 0 {
		return
	}
	got, err := r.load(ctx, project, turnIDs, callIDs)
	if err != nil {
		r.cfg.Logger.ErrorContext(ctx, "reading stored steps", "project", project, "error", err.Error())
	}
	hosted := req.Hosted != nil && len(req.Hosted.Tools) > 0
	if hosted {
		if c := newestContainer(req.Items, got); c != "" {
			req.Hosted.Recent = c
		}
	}
	req.Items = got.replay(req.Items)
	for _, id := range turnIDs {
		if got.turns[id] == nil && hosted {
			req.Items = turn.InsertNote(req.Items, missingNote)
			break
		}
	}
}

func idsOf(items []turn.Item) (turns, calls []string) {
	for _, it := range items {
		switch v := it.(type) {
		case turn.Call:
			if turn.IsHiddenCallID(v.CallID) {
				turns = append(turns, v.CallID)
			}
		case turn.HostedCall:
			if strings.HasPrefix(v.ID, "ci_") {
				calls = append(calls, v.ID)
			}
		}
	}
	return turns, calls
}

func (r *Runner) load(ctx context.Context, project string, turnIDs, callIDs []string) (stored, error) {
	got := stored{turns: map[string]*storedTurn{}, calls: map[string]turn.HostedCall{}}
	rows, err := r.cfg.Steps.Get(ctx, project, slices.Concat(turnIDs, callIDs)...)
	if err != nil {
		return got, err
	}
	sameAs := map[string]string{} // where one call of a turn was answered by another client request than the others
	for id, row := range rows {
		var b body
		if err := json.Unmarshal(row.Body, &b); err == nil && b.SameAs != "" {
			sameAs[id] = b.SameAs
		}
	}
	var more []string
	for _, id := range sameAs {
		if _, ok := rows[id]; !ok && !slices.Contains(more, id) {
			more = append(more, id)
		}
	}
	if len(more) > 0 {
		extra, err := r.cfg.Steps.Get(ctx, project, more...)
		if err != nil {
			return got, err
		}
		maps.Copy(rows, extra)
	}
	for id, row := range rows {
		if err := got.add(id, row); err != nil {
			r.cfg.Logger.ErrorContext(ctx, "decoding a stored step", "id", id, "error", err.Error())
		}
	}
	for id, as := range sameAs {
		got.turns[id] = got.turns[as]
	}
	return got, nil
}

func (s *stored) add(id string, row store.Step) error {
	var b body
	if err := json.Unmarshal(row.Body, &b); err != nil || b.SameAs != "" {
		return err
	}
	items, err := turn.UnmarshalItems(b.Items)
	if err != nil {
		return err
	}
	if strings.HasPrefix(id, "ci_") {
		if c, ok := items[0].(turn.HostedCall); len(items) == 1 && ok {
			s.calls[id] = c
		}
		return nil
	}
	s.turns[id] = &storedTurn{items: items, container: b.Container}
	return nil
}

// newestContainer is the container of the newest hosted call, whether it is replayed or hidden behind a client's call.
func newestContainer(items []turn.Item, got stored) string {
	for _, it := range slices.Backward(items) {
		switch v := it.(type) {
		case turn.HostedCall:
			if v.Container != "" {
				return v.Container
			}
			if c := got.calls[v.ID].Container; c != "" {
				return c
			}
		case turn.Call:
			if t := got.turns[v.CallID]; t != nil && t.container != "" {
				return t.container
			}
		}
	}
	return ""
}

// replay returns items with stored turns in place of what the client sent of them, and stored outputs in hosted calls that lack them.
func (s *stored) replay(items []turn.Item) []turn.Item {
	var out []turn.Item
	for i := 0; i < len(items); {
		j := i
		for j < len(items) && modelSaid(items[j]) {
			j++
		}
		if j == i {
			out = append(out, items[i])
			i++
			continue
		}
		out = append(out, s.group(items[i:j])...)
		i = j
	}
	return out
}

func modelSaid(it turn.Item) bool {
	switch v := it.(type) {
	case turn.Message:
		return v.Role == turn.Assistant
	case turn.Reasoning, turn.Call, turn.HostedCall:
		return true
	}
	return false
}

// group handles what the model said without anybody else in between. That is one turn, unless a client left results out.
func (s *stored) group(items []turn.Item) []turn.Item {
	var out []turn.Item
	from := 0           // of the turn at hand
	var cur *storedTurn // nil until a call of a stored turn came
	next := len(items)  // where the turn at hand ends
	for i, it := range items {
		c, ok := it.(turn.Call)
		if !ok || s.turns[c.CallID] == nil {
			continue
		}
		if cur != nil && s.turns[c.CallID] != cur {
			out = append(out, s.one(items[from:next], cur)...)
			from = next
		}
		cur, next = s.turns[c.CallID], i+1
	}
	return append(out, s.one(items[from:], cur)...)
}

// one returns a turn as it was stored, with the client's calls as the client has them now; t nil means that it was not stored.
func (s *stored) one(items []turn.Item, t *storedTurn) []turn.Item {
	if t == nil {
		out := make([]turn.Item, 0, len(items))
		for _, it := range items {
			if h, ok := it.(turn.HostedCall); ok {
				it = s.fill(h)
			}
			out = append(out, it)
		}
		return out
	}
	sent, hosted := map[string]turn.Call{}, map[string]turn.HostedCall{}
	var order []string
	for _, it := range items {
		switch v := it.(type) {
		case turn.Call:
			sent[v.CallID] = v
			order = append(order, v.CallID)
		case turn.HostedCall:
			hosted[v.ID] = v
		}
	}
	open := map[string]bool{}
	for _, c := range openCalls(t.items) {
		open[c.CallID] = true
	}
	var out []turn.Item
	for _, it := range t.items {
		if h, ok := it.(turn.HostedCall); ok { // it waited when the turn was stored, and may have ended since
			if now, ok := hosted[h.ID]; ok {
				it = s.fill(now)
			}
		}
		c, ok := it.(turn.Call)
		if !ok || !open[c.CallID] {
			out = append(out, it)
			continue
		}
		// A call that the client dropped has no result, and vendors refuse a call without one.
		if now, ok := sent[c.CallID]; ok {
			out = append(out, now)
			delete(sent, c.CallID)
		}
	}
	for _, id := range order {
		if c, ok := sent[id]; ok {
			out = append(out, c)
			delete(sent, id)
		}
	}
	return out
}

// fill completes a replayed hosted call. Outputs that the client sent stay: it may have taken something out of them.
func (s *stored) fill(h turn.HostedCall) turn.HostedCall {
	c, ok := s.calls[h.ID]
	switch {
	case !ok:
		return h
	case h.Pending && (c.Pending || c.ForModel == ""):
		h.Container = c.Container
		return h
	case h.Pending: // it has ended, and the client did not get that answer
		c.Pending = true
		return c
	case h.Outputs == nil, h.Code == c.Code && turn.SameOutputs(h, c):
		return c
	}
	h.Files = c.Files
	return h
}
