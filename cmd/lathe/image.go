package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lathe-gateway/lathe/internal/config"
	"github.com/lathe-gateway/lathe/internal/image"
	"github.com/lathe-gateway/lathe/internal/image/build"
)

type imageCmd struct {
	List    imageListCmd    `cmd:"" help:"List the images that there are."`
	Build   imageBuildCmd   `cmd:"" help:"Make an image of another one, with more packages."`
	Pull    imagePullCmd    `cmd:"" help:"Make an image of one of a registry, of an OCI layout or of a folder."`
	Prepare imagePrepareCmd `cmd:"" help:"Make new sandboxes of an image start at once; lathe serve does it by itself."`
	Rm      imageRmCmd      `cmd:"" help:"Remove images."`
}

// said writes what a builder does for the person who waits.
func said(t *terminal) func(string, ...any) {
	return func(format string, args ...any) { fmt.Fprintf(t.err, "image: "+format+"\n", args...) }
}

// newBuilder makes images in the first folder of the configuration.
func newBuilder(cfg *config.Config, t *terminal) *build.Builder {
	b := &build.Builder{Store: image.Store{Dir: cfg.ImageDirs[0]}, Dirs: cfg.ImageDirs, Say: said(t)}
	if _, err := os.Stat(runscPath(cfg)); err != nil {
		b.Say("there is no runsc, so the image cannot be tried: make build")
		return b
	}
	b.Sandbox = trialBackend(cfg)
	return b
}

type imageBuildCmd struct {
	configured
	Name      string   `arg:"" help:"Name of the new image: lower-case letters, digits and . _ -"`
	From      string   `default:"python" placeholder:"IMAGE" help:"A name, a folder, an OCI layout, or a reference such as docker.io/library/python:3.12-slim (${default})."`
	Pip       []string `placeholder:"NAME" help:"Python packages, such as polars or polars==1.9, with commas between them. Only wheels are taken."`
	Apt       []string `placeholder:"NAME" help:"Debian packages, with commas between them. Needs mmdebstrap, and a base made of Debian's packages."`
	IndexURL  string   `placeholder:"URL" help:"Index of Python packages instead of the one that this machine's pip is configured for."`
	FindLinks []string `placeholder:"DIR" sep:"none" help:"Folder, or page, of wheels besides. May be repeated."`
	NoIndex   bool     `help:"Take Python packages from --find-links only."`
	AptSource []string `placeholder:"LINE" sep:"none" help:"Line of a sources.list instead of this machine's, such as 'deb http://deb.debian.org/debian bookworm main'. May be repeated."`
	TrustBase bool     `help:"Let the programs of a base that is not made of Debian's packages run as root in a chroot, which --apt does."`
}

// Run makes the image and prints its name.
func (c *imageBuildCmd) Run(ctx context.Context, t *terminal) error {
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	if c.IndexURL != "" && c.NoIndex {
		return errors.New("--index-url and --no-index contradict one another: give one of them")
	}
	for i, l := range c.FindLinks {
		if !strings.Contains(l, "://") {
			if c.FindLinks[i], err = filepath.Abs(l); err != nil {
				return err
			}
		}
	}
	img, err := newBuilder(cfg, t).Build(ctx, build.Recipe{
		Name: c.Name, From: c.From, Pip: c.Pip, Apt: c.Apt,
		PipOptions: build.PipOptions{Index: c.IndexURL, FindLinks: c.FindLinks, NoIndex: c.NoIndex},
		AptOptions: build.AptOptions{Sources: c.AptSource, TrustBase: c.TrustBase},
	})
	return printImage(t, img, err)
}

func printImage(t *terminal, img *image.Image, err error) error {
	if err != nil {
		return err
	}
	fmt.Fprintln(t.out, img.Name)
	return nil
}

type imagePullCmd struct {
	configured
	First  string `arg:"" name:"name" help:"Name of the new image. Without it the reference alone is given, and is then what sandbox.image says."`
	Second string `arg:"" name:"reference" optional:"" help:"Reference such as docker.io/library/python:3.12-slim, or an OCI layout, or a folder."`
}

// Run makes the image and prints its name.
func (c *imagePullCmd) Run(ctx context.Context, t *terminal) error {
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	name, from := c.First, c.Second
	if from == "" {
		name, from = "", c.First
	}
	img, err := newBuilder(cfg, t).Pull(ctx, name, from)
	return printImage(t, img, err)
}

type imageListCmd struct {
	configured
}

// Run prints a table of the images.
func (c *imageListCmd) Run(t *terminal) error {
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	images := image.List(cfg.ImageDirs)
	if len(images) == 0 {
		fmt.Fprintf(t.err, "lathe: no images in %s: `make image` or `lathe image pull` makes one\n", strings.Join(cfg.ImageDirs, ", "))
		return nil
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tPYTHON\tSIZE\tMADE\tFROM")
	for _, l := range images {
		if l.Err != nil {
			fmt.Fprintf(w, "%s\t\t\t\tcannot be used: %v\n", l.Name, l.Err)
			continue
		}
		total, _ := l.Size()
		python, made := l.Info.Python, ""
		if l.Python == "" {
			python = "none"
		}
		if !l.Info.Created.IsZero() {
			made = l.Info.Created.Local().Format(time.DateOnly)
		}
		fmt.Fprintf(w, "%s\t%s\t%d MB\t%s\t%s\n", l.Name, python, total/1e6, made, madeFrom(l.Info))
	}
	return w.Flush()
}

func madeFrom(i image.Info) string {
	from := i.Source
	switch {
	case i.Base != "":
		from = i.Base
	case i.Reference != "":
		from = i.Reference
	}
	for _, more := range [][]string{i.Apt, i.Pip} {
		if len(more) > 0 {
			from += " + " + strings.Join(more, ", ")
		}
	}
	return from
}

type imagePrepareCmd struct {
	configured
	Names []string `arg:"" name:"name" optional:"" help:"Images. Default: those that the configuration uses."`
}

// Run prepares the images in the data directory, which must not be in use: a gateway that runs prepares them itself.
func (c *imagePrepareCmd) Run(ctx context.Context, t *terminal) error {
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	names := c.Names
	if len(names) == 0 {
		names = imagesOf(cfg)
	}
	return prepareImages(ctx, cfg, names, said(t))
}

// imagesOf are the images that the configuration names, each once: sandbox.image, and those of projects.
func imagesOf(cfg *config.Config) []string {
	out := []string{cfg.Sandbox.Image}
	for _, p := range cfg.Projects {
		if p.Image != "" && !slices.Contains(out, p.Image) {
			out = append(out, p.Image)
		}
	}
	return out
}

// pullMissing unpacks the images that the configuration means and that are not here yet.
func pullMissing(ctx context.Context, cfg *config.Config, t *terminal) error {
	for _, ref := range imagesOf(cfg) {
		if _, err := image.Find(ref, cfg.ImageDirs); !errors.Is(err, image.ErrNotPulled) {
			continue // it is there, or whoever needs it says what is wrong
		}
		if _, err := newBuilder(cfg, t).Pull(ctx, "", ref); err != nil {
			return err
		}
	}
	return nil
}

type imageRmCmd struct {
	configured
	Force bool     `help:"Remove it though the configuration uses it."`
	Names []string `arg:"" name:"name" help:"Images."`
}

// Run removes the images from the folder that this user's images are made in.
func (c *imageRmCmd) Run(ctx context.Context, t *terminal) error {
	cfg, err := c.load(t, "")
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, ref := range imagesOf(cfg) {
		if img, err := image.Find(ref, cfg.ImageDirs); err == nil {
			used[img.Name] = true
		}
	}
	var errs []error
	for _, name := range c.Names {
		if used[name] && !c.Force {
			errs = append(errs, fmt.Errorf("the configuration uses the image %s: change sandbox.image first, or remove it with --force", name))
			continue
		}
		if err := (image.Store{Dir: cfg.ImageDirs[0]}).Remove(ctx, name); err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(t.err, "image: removed %s\n", name)
	}
	return errors.Join(errs...)
}
