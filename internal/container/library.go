package container

import (
	"context"
	"errors"
	"io"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Library is all files of a project under one roof, as Anthropic's Files API has them: uploads, and what programs made in any container. It
// sees only the project of ctx's principal. An unknown id is store.ErrNotFound.
type Library struct{ m *Manager }

// Library returns the library of m's files.
func (m *Manager) Library() *Library { return &Library{m} }

// List returns a page of uploads and made files. A cursor that does not exist is store.ErrNotFound.
func (l *Library) List(ctx context.Context, p store.Page) ([]store.File, bool, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return nil, false, err
	}
	p.Made = true
	return l.m.Store.Files().List(ctx, project, "", p)
}

// Get returns an upload or a container's file. What has expired, by itself or with its container, is as if it never was.
func (l *Library) Get(ctx context.Context, id string) (store.File, error) {
	project, err := projectOf(ctx)
	if err != nil {
		return store.File{}, err
	}
	f, err := l.m.Store.Files().Get(ctx, project, id)
	if err == nil && f.Container != "" {
		err = l.m.refresh(ctx, project, f.Container)
	}
	if e, ok := errors.AsType[*turn.Error](err); err == nil && expired(f) || ok && e.Kind == turn.KindNotFound {
		return store.File{}, store.ErrNotFound
	}
	return f, err
}

// Open returns a file and its bytes.
func (l *Library) Open(ctx context.Context, id string) (store.File, io.ReadSeekCloser, error) {
	f, err := l.Get(ctx, id)
	if err != nil {
		return f, nil, err
	}
	r, err := l.m.Blobs.Open(ctx, f.Project, f.SHA256)
	return f, r, err
}

// Delete removes a file: an upload, or one version of a container's file (see Manager.DeleteFile).
func (l *Library) Delete(ctx context.Context, id string) error {
	f, err := l.Get(ctx, id)
	if err != nil {
		return err
	}
	if f.Container != "" {
		return l.m.DeleteFile(ctx, f.Container, id)
	}
	err = l.m.Store.Files().Delete(ctx, f.Project, id)
	if err == nil {
		err = l.m.uploads.free(context.WithoutCancel(ctx), []store.File{f})
	}
	return err
}

// IsMade says that a program made the file: only those may be downloaded by clients of Anthropic's API.
func IsMade(f store.File) bool { return f.Container != "" && f.Source == "assistant" }
