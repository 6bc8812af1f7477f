package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// vessel is a sandbox that runsc has created and in which nothing runs yet: its kernel and gofer wait for start or restore.
type vessel struct {
	b      *Backend
	name   string // runsc's id for it
	conn   io.ReadWriteCloser
	stderr *tail
	procs  []process // the kernel's and the gofer's
	tree   *tree
}

// newVessel runs runsc create. After an error nothing is left.
func (b *Backend) newVessel(ctx context.Context, name string, root *rootfs, spec sandbox.Spec) (*vessel, error) {
	v := &vessel{b: b, name: name}
	if err := v.create(ctx, root, spec); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		return nil, errors.Join(err, v.remove(cleanup))
	}
	return v, nil
}

func (v *vessel) create(ctx context.Context, root *rootfs, spec sandbox.Spec) error {
	var err error
	if v.tree, err = v.b.newTree(v.name, spec.Mounts); err != nil {
		return err
	}
	if err := v.writeBundle(root, spec); err != nil {
		return err
	}
	cmd, err := v.launch(ctx)
	if err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return v.explain("create", err)
	}
	if err := v.b.cgroups.starting(v.name); err != nil {
		v.b.cfg.Logger.WarnContext(ctx, "a sandbox starts with a limited processor", "sandbox", v.name, "error", err)
	}
	return v.adopt()
}

func (v *vessel) bundle() string { return filepath.Join(v.b.layout.bundles, v.name) }

func (v *vessel) writeBundle(root *rootfs, spec sandbox.Spec) error {
	data, err := json.Marshal(v.b.ociSpec(v.name, root, spec.Limits, v.tree.ociMounts()))
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if err := os.Mkdir(v.bundle(), 0o755); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	if err := os.WriteFile(filepath.Join(v.bundle(), "config.json"), data, 0o600); err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

// launch starts runsc with the guest's standard input and output at the other end of the connection.
func (v *vessel) launch(ctx context.Context) (*exec.Cmd, error) {
	var ends []*os.File // ours and theirs, in turn, of stdin, stdout and stderr
	fail := func(err error) (*exec.Cmd, error) {
		for _, f := range ends {
			_ = f.Close()
		}
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		ends = append(ends, r, w)
	}
	cmd := v.b.command(ctx, append(v.b.flags(), "create", "--bundle="+v.bundle(), v.name)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ends[0], ends[3], ends[5]
	table, err := reserveTable(cmd)
	if err == nil {
		err = errors.Join(cmd.Start(), table.Close())
	}
	if err != nil {
		return fail(err)
	}
	for _, i := range []int{0, 3, 5} {
		_ = ends[i].Close()
	}
	v.conn, v.stderr = &stdio{r: ends[2], w: ends[1]}, newTail(ends[4])
	// A machine that runs out of memory ends sandboxes before anything else. What runsc starts inherits this.
	_ = os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte("1000"), 0)
	return cmd, nil
}

// flags are runsc's own, and which of its ways we chose.
func (b *Backend) flags() []string {
	flags := []string{
		b.rootFlag(),
		"--platform=systrap", // kvm wants a device, and hung where it was tried
		"--network=none",     // a loopback of its own and nothing else
		"--overlay2=none",    // the root is read-only and the mounts are meant to be written: nothing to lay over
		"--host-uds=none",    // no socket of the host, even if one lies in a mounted folder
		"--host-fifo=none",
		"--file-access-mounts=shared", // the gateway writes into /mnt/data too
		"--allow-suid=false",
		"--host-settings=ignore", // advice that nobody would read
	}
	if b.cgroups.version == 0 {
		flags = append(flags, "--ignore-cgroups")
	}
	if b.cfg.Debug {
		flags = append(flags, "--debug", "--debug-log="+b.layout.debug+"/")
	}
	return flags
}

// adopt takes hold of the processes that runsc has left running.
func (v *vessel) adopt() error {
	var state struct {
		GoferPid int `json:"goferPid"`
		Sandbox  struct {
			Pid int `json:"pid"`
		} `json:"sandbox"`
	}
	data, err := os.ReadFile(filepath.Join(v.b.layout.runsc, v.name+"_sandbox:"+v.name+".state"))
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil {
		return fmt.Errorf("gvisor: state of sandbox %q: %w", v.name, err)
	}
	for _, pid := range []int{state.Sandbox.Pid, state.GoferPid} {
		p, ok := openProcess(pid, v.b.rootFlag())
		if pid <= 1 || !ok {
			return v.explain("create", errors.New("it has ended"))
		}
		v.procs = append(v.procs, p)
	}
	return nil
}

// start boots the guest, with mounts.
func (v *vessel) start(ctx context.Context, mounts []sandbox.Mount) error {
	if err := v.tree.attach(mounts); err != nil {
		return err
	}
	ctl, err := dialControl(ctx, v.b.layout.runsc, v.name)
	if err != nil {
		return v.explain("start", err)
	}
	defer ctl.close()
	if err := ctl.call(ctx, callSetNetwork, loopback(false), nil); err != nil {
		return v.explain("start", err)
	}
	if err := ctl.call(ctx, callStart, v.name, nil); err != nil {
		return v.explain("start", err)
	}
	return nil
}

// explain says why a sandbox did not start, with what runsc and the guest wrote.
func (v *vessel) explain(what string, err error) error {
	said := ""
	if v.stderr != nil {
		said = v.stderr.last()
	}
	if said == "" {
		return fmt.Errorf("gvisor: %s of sandbox %q: %w", what, v.name, err)
	}
	return fmt.Errorf("gvisor: %s of sandbox %q: %w: %s", what, v.name, err, said)
}

// remove ends what runs and removes what was made.
func (v *vessel) remove(ctx context.Context) error {
	b, procs := v.b, v.procs
	v.procs = nil
	errs := []error{killAll(ctx, procs)}
	if len(procs) < 2 {
		// runsc did not get as far as leaving its state, or it could not be read.
		_, err := killMarked(ctx, "--bundle="+v.bundle())
		errs = append(errs, err)
	}
	if v.conn != nil {
		_ = v.conn.Close()
	}
	if v.stderr != nil {
		v.stderr.close()
	}
	if b.cgroups.version != 0 {
		errs = append(errs, b.cgroups.remove(ctx, v.name))
	}
	for _, name := range []string{v.name + "_sandbox:" + v.name + ".state", v.name + "_sandbox:" + v.name + ".lock", "runsc-" + v.name + ".sock"} {
		if err := os.Remove(filepath.Join(b.layout.runsc, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if v.tree != nil {
		errs = append(errs, v.tree.remove())
	}
	return errors.Join(append(errs, os.RemoveAll(v.bundle()))...)
}
