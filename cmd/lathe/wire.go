package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/config"
	"github.com/lathe-gateway/lathe/internal/datadir"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/telemetry"
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
	api     *http.ServeMux

	closers []func(context.Context) error // in the order in which the parts were opened
}

// wire opens and connects the parts that cfg asks for. Close what it returns. After an error nothing stays open.
func wire(ctx context.Context, cfg *config.Config, log *slog.Logger) (*app, error) {
	a := &app{cfg: cfg, log: log, metrics: telemetry.New(version), keys: keysOf(cfg), api: http.NewServeMux()}
	for _, open := range []func(context.Context) error{a.openData, a.openSandboxes, a.connect} {
		if err := open(ctx); err != nil {
			a.close(context.WithoutCancel(ctx))
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
	a.onClose(dir.Close)
	db, err := sqlite.Open(ctx, dir.Path("lathe.db"))
	if err != nil {
		return fmt.Errorf("the database in data_dir: %w", err)
	}
	a.store = db
	a.onClose(db.Close)
	return nil
}

func (a *app) openSandboxes(context.Context) error {
	return nil
}

func (a *app) connect(context.Context) error {
	return nil
}

func (a *app) sandboxReady(context.Context) error { return errors.New("no sandbox") }

// notes are what an operator must know before the first request.
func (a *app) notes() []string {
	return nil
}

func (a *app) onClose(closer func() error) {
	a.closers = append(a.closers, func(context.Context) error { return closer() })
}

// close ends the parts, the last opened first.
func (a *app) close(ctx context.Context) {
	for i := len(a.closers) - 1; i >= 0; i-- {
		if err := a.closers[i](ctx); err != nil {
			a.log.ErrorContext(ctx, "closing", "error", err)
		}
	}
	a.closers = nil
}
