package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/lathe-gateway/lathe/internal/store"
)

// scanner is a *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

// query is a list under construction: the table's columns and the rows that it may show.
type query struct {
	columns, table string
	where          string // never from outside
	args           []any
}

func (q *query) filter(column, value string) {
	if value != "" {
		q.where += " AND " + column + " = ?"
		q.args = append(q.args, value)
	}
}

// page returns one page of q, ordered by time of creation and then by order of insertion. The cursor must be a row that q shows.
func page[T any](ctx context.Context, db *sql.DB, q query, p store.Page, scan func(scanner) (T, error)) ([]T, bool, error) {
	order, cmp := "DESC", "<"
	if p.Ascending {
		order, cmp = "ASC", ">"
	}
	where, args := q.where, q.args
	if p.After != "" {
		var at, seq int64
		err := db.QueryRowContext(ctx, "SELECT created_at, seq FROM "+q.table+" WHERE id = ? AND "+q.where,
			append([]any{p.After}, q.args...)...).Scan(&at, &seq)
		if err != nil {
			return nil, false, notFound(err)
		}
		where += " AND (created_at " + cmp + " ? OR (created_at = ? AND seq " + cmp + " ?))"
		args = append(append([]any{}, args...), at, at, seq)
	}
	limit := min(max(p.Limit, 1), 10_000)
	rows, err := collect(ctx, db, scan, fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY created_at %s, seq %s LIMIT %d",
		q.columns, q.table, where, order, order, limit+1), args...)
	if err != nil || len(rows) <= limit {
		return rows, false, err
	}
	return rows[:limit], true, nil
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func collect[T any](ctx context.Context, db querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// each calls fn for every row of a table in order of insertion. It reads in batches, so that fn may use the store.
func each[T any](ctx context.Context, db *sql.DB, columns, table string, scan func(scanner) (T, error), fn func(T) error) error {
	type numbered struct {
		seq int64
		row T
	}
	last := int64(0)
	for {
		batch, err := collect(ctx, db, func(s scanner) (numbered, error) {
			var n numbered
			row, err := scan(prefixed{s, &n.seq})
			n.row = row
			return n, err
		}, "SELECT seq, "+columns+" FROM "+table+" WHERE seq > ? ORDER BY seq LIMIT 500", last)
		if err != nil || len(batch) == 0 {
			return err
		}
		for _, n := range batch {
			if err := fn(n.row); err != nil {
				return err
			}
			last = n.seq
		}
	}
}

// prefixed scans one more column before the others.
type prefixed struct {
	scanner
	first any
}

func (p prefixed) Scan(dest ...any) error { return p.scanner.Scan(append([]any{p.first}, dest...)...) }
