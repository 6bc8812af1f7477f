package oci

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"github.com/lathe-gateway/lathe/internal/image/rootfs"
)

// Progress is told when a layer has been unpacked: its number from 1, and its size as it was fetched.
type Progress func(layer int, size int64)

// Unpack lays the layers over one another in dir, an empty folder that nobody else uses. After an error dir holds some of it.
func (img *Image) Unpack(ctx context.Context, dir string, progress Progress) error {
	root, err := rootfs.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := &tree{fs: root, limits: img.limits}
	for i, desc := range img.manifest.Layers {
		if err := img.unpack(ctx, t, desc, img.config.RootFS.DiffIDs[i]); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(img.manifest.Layers), err)
		}
		if progress != nil {
			progress(i+1, desc.Size)
		}
	}
	return nil
}

// unpack applies one layer and then says whether it was the one that the manifest means: nothing that was unpacked is of worth before.
func (img *Image) unpack(ctx context.Context, t *tree, desc v1.Descriptor, diffID v1.Hash) error {
	blob, err := img.blob(desc)
	if err != nil {
		return err
	}
	defer blob.Close()
	packed := &hashed{r: &bounded{r: blob, left: desc.Size, err: errors.New("it is longer than its manifest says")}, hash: sha256.New()}
	plain, closePlain, err := decompress(packed)
	if err != nil {
		return err
	}
	defer closePlain()
	content := &hashed{r: &bounded{r: plain, left: img.limits.Bytes, err: t.tooLarge()}, hash: sha256.New()}
	if err := t.apply(ctx, &interruptible{ctx, content}); err != nil {
		return err
	}
	// What stands behind the end of the tar belongs to the digests too.
	for _, r := range []io.Reader{content, packed} {
		if _, err := io.Copy(io.Discard, &interruptible{ctx, r}); err != nil {
			return err
		}
	}
	if err := packed.check("its bytes", desc.Digest); err != nil {
		return err
	}
	return content.check("its content", diffID)
}

// maxWindow is how much memory a zstd stream may ask for; the format's own advice for decoders is 8 MiB, and zstd --long takes 128.
const maxWindow = 128 << 20

// decompress looks at the first bytes: what a media type says is often wrong.
func decompress(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return b, func() {}, nil
}

// hashed is a reader that hashes what was read.
type hashed struct {
	r    io.Reader
	hash hash.Hash
}

func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.hash.Write(p[:n])
	return n, err
}

func (h *hashed) check(what string, want v1.Hash) error { return compare(what, h.hash.Sum(nil), want) }

func verify(what string, data []byte, want v1.Hash) error {
	sum := sha256.Sum256(data)
	return compare(what, sum[:], want)
}

func compare(what string, sum []byte, want v1.Hash) error {
	if want.Algorithm != "sha256" {
		return fmt.Errorf("%s has a digest of the unknown kind %q", what, want.Algorithm)
	}
	if got := hex.EncodeToString(sum); got != want.Hex {
		return fmt.Errorf("the digest of %s is sha256:%s, not %s", what, got, want)
	}
	return nil
}

// bounded is a reader that fails with err beyond left bytes.
type bounded struct {
	r    io.Reader
	left int64
	err  error
}

func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.err
	}
	return n, err
}

// interruptible is a reader that ends with ctx.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}
