package container

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func (b *bench) stage(text string) *Staged {
	b.t.Helper()
	st, err := b.Uploads().Stage(as(b.t, "p"), strings.NewReader(text))
	must(b.t, err)
	return st
}

// wantLimit is a 429 that names project, limit and what may be had, and says when to try again.
func wantLimit(t *testing.T, what string, err error, limit string) {
	t.Helper()
	wantKind(t, what, err, turn.KindRateLimited, fmt.Sprintf(`project "p" may have %s`, limit))
	if e := turn.AsError(err); e == nil || e.RetryAfter <= 0 || e.Code != "project_limit_reached" || e.CodeRan {
		t.Errorf("%s: %+v", what, e)
	}
}

func TestStoredLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) {
		c.PlainVolumes = true
		c.Projects = map[string]ProjectLimits{"p": {Stored: 1 << 20}}
	})
	ctx := as(t, "p")
	first := b.upload("a", strings.Repeat("a", 600<<10))
	b.upload("same", strings.Repeat("a", 600<<10)) // the same bytes take no room
	w := b.open(turn.Hosted{})
	out := python(t, w, "open('big', 'w').write('b' * (500 << 10))\nopen('small', 'w').write('s')")
	if got := names(out.Files); len(got) != 1 || got[0] != "small" {
		t.Errorf("kept beyond the limit: %q", got)
	}
	if notes := strings.Join(w.Notes(), "\n"); !strings.Contains(notes, "beyond what project p may store") || !strings.Contains(notes, `"big"`) {
		t.Errorf("notes %q", notes)
	}
	b.quotas.forget("p") // now the volume counts
	const limit = `1 MiB of stored files, volumes and memory (its limit "stored")`
	_, err := w.Run(ctx, tool.Call{Tool: tool.Python, Code: "1"}, nil)
	wantLimit(t, "run", err, limit)
	_, err = b.Create(ctx, NewContainer{})
	wantLimit(t, "create", err, limit)
	_, err = b.Uploads().Stage(ctx, strings.NewReader("x"))
	wantLimit(t, "upload", err, limit)
	must(t, b.Uploads().Delete(ctx, first.ID))
	_, err = b.Uploads().Stage(ctx, strings.NewReader("x"))
	wantLimit(t, "the same bytes are still there", err, limit)

	// Other projects do not notice.
	if _, err := b.Create(as(t, "q"), NewContainer{}); err != nil {
		t.Errorf("another project: %v", err)
	}
	must(t, b.Delete(ctx, w.Container().ID))
	b.upload("b", "fits again")
	_, err = b.Uploads().Create(ctx, NewUpload{Name: "large"}, b.stage(strings.Repeat("c", 600<<10)))
	wantLimit(t, "an upload that is too large", err, limit)
}

func TestFileLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) {
		c.MaxFiles = 5
		c.PerProject = ProjectLimits{Files: 8}
	})
	ctx := as(t, "p")
	w := b.open(turn.Hosted{})
	out := python(t, w, "for i in range(7): open('f%d' % i, 'w').write(str(i))")
	if len(out.Files) != 5 {
		t.Errorf("%d files of a container that may have 5", len(out.Files))
	}
	if notes := strings.Join(w.Notes(), "\n"); !strings.Contains(notes, "beyond the 5 versions") || !strings.Contains(notes, `"f5", "f6"`) {
		t.Errorf("notes %q", notes)
	}
	_, err := b.PutFile(ctx, w.Container().ID, "six", b.stage("6"))
	wantKind(t, "the sixth by the API", err, turn.KindTooLarge, "more than 5 versions")
	must(t, b.DeleteFile(ctx, w.Container().ID, out.Files[0].ID))
	b.putFile(w.Container().ID, "six", "6")

	for i := range 3 {
		b.upload("u", fmt.Sprint("upload ", i))
	}
	_, err = b.Uploads().Create(ctx, NewUpload{Name: "ninth"}, &Staged{})
	wantLimit(t, "the ninth", err, `8 stored files (its limit "files")`)
	other := b.open(turn.Hosted{})
	out = python(t, other, "open('made', 'w').write('x')")
	if notes := strings.Join(other.Notes(), "\n"); len(out.Files) != 0 || !strings.Contains(notes, "beyond the number of files that project p may store") {
		t.Errorf("files %v, notes %q", out.Files, notes)
	}
}

func TestTimePerDay(t *testing.T) {
	t.Parallel()
	var shared store.Store
	b := newBench(t, func(c *Config) {
		shared = c.Store
		c.PerProject = ProjectLimits{TimePerDay: time.Hour}
	})
	ctx := as(t, "p")
	w := b.open(turn.Hosted{})
	python(t, w, "import time\ntime.sleep(.05)")
	used, err := b.quotas.usedToday(ctx, "p")
	must(t, err)
	if used < 50*time.Millisecond || used > time.Minute {
		t.Errorf("%v used", used)
	}
	b.quotas.save(ctx)
	if stored, err := shared.Usage().Used(ctx, "p", time.Now()); err != nil || stored != used.Truncate(time.Microsecond) {
		t.Errorf("%v are stored of %v, %v", stored, used, err)
	}
	// Another process on the same store has used the rest.
	must(t, shared.Usage().Add(ctx, "p", time.Now(), time.Hour))
	python(t, w, "1") // learned with the next save
	b.quotas.save(ctx)
	_, err = w.Run(ctx, tool.Call{Tool: tool.Python, Code: "1"}, nil)
	wantLimit(t, "the day is used up", err, `its code run for 1h0m0s a day (its limit "time_per_day")`)
	now := time.Now().UTC()
	if e := turn.AsError(err); e.RetryAfter > 24*time.Hour || now.Add(e.RetryAfter).Day() == now.Add(-time.Minute).Day() {
		t.Errorf("Retry-After %v does not end at midnight", e.RetryAfter)
	}
	// It survives a restart.
	again := newQuotas(&b.Config, b.volumes)
	wantLimit(t, "after a restart", again.mayRun(ctx, "p"), `its code run for 1h0m0s a day`)
	if err := again.mayRun(ctx, "q"); err != nil {
		t.Errorf("another project: %v", err)
	}
}

// What was counted is written when the Manager closes.
func TestTimeIsSavedAtTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.quotas.ran("p", time.Minute)
	must(t, b.Close())
	if used, err := b.Store.Usage().Used(context.Background(), "p", time.Now()); err != nil || used != time.Minute {
		t.Errorf("%v stored, %v", used, err)
	}
}
