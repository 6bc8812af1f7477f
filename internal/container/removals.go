package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lathe-gateway/lathe/internal/store"
)

// A program that hibernates may have files open, and a restore fails as a whole where one of them is gone. So what a client deletes of
// a container that hibernates is only noted, and hidden from clients at once; it is removed when the container has been resumed, before
// code runs. What was deleted while a sandbox was up may be open there: it gets an empty file in its place while the container
// hibernates. A file that was replaced or shortened does no harm.

// removal says which bytes a file must still have to be removed.
type removal struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

var emptyFile = func() removal {
	sum := sha256.Sum256(nil)
	return removal{SHA256: hex.EncodeToString(sum[:])}
}()

func (v *volumes) removals(id string) string { return filepath.Join(v.dir, id, "removals.json") }

// loadRemovals reads what earlier processes have noted.
func (v *volumes) loadRemovals(id string) (map[string]removal, error) {
	hidden := map[string]removal{}
	data, err := os.ReadFile(v.removals(id))
	if errors.Is(err, fs.ErrNotExist) {
		return hidden, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &hidden)
	}
	if err != nil {
		return nil, fmt.Errorf("what was deleted of %s while it hibernated: %w", id, err)
	}
	return hidden, nil
}

// saveRemovals writes them, so that they survive a power cut.
func (v *volumes) saveRemovals(id string, hidden map[string]removal) error {
	path := v.removals(id)
	if len(hidden) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.Marshal(hidden)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", data, 0o600); err != nil {
		return err
	}
	if err := syncFile(path + ".part"); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// removeFile takes a file that a client has deleted out of the volume, or notes that it has to go. files.mu is held.
func (e *entry) removeFile(ctx context.Context, rel string, r removal) error {
	s := &e.files
	row, err := e.m.Store.Containers().Get(ctx, e.key.project, e.key.id)
	if err != nil {
		return err
	}
	switch row.State {
	case store.StateHibernating, store.StateHibernated, store.StateResuming:
		s.hidden[rel] = r
		if err := e.m.volumes.saveRemovals(e.key.id, s.hidden); err != nil {
			delete(s.hidden, rel)
			return err
		}
	default:
		if err := s.vol.data.Remove(rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.gone[rel] = true
	}
	delete(s.known, rel)
	return nil
}

// freeze writes down that the container is about to hibernate, and puts something in the place of files that are gone.
func (e *entry) freeze(ctx context.Context, mem store.Memory) error {
	s := &e.files
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := e.attachLocked(ctx); err != nil {
		return err
	}
	err := e.transition(ctx, store.StateLive, func(c *store.Container) { c.State, c.Memory = store.StateHibernating, mem })
	if err != nil || len(s.gone) == 0 {
		return err
	}
	var made []string
	for rel := range s.gone {
		if _, err := s.vol.data.Lstat(rel); errors.Is(err, fs.ErrNotExist) {
			s.hidden[rel] = emptyFile
			made = append(made, rel)
		}
	}
	if err := e.m.volumes.saveRemovals(e.key.id, s.hidden); err != nil { // before the files are there
		return err
	}
	for _, rel := range made {
		f, err := s.vol.data.OpenFile(rel, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o644)
		if err != nil {
			continue // its folder is gone too: by the program's own doing, which it knows of
		}
		if os.Geteuid() == 0 {
			_ = f.Chown(programID, programID)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// thaw removes what was deleted while the container hibernated. It is called when its sandbox is up and before code runs.
func (e *entry) thaw(ctx context.Context) error {
	s := &e.files
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := e.attachLocked(ctx); err != nil {
		return err
	}
	if len(s.hidden) == 0 {
		return nil
	}
	for rel, r := range s.hidden {
		if !e.sameBytes(rel, newFile{size: r.Bytes, sha: r.SHA256}) {
			continue // it is another one by now
		}
		if err := s.vol.data.Remove(rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.gone[rel] = true
	}
	s.hidden = map[string]removal{}
	return e.m.volumes.saveRemovals(e.key.id, nil)
}

// syncVolume has all of the volume reach the disk. A plain folder is left to the kernel: the file system that it is part of is the host's.
func (e *entry) syncVolume() error {
	e.files.mu.Lock()
	defer e.files.mu.Unlock()
	return e.syncLocked()
}

func (e *entry) syncLocked() error {
	if e.files.vol == nil || !e.files.vol.mounted {
		return nil
	}
	dir, err := os.Open(e.files.vol.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return syncFileSystem(dir)
}

// replaceHidden puts a new file in the place of one that was deleted while the container hibernated. A program that has that one open
// finds the new one there, which does its restore no harm.
func (e *entry) replaceHidden(part, name string) error {
	s := &e.files
	was := s.hidden[name]
	delete(s.hidden, name)
	if err := e.m.volumes.saveRemovals(e.key.id, s.hidden); err != nil {
		s.hidden[name] = was
		return err
	}
	return s.vol.data.Rename(part, name)
}
