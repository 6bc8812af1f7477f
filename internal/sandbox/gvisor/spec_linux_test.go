package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestSpec pins what runsc is told. The one for cgroups of version 2 has not been run for want of a machine: there runsc reads the same
// fields, and turns swap, a sum on version 1, into memory.swap.max 0.
func TestSpec(t *testing.T) {
	l := newLayout("/state")
	spec := sandbox.Spec{
		ID: "cntr_1", Limits: sandbox.Defaults(), Env: map[string]string{"SECRET": "for calls only"},
		Mounts: []sandbox.Mount{
			{Source: "/volumes/1/skills", Target: "/skills", ReadOnly: true},
			{Source: "/volumes/1/data", Target: "/mnt/data"},
		},
	}
	var own []ociMount
	for _, m := range topMounts(spec.Mounts) {
		own = append(own, bind(m.Source, m.Target, m.ReadOnly))
	}
	img := rootfs{path: "/images/python-1/rootfs"}
	host := rootfs{path: l.rootfs, mounts: []ociMount{bind("/usr", "/usr", true)}}
	half := spec
	half.Limits.CPUs = 0.5
	for name, got := range map[string]*ociSpec{
		"root-image":    newSpec(specInput{layout: l, hostname: "sandbox-1", root: img, cgroup: "/lathe-x/cntr_1", swap: true, ids: ids{guest: 0, code: 1000}}, spec.Limits, own),
		"root-no-swap":  newSpec(specInput{layout: l, hostname: "sandbox-1", root: img, cgroup: "/lathe-x/cntr_1", ids: ids{guest: 0, code: 1000}}, half.Limits, own),
		"user-no-image": newSpec(specInput{layout: l, hostname: "sandbox-1", root: host, ids: ids{guest: 1, code: 0}}, spec.Limits, own),
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.MarshalIndent(got, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			data = append(data, '\n')
			golden := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(golden, data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(data)); diff != "" {
				t.Errorf("the spec has changed (-want +got), run with -update if it should:\n%s", diff)
			}
			if bytes.Contains(data, []byte("SECRET")) {
				t.Error("the environment of calls is in the spec, where other users of the machine may read it")
			}
		})
	}
}

func TestCheckSpec(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ok := sandbox.Spec{ID: "cntr_A-1", Mounts: []sandbox.Mount{{Source: dir, Target: "/mnt/data"}, {Source: dir, Target: "/skills/x"}}}
	if err := checkSpec(ok); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]sandbox.Spec{
		"no id":             {},
		"long id":           {ID: strings.Repeat("a", 65)},
		"id with a path":    {ID: "../x"},
		"id with a blank":   {ID: "a b"},
		"relative target":   {ID: "a", Mounts: []sandbox.Mount{{Source: dir, Target: "mnt"}}},
		"target above":      {ID: "a", Mounts: []sandbox.Mount{{Source: dir, Target: "/mnt/../etc"}}},
		"root":              {ID: "a", Mounts: []sandbox.Mount{{Source: dir, Target: "/"}}},
		"the guest":         {ID: "a", Mounts: []sandbox.Mount{{Source: dir, Target: "/.lathe"}}},
		"below the guest":   {ID: "a", Mounts: []sandbox.Mount{{Source: dir, Target: "/.lathe/x"}}},
		"libraries":         {ID: "a", Mounts: []sandbox.Mount{{Source: dir, Target: "/usr/lib"}}},
		"processes":         {ID: "a", Mounts: []sandbox.Mount{{Source: dir, Target: "/proc"}}},
		"no source":         {ID: "a", Mounts: []sandbox.Mount{{Source: filepath.Join(dir, "none"), Target: "/mnt/data"}}},
		"a file":            {ID: "a", Mounts: []sandbox.Mount{{Source: file, Target: "/mnt/data"}}},
		"a relative source": {ID: "a", Mounts: []sandbox.Mount{{Source: ".", Target: "/mnt/data"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkSpec(spec); err == nil {
				t.Error("it was taken")
			}
		})
	}
}

func TestLayout(t *testing.T) {
	a, b := newLayout("/var/lib/lathe/a"), newLayout("/var/lib/lathe/b")
	if a.cgroup == b.cgroup || a.runsc == b.runsc || a.cgroup != newLayout("/var/lib/lathe/a/").cgroup {
		t.Errorf("%+v and %+v", a, b)
	}
}

// TestHostRootfs: of the host's /etc only what everybody may know is in it, and nothing of its other folders.
func TestHostRootfs(t *testing.T) {
	host, l := t.TempDir(), newLayout(t.TempDir())
	for name, content := range map[string]string{
		"usr/bin/python3": "", "usr/lib/x": "", "lib64/ld.so": "",
		"root/.ssh/id": "secret", "home/user/x": "secret", "var/x": "secret", "opt/x": "secret", "srv/x": "secret",
		"etc/shadow": "secret", "etc/passwd": "secret:x:1:1", "etc/hosts": "10.0.0.1 secret", "etc/environment": "secret",
		"etc/ld.so.cache": "cache", "etc/mime.types": "types", "etc/ssl/private/key": "secret",
	} {
		path := filepath.Join(host, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{
		"bin": "usr/bin", "lib": "usr/lib", "etc/alternatives/awk": "/usr/bin/mawk", "etc/localtime": "/usr/share/zoneinfo/UTC",
	}
	for name, target := range links {
		path := filepath.Join(host, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time over the first
		root, err := hostRootfs(l, host)
		if err != nil {
			t.Fatal(err)
		}
		var mounted []string
		for _, m := range root.mounts {
			mounted = append(mounted, m.Destination)
			if m.Source != filepath.Join(host, m.Destination) || !strings.Contains(strings.Join(m.Options, ","), "ro,nosuid,nodev") {
				t.Errorf("mount %+v", m)
			}
		}
		if diff := cmp.Diff([]string{"/usr", "/lib64"}, mounted); diff != "" {
			t.Errorf("mounts (-want +got):\n%s", diff)
		}
	}
	for link, want := range links {
		if got, err := os.Readlink(filepath.Join(l.rootfs, link)); err != nil || got != want {
			t.Errorf("%s is a link to %q, %v", link, got, err)
		}
	}
	err := filepath.WalkDir(l.rootfs, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("secret")) {
			t.Errorf("%s holds %q", path, data)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(l.rootfs, "etc/ld.so.cache")); err != nil || string(data) != "cache" {
		t.Errorf("%q, %v", data, err)
	}
	if err := os.Remove(filepath.Join(host, "usr/bin/python3")); err != nil {
		t.Fatal(err)
	}
	if _, err := hostRootfs(l, host); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "make image") {
		t.Errorf("without Python: %v", err)
	}
}

// TestMountPoints: what an image lacks is added, inside the image even if it has links that lead out.
func TestMountPoints(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "usr/bin/python3")
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o755),
		os.Symlink(outside, filepath.Join(dir, "mnt")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openRootfs(dir, newLayout(t.TempDir())); err == nil {
		t.Error("a link out of the image was followed")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.Remove(filepath.Join(dir, "mnt")); err != nil {
		t.Fatal(err)
	}
	root, err := openRootfs(dir, newLayout(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if !root.hasTarget("/mnt/data") || root.hasTarget("/mnt/other") {
		t.Error("/mnt/data was not made")
	}
}

// TestCgroupFiles reads and writes both versions' files as the kernel has them; version 1 is also met for real by the hostile suite.
func TestCgroupFiles(t *testing.T) {
	for _, tt := range []struct {
		version      int
		memory, file string
		content      string
		killed       bool
	}{
		{1, "memory/lathe-x/a", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", true},
		{1, "memory/lathe-x/a", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", false},
		{2, "lathe-x/a", "memory.events", "low 0\nmax 51\noom 2\noom_kill 2\noom_group_kill 1\n", true},
		{2, "lathe-x/a", "memory.events", "low 0\nmax 51\noom 0\noom_kill 0\noom_group_kill 0\n", false},
	} {
		burst, oomGroup := "cpu/lathe-x/a/cpu.cfs_burst_us", ""
		if tt.version == 2 {
			burst, oomGroup = "lathe-x/a/cpu.max.burst", "lathe-x/a/memory.oom.group"
		}
		root := t.TempDir()
		c := cgroups{root: root, version: tt.version, parent: "/lathe-x"}
		write := func(path, content string) {
			path = filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		read := func(path string) string {
			data, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				t.Error(err)
			}
			return string(data)
		}
		write(filepath.Join(tt.memory, tt.file), tt.content)
		if got := c.oomKilled("a"); got != tt.killed {
			t.Errorf("version %d, %q: %v", tt.version, tt.content, got)
		}
		if oomGroup != "" {
			write(oomGroup, "0")
		}
		if err := c.started("a", sandbox.Limits{CPUs: 0.5}); err != nil {
			t.Errorf("a kernel without bursts: %v", err)
		}
		write(burst, "")
		if err := c.started("a", sandbox.Limits{CPUs: 0.5}); err != nil {
			t.Error(err)
		}
		if got := read(burst); got != "50000" {
			t.Errorf("%s is %q", burst, got)
		}
		if oomGroup != "" && read(oomGroup) != "1" {
			t.Errorf("%s was not set", oomGroup)
		}
	}
}

func TestCgroupRemove(t *testing.T) {
	root := t.TempDir()
	c := cgroups{root: root, version: 1, parent: "/lathe-x"}
	for _, dir := range []string{"memory/lathe-x/a", "memory/lathe-x/b", "freezer/lathe-x/a/below", "memory/lathe-y/a", "lathe-x/a"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	exists := func(dir string) bool {
		_, err := os.Stat(filepath.Join(root, dir))
		return err == nil
	}
	if err := c.remove(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if exists("memory/lathe-x/a") || exists("freezer/lathe-x/a") || exists("lathe-x/a") || !exists("memory/lathe-x/b") {
		t.Error("not exactly one sandbox's cgroups are gone")
	}
	if err := c.remove(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if exists("memory/lathe-x") || exists("freezer/lathe-x") || exists("lathe-x") || !exists("memory/lathe-y/a") {
		t.Error("not exactly one state directory's cgroups are gone")
	}
}

func TestDetectCgroups(t *testing.T) {
	if c := detectCgroups(t.TempDir(), "/lathe-x", 1000); c.version != 0 || !strings.Contains(c.why, "root") || c.path("a") != "" {
		t.Errorf("an ordinary user: %+v", c)
	}
	if c := detectCgroups(filepath.Join(t.TempDir(), "none"), "/lathe-x", 0); c.version != 0 || c.why == "" {
		t.Errorf("no cgroups: %+v", c)
	}
	if c := detectCgroups("/proc", "/lathe-x", 0); c.version != 0 || !strings.Contains(c.why, "cannot be made") {
		t.Errorf("not writable: %+v", c)
	}
}

func TestDelegate(t *testing.T) {
	root := t.TempDir()
	if err := delegate(filepath.Join(root, "none")); err == nil || !strings.Contains(err.Error(), "memory, cpu, pids") {
		t.Errorf("got %v", err)
	}
	if err := delegate(root); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control")); err != nil || string(got) != "+memory +cpu +pids" {
		t.Errorf("wrote %q, %v", got, err)
	}
}

func TestUnescapeMount(t *testing.T) {
	if got := unescapeMount(`/a\040b\134c`); got != `/a b\c` {
		t.Errorf("got %q", got)
	}
}
