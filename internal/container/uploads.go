package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Uploads are the files that clients gave, apart from any container: what /v1/files serves. It is safe for concurrent use, and sees only
// the project of ctx's principal.
type Uploads struct {
	store                store.Store
	blobs                *blob.Store
	maxFile, maxDocument int64
	reserve              int64
	quotas               *quotas

	// mu lets bytes be freed only while no row for them is being made: writers of rows hold it shared, freers exclusively.
	mu sync.RWMutex
}

// Staged is a file that has been received and belongs to nobody yet: pass it on once, or Discard it.
type Staged = blob.Staged

// NewUpload is what a client says of an upload.
type NewUpload struct {
	Name, Purpose string
	ExpireAfter   time.Duration // 0 is never
}

// MaxFile is the most bytes that Stage takes.
func (u *Uploads) MaxFile() int64 { return u.maxFile }

// Stage receives the bytes of a file from a client, at most Config.MaxFile of them. Pass what it returns on, or Discard it.
func (u *Uploads) Stage(ctx context.Context, r io.Reader) (*Staged, error) {
	if err := checkSpace(u.blobs.Dir(), u.reserve); err != nil {
		return nil, err
	}
	if project, err := projectOf(ctx); err == nil {
		if err := u.quotas.mayStore(ctx, project, 1, 1); err != nil { // before anything is received in vain
			return nil, err
		}
	}
	src := &source{r: r}
	st, err := u.blobs.Stage(ctx, src, u.maxFile)
	switch {
	case err == nil:
		return st, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, blob.ErrTooLarge), isTooLarge(src.err):
		return nil, &turn.Error{
			Kind: turn.KindTooLarge, Param: "file", Message: "the file is larger than " + size(u.maxFile) + ", the most that this server takes",
		}
	case src.err != nil:
		return nil, &turn.Error{
			Kind: turn.KindInvalid, Param: "file", Message: "the upload ended before the file did; send it again", Cause: src.err,
		}
	}
	return nil, err
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

// source remembers the reader's own error, so that a client's fault is told from the disk's.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// Create makes an upload of what was staged.
func (u *Uploads) Create(ctx context.Context, n NewUpload, st *Staged) (store.File, error) {
	defer st.Discard()
	project, err := projectOf(ctx)
	if err != nil {
		return store.File{}, err
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	f := store.File{
		ID: turn.NewID("file_"), Project: project, Name: CleanName(n.Name), Purpose: n.Purpose, Source: "user",
		Bytes: st.Size, SHA256: st.SHA256, CreatedAt: now,
	}
	if n.ExpireAfter > 0 {
		f.ExpiresAt = now.Add(n.ExpireAfter)
	}
	return f, u.keep(ctx, []*blob.Staged{st}, []store.File{f})
}

// keep commits staged bytes and makes their rows: bytes first, so that no row is ever without. A nil in staged stands for bytes that
// another row has already.
func (u *Uploads) keep(ctx context.Context, staged []*blob.Staged, rows []store.File) error {
	back, err := u.quotas.reserve(ctx, staged, rows)
	if err != nil {
		return err
	}
	if err = u.commit(ctx, staged, rows); err != nil {
		back()
		err = errors.Join(err, u.free(context.WithoutCancel(ctx), rows))
	}
	return err
}

func (u *Uploads) commit(ctx context.Context, staged []*blob.Staged, rows []store.File) error {
	u.mu.RLock()
	defer u.mu.RUnlock()
	// Side by side, since each waits for the disk, and the disk writes what waits together at once.
	var commits errgroup.Group
	commits.SetLimit(16)
	for i, st := range staged {
		if st != nil {
			commits.Go(func() error { return st.Commit(rows[i].Project) })
			continue
		}
		n, err := u.store.Files().References(ctx, rows[i].Project, rows[i].SHA256)
		if err == nil && n == 0 {
			err = store.ErrNotFound
		}
		if err != nil {
			return errors.Join(err, commits.Wait())
		}
	}
	if err := commits.Wait(); err != nil {
		return err
	}
	return u.store.Files().Create(ctx, rows...)
}

// free removes the bytes of rows that are gone where no other row has the same. What cannot be removed is left to the next sweep.
func (u *Uploads) free(ctx context.Context, rows []store.File) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for _, f := range rows {
		u.quotas.forget(f.Project)
		n, err := u.store.Files().References(ctx, f.Project, f.SHA256)
		if err == nil && n == 0 {
			err = u.blobs.Delete(ctx, f.Project, f.SHA256)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// List returns a page of the project's uploads.
func (u *Uploads) List(ctx context.Context, p store.Page) ([]store.File, bool, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, false, err
	}
	rows, more, err := u.store.Files().List(ctx, project, "", p)
	return rows, more, badCursor(err, p)
}

func badCursor(err error, p store.Page) error {
	if errors.Is(err, store.ErrNotFound) && p.After != "" {
		return turn.Invalid("after", "No element of this list has the id '%s'.", p.After)
	}
	return err
}

func noFile(id string) error { return turn.NotFound("No such File object: %s", id) }

// Get returns an upload. One that has expired is as one that never was.
func (u *Uploads) Get(ctx context.Context, id string) (store.File, error) {
	f, err := u.any(ctx, id)
	if err == nil && f.Container != "" {
		return store.File{}, turn.NotFound("File %s belongs to a container: it is at /v1/containers/%s/files/%s", id, f.Container, id)
	}
	return f, err
}

// any returns an upload or a container's file.
func (u *Uploads) any(ctx context.Context, id string) (store.File, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return store.File{}, err
	}
	f, err := u.store.Files().Get(ctx, project, id)
	if errors.Is(err, store.ErrNotFound) || (err == nil && expired(f)) {
		return store.File{}, noFile(id)
	}
	return f, err
}

func expired(f store.File) bool { return !f.ExpiresAt.IsZero() && time.Now().After(f.ExpiresAt) }

// Open returns an upload and its bytes.
func (u *Uploads) Open(ctx context.Context, id string) (store.File, io.ReadSeekCloser, error) {
	f, err := u.Get(ctx, id)
	if err != nil {
		return f, nil, err
	}
	r, err := u.blobs.Open(ctx, f.Project, f.SHA256)
	return f, r, err
}

// Delete removes an upload. Copies in containers stay.
func (u *Uploads) Delete(ctx context.Context, id string) error {
	f, err := u.Get(ctx, id)
	if err != nil {
		return err
	}
	if err := u.store.Files().Delete(ctx, f.Project, id); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return noFile(id)
		}
		return err
	}
	return u.free(context.WithoutCancel(ctx), []store.File{f})
}

// Content returns a document that a request names by id: an upload or a container's file, at most Config.MaxDocument bytes.
func (u *Uploads) Content(ctx context.Context, id string) (name, mimeType string, data []byte, err error) {
	f, err := u.any(ctx, id)
	if err != nil {
		return "", "", nil, err
	}
	if f.Bytes > u.maxDocument {
		return "", "", nil, &turn.Error{Kind: turn.KindTooLarge, Message: fmt.Sprintf(
			"file %s has %s; at most %s can be put into a prompt: give it to the code interpreter's container instead",
			id, size(f.Bytes), size(u.maxDocument))}
	}
	r, err := u.blobs.Open(ctx, f.Project, f.SHA256)
	if err != nil {
		return "", "", nil, err
	}
	defer r.Close()
	data, err = io.ReadAll(r)
	if err != nil {
		return "", "", nil, err
	}
	mimeType = mime.TypeByExtension(path.Ext(f.Name))
	if mimeType == "" {
		mimeType = http.DetectContentType(data)
	}
	return f.Name, mimeType, data, nil
}

// expire removes uploads whose time is over.
func (u *Uploads) expire(ctx context.Context, now time.Time) error {
	rows, err := u.store.Files().Expired(ctx, now)
	if err != nil {
		return err
	}
	for _, f := range rows {
		if err := u.store.Files().Delete(ctx, f.Project, f.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return u.free(ctx, rows)
}
