package build

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/image/rootfs"
)

// AptOptions say where Debian packages come from. The zero value is the distribution's own archives that this machine's apt knows.
type AptOptions struct {
	// Sources are lines of a sources.list instead.
	Sources []string
	// TrustBase lets the base's own programs run as root in a chroot though strangers' are among them.
	TrustBase bool
}

// leftovers are what Debian's packages bring that no program in a sandbox needs: image/excludes.txt and strip_build in image/build.sh.
var leftovers = []string{
	"etc/apt", "etc/dpkg/dpkg.cfg.d", "var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/man", "usr/share/info", "usr/share/locale",
	"usr/share/lintian", "usr/share/bug",
}

// aptInstall is run by mmdebstrap with the root file system's path as $1: apt of this machine, dpkg of the image in a chroot.
const aptInstall = `APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --yes -o Dpkg::Use-Pty=0 -o Dir::Bin::dpkg=env -o DPkg::Options::=--unset=TMPDIR ` +
	`-o DPkg::Options::=dpkg -o DPkg::Chroot-Directory="$1" install `

// apt installs Debian packages into the draft. mmdebstrap makes the chroot, its mounts, and what keeps services from being started.
func (w *work) apt(ctx context.Context) error {
	switch {
	case os.Geteuid() != 0:
		return errors.New("--apt needs root, since packages' scripts run in a chroot: let root build the image, everyone can use one in /var/lib/lathe/images; --pip needs no root")
	case w.info.Foreign && !w.AptOptions.TrustBase:
		return fmt.Errorf("--apt runs programs of %s as root in a chroot, and it is not made of Debian's packages alone: "+
			"take a base that `make image` built, or say --trust-base if you trust whoever made it", w.From)
	}
	if err := w.hasDpkg(); err != nil {
		return err
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return errors.New("--apt needs mmdebstrap: apt-get install mmdebstrap")
	}
	sources, codename, err := w.sources(ctx)
	if err != nil {
		return err
	}
	conf := filepath.Join(w.draft.Work, "apt.conf")
	if err := os.WriteFile(conf, hostApt(ctx), 0o600); err != nil {
		return err
	}
	w.Say("asking apt for %s and what they need", strings.Join(w.Apt, ", "))
	args := []string{
		"--verbose", "--mode=root", "--variant=custom", "--format=directory", "--skip=check/empty,check/qemu", "--aptopt=" + conf,
		`--aptopt=APT::Install-Recommends "false"`, `--aptopt=Acquire::Languages "none"`,
		"--customize-hook=" + aptInstall + strings.Join(w.Apt, " "),
	}
	for _, dir := range []string{"man", "info", "locale", "lintian", "bug"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+dir+"/*")
	}
	for _, keys := range []string{"/usr/share/keyrings/debian-archive-keyring.gpg", "/etc/apt/trusted.gpg.d"} {
		if exists(keys) {
			args = append(args, "--keyring="+keys)
		}
	}
	// mmdebstrap makes its own.
	if err := os.RemoveAll(filepath.Join(w.draft.Root, "dev")); err != nil {
		return err
	}
	if err := w.mmdebstrap(ctx, append(args, codename, w.draft.Root, "-"), sources); err != nil {
		return err
	}
	for _, name := range slices.Concat(leftovers, []string{"dev"}) {
		if err := os.RemoveAll(filepath.Join(w.draft.Root, name)); err != nil {
			return err
		}
	}
	return nil
}

// hasDpkg says whether packages can be installed into the draft. The rest of the way trusts its links.
func (w *work) hasDpkg() error {
	root, err := rootfs.Open(w.draft.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Stat("/var/lib/dpkg/status"); err != nil || root.Program("/usr/bin:/bin", "dpkg") == "" {
		return fmt.Errorf("%s has no dpkg: --apt needs a base that is a Debian or an Ubuntu", w.From)
	}
	return nil
}

// mmdebstrap runs it and shows what it does.
func (w *work) mmdebstrap(ctx context.Context, args []string, sources string) error {
	// The PATH is Debian's own: a program of the user's of some name could be any.
	cmd := exec.CommandContext(ctx, "env",
		append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "mmdebstrap"}, args...)...)
	cmd.Stdin = strings.NewReader(sources)
	apart(cmd)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	var last []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if strings.HasPrefix(line, "Get:") || strings.HasPrefix(line, "Setting up ") {
				w.Say("  %s", line)
			}
			if strings.HasPrefix(line, "E: ") {
				last = append(last, line[3:])
			}
		}
		_, _ = io.Copy(io.Discard, out) // a line that is too long
	}()
	err := cmd.Run()
	_ = in.Close()
	<-done
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && len(last) > 0:
		return fmt.Errorf("apt: %s", strings.Join(last[:min(len(last), 5)], "; "))
	case err != nil:
		return fmt.Errorf("mmdebstrap: %w", err)
	}
	return nil
}

// sources are the lines of a sources.list, and the release that they are of.
func (w *work) sources(ctx context.Context) (lines, codename string, err error) {
	root, err := rootfs.Open(w.draft.Root)
	if err != nil {
		return "", "", err
	}
	defer root.Close()
	data, err := root.ReadFile("/etc/os-release", 64<<10)
	if err != nil {
		return "", "", fmt.Errorf("%s does not say what it is: %w", w.From, err)
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			codename = strings.Trim(v, `"`)
		}
	}
	if !debPackage.MatchString(codename) {
		return "", "", fmt.Errorf("/etc/os-release of %s names no release", w.From)
	}
	if len(w.AptOptions.Sources) > 0 {
		return strings.Join(w.AptOptions.Sources, "\n") + "\n", codename, nil
	}
	for range 2 {
		out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
			"Identifier: Packages").Output()
		if err != nil {
			return "", "", fmt.Errorf("apt-get indextargets: %w: give --apt-source", err)
		}
		if lines := officialOf(string(out), codename); lines != "" {
			return lines, codename, nil
		}
		w.Say("updating the lists of apt")
		if err := exec.CommandContext(ctx, "apt-get", "update", "-qq").Run(); err != nil {
			break
		}
	}
	return "", "", fmt.Errorf("apt of this machine knows no Debian archive for %s: run apt-get update, or give --apt-source", codename)
}

// officialOf picks the distribution's own archives of a release.
func officialOf(targets, codename string) string {
	var out []string
	for line := range strings.Lines(targets) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 5 || f[0] != "Debian" && f[0] != "Ubuntu" || !strings.HasPrefix(f[1], codename) || strings.HasPrefix(f[2], "cdrom:") {
			continue
		}
		if l := fmt.Sprintf("deb %s %s %s\n", f[2], f[3], f[4]); !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// hostApt is what this machine's apt is told of proxies and certificates.
func hostApt(ctx context.Context) []byte {
	out, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return nil
	}
	var b bytes.Buffer
	for line := range strings.Lines(string(out)) {
		for _, key := range []string{"http", "https", "Check-Valid-Until", "Retries"} {
			if strings.HasPrefix(line, "Acquire::"+key+" ") || strings.HasPrefix(line, "Acquire::"+key+":") {
				b.WriteString(line)
			}
		}
	}
	return b.Bytes()
}
