package blob

import (
	"context"
	"fmt"
	"io"
	"math"
	"regexp"
)

// Beside the content-addressed blobs a project has named ones, below <hash of the project>/named/<id>: large bytes that belong to one
// owner and are written once, the memory of a hibernated container for one. Nothing tells two of them that are equal.

var blobName = regexp.MustCompile(`^[a-z]+_[0-9A-Za-z]{1,64}$`)

// NamedKey is how Sweep names a named blob, "" for an id that is none.
func NamedKey(project, id string) string {
	if !blobName.MatchString(id) {
		return ""
	}
	return projectDir(project) + "/named/" + id
}

// PutNamed keeps the bytes of r under an id (letters, "_", letters and digits) that the project has not used yet. What it returns tells
// a reader later whether they are whole. They are there entirely or not at all, and survive a power cut.
func (s *Store) PutNamed(ctx context.Context, project, id string, r io.Reader) (sum string, size int64, err error) {
	k := NamedKey(project, id)
	if k == "" {
		return "", 0, fmt.Errorf("blob: %q cannot be a name", id)
	}
	st, err := s.Stage(ctx, r, math.MaxInt64-1)
	if err != nil {
		return "", 0, err
	}
	return st.SHA256, st.Size, st.commitAs(k)
}

// OpenNamed returns the bytes of a named blob. ctx bounds all reads.
func (s *Store) OpenNamed(ctx context.Context, project, id string) (io.ReadCloser, error) {
	k := NamedKey(project, id)
	if k == "" {
		return nil, fmt.Errorf("%w: %q is no name", ErrNotFound, id)
	}
	r, err := s.bucket.NewReader(ctx, k, nil)
	if err != nil {
		return nil, translate(err)
	}
	return r, nil
}

// DeleteNamed removes a named blob; one that is not there is no error.
func (s *Store) DeleteNamed(ctx context.Context, project, id string) error {
	k := NamedKey(project, id)
	if k == "" {
		return nil
	}
	return s.deleteKey(ctx, k)
}
