package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
)

type steps struct{ *Store }

func (t steps) Put(ctx context.Context, rows ...store.Step) error {
	if len(rows) == 0 {
		return nil
	}
	return t.inTx(ctx, func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, "INSERT INTO steps (project, id, body, created_at, expires_at) VALUES (?, ?, ?, ?, ?)"+
			" ON CONFLICT (project, id) DO UPDATE SET body = excluded.body, created_at = excluded.created_at, expires_at = excluded.expires_at")
		if err != nil {
			return err
		}
		defer stmt.Close()
		for _, s := range rows {
			body := s.Body
			if body == nil {
				body = []byte{}
			}
			if _, err := stmt.ExecContext(ctx, s.Project, s.ID, body, micros(s.CreatedAt), micros(s.ExpiresAt)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Get asks in groups, since a client may send back a long history and the number of parameters of a statement is limited.
func (t steps) Get(ctx context.Context, project string, ids ...string) (map[string]store.Step, error) {
	const group = 500
	found := make(map[string]store.Step, len(ids))
	now := micros(time.Now())
	for len(ids) > 0 {
		n := min(len(ids), group)
		args := []any{project, now}
		for _, id := range ids[:n] {
			args = append(args, id)
		}
		rows, err := collect(ctx, t.read, scanStep, "SELECT project, id, body, created_at, expires_at FROM steps"+
			" WHERE project = ? AND (expires_at = 0 OR expires_at > ?) AND id IN (?"+strings.Repeat(", ?", n-1)+")", args...)
		if err != nil {
			return nil, err
		}
		for _, s := range rows {
			found[s.ID] = s
		}
		ids = ids[n:]
	}
	return found, nil
}

func scanStep(s scanner) (store.Step, error) {
	var row store.Step
	var created, expires int64
	err := s.Scan(&row.Project, &row.ID, &row.Body, &created, &expires)
	row.CreatedAt, row.ExpiresAt = fromMicros(created), fromMicros(expires)
	return row, err
}

func (t steps) Expire(ctx context.Context, now time.Time) (int, error) {
	res, err := t.write.ExecContext(ctx, "DELETE FROM steps WHERE expires_at > 0 AND expires_at <= ?", micros(now))
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}
