package batches

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// rowID is the step that has the ids of a project's batches, newest first. The vendor's own list would show those of all projects.
const rowID = "native/batches"

func (h *Handler) ids(ctx context.Context) ([]string, error) {
	found, err := h.Steps.Get(ctx, auth.FromContext(ctx).Project, rowID)
	if err != nil {
		return nil, turn.Internal(err)
	}
	var ids []string
	if row, ok := found[rowID]; ok {
		if err := json.Unmarshal(row.Body, &ids); err != nil {
			return nil, turn.Internal(err)
		}
	}
	return ids, nil
}

func (h *Handler) change(ctx context.Context, edit func(ids []string) []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids, err := h.ids(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(edit(ids))
	if err != nil {
		return turn.Internal(err)
	}
	err = h.Steps.Put(ctx, store.Step{ID: rowID, Project: auth.FromContext(ctx).Project, Body: body, CreatedAt: time.Now()})
	if err != nil {
		return turn.Internal(err)
	}
	return nil
}

func (h *Handler) remember(ctx context.Context, model, id string) error {
	if err := h.Natives.Remember(ctx, model, id); err != nil {
		return turn.Internal(err)
	}
	return h.change(ctx, func(ids []string) []string {
		ids = append([]string{id}, ids...)
		return ids[:min(len(ids), maxListed)]
	})
}

func (h *Handler) forget(ctx context.Context, id string) error {
	return h.change(ctx, func(ids []string) []string {
		return slices.DeleteFunc(ids, func(other string) bool { return other == id })
	})
}

// list asks for each batch of the page. One that the vendor does not have any more is left out.
func (h *Handler) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := anthropic.ReadLimit(q, longestPage)
	if err != nil {
		return err
	}
	ids, err := h.ids(r.Context())
	if err != nil {
		return err
	}
	page, more, err := cut(ids, q.Get("after_id"), q.Get("before_id"), limit)
	if err != nil {
		return err
	}
	data := []json.RawMessage{}
	named := []string{}
	for _, id := range page {
		maker, err := h.Natives.Maker(r.Context(), id)
		if err != nil {
			return err
		}
		if maker == nil {
			continue // its model is not configured any more
		}
		answer := &held{header: http.Header{}}
		in := provider.Forward{Method: http.MethodGet, Path: collection + "/" + id, Header: plain(r.Header), Stream: http.NoBody}
		if err := maker.Forward(r.Context(), answer, in); err != nil {
			return err
		}
		if answer.status >= 300 {
			continue
		}
		data, named = append(data, answer.rewritten(r)), append(named, id)
	}
	out := anthropic.IDPage[json.RawMessage]{Data: data, HasMore: more}
	if n := len(named); n > 0 {
		out.FirstID, out.LastID = &named[0], &named[n-1]
	}
	anthropic.WriteJSON(w, http.StatusOK, out)
	return nil
}

// cut is the part of ids behind after, or before before.
func cut(ids []string, after, before string, limit int) (page []string, more bool, err error) {
	place := func(name, id string) (int, error) {
		i := slices.Index(ids, id)
		if i < 0 {
			return 0, turn.Invalid(name, "%s: there is no batch %s", name, strconv.Quote(id))
		}
		return i, nil
	}
	switch {
	case after != "" && before != "":
		return nil, false, turn.Invalid("before_id", "before_id: give it or after_id, not both")
	case before != "":
		i, err := place("before_id", before)
		if err != nil {
			return nil, false, err
		}
		from := max(0, i-limit)
		return ids[from:i], from > 0, nil
	case after != "":
		i, err := place("after_id", after)
		if err != nil {
			return nil, false, err
		}
		ids = ids[i+1:]
	}
	return ids[:min(len(ids), limit)], len(ids) > limit, nil
}
