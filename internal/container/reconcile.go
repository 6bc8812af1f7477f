package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/store"
)

// Reconcile brings everything in line after earlier processes, whatever way they ended: no mount or loop device is left below Config.Dir,
// no folder without a container, no bytes without a file, and no container counts as live. It reconciles the Backend first, since
// sandboxes hold mounts. Call it once, before the first request.
func (m *Manager) Reconcile(ctx context.Context) error {
	if err := m.Backend.Reconcile(ctx); err != nil {
		return fmt.Errorf("reconcile sandboxes: %w", err)
	}
	if err := releaseAll(m.Dir); err != nil {
		return fmt.Errorf("reconcile volumes: %w", err)
	}
	keep := map[string]bool{}
	now := time.Now()
	err := m.Store.Containers().All(ctx, func(row store.Container) error {
		if row.Ended() {
			return nil
		}
		if m.overdue(row, now) {
			return m.expire(ctx, row)
		}
		keep[row.ID] = true
		if row.State != store.StateLive {
			return nil
		}
		_, err := m.Store.Containers().Update(ctx, row.Project, row.ID, func(c *store.Container) error { c.State = store.StateIdle; return nil })
		return err
	})
	if err != nil {
		return fmt.Errorf("reconcile containers: %w", err)
	}
	if err := m.removeStrays(keep); err != nil {
		return fmt.Errorf("reconcile volumes: %w", err)
	}
	if err := m.sweep(ctx); err != nil {
		return fmt.Errorf("reconcile files: %w", err)
	}
	return nil
}

// removeStrays deletes folders of ours that no container has. What is not called as we call ours is left alone.
func (m *Manager) removeStrays(keep map[string]bool) error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range entries {
		name := d.Name()
		if (containerID.MatchString(name) && !keep[name] && !m.pool.has(name)) || strings.HasPrefix(name, "probe-") {
			errs = append(errs, removeAll(filepath.Join(m.Dir, name)))
		}
	}
	return errors.Join(errs...)
}

// sweep deletes bytes that no row names: those of a process that was killed between the two.
func (m *Manager) sweep(ctx context.Context) error {
	named := map[string]bool{}
	m.uploads.mu.Lock()
	defer m.uploads.mu.Unlock()
	err := m.Store.Files().All(ctx, func(f store.File) error {
		named[blob.Key(f.Project, f.SHA256)] = true
		return nil
	})
	if err != nil {
		return err
	}
	err = m.Store.Skills().AllVersions(ctx, func(v store.SkillVersion) error {
		named[blob.Key(v.BlobOwner(), v.SHA256)] = true
		return nil
	})
	if err != nil {
		return err
	}
	n, err := m.Blobs.Sweep(ctx, func(key string) bool { return named[key] })
	if n > 0 {
		m.log.InfoContext(ctx, "bytes without a file removed", "blobs", n)
	}
	return err
}
