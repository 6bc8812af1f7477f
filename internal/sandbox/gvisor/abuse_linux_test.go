package gvisor_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/sandboxtest"
)

// TestAbuse runs each attack under the guard and without it.
func TestAbuse(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	dir := bestRoot(t)
	sandboxtest.Abuse(t, func(t *testing.T) sandbox.Backend { return newBackend(t, dir) }, asRoot)
}

// asRoot runs Python as root in a gVisor of its own, with every capability. PID 1 is another Python, which takes signals for nothing.
func asRoot(t *testing.T, code string) string {
	t.Helper()
	const first = "import os, signal, subprocess, sys\n" +
		"for s in set(range(1, 32)) - {9, 17, 19}: signal.signal(s, lambda *a: None)\n" +
		"os.makedirs('/mnt/data', exist_ok=True)\n" +
		"null = os.open('/dev/null', os.O_RDWR)\n" +
		"for fd in (0, *range(3, 16)): os.dup2(null, fd)\n" +
		"subprocess.run(['/usr/bin/python3', '-I', '-'], input=sys.argv[1].encode())"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	root := filepath.Join(t.TempDir(), "runsc")
	run := exec.CommandContext(ctx, findRunsc(t), "--root="+root, "--network=none", "--net-raw", "--ignore-cgroups", "do",
		"/usr/bin/python3", "-I", "-c", first, code+"\nos.kill(1, 9)\n") // some attempts stop PID 1
	var out, problems strings.Builder
	run.Stdout, run.Stderr = &out, &problems
	if err := run.Run(); ctx.Err() != nil || run.ProcessState.ExitCode() != 128+9 {
		t.Errorf("the control: %v\n%.2000s", err, problems.String())
	}
	return out.String()
}
