package gvisor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
	"github.com/lathe-gateway/lathe/internal/sandbox/sandboxtest"
)

// The kill tests run this test program once more as a gateway that can be killed.
const childEnv = "LATHE_TEST_GATEWAY"

// What the other gateway does until it is killed.
const (
	sandboxRole = "sandbox"
	prepareRole = "prepare"
)

// child starts a sandbox with a heartbeat in it, or prepares an image, and waits to be killed.
func child(config string) {
	fields := strings.Split(config, "\n")
	err := func() error {
		guest, err := os.ReadFile(fields[3])
		if err != nil {
			return err
		}
		b, err := gvisor.New(gvisor.Config{Runsc: fields[0], Image: fields[1], StateDir: fields[2], Guest: guest, Spares: 1})
		if err != nil {
			return err
		}
		if fields[5] == prepareRole {
			return errors.Join(b.Reconcile(context.Background()), b.Prepare(context.Background(), ""))
		}
		sb, err := b.Start(context.Background(), sandbox.Spec{
			ID: "orphan", Limits: sandbox.Defaults(), Mounts: []sandbox.Mount{
				{Source: fields[4], Target: "/mnt/data"}, {Target: "/skills", Hub: true, ReadOnly: true}, {Source: fields[4], Target: "/skills/x"},
			},
		})
		if err != nil {
			return err
		}
		// A program that wants to live on, in a session of its own.
		_, err = sb.Exec(context.Background(), sandbox.Call{Kind: sandbox.Bash, Code: "trap '' INT TERM HUP\n" +
			"setsid sh -c 'while :; do printf x >> beat; sleep 0.02; done' & wait"}, nil)
		return err
	}()
	fmt.Println("child:", err)
	os.Exit(1)
}

// startChild starts the gateway that will be killed, and returns when its sandbox runs.
func startChild(t *testing.T, dir, state string) (gateway *exec.Cmd, data string) {
	t.Helper()
	data = t.TempDir()
	if err := os.Chmod(data, 0o777); err != nil {
		t.Fatal(err)
	}
	gateway = startGateway(t, dir, state, sandboxRole, data)
	eventually(t, "the sandbox of the other gateway beats", func() bool { return size(filepath.Join(data, "beat")) > 0 })
	return gateway, data
}

// startGateway starts this program as another gateway.
func startGateway(t *testing.T, dir, state, role string, data ...string) *exec.Cmd {
	t.Helper()
	guestPath := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(guestPath, buildGuest(t), 0o755); err != nil {
		t.Fatal(err)
	}
	gateway := exec.Command(os.Args[0])
	fields := []string{findRunsc(t), dir, state, guestPath, strings.Join(data, ""), role}
	gateway.Env = append(os.Environ(), childEnv+"="+strings.Join(fields, "\n"))
	out, err := gateway.StdoutPipe()
	if err == nil {
		err = gateway.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = gateway.Process.Kill()
		_ = gateway.Wait()
	})
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			t.Log(lines.Text())
		}
	}()
	return gateway
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came about that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func size(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// TestKilledGateway: what a gateway leaves that dies without a word is gone after the next one's Reconcile, and nothing else.
func TestKilledGateway(t *testing.T) {
	dir := anyRoot(t)
	state, otherState := t.TempDir(), t.TempDir()
	gateway, data := startChild(t, dir, state)
	other := openBackend(t, dir, otherState)
	neighbour := sandboxtest.Start(t, other, nil)
	neighbour.Must(t, "kept = 1")
	if len(leftovers(t, state)) == 0 {
		t.Fatal("nothing of a running sandbox is to be found: this test could not fail")
	}
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = gateway.Wait()

	next := openBackend(t, dir, state)
	if err := next.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, state); len(left) > 0 && !onlyParents(left, state) {
		t.Errorf("left behind: %q", left)
	}
	before := size(filepath.Join(data, "beat"))
	if before == 0 {
		t.Error("the files that were mounted are gone")
	}
	time.Sleep(200 * time.Millisecond) // that nothing happens can only be seen by waiting
	if after := size(filepath.Join(data, "beat")); after != before {
		t.Error("the program lives on")
	}
	if o := neighbour.Must(t, "print(kept)"); o.Text("") != "1\n" {
		t.Errorf("the sandbox of another state directory: %q", o.Text(""))
	}
	sandboxtest.Start(t, next, func(s *sandbox.Spec) { s.ID = "orphan" }).Must(t, "1")
}

// onlyParents: the cgroup of a state directory without sandboxes is there as long as its gateway, and so is the mount for their folders.
func onlyParents(left []string, state string) bool {
	for _, l := range left {
		if strings.Contains(l, " "+filepath.Join(state, "mnt")+" ") {
			continue
		}
		if !strings.HasPrefix(l, "/sys/fs/cgroup/") {
			return false
		}
		if entries, _ := filepath.Glob(l + "/*/cgroup.procs"); len(entries) > 0 {
			return false
		}
	}
	return true
}

// TestOrphan: a sandbox whose gateway has died ends by itself. One that was only created ahead, in which nothing runs, waits for Reconcile.
func TestOrphan(t *testing.T) {
	dir, state := anyRoot(t), t.TempDir()
	gateway, data := startChild(t, dir, state)
	if err := gateway.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = gateway.Wait()
	eventually(t, "no process of the sandbox is left", func() bool {
		for _, l := range leftovers(t, state) {
			if strings.HasPrefix(l, "/proc/") && !strings.Contains(l, "spare-") {
				return false
			}
		}
		return true
	})
	if size(filepath.Join(data, "beat")) == 0 {
		t.Error("there was no heartbeat")
	}
	if err := openBackend(t, dir, state).Reconcile(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDeath: a sandbox that dies by itself is told, and leaves nothing.
func TestDeath(t *testing.T) {
	state := t.TempDir()
	b := openBackend(t, anyRoot(t), state)
	p := sandboxtest.Start(t, b, func(s *sandbox.Spec) { s.ID = "victim" })
	p.Must(t, "1")
	var once sync.Once
	_, err := p.Sandbox.Exec(t.Context(), sandbox.Call{Kind: sandbox.Python, Code: "print('begun', flush=True)\nimport time; time.sleep(600)"},
		func(sandbox.Output) { once.Do(func() { killSandboxes(t, state) }) })
	if !errors.Is(err, sandbox.ErrDied) || errors.Is(err, sandbox.ErrOutOfMemory) {
		t.Errorf("got %v", err)
	}
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Fatal("Done is not closed")
	}
	for _, l := range leftovers(t, state) {
		if strings.Contains(l, "victim") {
			t.Errorf("left behind: %s", l)
		}
	}
	sandboxtest.Start(t, b, func(s *sandbox.Spec) { s.ID = "victim" }).Must(t, "1")
}

// killSandboxes kills gVisor's kernels as a fault in them would.
func killSandboxes(t *testing.T, state string) {
	t.Helper()
	killed := 0
	for _, l := range leftovers(t, state) {
		if strings.Contains(l, " runsc-sandbox ") && killLine(t, l) {
			killed++
		}
	}
	if killed == 0 {
		t.Error("there was no sandbox to kill")
	}
}

// killLine kills the process of a line of leftovers.
func killLine(t *testing.T, l string) bool {
	t.Helper()
	rest, ok := strings.CutPrefix(l, "/proc/")
	pid, _, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(pid)
	return ok && err == nil && syscall.Kill(n, syscall.SIGKILL) == nil
}
