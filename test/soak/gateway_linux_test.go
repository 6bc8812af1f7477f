package soak

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// gatewayEnv makes this test program the gateway that is killed. Its value is a place as JSON.
const gatewayEnv = "LATHE_TEST_SOAK_GATEWAY"

// What a sandbox of the test may take: enough for Python, and little enough to be used up at once.
const (
	memoryLimit = 256 << 20
	diskLimit   = 32 << 20
	maxFile     = 1 << 20
	maxLive     = 3
)

// place is the data directory of a gateway, and what it runs sandboxes with.
type place struct{ Dir, Runsc, Guest string }

func (p place) containers() string { return filepath.Join(p.Dir, "containers") }
func (p place) sandboxes() string  { return filepath.Join(p.Dir, "sandboxes") }

// open is what cmd/lathe does at its start.
func (p place) open() (*container.Manager, func() error, error) {
	guest, err := os.ReadFile(p.Guest)
	if err != nil {
		return nil, nil, err
	}
	ctx := context.Background()
	db, err := sqlite.Open(ctx, filepath.Join(p.Dir, "lathe.db"))
	if err != nil {
		return nil, nil, err
	}
	blobs, err := blob.Open(filepath.Join(p.Dir, "blobs"))
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	backend, err := gvisor.New(gvisor.Config{Runsc: p.Runsc, StateDir: p.sandboxes(), Guest: guest, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	cfg := container.Config{
		Store: db, Blobs: blobs, Backend: backend, Dir: p.containers(), Limits: sandbox.Defaults(), Reserve: -1, MaxLive: maxLive,
		Pool: 1, PoolMax: 1, IdleAfter: time.Hour, MaxFile: maxFile, SlotWait: 2 * time.Minute, DrainTime: time.Minute, Logger: log,
	}
	cfg.Limits.Memory, cfg.Limits.Disk = memoryLimit, diskLimit
	m, err := container.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	return m, func() error { return errors.Join(m.Close(), backend.Close(), blobs.Close(), db.Close()) }, m.Reconcile(ctx)
}

// request is what the test asks of the gateway, as one line; answer is the line that comes back, in any order.
type request struct {
	ID        int
	Op        string
	Container string `json:",omitempty"`
	Name      string `json:",omitempty"` // of a container, file or checkpoint
	Text      string `json:",omitempty"` // code, or what a file has
	Target    string `json:",omitempty"` // the file or checkpoint
}

type answer struct {
	ID      int
	Kind    turn.Kind
	Error   string // "" is success
	Made    string // the id of what was made
	Path    string
	Status  string
	Output  string
	Notes   []string
	Files   []version
	Surveys []survey
}

// version is a file as the API lists it. SHA256 is of the bytes that a download gives.
type version struct{ ID, Path, SHA256 string }

// survey is what the API says of one container.
type survey struct {
	ID, Name, State string
	Files           []version // oldest first
	Points          map[string]string
}

// serve answers requests until its input ends, then drains. It is killed in the middle of anything.
func serve(spec string) error {
	var p place
	if err := json.Unmarshal([]byte(spec), &p); err != nil {
		return err
	}
	m, shut, err := p.open()
	if err != nil {
		return err
	}
	g := gateway{m: m, ctx: auth.WithPrincipal(context.Background(), auth.Principal{Name: "tester", Project: "p"})}
	var mu sync.Mutex
	say := json.NewEncoder(os.Stdout)
	reply := func(a answer) {
		mu.Lock()
		defer mu.Unlock()
		_ = say.Encode(a) // the test has gone: then the input ends too
	}
	m.StartPool()
	reply(answer{})
	var wg sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		wg.Go(func() {
			var a answer
			if err := g.do(r, &a); err != nil {
				a.Kind, a.Error = turn.AsError(err).Kind, err.Error()
			}
			a.ID = r.ID
			reply(a)
		})
	}
	wg.Wait()
	return errors.Join(lines.Err(), shut())
}

// gateway does what requests ask, as the surfaces would.
type gateway struct {
	m   *container.Manager
	ctx context.Context
}

func (g gateway) do(r request, a *answer) error {
	switch r.Op {
	case "create":
		c, err := g.m.Create(g.ctx, container.NewContainer{Name: r.Name})
		a.Made = c.ID
		return err
	case "run":
		return g.run(r, a)
	case "put":
		st, err := g.m.Uploads().Stage(g.ctx, strings.NewReader(r.Text))
		if err != nil {
			return err
		}
		f, err := g.m.PutFile(g.ctx, r.Container, r.Name, st)
		a.Made, a.Path = f.ID, f.Path
		return err
	case "unlink":
		return g.m.DeleteFile(g.ctx, r.Container, r.Target)
	case "hibernate":
		return g.m.Hibernate(g.ctx, r.Container)
	case "fork":
		c, err := g.m.Fork(g.ctx, r.Container, container.NewFork{Name: r.Name})
		a.Made = c.ID
		return err
	case "checkpoint":
		c, err := g.m.Checkpoint(g.ctx, r.Container, r.Name)
		a.Made = c.ID
		return err
	case "rewind":
		_, err := g.m.Rewind(g.ctx, r.Container, r.Target)
		return err
	case "delete":
		return g.m.Delete(g.ctx, r.Container)
	case "survey":
		return g.survey(a)
	}
	return fmt.Errorf("no such request: %q", r.Op)
}

func (g gateway) run(r request, a *answer) error {
	w, err := g.m.Open(g.ctx, &turn.Hosted{Container: r.Container})
	if err != nil {
		return err
	}
	defer w.Close()
	out, err := w.Run(g.ctx, tool.Call{Tool: tool.Python, Code: r.Text}, nil)
	a.Notes = w.Notes()
	if err != nil {
		return err
	}
	a.Status = out.Status
	for _, o := range out.Outputs {
		a.Output += o.Text
	}
	if out.Error != "" {
		a.Output += "\n" + out.Error
	}
	for _, f := range out.Files {
		a.Files = append(a.Files, version{ID: f.ID, Path: f.Path})
	}
	return nil
}

func (g gateway) survey(a *answer) error {
	rows, more, err := g.m.List(g.ctx, store.Page{Limit: 100, Ascending: true})
	if err != nil || more {
		return errors.Join(err, fmt.Errorf("%d containers, more: %v", len(rows), more))
	}
	for _, row := range rows {
		s := survey{ID: row.ID, Name: row.Name, State: row.State, Points: map[string]string{}}
		files, more, err := g.m.Files(g.ctx, row.ID, store.Page{Limit: 10_000, Ascending: true})
		if err != nil || more {
			return errors.Join(err, fmt.Errorf("%d files of %s, more: %v", len(files), row.ID, more))
		}
		for _, f := range files {
			_, r, err := g.m.OpenFile(g.ctx, row.ID, f.ID)
			if err != nil {
				return fmt.Errorf("file %s %s of %s: %w", f.ID, f.Path, row.ID, err)
			}
			h := sha256.New()
			_, err = io.Copy(h, r)
			if err = errors.Join(err, r.Close()); err != nil {
				return err
			}
			s.Files = append(s.Files, version{f.ID, f.Path, hex.EncodeToString(h.Sum(nil))})
		}
		points, _, err := g.m.Checkpoints(g.ctx, row.ID, store.Page{Limit: 1000, Ascending: true})
		if err != nil {
			return err
		}
		for _, p := range points {
			s.Points[p.ID] = p.Name
		}
		a.Surveys = append(a.Surveys, s)
	}
	return nil
}
