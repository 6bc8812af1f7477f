package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/lathe-gateway/lathe/internal/bench"
	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/config"
	"github.com/lathe-gateway/lathe/internal/container"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
)

// openBenchContainers makes containers in a data directory of their own.
func openBenchContainers(ctx context.Context, cfg *config.Config, backend sandbox.Backend, pool int) (*bench.Containers, error) {
	dir, err := os.MkdirTemp(cfg.DataDir, "containers-")
	if err != nil {
		return nil, err
	}
	db, err := sqlite.Open(ctx, filepath.Join(dir, "lathe.db"))
	if err != nil {
		return nil, err
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	own := containerConfig(cfg)
	own.Store, own.Blobs, own.Backend, own.Dir, own.Pool, own.PoolMax = db, blobs, backend, filepath.Join(dir, "containers"), pool, pool
	m, err := container.New(own)
	if err != nil {
		return nil, errors.Join(err, blobs.Close(), db.Close())
	}
	if pool > 0 {
		m.StartPool()
	}
	return &bench.Containers{
		Workspaces: m, Spares: m.Spares, Delete: m.Delete, Hibernate: m.Hibernate,
		Close: func() error { return errors.Join(m.Close(), blobs.Close(), db.Close()) }, //nolint:contextcheck // it drains whatever became of the run
	}, nil
}
