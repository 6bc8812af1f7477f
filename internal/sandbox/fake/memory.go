package fake

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

//go:embed memory.py
var memoryPy string

// memoryFile has the variables, manifestFile a manifest. They stand for what gVisor writes.
const (
	memoryFile   = "memory"
	manifestFile = "manifest.json"
)

// manifest tells a whole image from a damaged one.
type manifest struct {
	Ran bool   `json:"ran"` // whether there was a kernel; without one there is no memoryFile
	Sum uint32 `json:"sum"` // CRC-32 of memoryFile
}

// Checkpoint writes what pickle takes of the Python kernel's variables, with open files, working directory and environment (see
// memory.py), and ends the sandbox. Programs in the background are lost, unlike with gVisor. Nothing of the image refers to this
// process, so it can be restored many times, and by another Backend.
func (x *box) Checkpoint(ctx context.Context, dir string) error {
	m := manifest{Ran: x.ran.Load()}
	if m.Ran {
		if err := x.memory(ctx, "save", filepath.Join(dir, memoryFile)); err != nil {
			return errors.Join(fmt.Errorf("fake: checkpoint: %w", err), x.Close())
		}
		data, err := os.ReadFile(filepath.Join(dir, memoryFile))
		if err != nil {
			return errors.Join(err, x.Close())
		}
		m.Sum = crc32.ChecksumIEEE(data)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, manifestFile), data, 0o600), x.Close())
}

// Restore starts a guest and gives it the variables of an image. Unlike gVisor it fails where a file is gone that was open.
func (b *Backend) Restore(ctx context.Context, spec sandbox.Spec, dir string) (sandbox.Sandbox, error) {
	data, err := os.ReadFile(filepath.Join(dir, manifestFile))
	var m manifest
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.Ran {
		if data, err = os.ReadFile(filepath.Join(dir, memoryFile)); err == nil && crc32.ChecksumIEEE(data) != m.Sum {
			err = errors.New("wrong checksum")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrUnusable, err)
	}
	s, err := b.Start(ctx, spec)
	if err != nil || !m.Ran {
		return s, err
	}
	x, ok := s.(*box)
	if !ok {
		return s, nil
	}
	x.ran.Store(true)
	if err := x.memory(ctx, "load", filepath.Join(dir, memoryFile)); err != nil {
		if ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", sandbox.ErrUnusable, err)
		}
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// memory runs a function of memory.py in the kernel.
func (x *box) memory(ctx context.Context, function, path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	pairs := [][2]string{}
	x.mu.Lock()
	all := x.mounts
	x.mu.Unlock()
	for _, m := range all {
		pairs = append(pairs, [2]string{m.Target, m.Source})
	}
	mounts, err := json.Marshal(pairs)
	if err != nil {
		return err
	}
	code := fmt.Sprintf(`
def __fake_memory():
    import sys, types
    m = sys.modules["__fake_memory"] = types.ModuleType("__fake_memory")
    exec(%s, m.__dict__)
    m.names, m.mounts = globals(), m.json.loads(%s)
    m.%s(%s)
try:
    __fake_memory()
finally:
    del __fake_memory
`, strconv.QuoteToASCII(memoryPy), strconv.QuoteToASCII(string(mounts)), function, strconv.QuoteToASCII(abs))
	var said strings.Builder
	r, err := x.link.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: code}, func(o sandbox.Output) { said.WriteString(o.Text) })
	if err == nil && r.Status != sandbox.StatusOK {
		err = fmt.Errorf("%s: %s\n%s", r.Status, r.Error, said.String())
	}
	return err
}
