package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/lathe-gateway/lathe/internal/agent"
	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/config"
	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/datadir"
	"github.com/lathe-gateway/lathe/internal/egress"
	"github.com/lathe-gateway/lathe/internal/egress/rule"
	"github.com/lathe-gateway/lathe/internal/guest/embedded"
	"github.com/lathe-gateway/lathe/internal/image"
	"github.com/lathe-gateway/lathe/internal/native"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/anthropic"
	"github.com/lathe-gateway/lathe/internal/provider/demo"
	"github.com/lathe-gateway/lathe/internal/provider/openaichat"
	"github.com/lathe-gateway/lathe/internal/provider/openairesponses"
	"github.com/lathe-gateway/lathe/internal/run"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
	"github.com/lathe-gateway/lathe/internal/server"
	"github.com/lathe-gateway/lathe/internal/skill/catalog"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/surface/batches"
	"github.com/lathe-gateway/lathe/internal/surface/chat"
	"github.com/lathe-gateway/lathe/internal/surface/containers"
	"github.com/lathe-gateway/lathe/internal/surface/files"
	"github.com/lathe-gateway/lathe/internal/surface/messages"
	"github.com/lathe-gateway/lathe/internal/surface/models"
	"github.com/lathe-gateway/lathe/internal/surface/responses"
	"github.com/lathe-gateway/lathe/internal/surface/skills"
	"github.com/lathe-gateway/lathe/internal/telemetry"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
)

// app is the program put together: every part by its contract.
type app struct {
	cfg     *config.Config
	log     *slog.Logger
	metrics *telemetry.Metrics
	keys    *auth.Keys
	dir     *datadir.Dir
	store   store.Store
	blobs   *blob.Store
	skills  *catalog.Catalog
	sandbox *sandboxState
	// containers is also what commands without a server run code with.
	containers *container.Manager
	api        *http.ServeMux
	natives    *native.Keeper

	closers []func() error // in the order in which the parts were opened
}

// wire opens and connects the parts that cfg asks for. Close what it returns. After an error nothing stays open.
func wire(ctx context.Context, cfg *config.Config, log *slog.Logger) (*app, error) {
	a := &app{cfg: cfg, log: log, metrics: telemetry.New(version), keys: keysOf(cfg), api: http.NewServeMux()}
	for _, open := range []func(context.Context) error{a.openData, a.openBlobs, a.openSkills, a.openContainers, a.connect} {
		if err := open(ctx); err != nil {
			a.close(ctx)
			return nil, err
		}
	}
	return a, nil
}

// wireSkills opens only what keeps skills, for commands that change them without a server.
func wireSkills(ctx context.Context, cfg *config.Config, log *slog.Logger) (*app, error) {
	a := &app{cfg: cfg, log: log}
	for _, open := range []func(context.Context) error{a.openData, a.openBlobs, a.openSkills} {
		if err := open(ctx); err != nil {
			a.close(ctx)
			return nil, err
		}
	}
	return a, nil
}

func keysOf(cfg *config.Config) *auth.Keys {
	keys := make([]auth.Key, len(cfg.Keys))
	for i, k := range cfg.Keys {
		keys[i] = auth.Key{Secret: k.Key.Reveal(), Principal: auth.Principal{Name: k.Name, Project: k.Project, Admin: k.Admin}}
	}
	return auth.NewKeys(keys)
}

func (a *app) openData(ctx context.Context) error {
	dir, err := datadir.Open(a.cfg.DataDir)
	if err != nil {
		return err
	}
	a.dir = dir
	a.closers = append(a.closers, dir.Close)
	if err := dir.Whole("lathe.db", "containers", "blobs"); err != nil {
		return err
	}
	db, err := sqlite.Open(ctx, dir.Path("lathe.db"))
	if err != nil {
		return fmt.Errorf("the database in data_dir: %w", err)
	}
	a.store = db
	a.closers = append(a.closers, db.Close)
	return nil
}

func (a *app) openBlobs(context.Context) error {
	blobs, err := blob.Open(a.dir.Path("blobs"))
	if err != nil {
		return fmt.Errorf("the blobs in data_dir: %w", err)
	}
	a.blobs = blobs
	a.closers = append(a.closers, blobs.Close)
	return nil
}

// openContainers opens what is needed to run code, and removes what an earlier process left behind. Without a backend the rest works.
func (a *app) openContainers(ctx context.Context) error {
	backend, err := newBackend(a.cfg, a.dir.Path("sandboxes"), a.log)
	if err != nil {
		backend = absentBackend{err}
	}
	backend = a.metrics.Backend(backend)
	a.closers = append(a.closers, backend.Close)
	own := containerConfig(a.cfg)
	if own.Egress, err = newEgress(a.cfg, a.metrics, a.log); err != nil {
		return err
	}
	if own.Egress != nil {
		a.closers = append(a.closers, own.Egress.Close)
	}
	if own.Images, err = projectImages(a.cfg); err != nil {
		return err
	}
	own.Store, own.Blobs, own.Backend, own.Skills, own.Logger = a.store, a.blobs, backend, a.skills, a.log
	own.Dir = a.dir.Path("containers")
	a.containers, err = container.New(own)
	if err != nil {
		return err
	}
	a.closers = append(a.closers, a.containers.Close)
	a.metrics.Gauge("lathe_queue_waiting", "Calls that wait for a place among the live sandboxes.", func() float64 { return float64(a.containers.Waiting()) })
	a.metrics.Gauge("lathe_pool_spares", "Spare containers that are ready.", func() float64 { return float64(a.containers.Spares()) })
	if err := a.containers.Reconcile(ctx); err != nil {
		return fmt.Errorf("what an earlier lathe left in data_dir could not be put in order: %w", err)
	}
	a.sandbox = newSandboxState(ctx, backend, a.log)
	a.closers = append(a.closers, a.sandbox.close)
	return nil
}

// newEgress makes the way to the network, nil where the operator allows none.
func newEgress(cfg *config.Config, metrics *telemetry.Metrics, log *slog.Logger) (*egress.Proxy, error) {
	if cfg.Sandbox.Network != "allowlist" {
		return nil, nil
	}
	own := egress.Config{Rules: cfg.Sandbox.Rules(), Bytes: int64(cfg.Sandbox.NetworkBytes), Observe: metrics.Egress, Logger: log}
	for _, s := range cfg.Sandbox.Secrets {
		d, err := rule.ParseDomain(s.Domain)
		if err != nil {
			return nil, fmt.Errorf("sandbox.secrets: %w", err)
		}
		own.Secrets = append(own.Secrets, egress.HeaderSecret{Domain: d, Header: s.Header, Value: turn.Secret(s.Value.Reveal())})
	}
	return egress.New(own)
}

// containerConfig is what the configuration says of containers.
func containerConfig(cfg *config.Config) container.Config {
	s := cfg.Sandbox
	out := container.Config{
		Limits: limits(cfg), ExpireAfter: time.Duration(s.ExpireAfter), MaxFiles: s.Files,
		IdleAfter: time.Duration(s.HibernateAfter), MemoryQuota: int64(s.HibernatedMemory),
		MaxLive: s.MaxLive, MaxMemory: int64(s.MaxMemory), SlotWait: time.Duration(s.QueueTime), Pool: s.Pool, PoolMax: s.PoolMax,
		PerProject: projectLimits(s.PerProject), Projects: map[string]container.ProjectLimits{},
	}
	if out.MemoryQuota == 0 {
		out.MemoryQuota = -1 // no limit there, the default here
	}
	for _, p := range cfg.Projects {
		out.Projects[p.Name] = projectLimits(p.Limits)
	}
	return out
}

// projectImages are the folders of the images of projects that have one of their own.
func projectImages(cfg *config.Config) (map[string]string, error) {
	out := map[string]string{}
	for i, p := range cfg.Projects {
		if p.Image == "" {
			continue
		}
		img, err := image.Find(p.Image, cfg.ImageDirs)
		if err != nil {
			return nil, fmt.Errorf("projects[%d].image: %w", i, err)
		}
		out[p.Name] = img.Dir
	}
	return out, nil
}

func projectLimits(l config.ProjectLimits) container.ProjectLimits {
	return container.ProjectLimits{
		Live: l.Live, Memory: int64(l.Memory), Stored: int64(l.Stored), Files: l.Files, TimePerDay: time.Duration(l.TimePerDay),
	}
}

// openSkills opens the skills of all projects and the operator's folder of them.
func (a *app) openSkills(ctx context.Context) (err error) {
	a.skills, err = catalog.New(ctx, catalog.Config{
		Store: a.store.Skills(), Blobs: a.blobs, Dir: a.dir.Path("skills"), Library: a.cfg.SkillsDir,
		MaxSkills: a.cfg.Skills.PerProject, MaxBytes: int64(a.cfg.Skills.Stored), CacheBytes: int64(a.cfg.Skills.Cache), Logger: a.log,
	})
	if err != nil {
		return fmt.Errorf("skills: %w", err)
	}
	a.closers = append(a.closers, a.skills.Close)
	return nil
}

// connect puts the surfaces on top of the loop, the loop on top of the models.
func (a *app) connect(context.Context) error {
	a.natives = native.New(a.store.Steps(), a.log)
	known, err := newModels(a.cfg, a.natives, a.log)
	if err != nil {
		return err
	}
	router, err := provider.NewRouter(known)
	if err != nil {
		return err
	}
	loop := agent.New(agent.Config{
		Provider: router, Workspaces: a.containers, MaxRounds: a.cfg.Agent.MaxRounds, MaxCalls: a.cfg.Agent.MaxCalls, MaxTime: time.Duration(a.cfg.Agent.MaxTime),
		PreloadSkills: a.cfg.Skills.Preload,
		Images:        func(model string) bool { m, err := router.Model(model); return err == nil && m.Images }, Logger: a.log,
	})
	turns := a.metrics.Streamer(run.New(run.Config{
		Next: loop, Steps: a.store.Steps(), Files: a.containers.Uploads(), Logger: a.log,
	}), a.named)
	catalogue := models.New(models.Config{Router: router, Logger: a.log})
	a.api.Handle("GET /v1/models", catalogue)
	a.api.Handle("GET /v1/models/{id...}", catalogue)
	containers.New(a.containers, a.log).Register(a.api)
	files.New(a.containers, a.log).Register(a.api)
	skills.New(a.skills, a.log).Register(a.api)
	batches.New(batches.Config{Models: router, Natives: a.natives, Steps: a.store.Steps(), Logger: a.log}).Register(a.api)
	a.api.Handle("POST /v1/chat/completions", chat.New(chat.Config{Turns: turns, Models: router, Logger: a.log}))
	messages.Register(a.api, messages.Config{Turns: turns, Models: router, Logger: a.log})
	a.api.Handle("POST /v1/responses", responses.New(responses.Config{Turns: turns, Models: router, Logger: a.log}))
	return nil
}

// named says whether a model is named in the configuration: other names are the client's words.
func (a *app) named(model string) bool {
	return slices.ContainsFunc(a.cfg.Models, func(m config.Model) bool { return m.Name == model })
}

// newBackend makes the sandboxes of this machine, with everything that they leave below state.
func newBackend(cfg *config.Config, state string, log *slog.Logger) (sandbox.Backend, error) {
	guest, err := embedded.Guest()
	if err != nil {
		return nil, err
	}
	own := gvisor.Config{Runsc: runscPath(cfg), StateDir: state, Guest: guest, Logger: log, Spares: min(cfg.Sandbox.Pool, 1)}
	switch img, err := findImage(cfg); {
	case err == nil:
		own.Image = img.Dir
	case cfg.Sandbox.Image != "" || !errors.Is(err, image.ErrNotFound):
		return nil, err
	}
	return gvisor.New(own)
}

// trialBackend opens a backend of its own for one image, to try it or what is put into it.
func trialBackend(cfg *config.Config) func(dir string) (sandbox.Backend, error) {
	return func(dir string) (sandbox.Backend, error) {
		guest, err := embedded.Guest()
		if err != nil {
			return nil, err
		}
		state, err := os.MkdirTemp("", "lathe-image-")
		if err != nil {
			return nil, err
		}
		b, err := gvisor.New(gvisor.Config{Runsc: runscPath(cfg), StateDir: state, Guest: guest, Image: dir, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(state))
		}
		return &passing{b, state}, nil
	}
}

// passing is a backend whose state goes with it.
type passing struct {
	sandbox.Backend
	state string
}

// Close ends it.
func (p *passing) Close() error { return errors.Join(p.Backend.Close(), os.RemoveAll(p.state)) }

// prepareImages has the images prepared where the gateway of this configuration looks for it.
func prepareImages(ctx context.Context, cfg *config.Config, names []string, say func(string, ...any)) error {
	dir, err := datadir.Open(cfg.DataDir)
	if errors.Is(err, datadir.ErrInUse) {
		return fmt.Errorf("%w; a gateway that runs prepares its images itself", err)
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	backend, err := newBackend(cfg, dir.Path("sandboxes"), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer backend.Close()
	for _, name := range names {
		img, err := image.Find(name, cfg.ImageDirs)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := backend.Prepare(ctx, img.Dir); err != nil {
			return fmt.Errorf("preparing %s: %w", img.Name, err)
		}
		say("%s is prepared (%.1f s)", img.Name, time.Since(began).Seconds())
	}
	return nil
}

// newModels makes the models that the configuration lists, in its order. natives, where there is one, watches those whose hosted tools are
// their provider's.
func newModels(cfg *config.Config, natives *native.Keeper, log *slog.Logger) ([]provider.Model, error) {
	now := time.Now().Unix()
	out := make([]provider.Model, len(cfg.Models))
	for i, m := range cfg.Models {
		out[i] = provider.Model{
			Name: m.Name, Upstream: m.Model, ProviderName: m.Provider, Images: m.Images, Native: m.HostedTools == "provider", Created: now,
		}
		var err error
		if out[i].Provider, err = newProvider(m, log); err != nil {
			return nil, fmt.Errorf("model %s: %w", m.Name, err)
		}
		if natives != nil {
			out[i].Provider = natives.Provider(m.Name, out[i].Provider, out[i].Native)
		}
	}
	return out, nil
}

func newProvider(m config.Model, log *slog.Logger) (provider.Provider, error) {
	switch m.Provider {
	case "demo":
		return demo.New(), nil
	case "openai-chat":
		return openaichat.New(upstreamConfig(m, log))
	case "openai-responses":
		return openairesponses.New(upstreamConfig(m, log))
	case "anthropic":
		return anthropic.New(upstreamConfig(m, log))
	}
	return nil, fmt.Errorf("the provider %s is not in this release", m.Provider)
}

func upstreamConfig(m config.Model, log *slog.Logger) upstream.Config {
	return upstream.Config{
		BaseURL: m.BaseURL, APIKey: upstream.Secret(m.APIKey.Reveal()), Model: m.Model, Images: m.Images, Logger: log,
	}
}

// server is the HTTP server over the surfaces.
func (a *app) server(drain time.Duration) *server.Server {
	return server.New(server.Config{
		Log: a.log, Keys: a.keys, API: a.api, First: a.natives.Serve, Metrics: a.metrics, Drain: drain,
		Bodies: int64(a.cfg.Server.RequestMemory),
		Ready:  map[string]func(context.Context) error{"store": a.store.Ping, "sandbox": a.sandbox.ready},
	})
}

// close ends the parts, the last opened first.
func (a *app) close(ctx context.Context) {
	for i := len(a.closers) - 1; i >= 0; i-- {
		if err := a.closers[i](); err != nil {
			a.log.ErrorContext(ctx, "closing", "error", err)
		}
	}
	a.closers = nil
}
