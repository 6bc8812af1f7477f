package sqlite

import (
	"context"

	"github.com/lathe-gateway/lathe/internal/store"
)

type checkpoints struct{ *Store }

const checkpointColumns = "id, project, container, name, memory, bytes, created_at"

func scanCheckpoint(s scanner) (store.Checkpoint, error) {
	var c store.Checkpoint
	var created int64
	err := s.Scan(&c.ID, &c.Project, &c.Container, &c.Name, &c.Memory, &c.Bytes, &created)
	c.CreatedAt = fromMicros(created)
	return c, notFound(err)
}

func (t checkpoints) Create(ctx context.Context, c store.Checkpoint) error {
	_, err := t.write.ExecContext(ctx, "INSERT INTO checkpoints ("+checkpointColumns+") VALUES (?, ?, ?, ?, ?, ?, ?)",
		c.ID, c.Project, c.Container, c.Name, c.Memory, c.Bytes, micros(c.CreatedAt))
	return constraint(err)
}

func (t checkpoints) Get(ctx context.Context, project, container, id string) (store.Checkpoint, error) {
	return scanCheckpoint(t.read.QueryRowContext(ctx,
		"SELECT "+checkpointColumns+" FROM checkpoints WHERE project = ? AND container = ? AND id = ?", project, container, id))
}

func (t checkpoints) List(ctx context.Context, project, container string, p store.Page) ([]store.Checkpoint, bool, error) {
	if err := files(t).hasContainer(ctx, project, container); err != nil {
		return nil, false, err
	}
	q := query{
		columns: checkpointColumns, table: "checkpoints", where: "project = ? AND container = ?", args: []any{project, container},
	}
	q.filter("name", p.Name)
	return page(ctx, t.read, q, p, scanCheckpoint)
}

func (t checkpoints) Delete(ctx context.Context, project, container, id string) error {
	return changed(t.write.ExecContext(ctx, "DELETE FROM checkpoints WHERE project = ? AND container = ? AND id = ?", project, container, id))
}
