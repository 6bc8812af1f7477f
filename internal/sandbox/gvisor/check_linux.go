package gvisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// The values of sandbox.Finding.Level.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
)

// checkTime bounds the sandbox that Check starts.
const checkTime = 30 * time.Second

// Check has the contract of sandbox.Backend.Check. It starts a sandbox if nothing forbids it.
func (b *Backend) Check(ctx context.Context) []sandbox.Finding {
	found := []sandbox.Finding{b.checkSystem(), b.checkUser(ctx), b.checkRunsc(ctx), b.checkImage()}
	found = append(found, b.checkCgroups())
	for _, f := range found {
		if f.Level == levelFail {
			return append(found, sandbox.Finding{
				Name: "sandbox", Level: levelFail, Detail: "not tried, because of what failed above", Mend: "mend that first",
			})
		}
	}
	return append(found, b.checkSandbox(ctx))
}

func (b *Backend) checkSystem() sandbox.Finding {
	f := sandbox.Finding{Name: "system", Level: levelOK, Detail: "linux/" + runtime.GOARCH}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		f.Level, f.Mend = levelFail, "gVisor runs on amd64 and arm64 only"
	}
	return f
}

func (b *Backend) checkUser(ctx context.Context) sandbox.Finding {
	f := sandbox.Finding{Name: "user", Level: levelOK, Detail: "root"}
	if b.uid == 0 {
		return f
	}
	f.Detail = fmt.Sprintf("user %d, in a user namespace: memory and disk are limited for each program, not for a sandbox as a whole, "+
		"and processor time is not; inside, programs are user 0 without any capability, since only one user can be mapped", b.uid)
	f.Level, f.Mend = levelWarn, "run the gateway as root (for example as a system service) where many share the machine"
	probe := exec.CommandContext(ctx, "/bin/true")
	probe.SysProcAttr = b.attributes()
	if err := probe.Run(); err != nil {
		f.Level = levelFail
		f.Detail = fmt.Sprintf("user %d may not make a user namespace: %v", b.uid, err)
		f.Mend = "as root: sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000, and on Ubuntu " +
			"kernel.apparmor_restrict_unprivileged_userns=0; or run the gateway as root"
	}
	return f
}

func (b *Backend) checkRunsc(ctx context.Context) sandbox.Finding {
	f := sandbox.Finding{Name: "runsc", Level: levelOK, Detail: b.cfg.Runsc}
	if err := checkRunsc(b.cfg.Runsc); err != nil {
		f.Level, f.Detail, f.Mend = levelFail, unavailableText(err), "make build"
		return f
	}
	id, err := b.identifyRunsc(ctx)
	if err != nil {
		f.Level, f.Detail, f.Mend = levelFail, err.Error(), "make build"
		return f
	}
	f.Detail += " (" + id.version + ")"
	return f
}

func (b *Backend) checkImage() sandbox.Finding {
	f := sandbox.Finding{Name: "image", Level: levelOK}
	root, err := b.rootfs("")
	switch {
	case err != nil:
		f.Level, f.Detail, f.Mend = levelFail, unavailableText(err), "make image"
	case root.image == nil:
		f.Level = levelWarn
		f.Detail = "none: programs get this machine's /usr/bin/python3 and /usr, read-only, with what libraries it has"
		f.Mend = "make image"
	case root.image.Python == "":
		f.Level, f.Detail = levelWarn, fmt.Sprintf("%s in %s has no python3 in its PATH: only shell commands run", root.image.Name, root.image.Root)
		f.Mend = "choose an image with Python in sandbox.image"
	case len(root.image.Info.Libraries) == 0:
		f.Detail = fmt.Sprintf("%s in %s", root.image.Name, root.image.Root)
	default:
		var libraries []string
		for _, name := range slices.Sorted(maps.Keys(root.image.Info.Libraries)) {
			libraries = append(libraries, name+" "+root.image.Info.Libraries[name])
		}
		f.Detail = fmt.Sprintf("%s in %s: Python %s, %s", root.image.Name, root.image.Root, root.image.Info.Python, strings.Join(libraries, ", "))
	}
	return f
}

func (b *Backend) checkCgroups() sandbox.Finding {
	f := sandbox.Finding{Name: "cgroups", Level: levelOK}
	switch b.cgroups.version {
	case 0:
		f.Level = levelWarn
		f.Detail = "none (" + b.cgroups.why + "): memory is limited for each program only, processor time is not"
		f.Mend = "run the gateway as root, with a writable /sys/fs/cgroup"
	default:
		f.Detail = fmt.Sprintf("version %d, under %s: memory, processor and processes of each sandbox are limited",
			b.cgroups.version, b.cgroups.parent)
		if !b.cgroups.swap {
			f.Level = levelWarn
			f.Detail += "; this kernel does not count swap, so a sandbox can use the machine's"
			f.Mend = "boot with swapaccount=1, or without swap"
		}
	}
	return f
}

func (b *Backend) checkSandbox(ctx context.Context) sandbox.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	f := sandbox.Finding{Name: "sandbox", Level: levelOK}
	started := time.Now()
	err := b.tryProgram(ctx)
	if err != nil {
		f.Level, f.Detail = levelFail, err.Error()
		f.Mend = "see the text; in a container the gateway needs --privileged, or at least the capabilities to mount and to make namespaces"
		return f
	}
	f.Detail = fmt.Sprintf("gVisor on systrap ran a program, %d ms from start to output", time.Since(started).Milliseconds())
	return f
}

func (b *Backend) tryProgram(ctx context.Context) error {
	sb, err := b.Start(ctx, sandbox.Spec{ID: fmt.Sprintf("check-%d", time.Now().UnixNano()), Limits: sandbox.Defaults()})
	if err != nil {
		return err
	}
	var out strings.Builder
	result, err := sb.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: "print(1)", Dir: "/tmp"}, func(o sandbox.Output) {
		out.WriteString(o.Text)
	})
	err = errors.Join(err, sb.Close())
	if err != nil {
		return err
	}
	if strings.TrimSpace(out.String()) != "1" {
		return fmt.Errorf("print(1) in a sandbox printed %q and ended with status %s %s", out.String(), result.Status, result.Error)
	}
	return nil
}

// unavailableText is an error's text without the prefix that says only that.
func unavailableText(err error) string {
	return strings.TrimPrefix(err.Error(), sandbox.ErrUnavailable.Error()+": ")
}
