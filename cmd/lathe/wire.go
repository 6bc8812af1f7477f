package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/config"
	"github.com/lathe-gateway/lathe/internal/datadir"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/openaichat"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/server"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/surface/models"
	"github.com/lathe-gateway/lathe/internal/surface/responses"
	"github.com/lathe-gateway/lathe/internal/telemetry"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// app is the program put together: every part by its contract.
type app struct {
	cfg     *config.Config
	log     *slog.Logger
	metrics *telemetry.Metrics
	keys    *auth.Keys
	dir     *datadir.Dir
	store   store.Store
	backend sandbox.Backend
	sandbox *sandboxState
	api     *http.ServeMux

	closers []func() error // in the order in which the parts were opened
}

// wire opens and connects the parts that cfg asks for. Close what it returns. After an error nothing stays open.
func wire(ctx context.Context, cfg *config.Config, log *slog.Logger) (*app, error) {
	a := &app{cfg: cfg, log: log, metrics: telemetry.New(version), keys: keysOf(cfg), api: http.NewServeMux()}
	for _, open := range []func(context.Context) error{a.openData, a.openSandboxes, a.connect} {
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
	db, err := sqlite.Open(ctx, dir.Path("lathe.db"))
	if err != nil {
		return fmt.Errorf("the database in data_dir: %w", err)
	}
	a.store = db
	a.closers = append(a.closers, db.Close)
	return nil
}

func (a *app) openSandboxes(ctx context.Context) error {
	backend, err := newBackend(ctx, a.cfg, a.dir.Path("sandboxes"), a.log)
	if err != nil {
		backend = absentBackend{err}
	}
	a.backend = a.metrics.Backend(backend)
	a.closers = append(a.closers, a.backend.Close)
	if err := a.backend.Reconcile(ctx); err != nil {
		return fmt.Errorf("what an earlier lathe left behind could not be removed: %w", err)
	}
	a.sandbox = newSandboxState(ctx, a.backend, a.log)
	a.closers = append(a.closers, a.sandbox.close)
	return nil
}

// connect puts the surfaces on top of the loop, the loop on top of the models.
func (a *app) connect(context.Context) error {
	known, err := newModels(a.cfg, a.log)
	if err != nil {
		return err
	}
	router, err := provider.NewRouter(known)
	if err != nil {
		return err
	}
	turns := a.metrics.Streamer(turn.Streamer(router), func(model string) bool {
		_, err := router.Model(model)
		return err == nil
	})
	catalogue := models.New(models.Config{Router: router, Logger: a.log})
	a.api.Handle("GET /v1/models", catalogue)
	a.api.Handle("GET /v1/models/{id...}", catalogue)
	a.api.Handle("POST /v1/responses", responses.New(responses.Config{Turns: turns, Logger: a.log}))
	return nil
}

func newBackend(ctx context.Context, cfg *config.Config, state string, log *slog.Logger) (sandbox.Backend, error) {
	return nil, fmt.Errorf("not yet")
}

// newModels makes the models that the configuration lists, in its order.
func newModels(cfg *config.Config, log *slog.Logger) ([]provider.Model, error) {
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
	}
	return out, nil
}

func newProvider(m config.Model, log *slog.Logger) (provider.Provider, error) {
	switch m.Provider {
	case "openai-chat":
		return openaichat.New(openaichat.Config{
			BaseURL: m.BaseURL, APIKey: openaichat.Secret(m.APIKey.Reveal()), Model: m.Model, Images: m.Images, Logger: log,
		})
	}
	return nil, fmt.Errorf("the provider %s is not in this release", m.Provider)
}

// server is the HTTP server over the surfaces.
func (a *app) server(drain time.Duration) *server.Server {
	return server.New(server.Config{
		Log: a.log, Keys: a.keys, API: a.api, Metrics: a.metrics, Drain: drain,
		Ready: map[string]func(context.Context) error{"store": a.store.Ping, "sandbox": a.sandbox.ready},
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
