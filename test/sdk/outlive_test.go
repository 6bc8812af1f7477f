package sdk

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPythonOutlives: a container that was left idle has its variables through the end of the gateway, orderly or not, and through another
// one right after it was used.
func TestPythonOutlives(t *testing.T) {
	g := prepare(t, "sandbox: {hibernate_after: 1s}\n")
	python := pythonWith(t, "python/requirements.txt")
	call := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), python, append([]string{"python/outlive.py"}, args...)...)
		cmd.Env = g.environ()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("outlive.py %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	stop := g.serve(t)
	id := call("new", "x = [41]\nf = open('log', 'w')\nprint('set')")
	asleep := func() {
		t.Helper()
		sealed := filepath.Join(g.data, "containers", id, "memory", "*", "sealed")
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			if found, err := filepath.Glob(sealed); err == nil && len(found) == 1 {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the container never hibernates")
			}
		}
	}
	grow := func(want string) {
		t.Helper()
		if got := call("run", id, "x.append(len(x)); f.write('.'); f.flush()\nprint(x, open('log').read())"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	asleep()
	stop(syscall.SIGTERM)
	stop = g.serve(t)
	grow("[41, 1] .")
	asleep()
	grow("[41, 1, 2] ..") // idle only
	asleep()
	stop(syscall.SIGKILL)
	stop = g.serve(t)
	grow("[41, 1, 2, 3] ...")
	stop(syscall.SIGTERM) // at once
	stop = g.serve(t)
	grow("[41, 1, 2, 3, 4] ....")
	stop(syscall.SIGKILL) // while it is live
	g.serve(t)
	want := "[the interpreter was restarted: variables are gone, files are kept]\nFalse ...."
	if got := call("run", id, "print('x' in dir(), open('log').read())"); got != want {
		t.Errorf("after a crash: %q, want %q", got, want)
	}
}
