package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// entry is one of a tar. Type 0 is a file.
type entry struct {
	name, body, link string
	kind             byte
	mode             int64
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.body)), ModTime: time.Unix(1e9, 0), Uid: 77}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// blob is a layer as it is in a registry.
type blob struct {
	plain, packed []byte
	media         types.MediaType
	diff          *v1.Hash // instead of the right one
	desc          *v1.Descriptor
}

func hashOf(b []byte) v1.Hash {
	sum := sha256.Sum256(b)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

func (b blob) Digest() (v1.Hash, error) { return hashOf(b.packed), nil }
func (b blob) DiffID() (v1.Hash, error) {
	if b.diff != nil {
		return *b.diff, nil
	}
	return hashOf(b.plain), nil
}
func (b blob) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.packed)), nil
}
func (b blob) Uncompressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.plain)), nil
}
func (b blob) Size() (int64, error)                { return int64(len(b.packed)), nil }
func (b blob) MediaType() (types.MediaType, error) { return b.media, nil }
func (b blob) Descriptor() (*v1.Descriptor, error) {
	if b.desc != nil {
		return b.desc, nil
	}
	return &v1.Descriptor{MediaType: b.media, Size: int64(len(b.packed)), Digest: hashOf(b.packed)}, nil
}

func zipped(t *testing.T, plain []byte) blob {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(plain)
	_ = w.Close()
	return blob{plain: plain, packed: b.Bytes(), media: types.OCILayer}
}

func zstandard(t *testing.T, plain []byte) blob {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(plain)
	_ = w.Close()
	return blob{plain: plain, packed: b.Bytes(), media: types.OCILayerZStd}
}

// imageOf is an image for this machine.
func imageOf(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		t.Fatal(err)
	}
	return configured(t, img, func(c *v1.ConfigFile) {
		c.OS, c.Architecture = "linux", runtime.GOARCH
		c.Config.Env = []string{"PATH=/usr/local/bin:/usr/bin", "SECRET=x"}
	})
}

func configured(t *testing.T, img v1.Image, edit func(*v1.ConfigFile)) v1.Image {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	edit(c)
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

// serveRegistry starts a registry and returns its address.
func serveRegistry(t *testing.T, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	handler := registry.New(registry.Logger(quiet()))
	if wrap != nil {
		handler = wrap(handler)
	}
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func push(t *testing.T, ref string, img v1.Image) {
	t.Helper()
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
}

// anonymous keeps the credentials of whoever runs the tests out of them.
var anonymous = Config{Keychain: authn.NewMultiKeychain()}

func layoutOf(t *testing.T, images ...v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		if err := l.AppendImage(img); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// list is what a folder holds: "path content", "path -> target", "path/".
func list(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		switch {
		case d.IsDir():
			out = append(out, rel+"/")
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			out = append(out, rel+" -> "+target)
			return err
		default:
			data, err := os.ReadFile(p)
			out = append(out, rel+" "+string(data))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func unpack(t *testing.T, img *Image) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	err := img.Unpack(t.Context(), dir, nil)
	return list(t, dir), err
}

func TestFetch(t *testing.T) {
	base := tarOf(t, entry{name: "usr/bin/", kind: tar.TypeDir, mode: 0o755}, entry{name: "usr/bin/python3", body: "py", mode: 0o755}, entry{name: "bin", kind: tar.TypeSymlink, link: "usr/bin"})
	top := tarOf(t, entry{name: "bin/tool", body: "t"}, entry{name: "usr/bin/.wh.python3"})
	plain := tarOf(t, entry{name: "plain", body: "p"})
	img := imageOf(t, zipped(t, base), zstandard(t, top), blob{plain: plain, packed: plain, media: types.OCIUncompressedLayer})
	want := []string{"bin -> usr/bin", "plain p", "usr/", "usr/bin/", "usr/bin/tool t"}

	host := serveRegistry(t, nil)
	push(t, host+"/a/image:tag", img)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	other := configured(t, img, func(c *v1.ConfigFile) { c.Architecture = "riscv64" })
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "riscv64"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}},
	)
	r, err := name.ParseReference(host + "/a/index:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(r, index); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{host + "/a/image:tag", host + "/a/image@" + digest.String(), host + "/a/index:v1"} {
		img, err := anonymous.Fetch(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpack(t, img)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v", ref, got, err)
		}
		if img.Digest != digest.String() || img.Layers() != 3 || img.Size() == 0 || img.Env()[0] != "PATH=/usr/local/bin:/usr/bin" {
			t.Errorf("%s: %+v", ref, img)
		}
	}
	fromLayout, err := anonymous.Open(layoutOf(t, img))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := unpack(t, fromLayout); err != nil || !slices.Equal(got, want) {
		t.Errorf("layout: got %q, %v", got, err)
	}
	arm := anonymous
	arm.Arch = "s390x"
	if _, err := arm.Fetch(t.Context(), host+"/a/index:v1"); err == nil || !strings.Contains(err.Error(), "linux/s390x, only for linux/riscv64") {
		t.Errorf("another platform: %v", err)
	}
	if _, err := arm.Fetch(t.Context(), host+"/a/image:tag"); err == nil || !strings.Contains(err.Error(), "sandboxes here are linux/s390x") {
		t.Errorf("another platform without an index: %v", err)
	}
	for _, ref := range []string{host + "/a/none:tag", host + "/a/image@sha256:" + strings.Repeat("0", 64)} {
		if _, err := anonymous.Fetch(t.Context(), ref); err == nil {
			t.Errorf("%s was found", ref)
		}
	}
}

// TestRefused: what is said of a layer and is not so, and what is not supported.
func TestRefused(t *testing.T) {
	content := tarOf(t, entry{name: "a", body: "a"})
	good := zipped(t, content)
	wrongDiff, foreign, elsewhere, wasm := good, good, good, good
	other := hashOf([]byte("other"))
	wrongDiff.diff = &other
	foreign.media = types.OCIRestrictedLayer
	elsewhere.desc = &v1.Descriptor{MediaType: types.OCILayer, Size: int64(len(good.packed)), Digest: hashOf(good.packed), URLs: []string{"http://169.254.169.254/"}}
	wasm.media = "application/wasm"
	tests := map[string]struct {
		img  func(t *testing.T) (*Image, error)
		want string
	}{
		"a wrong diff id":        {func(t *testing.T) (*Image, error) { return anonymous.Open(layoutOf(t, imageOf(t, wrongDiff))) }, "the digest of its content is"},
		"a foreign layer":        {func(t *testing.T) (*Image, error) { return anonymous.Open(layoutOf(t, imageOf(t, foreign))) }, "not supported"},
		"a layer of elsewhere":   {func(t *testing.T) (*Image, error) { return anonymous.Open(layoutOf(t, imageOf(t, elsewhere))) }, "a foreign one"},
		"a layer of WebAssembly": {func(t *testing.T) (*Image, error) { return anonymous.Open(layoutOf(t, imageOf(t, wasm))) }, "application/wasm"},
		"no layer":               {func(t *testing.T) (*Image, error) { return anonymous.Open(layoutOf(t, imageOf(t))) }, "0 layers"},
		"two images": {func(t *testing.T) (*Image, error) {
			return anonymous.Open(layoutOf(t, imageOf(t, good), imageOf(t, good, good)))
		}, "holds 2 images"},
		"none":      {func(t *testing.T) (*Image, error) { return anonymous.Open(layoutOf(t)) }, "holds no image"},
		"no layout": {func(t *testing.T) (*Image, error) { return anonymous.Open(t.TempDir()) }, "not an OCI layout"},
		"for Windows": {func(t *testing.T) (*Image, error) {
			return anonymous.Open(layoutOf(t, configured(t, imageOf(t, good), func(c *v1.ConfigFile) { c.OS = "windows" })))
		}, "windows"},
		"an artefact": {func(t *testing.T) (*Image, error) {
			return anonymous.Open(layoutOf(t, mutate.ConfigMediaType(imageOf(t, good), "application/vnd.cncf.helm.config.v1+json")))
		}, "artefact"},
		"a bad reference": {func(t *testing.T) (*Image, error) { return anonymous.Fetch(t.Context(), "UPPER/x:y:z") }, "not a reference"},
		"a blob that was changed": {func(t *testing.T) (*Image, error) {
			dir := layoutOf(t, imageOf(t, blob{plain: content, packed: content, media: types.OCIUncompressedLayer}))
			file := filepath.Join(dir, "blobs/sha256", hashOf(content).Hex)
			return opened(t, dir, os.WriteFile(file, tarOf(t, entry{name: "b", body: "a"}), 0o600))
		}, "the digest of its bytes is"},
		"a blob that is longer": {func(t *testing.T) (*Image, error) {
			dir := layoutOf(t, imageOf(t, good))
			return opened(t, dir, os.WriteFile(filepath.Join(dir, "blobs/sha256", hashOf(good.packed).Hex), append(bytes.Clone(good.packed), 0), 0o600))
		}, "longer than its manifest says"},
		"a configuration that was changed": {func(t *testing.T) (*Image, error) {
			img := imageOf(t, good)
			dir, m := layoutOf(t, img), must(img.Manifest())
			file := filepath.Join(dir, "blobs/sha256", m.Config.Digest.Hex)
			return opened(t, dir, os.WriteFile(file, bytes.Replace(must(os.ReadFile(file)), []byte("SECRET"), []byte("SECRES"), 1), 0o600))
		}, "the digest of the configuration is"},
		"a manifest that was changed": {func(t *testing.T) (*Image, error) {
			img := imageOf(t, good)
			dir := layoutOf(t, img)
			file := filepath.Join(dir, "blobs/sha256", must(img.Digest()).Hex)
			return opened(t, dir, os.WriteFile(file, append(must(os.ReadFile(file)), ' '), 0o600))
		}, "the digest of the manifest is"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			img, err := tt.img(t)
			if err == nil {
				_, err = unpack(t, img)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func opened(t *testing.T, dir string, err error) (*Image, error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return anonymous.Open(dir)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestCredentials: they go to their registry, and into no error.
func TestCredentials(t *testing.T) {
	const secret = "s3cr3t-password"
	var allow bool
	host := serveRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, ok := r.BasicAuth(); !allow && (!ok || user != "u" || password != secret) {
				w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
				http.Error(w, "no", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	allow = true
	push(t, host+"/private:1", imageOf(t, zipped(t, tarOf(t, entry{name: "a", body: "a"}))))
	allow = false
	folder := t.TempDir()
	t.Setenv("DOCKER_CONFIG", folder)
	config := fmt.Sprintf(`{"auths":{%q:{"username":"u","password":%q}}}`, host, secret)
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	img, err := (Config{}).Fetch(t.Context(), host+"/private:1")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := unpack(t, img); err != nil || len(got) != 1 {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = anonymous.Fetch(t.Context(), host+"/private:1")
	if err == nil || !strings.Contains(err.Error(), "docker login") {
		t.Errorf("without credentials: %v", err)
	}
	_, err = (Config{}).Fetch(t.Context(), host+"/missing:1")
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("the error tells: %v", err)
	}
}

func TestCancel(t *testing.T) {
	img, err := anonymous.Open(layoutOf(t, imageOf(t, zipped(t, tarOf(t, entry{name: "a", body: "a"})))))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := img.Unpack(ctx, t.TempDir(), nil); err == nil || ctx.Err() == nil {
		t.Errorf("got %v", err)
	}
}

func TestIsReference(t *testing.T) {
	for ref, want := range map[string]bool{
		"python": false, "python:3.12": true, "docker.io/library/python": true, "host:5000/a": true, "/folder": false, "./a:b": false, "a b:c": false,
		"a@sha256:" + strings.Repeat("0", 64): true, "": false, "UPPER:x y": false,
	} {
		if IsReference(ref) != want {
			t.Errorf("%q is %v", ref, !want)
		}
	}
}
