// Package memory knows images of what programs had in memory as they lie on the disk: a folder that a sandbox.Backend wrote, and the same
// folder packed into one compressed stream. It knows no container, store or backend; package container is its user. That the files are
// undamaged is the backend's to see, which knows them.
package memory

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// ErrDamaged is wrapped where a stream is none that Pack wrote, or is cut short.
var ErrDamaged = errors.New("memory: packed image is damaged")

const (
	images   = "image"  // the backend's files, within the folder
	sealFile = "sealed" // written last
)

// Create makes the folder of an image, and an empty one within it that the backend writes to.
func Create(dir string) (image string, err error) {
	image = Image(dir)
	return image, os.MkdirAll(image, 0o700)
}

// Image is the folder within dir that the backend wrote.
func Image(dir string) string { return filepath.Join(dir, images) }

// Seal has everything that the backend wrote reach the disk, and notes that it is whole. It returns its bytes. From then on nothing in
// dir changes.
func Seal(dir string) (bytes int64, err error) {
	names, err := list(dir)
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	for _, name := range names {
		path := filepath.Join(Image(dir), name)
		info, err := os.Stat(path)
		if err == nil {
			err = sync(path)
		}
		if err != nil {
			return 0, fmt.Errorf("memory: %w", err)
		}
		bytes += info.Size()
	}
	err = sync(Image(dir))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, sealFile), nil, 0o600)
	}
	if err == nil {
		err = errors.Join(sync(dir), sync(filepath.Dir(dir)))
	}
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	return bytes, nil
}

// Sealed says whether an image was sealed, and how many bytes it has. Whether they are right the backend sees.
func Sealed(dir string) (bytes int64, ok bool) {
	if _, err := os.Stat(filepath.Join(dir, sealFile)); err != nil {
		return 0, false
	}
	names, err := list(dir)
	for _, name := range names {
		info, errStat := os.Stat(filepath.Join(Image(dir), name))
		if errStat != nil {
			return 0, false
		}
		bytes += info.Size()
	}
	return bytes, err == nil
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
	for _, name := range names {
		if err := packFile(ctx, t, dir, images+"/"+name); err != nil {
			return errors.Join(fmt.Errorf("memory: pack: %w", err), z.Close())
		}
	}
	return errors.Join(t.Close(), z.Close())
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

// Unpack makes the folder dir of what Pack wrote, sealed; it appears whole or not at all. What Pack did
// not write wraps ErrDamaged. limit bounds the bytes that are written.
func Unpack(ctx context.Context, r io.Reader, dir string, limit int64) error {
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	err := unpack(ctx, r, part, limit)
	if err == nil {
		_, err = Seal(part)
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
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return rest(z)
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

// rest reads what a tar has behind its end, so that the checksum of the stream is compared.
func rest(r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

func unpackFile(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return err
	}
	src := &source{r: r}
	if _, err = io.Copy(f, src); src.err != nil {
		err = fmt.Errorf("%w: %w", ErrDamaged, src.err)
	}
	return errors.Join(err, f.Close())
}

// source remembers what was wrong with the stream, as against the disk.
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

// Share makes to, which must not exist, a second folder of the sealed image from. The files are the same where the file system has hard
// links, since nobody writes to them any more; else they are copied. It is sealed as well, and appears whole or not at all.
func Share(from, to string) error {
	part := to + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	err := share(from, part)
	if err == nil {
		_, err = Seal(part)
	}
	if err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("memory: %w", err), os.RemoveAll(part))
	}
	return nil
}

func share(from, to string) error {
	names, err := list(from)
	if err != nil {
		return err
	}
	if _, err := Create(to); err != nil {
		return err
	}
	for _, name := range names {
		src, dst := filepath.Join(Image(from), name), filepath.Join(Image(to), name)
		if os.Link(src, dst) == nil {
			continue
		}
		if err := copyFile(src, dst); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
