package container

import (
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/store"
)

// TestSweepKeepsSkills: the archives of skills are in the same store as files, and have rows of their own.
func TestSweepKeepsSkills(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ctx := t.Context()
	v := store.SkillVersion{ID: "skver_1", Project: "p", Skill: "skill_1"}
	var err error
	v.SHA256, v.Bytes, err = b.Blobs.Put(ctx, v.BlobOwner(), strings.NewReader("archive"), 100)
	must(t, err)
	stray, _, err := b.Blobs.Put(ctx, v.BlobOwner(), strings.NewReader("stray"), 100)
	must(t, err)
	_, _, err = b.Store.Skills().Create(ctx, store.Skill{ID: "skill_1", Project: "p"}, v)
	must(t, err)
	must(t, b.Reconcile(ctx))
	r, err := b.Blobs.Open(ctx, v.BlobOwner(), v.SHA256)
	must(t, err)
	must(t, r.Close())
	if _, err := b.Blobs.Open(ctx, v.BlobOwner(), stray); err == nil {
		t.Error("bytes without a row stay")
	}
	if blob.Key("p", v.SHA256) == blob.Key(v.BlobOwner(), v.SHA256) {
		t.Error("a file with the bytes of a skill would be freed with it")
	}
}
