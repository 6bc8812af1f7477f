package container

import (
	"testing"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestHibernateNow(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ctx := as(t, "p")
	w := b.open(turn.Hosted{})
	python(t, w, "x = 1")
	wantKind(t, "in use", b.Hibernate(ctx, w.Container().ID), turn.KindConflict, "in use")
	must(t, w.Close(), b.Hibernate(ctx, w.Container().ID))
	if got := b.row(w).State; got != store.StateHibernated {
		t.Errorf("it is %s", got)
	}
	must(t, b.Hibernate(ctx, w.Container().ID)) // nothing to do
	wantKind(t, "another project's", b.Hibernate(as(t, "q"), w.Container().ID), turn.KindNotFound, "not found")
}
