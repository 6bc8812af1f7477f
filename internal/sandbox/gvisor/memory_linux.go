package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/link"
)

// The files of a memory image. The first three are gVisor's: the state of its kernel, where the pages belong, and the pages as they are,
// which lets a restored sandbox run while they are still being read.
const (
	stateFile    = "checkpoint.img"
	metaFile     = "pages_meta.img"
	pagesFile    = "pages.img"
	manifestFile = "lathe.json"
)

var memoryFiles = []string{stateFile, metaFile, pagesFile}

// manifestVersion changes when an older lathe would misread a manifest.
const manifestVersion = 1

// maxManifest is far more than a manifest has.
const maxManifest = 1 << 20

// imageMark is what a memory image depends on. gVisor's state is the layout of its Go structures, so it fits one version only; the guest's
// and the libraries' program text is not in it but read again from their files.
type imageMark struct {
	Runsc  string `json:"runsc"`
	Guest  string `json:"guest"`
	Proto  int    `json:"proto"`
	Image  string `json:"image"`
	Layout string `json:"layout"` // mounts, rights and users inside; see layoutOf
	Path   string `json:"path"`   // of the root file system; it need not be the same
}

// manifest is lathe.json.
type manifest struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	imageMark
	Files map[string]fileSum `json:"files"`
	// Open is what programs had open below the mounts. See standIns.
	Open []openPath `json:"open,omitempty"`
	// AddressSpace is what the largest program had reserved, in bytes, which a limit on it must exceed.
	AddressSpace int64 `json:"address_space"`
}

// fileSum is what a file must be. CRC-32C is for damage, not for forgery: who can write into a memory image can do as they like anyway.
// It takes a tenth of the time in which gVisor reads the same bytes.
type fileSum struct {
	Size int64  `json:"size"`
	CRC  uint32 `json:"crc32c"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func unusable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", sandbox.ErrUnusable, fmt.Errorf(format, args...))
}

// fits says why memory with the mark m cannot be used where now is.
func (m imageMark) fits(now imageMark) error {
	switch {
	case m.Runsc != now.Runsc:
		return unusable("it was written by another gVisor (%s) than this one (%s)", m.Runsc, now.Runsc)
	case m.Proto != now.Proto || m.Guest != now.Guest:
		return unusable("it was written by another version of lathe")
	case m.Image != now.Image:
		return unusable("the sandbox image has changed since")
	case m.Layout != now.Layout:
		return unusable("the sandbox is laid out otherwise: other mounts, users or rights")
	}
	return nil
}

// memory is a memory image that is open. What happens to its folder from then on does not matter, unless its files are written to.
type memory struct {
	manifest manifest
	files    []*os.File // as in memoryFiles
	sound    bool       // verified before, and not changed since
}

// stamp tells whether files are still those that were verified.
func (m *memory) stamp() string {
	var b strings.Builder
	for _, f := range m.files {
		if fi, err := f.Stat(); err == nil {
			var inode uint64
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				inode = st.Ino
			}
			fmt.Fprintln(&b, inode, fi.Size(), fi.ModTime().UnixNano())
		}
	}
	return b.String()
}

// openMemory reads the manifest in dir and opens what it names. Errors wrap sandbox.ErrUnusable where dir itself is at fault.
func openMemory(dir string) (*memory, error) {
	m := &memory{}
	data, err := readLimited(filepath.Join(dir, manifestFile), maxManifest)
	if err != nil {
		return nil, missing(err)
	}
	if err := json.Unmarshal(data, &m.manifest); err != nil {
		return nil, unusable("its manifest is damaged: %w", err)
	}
	if m.manifest.Version != manifestVersion {
		return nil, unusable("its manifest has version %d, not %d", m.manifest.Version, manifestVersion)
	}
	for _, name := range memoryFiles {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, errors.Join(missing(err), m.close())
		}
		m.files = append(m.files, f)
		fi, err := f.Stat()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("gvisor: %w", err), m.close())
		}
		if want := m.manifest.Files[name].Size; !fi.Mode().IsRegular() || fi.Size() != want || want == 0 {
			return nil, errors.Join(unusable("%s has %d bytes instead of %d", name, fi.Size(), want), m.close())
		}
	}
	return m, nil
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return unusable("it is not complete: %w", err)
	}
	return fmt.Errorf("gvisor: %w", err)
}

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

func (m *memory) close() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// size is how many bytes of memory are in it.
func (m *memory) size() int64 { return m.manifest.Files[pagesFile].Size }

// verify reads a file from beginning to end and compares it with the manifest. It leaves the file's offset alone: gVisor reads from there.
func (m *memory) verify(ctx context.Context, name string) error {
	for i, f := range m.files {
		if memoryFiles[i] != name || m.sound {
			continue
		}
		sum, err := checksum(ctx, f)
		if err != nil {
			return fmt.Errorf("gvisor: %w", err)
		}
		if sum != m.manifest.Files[name] {
			return unusable("%s is damaged: its checksum is not the one that was written down", name)
		}
	}
	return nil
}

func checksum(ctx context.Context, f *os.File) (fileSum, error) {
	var sum fileSum
	buf := make([]byte, 1<<20)
	for {
		n, err := f.ReadAt(buf, sum.Size)
		sum.CRC = crc32.Update(sum.CRC, castagnoli, buf[:n])
		sum.Size += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return sum, nil
		case err != nil:
			return sum, err
		case ctx.Err() != nil:
			return sum, context.Cause(ctx)
		}
	}
}

// createMemory makes the files of a memory image in dir.
func createMemory(dir string) ([]*os.File, error) {
	var files []*os.File
	for _, name := range memoryFiles {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("gvisor: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// seal writes the manifest, which makes dir a memory image.
func seal(ctx context.Context, dir string, files []*os.File, m manifest) error {
	m.Version, m.Created, m.Files = manifestVersion, time.Now().UTC().Truncate(time.Second), map[string]fileSum{}
	for i, f := range files {
		sum, err := checksum(ctx, f)
		if err != nil {
			return fmt.Errorf("gvisor: %w", err)
		}
		m.Files[memoryFiles[i]] = sum
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	path := filepath.Join(dir, manifestFile)
	if err := errors.Join(os.WriteFile(path+".new", append(data, '\n'), 0o600), os.Rename(path+".new", path)); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

// Checkpoint has the contract of sandbox.Sandbox.Checkpoint. dir has four files then, which belong together; they are not synced.
func (x *box) Checkpoint(ctx context.Context, dir string) error {
	files, err := createMemory(dir)
	if err != nil {
		return err
	}
	defer closeAll(files)
	// Programs in the background may be using the network: half a frame must not be left in the guest's memory.
	if err := x.link.Disconnect(ctx); err != nil {
		return fmt.Errorf("gvisor: checkpoint of sandbox %q: %w", x.id, err)
	}
	running, err := x.save(ctx, files)
	// gVisor ends the sandbox in any case.
	if closed := x.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("gvisor: checkpoint of sandbox %q: %w", x.id, err)
	}
	return seal(ctx, dir, files, manifest{
		imageMark: x.image, Open: openPaths(x.mounts, running), AddressSpace: addressSpace(running, x.b.ids().code),
	})
}

// save makes gVisor write files, and returns what ran until then.
func (x *box) save(ctx context.Context, files []*os.File) ([]processInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.life, cancel)()
	x.hold.Lock() // the guest is gone before gVisor has answered
	defer x.hold.Unlock()
	ctl, err := dialControl(ctx, x.b.layout.runsc, x.vessel.name)
	if err != nil {
		return nil, err
	}
	defer ctl.close()
	running, err := processes(ctx, ctl)
	if err != nil {
		return nil, err
	}
	x.closed.Store(true) // what follows is no end by itself
	return running, ctl.call(ctx, callCheckpoint, saveOpts{
		Metadata: map[string]string{"compression": "none"}, ExcludeZeroPages: true, HavePagesFile: true,
	}, nil, files...)
}

// restore boots what is in m instead of the guest. Its pages are read on while the sandbox runs.
func (v *vessel) restore(ctx context.Context, m *memory) error {
	ctl, err := dialControl(ctx, v.b.layout.runsc, v.name)
	if err != nil {
		return v.explain("restore", err)
	}
	defer ctl.close()
	if err := ctl.call(ctx, callSetNetwork, loopback(true), nil); err != nil {
		return v.explain("restore", err)
	}
	err = ctl.call(ctx, callRestore, restoreOpts{HavePagesFile: true, Background: true}, nil, m.files...)
	if err != nil && isRemote(err) {
		// It has read the image and refused: an open file is gone, or this processor lacks what that one had.
		return unusable("%w", v.explain("restore", err))
	}
	if err != nil {
		return v.explain("restore", err)
	}
	return nil
}

// Restore has the contract of sandbox.Backend.Restore.
func (b *Backend) Restore(ctx context.Context, spec sandbox.Spec, dir string) (sandbox.Sandbox, error) {
	root, err := b.admit(spec)
	if err != nil {
		return nil, err
	}
	mark, err := b.mark(ctx, root, spec.Mounts)
	if err != nil {
		return nil, err
	}
	m, err := openMemory(dir)
	if err != nil {
		return nil, err
	}
	defer m.close()
	if err := m.manifest.fits(mark); err != nil {
		return nil, err
	}
	if limit := spec.Limits.Memory; limit > 0 && m.size() > limit {
		return nil, fmt.Errorf("gvisor: the memory image holds %d bytes, more than the limit of %d", m.size(), limit)
	}
	return b.open(ctx, root, spec, mark, func() (*box, error) { return b.resume(ctx, root, spec, m, link.Renewal{}) })
}

// resume makes a sandbox that goes on with m.
func (b *Backend) resume(ctx context.Context, root *rootfs, spec sandbox.Spec, m *memory, how link.Renewal) (*box, error) {
	// What gVisor parses is verified before, the pages meanwhile: they are data to it, and no program sees them until this returns.
	verifyCtx, cancel := context.WithCancel(ctx)
	pages := make(chan error, 1)
	go func() { pages <- m.verify(verifyCtx, pagesFile) }()
	defer func() {
		cancel()
		<-pages
	}()
	if err := errors.Join(m.verify(ctx, stateFile), m.verify(ctx, metaFile)); err != nil {
		return nil, err
	}
	v, err := b.vessel(ctx, root, spec, m.manifest.imageMark)
	if err != nil {
		return nil, err
	}
	if err = v.tree.attach(spec.Mounts); err == nil {
		clear := standIns(spec.Mounts, b.ids().code, m.manifest.Open)
		err = v.restore(ctx, m)
		clear()
	}
	if damaged := <-pages; damaged != nil {
		err = damaged // whatever else came of it
	}
	pages <- nil
	if err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		return nil, errors.Join(err, v.remove(cleanup))
	}
	x := b.newBox(ctx, v, spec, m.manifest.imageMark)
	if err := x.ready(ctx); err != nil {
		return nil, err
	}
	if err := x.link.Renew(ctx, how); err != nil {
		return nil, errors.Join(fmt.Errorf("gvisor: restore of sandbox %q: %w", x.id, err), x.Close())
	}
	return x, nil
}
