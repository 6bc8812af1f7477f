package build

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/lathe-gateway/lathe/internal/image"
)

// container is an image of a container with these files, as docker.io/library/python is laid out.
func container(t *testing.T, files map[string]string) v1.Image {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			h.Typeflag, h.Linkname, h.Size, content = tar.TypeSymlink, target, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, content)
	}
	_ = w.Close()
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(b.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	c.Config.Env = []string{"PATH=/usr/local/bin:/usr/bin", "LANG=C.UTF-8", "LD_PRELOAD=/evil.so"}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

func pythonContainer(t *testing.T) v1.Image {
	return container(t, map[string]string{
		"usr/local/bin/python3":              "-> python3.12",
		"usr/local/bin/python3.12":           "small",
		"usr/local/lib/libpython3.12.so.1.0": "\x003.12.7\x00",
		"usr/local/lib/python3.12/site-packages/numpy-2.1.0.dist-info/METADATA": "Name: numpy\nVersion: 2.1.0\n",
		"usr/lib/libc.so.6": "GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n",
		"lib":               "-> /usr/lib",
		"etc/hostname":      "builder",
	})
}

func TestPull(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	ref := strings.TrimPrefix(server.URL, "http://") + "/library/python:3.12"
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, pythonContainer(t)); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "layout")
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendImage(pythonContainer(t)); err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	for from, as := range map[string]string{ref: "", folder: "named"} {
		if _, err := image.Find(from, s.Dirs); err == nil || !strings.Contains(err.Error(), "lathe image pull") {
			t.Errorf("before: %v", err)
		}
		img, err := s.Pull(t.Context(), as, from)
		if err != nil {
			t.Fatalf("%v\n%s", err, s.said)
		}
		found, err := image.Find(from, s.Dirs)
		if err != nil || found.Root != img.Root {
			t.Errorf("%s is found as %+v, %v", from, found, err)
		}
		i := img.Info
		if img.Python != "/usr/local/bin/python3" || i.Python != "3.12.7" || i.Libraries["numpy"] != "2.1.0" || !i.Foreign || i.Reference != from ||
			!strings.HasPrefix(i.Digest, "sha256:") || i.Env["LANG"] != "C.UTF-8" || len(i.Env) != 2 {
			t.Errorf("%s: %+v", from, img)
		}
		if _, err := os.Lstat(filepath.Join(img.Root, "etc/hostname")); err == nil {
			t.Error("the builder's name is still there")
		}
	}
	t.Run("pip on top", func(t *testing.T) {
		needPip(t)
		wheels := t.TempDir()
		wheel{name: "demo", version: "1.0", requires: []string{"numpy>=2"}, files: map[string]string{"demo.py": "x\n"}, script: "demo"}.write(t, wheels)
		img := s.build(Recipe{Name: "more", From: ref, Pip: []string{"demo"}, PipOptions: PipOptions{NoIndex: true, FindLinks: []string{wheels}}})
		if s.read(img, "usr/local/lib/python3.12/site-packages/demo.py") != "x\n" || !strings.HasPrefix(s.read(img, "usr/local/bin/demo"), "#!/usr/local/bin/python3\n") {
			t.Error("it is not where this Python looks")
		}
	})
	t.Run("neither Python nor shell", func(t *testing.T) {
		nothing := filepath.Join(t.TempDir(), "layout")
		l, err := layout.Write(nothing, empty.Index)
		if err == nil {
			err = l.AppendImage(container(t, map[string]string{"app": "x"}))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Pull(t.Context(), "", nothing); err == nil || !strings.Contains(err.Error(), "no python3 and no shell") {
			t.Errorf("got %v", err)
		}
	})
}
