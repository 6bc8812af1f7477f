package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
)

type files struct{ *Store }

const fileColumns = "id, project, container, path, name, purpose, source, origin, bytes, sha256, created_at, expires_at, shown"

func scanFile(s scanner) (store.File, error) {
	var f store.File
	var container sql.NullString
	var created, expires int64
	err := s.Scan(&f.ID, &f.Project, &container, &f.Path, &f.Name, &f.Purpose, &f.Source, &f.Origin, &f.Bytes, &f.SHA256,
		&created, &expires, &f.Shown)
	f.Container = container.String
	f.CreatedAt, f.ExpiresAt = fromMicros(created), fromMicros(expires)
	return f, notFound(err)
}

func (t files) Create(ctx context.Context, rows ...store.File) error {
	if len(rows) == 0 {
		return nil
	}
	return t.inTx(ctx, func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, "INSERT INTO files ("+fileColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
		if err != nil {
			return err
		}
		defer stmt.Close()
		for _, f := range rows {
			_, err := stmt.ExecContext(ctx, f.ID, f.Project, sql.NullString{String: f.Container, Valid: f.Container != ""}, f.Path, f.Name,
				f.Purpose, f.Source, f.Origin, f.Bytes, f.SHA256, micros(f.CreatedAt), micros(f.ExpiresAt), f.Shown)
			if err != nil {
				return constraint(err)
			}
		}
		return nil
	})
}

func (t files) Get(ctx context.Context, project, id string) (store.File, error) {
	return scanFile(t.read.QueryRowContext(ctx, "SELECT "+fileColumns+" FROM files WHERE project = ? AND id = ?", project, id))
}

func (t files) List(ctx context.Context, project, container string, p store.Page) ([]store.File, bool, error) {
	q := query{columns: fileColumns, table: "files", where: "project = ? AND container IS NULL", args: []any{project}}
	switch {
	case container == "" && p.Made:
		q.where = "project = ? AND (container IS NULL OR source = 'assistant')"
	case container != "":
		if err := t.hasContainer(ctx, project, container); err != nil {
			return nil, false, err
		}
		q.where, q.args = "project = ? AND container = ?", []any{project, container}
	}
	q.filter("purpose", p.Purpose)
	q.filter("origin", p.Origin)
	return page(ctx, t.read, q, p, scanFile)
}

func (t files) hasContainer(ctx context.Context, project, container string) error {
	var one int
	return notFound(t.read.QueryRowContext(ctx, "SELECT 1 FROM containers WHERE project = ? AND id = ?", project, container).Scan(&one))
}

func (t files) Latest(ctx context.Context, project, container, path string) (store.File, error) {
	return scanFile(t.read.QueryRowContext(ctx, "SELECT "+fileColumns+" FROM files"+
		" WHERE project = ? AND container = ? AND path = ? ORDER BY created_at DESC, seq DESC LIMIT 1", project, container, path))
}

func (t files) Delete(ctx context.Context, project, id string) error {
	return changed(t.write.ExecContext(ctx, "DELETE FROM files WHERE project = ? AND id = ?", project, id))
}

func (t files) DeleteContainer(ctx context.Context, project, container string) ([]store.File, error) {
	var rows []store.File
	err := t.inTx(ctx, func(tx *sql.Tx) error {
		var one int
		err := tx.QueryRowContext(ctx, "SELECT 1 FROM containers WHERE project = ? AND id = ?", project, container).Scan(&one)
		if err != nil {
			return notFound(err)
		}
		rows, err = collect(ctx, tx, scanFile, "SELECT "+fileColumns+" FROM files WHERE project = ? AND container = ? ORDER BY seq",
			project, container)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM files WHERE project = ? AND container = ?", project, container)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (t files) Expired(ctx context.Context, now time.Time) ([]store.File, error) {
	return collect(ctx, t.read, scanFile, "SELECT "+fileColumns+" FROM files"+
		" WHERE expires_at > 0 AND expires_at < ? AND container IS NULL ORDER BY seq", micros(now))
}

func (t files) References(ctx context.Context, project, sha256 string) (int, error) {
	var n int
	err := t.read.QueryRowContext(ctx, "SELECT COUNT(*) FROM files WHERE project = ? AND sha256 = ?", project, sha256).Scan(&n)
	return n, err
}

func (t files) All(ctx context.Context, fn func(store.File) error) error {
	return each(ctx, t.read, fileColumns, "files", scanFile, fn)
}
