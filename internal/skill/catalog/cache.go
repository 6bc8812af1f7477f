package catalog

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/skill"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// cache has versions as folders, named by the hash of their archive: <hash>/files is what is mounted, <hash>/manifest.json says what it
// must hold. A folder comes to be by a rename and is whole or absent. What is in use is never removed.
type cache struct {
	dir   string
	limit int64
	log   *slog.Logger

	mu      sync.Mutex
	entries map[string]*unpacked
}

// unpacked is one version's folder. Its fields are guarded by cache.mu, making it by its own making.
type unpacked struct {
	size    int64
	uses    int
	used    time.Time
	checked bool // whole, as far as this process has seen
	doomed  bool // its version is deleted: removed with its last use
	making  sync.Mutex
}

// manifest is what a folder must hold.
type manifest struct {
	Bytes int64           `json:"bytes"`
	Files []manifestEntry `json:"files"`
}

type manifestEntry struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	Exec   bool   `json:"exec,omitempty"`
	SHA256 string `json:"sha256"`
}

const (
	filesDir     = "files"
	manifestFile = "manifest.json"
	partPrefix   = "part-"
)

func openCache(dir string, limit int64, log *slog.Logger) (*cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of unpacked skills: %w", err)
	}
	// Programs in sandboxes run as another user and must get through to what is mounted.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // no listing, only passage
		return nil, fmt.Errorf("the folder of unpacked skills: %w", err)
	}
	c := &cache{dir: dir, limit: limit, log: log, entries: map[string]*unpacked{}}
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the folder of unpacked skills: %w", err)
	}
	for _, e := range found {
		if m, err := readManifest(filepath.Join(dir, e.Name())); err == nil && len(e.Name()) == sha256.Size*2 {
			info, _ := os.Stat(filepath.Join(dir, e.Name(), manifestFile))
			c.entries[e.Name()] = &unpacked{size: m.Bytes, used: info.ModTime()}
			continue
		}
		if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func readManifest(dir string) (*manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	return m, json.Unmarshal(text, m)
}

// Folder is a version's files on this machine: read-only, shared by all who use the version. Release it after use.
type Folder struct {
	Dir     string
	release func()
}

// Release ends the use. Idempotent.
func (f *Folder) Release() { f.release() }

// Materialize returns a folder with the files of a version, SKILL.md at its top: for a read-only bind mount. It is made at the first use
// on this machine and kept; files have mode 0444 or 0555 and folders 0555. Until Release it stays, whatever happens to the version. An
// error leaves nothing behind.
func (c *Catalog) Materialize(ctx context.Context, v store.SkillVersion) (*Folder, error) {
	e := c.cache.hold(v.SHA256)
	var once sync.Once
	f := &Folder{
		Dir:     filepath.Join(c.cache.dir, v.SHA256, filesDir),
		release: func() { once.Do(func() { c.cache.unhold(v.SHA256, e) }) },
	}
	if err := c.fill(ctx, v, e); err != nil {
		f.Release()
		return nil, err
	}
	return f, nil
}

// fill makes the folder of an entry unless it is there and whole.
func (c *Catalog) fill(ctx context.Context, v store.SkillVersion, e *unpacked) error {
	e.making.Lock()
	defer e.making.Unlock()
	if c.cache.isChecked(e) {
		return nil
	}
	dir := filepath.Join(c.cache.dir, v.SHA256)
	if m, err := readManifest(dir); err == nil && whole(dir, m) == nil {
		c.cache.made(e, m.Bytes)
		return nil
	}
	if err := removeTree(dir); err != nil {
		return err
	}
	p, err := c.archive(ctx, v)
	if err != nil {
		return err
	}
	if err := c.cache.unpack(v.SHA256, p); err != nil {
		return fmt.Errorf("unpack skill version %s: %w", v.ID, err)
	}
	c.cache.made(e, p.Size())
	c.cache.evict()
	return nil
}

// archive reads a version's bytes and holds them against their hash.
func (c *Catalog) archive(ctx context.Context, v store.SkillVersion) (*skill.Package, error) {
	body, err := c.Content(ctx, v)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != v.SHA256 {
		return nil, turn.Internal(fmt.Errorf("the bytes of skill version %s are damaged", v.ID))
	}
	p, report, err := skill.ReadZip(bytes.NewReader(data), int64(len(data)), skill.Limits{ZipBytes: int64(len(data))})
	if err == nil && p == nil {
		err = turn.Internal(fmt.Errorf("skill version %s cannot be read: %v", v.ID, report.Findings))
	}
	return p, err
}

// hold counts a use of an entry, so that it is not removed.
func (c *cache) hold(sum string) *unpacked {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[sum]
	if e == nil {
		e = &unpacked{}
		c.entries[sum] = e
	}
	e.uses++
	e.used = time.Now()
	return e
}

func (c *cache) unhold(sum string, e *unpacked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.uses--
	if e.uses > 0 {
		return
	}
	if e.doomed || !e.checked {
		c.remove(sum)
		return
	}
	// What is least recently used is known after a restart too.
	_ = os.Chtimes(filepath.Join(c.dir, sum, manifestFile), time.Time{}, e.used)
}

func (c *cache) isChecked(e *unpacked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.checked
}

func (c *cache) made(e *unpacked, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.checked, e.size = true, size
}

// drop removes what a deleted version had, now or after its last use.
func (c *cache) drop(sum string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[sum]; e != nil {
		if e.doomed = true; e.uses == 0 {
			c.remove(sum)
		}
	}
}

// evict removes what has not been used for longest, until the rest fits.
func (c *cache) evict() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var total int64
		oldest := ""
		for sum, e := range c.entries {
			total += e.size
			if e.uses == 0 && (oldest == "" || e.used.Before(c.entries[oldest].used)) {
				oldest = sum
			}
		}
		if total <= c.limit || oldest == "" {
			return
		}
		c.remove(oldest)
	}
}

// remove deletes an entry that nobody uses. c.mu is held. The rename takes it away at once, so that whoever wants it next makes it anew.
func (c *cache) remove(sum string) {
	delete(c.entries, sum)
	away := filepath.Join(c.dir, partPrefix+rand.Text())
	if err := os.Rename(filepath.Join(c.dir, sum), away); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("an unpacked skill cannot be removed", "error", err)
		}
		return
	}
	if err := removeTree(away); err != nil {
		c.log.Warn("an unpacked skill cannot be removed", "error", err)
	}
}

// unpack writes a package's files beside their place, waits for the disk, and puts them into it.
func (c *cache) unpack(sum string, p *skill.Package) (err error) {
	part := filepath.Join(c.dir, partPrefix+rand.Text())
	defer func() {
		if err != nil {
			err = errors.Join(err, removeTree(part))
		}
	}()
	if err := os.MkdirAll(filepath.Join(part, filesDir), 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(part, filesDir))
	if err != nil {
		return err
	}
	defer root.Close()
	m := manifest{Bytes: p.Size()}
	for _, f := range p.Files {
		if dir, _ := filepath.Split(f.Path); dir != "" {
			if err := root.MkdirAll(strings.TrimSuffix(dir, "/"), 0o755); err != nil {
				return err
			}
		}
		if err := writeFile(root, f); err != nil {
			return err
		}
		hash := sha256.Sum256(f.Data)
		m.Files = append(m.Files, manifestEntry{Path: f.Path, Bytes: int64(len(f.Data)), Exec: f.Exec, SHA256: hex.EncodeToString(hash[:])})
	}
	if err := seal(part); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(part, manifestFile), text, 0o600); err != nil {
		return err
	}
	if err := syncTree(part); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(c.dir, sum))
}

func writeFile(root *os.Root, f skill.File) error {
	mode := fs.FileMode(0o444)
	if f.Exec {
		mode = 0o555
	}
	w, err := root.OpenFile(f.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = w.Write(f.Data)
	return errors.Join(err, w.Chmod(mode), w.Close()) // the mode of OpenFile passes through the umask
}

// seal makes the folders read-only and open to all.
func seal(part string) error {
	var dirs []string
	err := filepath.WalkDir(filepath.Join(part, filesDir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.Chmod(dir, 0o555); err != nil { //nolint:gosec // programs in sandboxes read it as another user
			return err
		}
	}
	return os.Chmod(part, 0o711) //nolint:gosec // as above
}

// whole holds a folder against its manifest: names, sizes and modes, not every byte, since 5,000 files must be ready at once. The bytes
// were compared when they were unpacked, and nothing that runs in a sandbox can write here.
func whole(dir string, m *manifest) error {
	for _, f := range m.Files {
		info, err := os.Lstat(filepath.Join(dir, filesDir, filepath.FromSlash(f.Path)))
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() != f.Bytes || (info.Mode()&0o111 != 0) != f.Exec {
			return fmt.Errorf("%s is not as it was unpacked", f.Path)
		}
	}
	return nil
}

// removeTree removes a folder whose folders may be read-only.
func removeTree(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700) //nolint:gosec // to be removed
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}
