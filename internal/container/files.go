package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Files returns a page of all versions of a container's files.
func (m *Manager) Files(ctx context.Context, id string, p store.Page) ([]store.File, bool, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, false, err
	}
	if err := m.refresh(ctx, project, id); err != nil {
		return nil, false, err
	}
	rows, more, err := m.Store.Files().List(ctx, project, id, p)
	return rows, more, badCursor(err, p)
}

// refresh counts a look at a container's files as a use of it.
func (m *Manager) refresh(ctx context.Context, project, id string) error {
	row, err := m.lookup(ctx, project, id)
	if err != nil || time.Since(row.LastActive) < saveStep(row.ExpireAfter) {
		return err
	}
	_, err = m.Get(ctx, id)
	return err
}

// File returns one version of a container's file.
func (m *Manager) File(ctx context.Context, id, fileID string) (store.File, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return store.File{}, err
	}
	if err := m.refresh(ctx, project, id); err != nil {
		return store.File{}, err
	}
	f, err := m.Store.Files().Get(ctx, project, fileID)
	if errors.Is(err, store.ErrNotFound) || (err == nil && f.Container != id) {
		return store.File{}, noContainerFile(id, fileID)
	}
	return f, err
}

func noContainerFile(id, fileID string) error {
	return turn.NotFound("File %s not found on container %s", fileID, id)
}

// OpenFile returns a version and its bytes.
func (m *Manager) OpenFile(ctx context.Context, id, fileID string) (store.File, io.ReadSeekCloser, error) {
	f, err := m.File(ctx, id, fileID)
	if err != nil {
		return f, nil, err
	}
	r, err := m.Blobs.Open(ctx, f.Project, f.SHA256)
	return f, r, err
}

// PutFile puts what was staged (Uploads.Stage) into the container as /mnt/data/<name>. Where other bytes have that name the answer's
// Path says which one it got instead ("name (2).csv").
func (m *Manager) PutFile(ctx context.Context, id, name string, st *Staged) (store.File, error) {
	defer st.Discard()
	e, done, err := m.using(ctx, id)
	if err != nil {
		return store.File{}, err
	}
	defer done()
	return e.put(ctx, newFile{name: CleanName(name), size: st.Size, sha: st.SHA256, staged: st, open: st.Open})
}

// PutUpload puts an uploaded file into the container; one that is there already is not put twice.
func (m *Manager) PutUpload(ctx context.Context, id, fileID string) (store.File, error) {
	e, done, err := m.using(ctx, id)
	if err != nil {
		return store.File{}, err
	}
	defer done()
	return m.putUpload(ctx, e, fileID)
}

// using acquires the container of ctx's project until done is called, and counts it as used.
func (m *Manager) using(ctx context.Context, id string) (e *entry, done func(), err error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := m.begin(); err != nil {
		return nil, nil, err
	}
	e, err = m.acquire(ctx, project, id)
	if err != nil {
		m.wg.Done()
		return nil, nil, err
	}
	e.touch(ctx)
	return e, func() {
		m.release(e)
		m.wg.Done()
	}, nil
}

func (m *Manager) putAll(ctx context.Context, e *entry, param string, ids []string) error {
	if len(ids) > maxFileIDs {
		return turn.Invalid(param, "%d files are too many: at most %d can be given at once.", len(ids), maxFileIDs)
	}
	for _, id := range ids {
		if _, err := m.putUpload(ctx, e, id); err != nil {
			return withParam(err, param)
		}
	}
	return nil
}

func (m *Manager) putUpload(ctx context.Context, e *entry, fileID string) (store.File, error) {
	f, err := m.uploads.any(ctx, fileID)
	if err != nil {
		return store.File{}, err
	}
	if f.Container == e.key.id {
		return f, nil
	}
	rows, _, err := m.Store.Files().List(ctx, e.key.project, e.key.id, store.Page{Limit: 1, Origin: fileID})
	if err != nil {
		return store.File{}, err
	}
	if len(rows) > 0 {
		return rows[0], nil
	}
	return e.put(ctx, newFile{name: CleanName(f.Name), size: f.Bytes, sha: f.SHA256, origin: f.ID, open: func() (io.ReadCloser, error) {
		return m.Blobs.Open(ctx, f.Project, f.SHA256)
	}})
}

// newFile is a file on its way into a volume.
type newFile struct {
	name, sha, origin string
	size              int64
	staged            *blob.Staged // nil if its bytes are kept already
	open              func() (io.ReadCloser, error)
}

// maxNumbered is how many other files may have a name before we give up.
const maxNumbered = 100

// put writes a file into the volume under a name that no other bytes have, and makes its row.
func (e *entry) put(ctx context.Context, n newFile) (store.File, error) {
	if err := e.m.checkSpace(); err != nil {
		return store.File{}, err
	}
	s := &e.files
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.hasEnded() {
		return store.File{}, notFound(e.key.id)
	}
	if _, err := e.attachLocked(ctx); err != nil {
		return store.File{}, err
	}
	if err := e.fitsLocked(n.size, 1); err != nil {
		return store.File{}, err
	}
	name, st, err := e.place(ctx, n)
	if err != nil {
		return store.File{}, err
	}
	if k, ok := s.known[name]; ok && k.sha == n.sha && k.id != "" && n.origin == "" {
		return e.m.Store.Files().Get(ctx, e.key.project, k.id)
	}
	row := store.File{
		ID: turn.NewID("cfile_"), Project: e.key.project, Container: e.key.id, Path: dataMount + "/" + name, Name: name, Source: "user",
		Origin: n.origin, Bytes: n.size, SHA256: n.sha, CreatedAt: time.Now().UTC().Truncate(time.Microsecond),
	}
	if err := e.m.uploads.keep(ctx, []*blob.Staged{n.staged}, []store.File{row}); err != nil {
		switch { // deleted meanwhile
		case errors.Is(err, store.ErrNotFound) && n.origin != "":
			err = noFile(n.origin)
		case errors.Is(err, store.ErrNotFound):
			err = notFound(e.key.id)
		}
		return store.File{}, err
	}
	s.history += row.Bytes
	s.versions++
	s.remember(name, st, row.ID, row.SHA256, row.CreatedAt)
	return row, nil
}

// fits says why so many more versions do not fit the container's own limits, nil if they do.
func (e *entry) fits(bytes int64, versions int) error {
	e.files.mu.Lock()
	defer e.files.mu.Unlock()
	return e.fitsLocked(bytes, versions)
}

func (e *entry) fitsLocked(bytes int64, versions int) error {
	if e.files.history+bytes > e.m.History {
		return &turn.Error{Kind: turn.KindTooLarge, Param: "file", Message: fmt.Sprintf(
			"all versions of this container's files would take more than %s; delete some", size(e.m.History))}
	}
	if e.files.versions+versions > e.m.MaxFiles {
		return &turn.Error{Kind: turn.KindTooLarge, Param: "file", Message: fmt.Sprintf(
			"this container would have more than %d versions of files; delete some", e.m.MaxFiles)}
	}
	return nil
}

// place writes the bytes to the first free name, or finds a name that has the same bytes.
func (e *entry) place(ctx context.Context, n newFile) (string, stamp, error) {
	root := e.files.vol.data
	part := ""
	defer func() {
		if part != "" {
			_ = root.Remove(part) // a program may have done so
		}
	}()
	for i := 1; i <= maxNumbered && ctx.Err() == nil; i++ {
		name := numbered(n.name, i)
		info, err := root.Lstat(name)
		_, hidden := e.files.hidden[name]
		switch {
		case err == nil && hidden && info.Mode().IsRegular(): // for clients nothing has that name
		case err == nil && info.Mode().IsRegular() && e.sameBytes(name, n):
			return name, stampOf(info), nil
		case err == nil:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return "", stamp{}, volumeError(err)
		}
		if part == "" {
			if part, err = e.writePart(n); err != nil {
				return "", stamp{}, volumeError(err)
			}
		}
		if hidden {
			err = e.replaceHidden(part, name)
		} else {
			// A link, not a rename: it never takes the place of a file that the program makes at this moment.
			if err = root.Link(part, name); errors.Is(err, fs.ErrExist) {
				continue
			}
			if err == nil {
				err = root.Remove(part)
			}
		}
		if err != nil {
			return "", stamp{}, volumeError(err)
		}
		part = ""
		info, err = root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) { // the program has removed it already
			return name, stamp{}, nil
		}
		if err != nil {
			return "", stamp{}, err
		}
		return name, stampOf(info), nil
	}
	if err := context.Cause(ctx); err != nil {
		return "", stamp{}, err
	}
	return "", stamp{}, turn.Invalid("file", "%d files are called %q already.", maxNumbered, n.name)
}

// writePart writes the bytes to a hidden file of the volume.
func (e *entry) writePart(n newFile) (part string, err error) {
	root := e.files.vol.data
	part = ".upload-" + suffix()
	src, err := n.open()
	if err != nil {
		return "", err
	}
	defer src.Close()
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, src)
	if err == nil && os.Geteuid() == 0 {
		_ = f.Chown(programID, programID) // not allowed inside a user namespace of one id; readable all the same
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, root.Remove(part))
	}
	return part, nil
}

func volumeError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &turn.Error{
			Kind: turn.KindTooLarge, Param: "file", Cause: err,
			Message: "the container's disk is full; delete files in it, or use another container",
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &turn.Error{Kind: turn.KindConflict, Message: "a program changed the folder while the file was put into it; try again", Cause: err}
	}
	return err
}

// sameBytes compares a file of the volume with one that is to come.
func (e *entry) sameBytes(name string, n newFile) bool {
	f, st, err := openRegular(e.files.vol.data, name)
	if err != nil {
		return false
	}
	defer f.Close()
	if st.size != n.size {
		return false
	}
	h := sha256.New()
	read, err := io.Copy(h, io.LimitReader(f, n.size+1))
	return err == nil && read == n.size && hex.EncodeToString(h.Sum(nil)) == n.sha
}

// DeleteFile removes a version of a container's file, and the file from the volume if that still has this version's bytes.
func (m *Manager) DeleteFile(ctx context.Context, id, fileID string) error {
	f, err := m.File(ctx, id, fileID)
	if err != nil {
		return err
	}
	e, done, err := m.using(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return e.deleteFile(context.WithoutCancel(ctx), f)
}

func (e *entry) deleteFile(ctx context.Context, f store.File) error {
	s := &e.files
	s.mu.Lock()
	defer s.mu.Unlock()
	files := e.m.Store.Files()
	newest, err := files.Latest(ctx, f.Project, f.Container, f.Path)
	rel, ok := inData(f.Path)
	if err == nil && ok && newest.ID == f.ID && !f.Shown {
		if _, err := e.attachLocked(ctx); err != nil {
			return err
		}
		if e.sameBytes(rel, newFile{size: f.Bytes, sha: f.SHA256}) {
			if err := e.removeFile(ctx, rel, removal{Bytes: f.Bytes, SHA256: f.SHA256}); err != nil {
				return err
			}
		}
	}
	if err := files.Delete(ctx, f.Project, f.ID); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return noContainerFile(f.Container, f.ID)
		}
		return err
	}
	s.history -= f.Bytes
	s.versions--
	return e.m.uploads.free(ctx, []store.File{f})
}
