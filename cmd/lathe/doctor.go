package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/config"
	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/datadir"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

type doctorCmd struct {
	configured
}

// The levels of a finding.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
)

// Run looks at everything that lathe needs and ends with 1 if something fails.
func (c *doctorCmd) Run(ctx context.Context, t *terminal) error {
	fmt.Fprintf(t.out, "lathe %s on %s/%s\n", version, runtime.GOOS, runtime.GOARCH)
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	view := &findings{out: t.out}
	view.show(sandbox.Finding{Name: "config", Level: levelOK, Detail: source(cfg)})
	view.show(dataDirFinding(cfg))
	for _, f := range sandboxFindings(ctx, cfg) {
		view.show(f)
	}
	for _, f := range modelFindings(ctx, cfg) {
		view.show(f)
	}
	if len(cfg.Keys) == 0 {
		view.show(sandbox.Finding{Name: "keys", Level: levelOK, Detail: "none: only programs on this machine are served"})
	}
	return view.end()
}

// findings prints what was found, one line each, with the mend below.
type findings struct {
	out           io.Writer
	warned, faild int
}

func (v *findings) show(f sandbox.Finding) {
	switch f.Level {
	case levelWarn:
		v.warned++
	case levelFail:
		v.faild++
	}
	fmt.Fprintf(v.out, "  %-4s  %-12s %s\n", f.Level, f.Name, wrap(f.Detail))
	if f.Mend != "" {
		fmt.Fprintf(v.out, "        %-12s %s\n", "", wrap("-> "+f.Mend))
	}
}

// wrap breaks a detail between words, so that it stays in its column of a terminal of 90. Long words stay whole: they are paths.
func wrap(s string) string {
	const column, width = 21, 66
	var b strings.Builder
	line := 0
	for i, word := range strings.Fields(s) {
		switch {
		case i == 0:
		case line+1+len(word) > width:
			b.WriteString("\n" + strings.Repeat(" ", column))
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}

func (v *findings) end() error {
	switch {
	case v.faild > 0:
		fmt.Fprintf(v.out, "failing: %d; the lines above say what to do\n", v.faild)
		return exitCode(1)
	case v.warned > 0:
		fmt.Fprintln(v.out, "everything works; the arrows say what could work better")
	default:
		fmt.Fprintln(v.out, "everything works")
	}
	return nil
}

// leastFree is how much a data directory should have free.
const leastFree = 2 << 30

func dataDirFinding(cfg *config.Config) sandbox.Finding {
	f := sandbox.Finding{Name: "data_dir", Level: levelOK, Detail: cfg.DataDir}
	dir, err := datadir.Open(cfg.DataDir)
	switch {
	case errors.Is(err, datadir.ErrInUse):
		f.Detail, _, _ = strings.Cut(strings.TrimPrefix(err.Error(), "data_dir "), ": stop that one")
	case err != nil:
		f.Level, f.Detail, f.Mend = levelFail, err.Error(), "set data_dir to a folder that this user may write to"
		return f
	default:
		_ = dir.Close() // it was only looked at
	}
	free, err := datadir.Free(cfg.DataDir)
	if err != nil {
		f.Level, f.Detail = levelWarn, f.Detail+": "+err.Error()
		return f
	}
	f.Detail += fmt.Sprintf(", %.1f GiB free", float64(free)/(1<<30))
	if free < leastFree {
		f.Level, f.Mend = levelWarn, "free some space: containers' files and uploads need it"
	}
	return f
}

// sandboxFindings asks the backend, with a state directory of its own: the real one may be in use.
func sandboxFindings(ctx context.Context, cfg *config.Config) []sandbox.Finding {
	state, err := os.MkdirTemp("", "lathe-doctor-")
	if err != nil {
		return []sandbox.Finding{{Name: "sandbox", Level: levelFail, Detail: err.Error(), Mend: "make the folder for temporary files writable"}}
	}
	defer os.RemoveAll(state)
	backend, err := newBackend(cfg, state, slog.New(slog.DiscardHandler))
	if err != nil {
		return []sandbox.Finding{absent(err)}
	}
	defer backend.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return append(backend.Check(ctx), container.CheckVolumes(ctx, state, int64(cfg.Sandbox.Disk)))
}

// absent is the finding for a machine without sandboxes.
func absent(err error) sandbox.Finding {
	return sandbox.Finding{Name: "sandbox", Level: levelFail, Detail: err.Error(),
		Mend: "until then lathe serve passes requests on and serves files; hosted tools are refused"}
}

// modelFindings asks every model's server, all at once.
func modelFindings(ctx context.Context, cfg *config.Config) []sandbox.Finding {
	models, err := newModels(cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return []sandbox.Finding{{Name: "models", Level: levelFail, Detail: err.Error(), Mend: "correct models in the configuration"}}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out := make([]sandbox.Finding, len(models))
	var checks sync.WaitGroup
	for i, m := range models {
		checks.Go(func() { out[i] = modelFinding(ctx, m, cfg.Models[i].BaseURL) })
	}
	checks.Wait()
	return out
}

func modelFinding(ctx context.Context, m provider.Model, baseURL string) sandbox.Finding {
	f := sandbox.Finding{Name: "model " + m.Name, Level: levelOK, Detail: m.ProviderName}
	if baseURL != "" {
		f.Detail += " at " + baseURL
	}
	if err := m.Provider.Check(ctx); err != nil {
		f.Level, f.Detail = levelFail, f.Detail+": "+operatorError(err).Error()
		f.Mend = "start it, or correct base_url and api_key of this model"
	}
	return f
}
