// Package blob keeps the bytes of files: content-addressed, immutable, apart for each project. What they are called and who may see
// them is in package store; this package knows no rows. Package container is its user.
//
// What is not a file but belongs to one container, its memory, has names instead of hashes (named.go).
//
// It stands on gocloud.dev/blob, today with the driver for local folders only. Bytes come in through a local spool, since their name
// is their hash, which is known only at the end. For a local folder the spooled file is then moved into place.
package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"
)

// Errors that callers tell apart with errors.Is.
var (
	ErrNotFound = errors.New("blob: not found")
	ErrTooLarge = errors.New("blob: larger than allowed")
)

// Store is one place for blobs. It is safe for concurrent use. Keys are <hash of the project>/sha256/<two digits>/<64 digits>,
// and those of named.go.
type Store struct {
	bucket *blob.Bucket
	dir    string
}

const spool = "spool" // cannot be the hash of a project

// Open opens the folder dir, which belongs to this process, and makes it if it is missing. What an earlier process had begun to write
// is removed.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, spool)); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, spool), 0o700); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	bucket, err := fileblob.OpenBucket(dir, &fileblob.Options{NoTempDir: true, DirFileMode: 0o700, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	return &Store{bucket: bucket, dir: dir}, nil
}

// Close closes the store. Readers and staged blobs end before it.
func (s *Store) Close() error { return s.bucket.Close() }

// Dir is the local folder that fills up as blobs are written.
func (s *Store) Dir() string { return s.dir }

func key(project, sum string) (string, error) {
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf("%w: %q is no SHA-256", ErrNotFound, sum)
	}
	return projectDir(project) + "/sha256/" + sum[:2] + "/" + sum, nil
}

// projectDir hides the project's name, which is the operator's and may be anything, from the file system.
func projectDir(project string) string {
	sum := sha256.Sum256([]byte(project))
	return hex.EncodeToString(sum[:16])
}

// Staged is a blob that has been received but belongs to no project yet. Commit or Discard it.
type Staged struct {
	SHA256 string // hex
	Size   int64
	store  *Store
	file   *os.File
}

// Stage reads r to its end and hashes what it read. More than limit bytes are ErrTooLarge; r is then read no further. An error of r
// is returned as it is. Nothing can be opened until Commit.
func (s *Store) Stage(ctx context.Context, r io.Reader, limit int64) (*Staged, error) {
	f, err := os.CreateTemp(filepath.Join(s.dir, spool), "*")
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	st := &Staged{store: s, file: f}
	w := &writer{ctx: ctx, file: f, hash: sha256.New()}
	st.Size, err = io.CopyBuffer(w, io.LimitReader(r, limit+1), make([]byte, 128<<10))
	switch {
	case err != nil:
	case st.Size > limit:
		err = fmt.Errorf("%w (%d bytes)", ErrTooLarge, limit)
	case w.hole:
		err = f.Truncate(st.Size) // a seek alone does not make a file longer
	}
	if err != nil {
		st.Discard()
		return nil, err
	}
	st.SHA256 = hex.EncodeToString(w.hash.Sum(nil))
	return st, nil
}

// writer hashes what it writes and leaves holes for zeros: a program can make huge sparse files at no cost, and so must we.
type writer struct {
	ctx  context.Context
	file *os.File
	hash hash.Hash
	hole bool // the last write was one
}

var zeros [128 << 10]byte

func (w *writer) Write(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	w.hash.Write(p)
	if w.hole = len(p) <= len(zeros) && len(p) >= 4096 && bytes.Equal(p, zeros[:len(p)]); w.hole {
		_, err := w.file.Seek(int64(len(p)), io.SeekCurrent)
		return len(p), err
	}
	return w.file.Write(p)
}

// Discard forgets a staged blob. It does nothing after Commit.
func (st *Staged) Discard() {
	if st.file == nil {
		return
	}
	st.file.Close()
	os.Remove(st.file.Name()) // what stays is removed by the next Open
	st.file = nil
}

// Open reads a staged blob from its start. Close what it returns before Commit or Discard.
func (st *Staged) Open() (io.ReadCloser, error) {
	if st.file == nil {
		return nil, ErrNotFound
	}
	return os.Open(st.file.Name())
}

// Commit makes the blob one of project's. When it returns nil the bytes survive a power cut. The same bytes twice are kept once.
func (st *Staged) Commit(project string) error {
	if st.file == nil {
		return errCommitted
	}
	k, err := key(project, st.SHA256)
	if err != nil {
		return err
	}
	path := filepath.Join(st.store.dir, filepath.FromSlash(k))
	if info, err := os.Stat(path); err == nil && info.Size() == st.Size {
		now := time.Now()
		if err := os.Chtimes(path, now, now); err == nil { // else it was swept at this moment
			st.Discard()
			return nil
		}
	}
	return st.commitAs(k)
}

var errCommitted = errors.New("blob: committed twice")

// commitAs moves the staged bytes to their key.
func (st *Staged) commitAs(k string) error {
	defer st.Discard()
	path := filepath.Join(st.store.dir, filepath.FromSlash(k))
	if err := st.file.Sync(); err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	if err := mkdirs(st.store.dir, filepath.Dir(path)); err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	if err := os.Rename(st.file.Name(), path); err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	return nil
}

// mkdirs is os.MkdirAll below base, and lasting: each folder that is new is synced into its parent.
func mkdirs(base, dir string) error {
	if dir == base {
		return nil
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := mkdirs(base, filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Put stages and commits.
func (s *Store) Put(ctx context.Context, project string, r io.Reader, limit int64) (sum string, size int64, err error) {
	st, err := s.Stage(ctx, r, limit)
	if err != nil {
		return "", 0, err
	}
	return st.SHA256, st.Size, st.Commit(project)
}

// Open returns the bytes of a blob. ctx bounds all reads. What it returns can be deleted while it is open.
func (s *Store) Open(ctx context.Context, project, sum string) (io.ReadSeekCloser, error) {
	k, err := key(project, sum)
	if err != nil {
		return nil, err
	}
	r, err := s.bucket.NewReader(ctx, k, nil)
	if err != nil {
		return nil, translate(err)
	}
	return r, nil
}

// Delete removes a blob; one that is not there is no error. Whoever calls it makes sure that no row names the blob.
func (s *Store) Delete(ctx context.Context, project, sum string) error {
	k, err := key(project, sum)
	if err != nil {
		return err
	}
	return s.deleteKey(ctx, k)
}

func (s *Store) deleteKey(ctx context.Context, k string) error {
	if err := translate(s.bucket.Delete(ctx, k)); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// Sweep deletes every blob that was last committed before then and for which keep answers false, and returns how many. keep gets what Key
// and NamedKey return. What is committed meanwhile stays.
func (s *Store) Sweep(ctx context.Context, before time.Time, keep func(key string) bool) (int, error) {
	n := 0
	list := s.bucket.List(nil)
	for {
		obj, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if obj.IsDir || strings.HasPrefix(obj.Key, spool+"/") || !obj.ModTime.Before(before) || keep(obj.Key) {
			continue
		}
		// The list may be old by now, and the same bytes committed again.
		now, err := s.bucket.Attributes(ctx, obj.Key)
		if gcerrors.Code(err) == gcerrors.NotFound || (err == nil && !now.ModTime.Before(before)) {
			continue
		}
		if err == nil {
			err = s.bucket.Delete(ctx, obj.Key)
		}
		if err != nil {
			return n, err
		}
		n++
	}
}

// Key is how Sweep names a blob, "" for a sum that is none.
func Key(project, sum string) string {
	k, err := key(project, sum)
	if err != nil {
		return ""
	}
	return k
}

func translate(err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
