// Package memory keeps images of what programs had in memory as they lie on the disk: a folder that a sandbox.Backend wrote, sealed with
// checksums, and the same folder packed into one compressed stream. It knows no container, store or backend; package container is its
// user.
package memory

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// ErrDamaged is wrapped where an image is not what was sealed: something is missing, cut short or changed.
var ErrDamaged = errors.New("memory: image is damaged")

const (
	images   = "image"     // the backend's files, within the folder
	sealFile = "seal.json" // written last
	maxSeal  = 1 << 20
)

// seal is what Verify compares with.
type seal struct {
	Files map[string]sealed `json:"files"` // by name in the folder of images
}

type sealed struct {
	Bytes int64  `json:"bytes"`
	Sum   uint32 `json:"crc32c"` // Castagnoli: checked at each resume, which has 100 ms, at many GB a second
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Create makes the folder of an image, and an empty one within it that the backend writes to.
func Create(dir string) (image string, err error) {
	image = Image(dir)
	return image, os.MkdirAll(image, 0o700)
}

// Image is the folder within dir that the backend wrote.
func Image(dir string) string { return filepath.Join(dir, images) }

// Seal notes what the backend wrote and has it all reach the disk. It returns the bytes that the image takes there; files with holes
// count without them. From then on nothing in dir changes.
func Seal(ctx context.Context, dir string) (bytes int64, err error) {
	s := seal{Files: map[string]sealed{}}
	names, err := list(dir)
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	for _, name := range names {
		one, used, err := sum(ctx, filepath.Join(Image(dir), name), true)
		if err != nil {
			return 0, fmt.Errorf("memory: %w", err)
		}
		s.Files[name] = one
		bytes += used
	}
	data, err := json.Marshal(s)
	if err != nil {
		return 0, err
	}
	path := filepath.Join(dir, sealFile)
	for _, step := range []func() error{
		func() error { return sync(Image(dir)) },
		func() error { return os.WriteFile(path+".part", data, 0o600) },
		func() error { return sync(path + ".part") },
		func() error { return os.Rename(path+".part", path) },
		func() error { return sync(dir) },
		func() error { return sync(filepath.Dir(dir)) },
	} {
		if err := step(); err != nil {
			return 0, fmt.Errorf("memory: %w", err)
		}
	}
	return bytes, nil
}

// Verify returns nil if an image is as it was sealed, else an error that wraps ErrDamaged.
func Verify(ctx context.Context, dir string) error {
	s, err := readSeal(dir)
	if err != nil {
		return err
	}
	names, err := list(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if len(names) != len(s.Files) {
		return fmt.Errorf("%w: %d files instead of %d", ErrDamaged, len(names), len(s.Files))
	}
	for _, name := range names {
		got, _, err := sum(ctx, filepath.Join(Image(dir), name), false)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if want, ok := s.Files[name]; !ok || got != want {
			return fmt.Errorf("%w: %q has changed", ErrDamaged, name)
		}
	}
	return nil
}

// Sealed says whether dir was sealed, and how many bytes the image has. It does not look whether they are right.
func Sealed(dir string) (bytes int64, ok bool) {
	s, err := readSeal(dir)
	for _, f := range s.Files {
		bytes += f.Bytes
	}
	return bytes, err == nil
}

func readSeal(dir string) (s seal, err error) {
	f, err := os.Open(filepath.Join(dir, sealFile))
	if err == nil {
		defer f.Close()
		err = json.NewDecoder(io.LimitReader(f, maxSeal)).Decode(&s)
	}
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return s, nil
}

// list names the files of an image; backends write regular files only, without folders.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(Image(dir))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.Type().IsRegular() {
			return nil, fmt.Errorf("%q is no regular file", e.Name())
		}
		names = append(names, e.Name())
	}
	return names, nil
}

func sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// sum reads a file to its end.
func sum(ctx context.Context, path string, durable bool) (s sealed, used int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, 0, err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	s.Bytes, err = io.CopyBuffer(h, reader{ctx, f}, make([]byte, 1<<20))
	s.Sum = h.Sum32()
	if err == nil && durable {
		err = f.Sync()
	}
	if err != nil {
		return s, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return s, 0, err
	}
	return s, onDisk(info), nil
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// Pack writes a sealed image to w as a zstd-compressed tar.
func Pack(ctx context.Context, dir string, w io.Writer) error {
	// One goroutine: this runs behind programs that people wait for.
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	names, err := list(dir)
	if err != nil {
		return errors.Join(err, z.Close())
	}
	for _, path := range append(prefixed(names), sealFile) {
		if err := packFile(ctx, t, dir, path); err != nil {
			return errors.Join(fmt.Errorf("memory: pack: %w", err), z.Close())
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func prefixed(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = images + "/" + n
	}
	return out
}

func packFile(ctx context.Context, t *tar.Writer, dir, path string) error {
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(path)))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Size: info.Size(), Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.CopyN(t, reader{ctx, f}, info.Size())
	return err
}

// Unpack makes the folder dir of what Pack wrote; it appears whole or not at all. What does not fit its seal wraps ErrDamaged. limit bounds
// the bytes that it writes.
func Unpack(ctx context.Context, r io.Reader, dir string, limit int64) error {
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	err := unpack(ctx, r, part, limit)
	if err == nil {
		err = Verify(ctx, part)
	}
	if err == nil {
		err = os.Rename(part, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return nil
}

func unpack(ctx context.Context, r io.Reader, dir string, limit int64) error {
	if _, err := Create(dir); err != nil {
		return err
	}
	z, err := zstd.NewReader(bufio.NewReader(reader{ctx, r}), zstd.WithDecoderConcurrency(2))
	if err != nil {
		return err
	}
	defer z.Close()
	t := tar.NewReader(z)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		name := filepath.FromSlash(h.Name)
		if limit -= h.Size; limit < 0 || h.Typeflag != tar.TypeReg || !filepath.IsLocal(name) {
			return fmt.Errorf("%w: entry %q of %d bytes", ErrDamaged, h.Name, h.Size)
		}
		if err := unpackFile(filepath.Join(dir, name), t); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

func unpackFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return err
	}
	w := &holes{f: f}
	_, err = io.CopyBuffer(w, r, make([]byte, 128<<10))
	if err != nil && w.err == nil { // it is the stream's
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err == nil && w.at > 0 {
		err = f.Truncate(w.at)
	}
	return errors.Join(err, f.Close())
}
