// Package sqlite implements package store in one SQLite file, in pure Go. The file belongs to one process. Only cmd/lathe and tests
// import it.
//
// The statements are plain SQL with ? parameters; what SQLite has of its own is here: how connections are opened, how its errors
// are told apart, and the migrations.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/lathe-gateway/lathe/internal/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store is one open database.
type Store struct {
	// write has one connection: SQLite has one writer at a time anyway, and waiting in Go is fair where its busy handler is not.
	write, read *sql.DB
}

var _ store.Store = (*Store)(nil)

// readers is how many statements read at once.
const readers = 4

// Open opens the database at path, makes it if it is missing (file 0600, folders 0700) and brings its tables up to date. A database
// that a newer release has written is refused.
func Open(ctx context.Context, path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	// SQLite gives its -wal and -shm files the mode of the main file, so that one must be right before they exist.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	err = errors.Join(f.Chmod(0o600), f.Close())
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	s := &Store{}
	if s.write, err = connect(path, 1); err == nil {
		s.read, err = connect(path, readers)
	}
	if err == nil {
		err = s.migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), s.Close())
	}
	return s, nil
}

func connect(path string, conns int) (*sql.DB, error) {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "journal_mode(WAL)", "foreign_keys(1)",
		// FULL: a row that was acknowledged survives a power cut. It costs one fsync a transaction.
		"synchronous(FULL)",
	}}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: abs, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func (s *Store) migrate(ctx context.Context) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, s.write, dir, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return err
	}
	current, known, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if current > known {
		return fmt.Errorf("it was written by a newer release (schema %d, this one knows %d): start that release, or restore a backup",
			current, known)
	}
	return nil
}

// Containers implements store.Store.
func (s *Store) Containers() store.Containers { return containers{s} }

// Files implements store.Store.
func (s *Store) Files() store.Files { return files{s} }

// Checkpoints implements store.Store.
func (s *Store) Checkpoints() store.Checkpoints { return checkpoints{s} }

// Steps implements store.Store.
func (s *Store) Steps() store.Steps { return steps{s} }

// Ping implements store.Store. It takes the write lock, so a database on a full or read-only disk does not pass.
func (s *Store) Ping(ctx context.Context) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	return tx.Rollback()
}

// Close closes all connections. Idempotent.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// inTx runs fn in a transaction that holds the write lock from its start.
func (s *Store) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// constraint turns SQLite's constraint errors into those of package store.
func constraint(err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	switch e.Code() {
	case codes.SQLITE_CONSTRAINT_UNIQUE, codes.SQLITE_CONSTRAINT_PRIMARYKEY:
		return fmt.Errorf("%w: %w", store.ErrExists, err)
	case codes.SQLITE_CONSTRAINT_FOREIGNKEY:
		return fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	return err
}

func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}

// changed returns ErrNotFound for a statement that found no row.
func changed(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	return err
}

// micros is how times are stored; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(v int64) time.Time {
	if v == 0 {
		return time.Time{}
	}
	return time.UnixMicro(v).UTC()
}
