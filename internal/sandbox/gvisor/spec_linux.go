package gvisor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// The part of the OCI runtime specification 1.2 (config.md, config-linux.md) that runsc reads from us.
type (
	ociSpec struct {
		Version  string     `json:"ociVersion"`
		Process  ociProcess `json:"process"`
		Root     ociRoot    `json:"root"`
		Hostname string     `json:"hostname"`
		Mounts   []ociMount `json:"mounts"`
		Linux    ociLinux   `json:"linux"`
	}
	ociProcess struct {
		User            ociUser         `json:"user"`
		Args            []string        `json:"args"`
		Env             []string        `json:"env"`
		Cwd             string          `json:"cwd"`
		Capabilities    ociCapabilities `json:"capabilities"`
		Rlimits         []ociRlimit     `json:"rlimits"`
		NoNewPrivileges bool            `json:"noNewPrivileges"`
		OOMScoreAdj     int             `json:"oomScoreAdj"`
	}
	ociUser struct {
		UID uint32 `json:"uid"`
		GID uint32 `json:"gid"`
	}
	ociCapabilities struct {
		Bounding    []string `json:"bounding"`
		Effective   []string `json:"effective"`
		Permitted   []string `json:"permitted"`
		Inheritable []string `json:"inheritable"`
		Ambient     []string `json:"ambient,omitempty"`
	}
	ociRlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	ociRoot struct {
		Path     string `json:"path"`
		ReadOnly bool   `json:"readonly"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		Namespaces  []ociNamespace `json:"namespaces"`
		CgroupsPath string         `json:"cgroupsPath,omitempty"`
		Resources   *ociResources  `json:"resources,omitempty"`
	}
	ociNamespace struct {
		Type string `json:"type"`
	}
	ociResources struct {
		Memory *ociMemory `json:"memory,omitempty"`
		CPU    *ociCPU    `json:"cpu,omitempty"`
		Pids   *ociPids   `json:"pids,omitempty"`
	}
	ociMemory struct {
		Limit int64  `json:"limit"`
		Swap  *int64 `json:"swap,omitempty"`
	}
	ociCPU struct {
		Quota  int64  `json:"quota"`
		Period uint64 `json:"period"`
		Shares uint64 `json:"shares,omitempty"`
	}
	ociPids struct {
		Limit int64 `json:"limit"`
	}
)

// guestDir is where the guest program is found inside.
const guestDir = "/.lathe"

// cpuPeriod is the kernel's default, in microseconds.
const cpuPeriod = 100_000

// capabilities are what the guest needs: to run code as another user (setuid, setgid), to empty the bounding set for it (setpcap), to end
// it (kill), to raise its limits again from one call to the next (sys_resource), and to mount /tmp, /dev/shm and /etc/hosts within the
// sandbox's own kernel (sys_admin). Code gets none.
var capabilities = []string{"CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SYS_RESOURCE", "CAP_SYS_ADMIN"}

// specInput is what a spec is made of beside limits and the mounts of the container.
type specInput struct {
	layout
	root     rootfs
	hostname string
	cgroup   string // "" without cgroups
	swap     bool   // the memory cgroup counts swap
	ids      ids
}

// ids are the users inside. An ordinary user's namespace maps one id only, and that must be the one whose files programs write; so there
// the code is user 0, without a capability, and the guest is another.
type ids struct {
	guest, code uint32
}

// ociSpec is what runsc is to run under name.
func (b *Backend) ociSpec(name string, root *rootfs, l sandbox.Limits, mounts []ociMount) *ociSpec {
	return newSpec(specInput{
		layout: b.layout, root: *root, hostname: newHostname(), cgroup: b.cgroups.path(name), swap: b.cgroups.swap, ids: b.ids(),
	}, l, mounts)
}

// newHostname is another one for each sandbox: programs take it for what tells machines apart.
func newHostname() string {
	var id [4]byte
	_, _ = rand.Read(id[:]) // it never fails
	return "sandbox-" + hex.EncodeToString(id[:])
}

// mark is what a sandbox's memory will depend on.
func (b *Backend) mark(ctx context.Context, root *rootfs, mounts []sandbox.Mount) (imageMark, error) {
	runsc, err := b.identifyRunsc(ctx)
	if err != nil {
		return imageMark{}, err
	}
	var own []ociMount
	for _, m := range slotMounts(mounts) {
		own = append(own, bind("", m.Target, m.ReadOnly))
	}
	layout, err := layoutOf(b.ociSpec("", root, sandbox.Limits{}, own))
	if err != nil {
		return imageMark{}, err
	}
	return imageMark{Runsc: runsc.id, Guest: b.guest, Proto: proto.Version, Image: root.identity(), Layout: layout, Path: root.path}, nil
}

// layoutOf is a digest of all of a spec that must be the same for a restore. gVisor compares it too; this is known before, and in words.
func layoutOf(spec *ociSpec) (string, error) {
	same := *spec
	same.Hostname, same.Root.Path = "", ""
	same.Linux.CgroupsPath, same.Linux.Resources = "", nil
	same.Process.Env = nil
	same.Mounts = slices.Clone(spec.Mounts)
	for i := range same.Mounts {
		same.Mounts[i].Source = ""
	}
	data, err := json.Marshal(same)
	if err != nil {
		return "", fmt.Errorf("gvisor: %w", err)
	}
	return digest(data), nil
}

// digest is short enough to be read and long enough to tell things apart.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// newSpec says what runsc is to run. Everything that the sandbox may touch of the host is in it.
func newSpec(in specInput, l sandbox.Limits, own []ociMount) *ociSpec {
	spec := &ociSpec{
		Version: "1.2.0",
		Process: ociProcess{
			User: ociUser{UID: in.ids.guest, GID: in.ids.guest},
			Args: []string{guestDir + "/guest"},
			Env: []string{
				"LATHE_CODE_UID=" + strconv.FormatUint(uint64(in.ids.code), 10),
				"LATHE_TMP_SIZE=" + strconv.FormatInt(tmpSize(l), 10),
			},
			Cwd:             "/",
			Capabilities:    capabilitiesFor(in.ids.guest),
			NoNewPrivileges: true,
			// A machine that runs out of memory ends sandboxes before anything else.
			OOMScoreAdj: 1000,
			Rlimits:     []ociRlimit{{Type: "RLIMIT_NOFILE", Hard: 1 << 16, Soft: 1 << 16}, {Type: "RLIMIT_CORE"}},
		},
		Root:     ociRoot{Path: in.root.path, ReadOnly: true},
		Hostname: in.hostname,
		Mounts:   mounts(in, own),
		// gVisor makes its own network namespace without interfaces, and inside it only a loopback of its own network stack.
		Linux: ociLinux{Namespaces: []ociNamespace{{"pid"}, {"network"}, {"ipc"}, {"uts"}, {"mount"}}},
	}
	spec.Process.Env = append(spec.Process.Env, in.root.env()...)
	if in.cgroup != "" {
		spec.Linux.CgroupsPath = in.cgroup
		spec.Linux.Resources = resources(l, in.swap)
	}
	return spec
}

func capabilitiesFor(uid uint32) ociCapabilities {
	c := ociCapabilities{Bounding: capabilities, Effective: capabilities, Permitted: capabilities, Inheritable: []string{}}
	if uid != 0 {
		// Who is not root keeps across execve only what is ambient.
		c.Inheritable, c.Ambient = capabilities, capabilities
	}
	return c
}

func mounts(in specInput, own []ociMount) []ociMount {
	// Their size depends on the limits, which may be others after a restore, and mounts must not: the guest mounts the real ones over these.
	tmp := []string{"nosuid", "nodev", "mode=0700", "size=65536"}
	out := []ociMount{
		{"/proc", "proc", "proc", []string{"nosuid", "nodev", "noexec"}}, {"/dev/shm", "tmpfs", "shm", tmp}, {"/tmp", "tmpfs", "tmp", tmp},
	}
	out = append(out, in.root.mounts...)
	out = append(out, bind(in.guest, guestDir, true))
	return append(out, own...)
}

// tmpSize is what /tmp and /dev/shm may hold each. It is the program's memory: half of it, so that neither takes all.
func tmpSize(l sandbox.Limits) int64 { return max(l.Memory/2, 1<<20) }

// bind mounts a host directory. rslave lets later mounts on the host side appear inside, and none go the other way.
func bind(source, target string, readOnly bool) ociMount {
	mode := "rw"
	if readOnly {
		mode = "ro"
	}
	return ociMount{target, "bind", source, []string{"rbind", mode, "nosuid", "nodev", "rslave"}}
}

// cpuQuota is the processor time of a period in microseconds, 0 for no limit.
func cpuQuota(l sandbox.Limits) int64 {
	if l.CPUs <= 0 {
		return 0
	}
	return max(int64(l.CPUs*cpuPeriod), 1000)
}

func resources(l sandbox.Limits, swap bool) *ociResources {
	r := &ociResources{}
	if l.Memory > 0 {
		r.Memory = &ociMemory{Limit: l.Memory}
		if swap {
			r.Memory.Swap = &l.Memory // memory and swap together: none of it may be swap
		}
	}
	if l.CPUs > 0 {
		r.CPU = &ociCPU{Quota: cpuQuota(l), Period: cpuPeriod}
	}
	if l.Processes > 0 {
		// RLIMIT_NPROC inside is the limit that programs meet. This one is only for a gVisor that has been taken over: an idle sandbox
		// has about 40 host tasks, and each program inside several.
		r.Pids = &ociPids{Limit: 1024 + 8*int64(l.Processes)}
	}
	return r
}

// checkSpec refuses what could name something outside of this sandbox.
func checkSpec(s sandbox.Spec) error {
	if len(s.ID) == 0 || len(s.ID) > 64 {
		return fmt.Errorf("gvisor: sandbox id %q is not 1 to 64 characters", s.ID)
	}
	for _, c := range s.ID {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return fmt.Errorf("gvisor: sandbox id %q has other characters than letters, digits, _ and -", s.ID)
		}
	}
	for _, m := range s.Mounts {
		if err := checkMount(m); err != nil {
			return err
		}
	}
	return nil
}
