// Package oci brings images of containers into a folder: from a registry or an OCI layout, for this machine's platform, with every
// digest checked and the layers unpacked here, as the work of strangers. It runs nothing of them, keeps no ownership, device or right
// above the user's, and makes of a layer that is not what it says to be an error. What an image is afterwards, package image knows.
// Only package image/build and the wiring import it.
package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Limits are what an image may take when it is unpacked. The zero value is DefaultLimits.
type Limits struct {
	// Bytes of all files, and of one layer's stream.
	Bytes int64
	// Entries are files, folders, links and whiteouts of all layers.
	Entries int
	// Names in bytes together.
	Names int64
	// Layers of the image.
	Layers int
}

// DefaultLimits are more than any image for code has, and less than what harms.
var DefaultLimits = Limits{Bytes: 32 << 30, Entries: 2_000_000, Names: 512 << 20, Layers: 256}

// Config opens images.
type Config struct {
	// Arch is the processor that images are for, in Go's words; "" is this machine's. The system is always linux.
	Arch   string
	Limits Limits
	// Keychain has the credentials of registries; nil is Docker's configuration file with its helpers (DOCKER_CONFIG), as docker login
	// leaves it. They are sent to their registry and shown nowhere.
	Keychain authn.Keychain
	// Transport is for registries; nil is http.DefaultTransport, with the proxies of the environment.
	Transport http.RoundTripper
}

// Image is one image of a container. What it says has been checked against its digest; its layers are when they are read.
type Image struct {
	// Digest is that of the manifest of this platform: "sha256:...".
	Digest   string
	manifest *v1.Manifest
	config   *v1.ConfigFile
	blob     func(v1.Descriptor) (io.ReadCloser, error)
	limits   Limits
}

// Layers is their number, Size the bytes that they have as they are fetched.
func (img *Image) Layers() int { return len(img.manifest.Layers) }

// Size is in bytes, compressed.
func (img *Image) Size() int64 {
	var sum int64
	for _, l := range img.manifest.Layers {
		sum += l.Size
	}
	return sum
}

// Env is what the image wants in the environment of its programs, "NAME=value".
func (img *Image) Env() []string { return img.config.Config.Env }

// IsReference says whether s can be the name of an image in a registry, and not only that of a file or of a local image: it has a
// registry, a folder, a tag or a digest in it.
func IsReference(s string) bool {
	if !strings.ContainsAny(s, ":/@") || strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		return false
	}
	_, err := name.ParseReference(s)
	return err == nil
}

// IsLayout says whether dir is an OCI layout.
func IsLayout(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, "oci-layout"))
	return err == nil && info.Mode().IsRegular()
}

func (c *Config) setDefaults() {
	if c.Arch == "" {
		c.Arch = runtime.GOARCH
	}
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits
	}
	if c.Keychain == nil {
		c.Keychain = authn.DefaultKeychain
	}
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
}

// Fetch reads manifest and configuration of an image in a registry. A registry on loopback is asked without TLS.
func (c Config) Fetch(ctx context.Context, ref string) (*Image, error) {
	c.setDefaults()
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, fmt.Errorf("%s is not a reference of an image, such as docker.io/library/python:3.12-slim: %w", ref, err)
	}
	opts := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(c.Keychain), remote.WithTransport(c.Transport), remote.WithPlatform(c.platform()),
		remote.WithUserAgent("lathe"),
	}
	desc, err := remote.Get(r, opts...)
	if err != nil {
		return nil, fmt.Errorf("%s could not be fetched (its registry's credentials are taken from what `docker login` left): %w", ref, err)
	}
	from := source{name: ref, blob: func(d v1.Descriptor) (io.ReadCloser, error) {
		layer, err := remote.Layer(r.Context().Digest(d.Digest.String()), opts...)
		if err != nil {
			return nil, err
		}
		return layer.Compressed()
	}}
	if desc.MediaType.IsIndex() {
		index, err := desc.ImageIndex()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
		return c.fromIndex(from, index)
	}
	img, err := desc.Image()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	return c.fromImage(from, img, desc.Digest)
}

// source is where an image comes from.
type source struct {
	name string
	// single says that more than one image for this platform is an error. Registries' indexes may list several, the best first.
	single bool
	blob   func(v1.Descriptor) (io.ReadCloser, error)
}

// Open reads manifest and configuration of the image in an OCI layout, which must hold exactly one for this platform.
func (c Config) Open(dir string) (*Image, error) {
	c.setDefaults()
	l, err := layout.FromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is not an OCI layout: %w", dir, err)
	}
	index, err := l.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	blob := func(d v1.Descriptor) (io.ReadCloser, error) { return l.Blob(d.Digest) }
	return c.fromIndex(source{name: dir, single: true, blob: blob}, index)
}

func (c Config) platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: c.Arch} }

// maxIndexes is how deep and how wide indexes are searched.
const maxIndexes = 64

// fromIndex looks for the one image of this platform.
func (c Config) fromIndex(from source, index v1.ImageIndex) (*Image, error) {
	var found []v1.Image
	var digests []v1.Hash
	var others []string
	seen := map[v1.Hash]bool{}
	todo := []v1.ImageIndex{index}
	for visited := 0; len(todo) > 0; visited++ {
		if visited >= maxIndexes {
			return nil, fmt.Errorf("%s: too many indexes within one another", from.name)
		}
		manifest, err := todo[0].IndexManifest()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from.name, err)
		}
		for _, d := range manifest.Manifests {
			if seen[d.Digest] {
				continue
			}
			seen[d.Digest] = true
			switch {
			case d.MediaType.IsIndex():
				next, err := todo[0].ImageIndex(d.Digest)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", from.name, err)
				}
				todo = append(todo, next)
			case !d.MediaType.IsImage():
			case d.Platform != nil && !d.Platform.Satisfies(c.platform()):
				others = append(others, d.Platform.String())
			default:
				img, err := todo[0].Image(d.Digest)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", from.name, err)
				}
				found, digests = append(found, img), append(digests, d.Digest)
			}
		}
		todo = todo[1:]
	}
	switch {
	case len(found) == 0 && len(others) > 0:
		return nil, fmt.Errorf("%s has no image for linux/%s, only for %s", from.name, c.Arch, strings.Join(others, ", "))
	case len(found) == 0:
		return nil, fmt.Errorf("%s holds no image", from.name)
	case len(found) > 1 && from.single:
		return nil, fmt.Errorf("%s holds %d images for linux/%s: keep the one that is meant", from.name, len(found), c.Arch)
	}
	return c.fromImage(from, found[0], digests[0])
}

// fromImage checks what can be checked before the layers are fetched.
func (c Config) fromImage(from source, img v1.Image, digest v1.Hash) (*Image, error) {
	out := &Image{blob: from.blob, limits: c.Limits}
	err := func() error {
		raw, err := img.RawManifest()
		if err != nil {
			return err
		}
		// The library checks what comes from a registry, but not what comes from a layout.
		if err := verify("the manifest", raw, digest); err != nil {
			return err
		}
		if out.manifest, err = img.Manifest(); err != nil {
			return err
		}
		if t := out.manifest.Config.MediaType; !t.IsConfig() {
			return fmt.Errorf("it is no image of a container, but an artefact of type %s", t)
		}
		rawConfig, err := img.RawConfigFile()
		if err != nil {
			return err
		}
		if err := verify("the configuration", rawConfig, out.manifest.Config.Digest); err != nil {
			return err
		}
		if out.config, err = img.ConfigFile(); err != nil {
			return err
		}
		out.Digest = digest.String()
		return out.check(c)
	}()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from.name, err)
	}
	return out, nil
}

// check refuses what could not be unpacked here.
func (img *Image) check(c Config) error {
	if os, arch := img.config.OS, img.config.Architecture; os != "" && os != "linux" || arch != "" && arch != c.Arch {
		return fmt.Errorf("it is for %s/%s, and sandboxes here are linux/%s", os, arch, c.Arch)
	}
	layers := img.manifest.Layers
	if len(layers) == 0 || len(layers) > c.Limits.Layers {
		return fmt.Errorf("it has %d layers: allowed are 1 to %d", len(layers), c.Limits.Layers)
	}
	if len(img.config.RootFS.DiffIDs) != len(layers) {
		return errors.New("its configuration names another number of layers than its manifest")
	}
	for i, l := range layers {
		switch l.MediaType {
		case types.DockerLayer, types.DockerUncompressedLayer, types.OCILayer, types.OCIUncompressedLayer, types.OCILayerZStd:
		default:
			return fmt.Errorf("layer %d is of type %s, which is not supported", i+1, l.MediaType)
		}
		if len(l.URLs) > 0 {
			return fmt.Errorf("layer %d is a foreign one, which is fetched from another place than the registry: that is not supported", i+1)
		}
		if l.Size < 0 || l.Size > c.Limits.Bytes {
			return fmt.Errorf("layer %d has a size of %d bytes", i+1, l.Size)
		}
	}
	return nil
}
