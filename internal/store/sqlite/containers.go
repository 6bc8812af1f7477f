package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
)

type containers struct{ *Store }

const containerColumns = "id, project, name, session, state, memory_limit, expire_after, named, created_at, last_active, owner, lease, " +
	"memory_id, memory_bytes, memory_packed, memory_sha256, memory_at, network"

func scanContainer(s scanner) (store.Container, error) {
	var c store.Container
	var expire, created, active, lease, written int64
	var network string
	err := s.Scan(&c.ID, &c.Project, &c.Name, &c.Session, &c.State, &c.MemoryLimit, &expire, &c.Named, &created, &active, &c.Owner, &lease,
		&c.Memory.ID, &c.Memory.Bytes, &c.Memory.Packed, &c.Memory.SHA256, &written, &network)
	c.ExpireAfter = time.Duration(expire) * time.Microsecond
	c.CreatedAt, c.LastActive = fromMicros(created), fromMicros(active)
	c.Lease, c.Memory.CreatedAt = fromMicros(lease), fromMicros(written)
	if network != "" {
		c.Network = []byte(network)
	}
	return c, notFound(err)
}

func (t containers) Create(ctx context.Context, c store.Container) error {
	_, err := t.write.ExecContext(ctx, "INSERT INTO containers ("+containerColumns+
		") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		c.ID, c.Project, c.Name, c.Session, c.State, c.MemoryLimit, c.ExpireAfter.Microseconds(), c.Named,
		micros(c.CreatedAt), micros(c.LastActive), c.Owner, micros(c.Lease),
		c.Memory.ID, c.Memory.Bytes, c.Memory.Packed, c.Memory.SHA256, micros(c.Memory.CreatedAt), string(c.Network))
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
	q := query{columns: containerColumns, table: "containers", where: "project = ? AND state NOT IN ('creating', 'deleted')", args: []any{project}}
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
		_, err = tx.ExecContext(ctx, "UPDATE containers SET state = ?, last_active = ?, named = ?, expire_after = ?, owner = ?, lease = ?,"+
			" memory_id = ?, memory_bytes = ?, memory_packed = ?, memory_sha256 = ?, memory_at = ? WHERE project = ? AND id = ?",
			c.State, micros(c.LastActive), c.Named, c.ExpireAfter.Microseconds(), c.Owner, micros(c.Lease),
			c.Memory.ID, c.Memory.Bytes, c.Memory.Packed, c.Memory.SHA256, micros(c.Memory.CreatedAt), project, id)
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

func (t containers) Renew(ctx context.Context, owner string, lease time.Time) (int, error) {
	res, err := t.write.ExecContext(ctx, "UPDATE containers SET lease = ? WHERE owner = ? AND owner <> ''", micros(lease), owner)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

func (t containers) WithMemory(ctx context.Context) ([]store.Container, error) {
	return collect(ctx, t.read, scanContainer, "SELECT "+containerColumns+" FROM containers WHERE memory_id <> '' ORDER BY memory_at, seq")
}
