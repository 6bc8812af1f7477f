package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lathe-gateway/lathe/internal/store"
)

type usage struct{ *Store }

// Usage implements store.Store.
func (s *Store) Usage() store.Usage { return usage{s} }

// day counts from 1970-01-01 UTC.
func day(t time.Time) int64 { return t.UTC().Truncate(24*time.Hour).Unix() / (24 * 60 * 60) }

func (t usage) Add(ctx context.Context, project string, at time.Time, d time.Duration) error {
	_, err := t.write.ExecContext(ctx, "INSERT INTO usage (project, day, used) VALUES (?, ?, ?)"+
		" ON CONFLICT (project, day) DO UPDATE SET used = usage.used + excluded.used", project, day(at), d.Microseconds())
	return err
}

func (t usage) Used(ctx context.Context, project string, at time.Time) (time.Duration, error) {
	var used int64
	err := t.read.QueryRowContext(ctx, "SELECT used FROM usage WHERE project = ? AND day = ?", project, day(at)).Scan(&used)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return time.Duration(used) * time.Microsecond, err
}

func (t usage) Expire(ctx context.Context, before time.Time) (int, error) {
	res, err := t.write.ExecContext(ctx, "DELETE FROM usage WHERE day < ?", day(before))
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

func (t files) Stored(ctx context.Context, project string) (bytes int64, n int, err error) {
	err = t.read.QueryRowContext(ctx, "SELECT COALESCE(SUM(bytes), 0), COALESCE(SUM(n), 0) FROM"+
		" (SELECT MAX(bytes) AS bytes, COUNT(*) AS n FROM files WHERE project = ? GROUP BY sha256) AS contents", project).Scan(&bytes, &n)
	return bytes, n, err
}
