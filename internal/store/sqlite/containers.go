package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
)

type containers struct{ *Store }

const containerColumns = "id, project, name, session, state, memory_limit, expire_after, named, created_at, last_active"

func scanContainer(s scanner) (store.Container, error) {
	var c store.Container
	var expire, created, active int64
	err := s.Scan(&c.ID, &c.Project, &c.Name, &c.Session, &c.State, &c.MemoryLimit, &expire, &c.Named, &created, &active)
	c.ExpireAfter = time.Duration(expire) * time.Microsecond
	c.CreatedAt, c.LastActive = fromMicros(created), fromMicros(active)
	return c, notFound(err)
}

func (t containers) Create(ctx context.Context, c store.Container) error {
	_, err := t.write.ExecContext(ctx, "INSERT INTO containers ("+containerColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		c.ID, c.Project, c.Name, c.Session, c.State, c.MemoryLimit, c.ExpireAfter.Microseconds(), c.Named,
		micros(c.CreatedAt), micros(c.LastActive))
	return constraint(err)
}

func (t containers) Get(ctx context.Context, project, id string) (store.Container, error) {
	return scanContainer(t.read.QueryRowContext(ctx,
		"SELECT "+containerColumns+" FROM containers WHERE project = ? AND id = ?", project, id))
}

func (t containers) BySession(ctx context.Context, project, session string) (store.Container, error) {
	if session == "" {
		return store.Container{}, store.ErrNotFound
	}
	return scanContainer(t.read.QueryRowContext(ctx, "SELECT "+containerColumns+" FROM containers"+
		" WHERE project = ? AND session = ? AND session <> '' AND state NOT IN ('expired', 'deleted', 'failed')", project, session))
}

func (t containers) List(ctx context.Context, project string, p store.Page) ([]store.Container, bool, error) {
	q := query{columns: containerColumns, table: "containers", where: "project = ?", args: []any{project}}
	q.filter("name", p.Name)
	return page(ctx, t.read, q, p, scanContainer)
}

func (t containers) Update(ctx context.Context, project, id string, fn func(*store.Container) error) (store.Container, error) {
	var c store.Container
	err := t.inTx(ctx, func(tx *sql.Tx) error {
		var err error
		c, err = scanContainer(tx.QueryRowContext(ctx,
			"SELECT "+containerColumns+" FROM containers WHERE project = ? AND id = ?", project, id))
		if err != nil {
			return err
		}
		if err := fn(&c); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE containers SET state = ?, last_active = ?, named = ?, expire_after = ? WHERE project = ? AND id = ?",
			c.State, micros(c.LastActive), c.Named, c.ExpireAfter.Microseconds(), project, id)
		return constraint(err)
	})
	if err != nil {
		return store.Container{}, err
	}
	return c, nil
}

func (t containers) Delete(ctx context.Context, project, id string) error {
	return changed(t.write.ExecContext(ctx, "DELETE FROM containers WHERE project = ? AND id = ?", project, id))
}

func (t containers) All(ctx context.Context, fn func(store.Container) error) error {
	return each(ctx, t.read, containerColumns, "containers", scanContainer, fn)
}
