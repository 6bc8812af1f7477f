// Package sandboxtest is the suite that every backend of package sandbox passes, the fake too. Run has what a caller may rely on; what
// keeps hostile code in is for backends that isolate, in hostile.go.
//
// Programs in it name files by relative paths: they start in the folder that is mounted at /mnt/data, and the fake has no mounts.
package sandboxtest

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// patience is how long a test waits for what must happen; it is reached only by a failure, or on a very slow machine.
const patience = 60 * time.Second

// Run runs the suite. newBackend is called for each group of tests; the backend is closed at the end of the group.
func Run(t *testing.T, newBackend func(t *testing.T) sandbox.Backend) {
	t.Helper()
	groups := map[string]func(*testing.T, sandbox.Backend){
		"Python": testPython, "Display": testDisplay, "Bash": testBash, "Output": testOutput, "Live": testLive,
		"Stop": testStop, "Cancel": testCancel, "Death": testDeath, "Broken": testBroken, "Background": testBackground, "Limits": testLimits,
		"Environment": testEnvironment, "Sessions": testSessions, "Node": TestNode, "Terminal": testTerminal, "Concurrent": testConcurrent,
		"Life": testLife, "Checkpoint": testCheckpoint, "Connect": testConnect, "Edit": testEdit, "Programs": testPrograms,
		"ProgramsEnd": testProgramsEnd,
	}
	for name, test := range groups {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t)
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Errorf("close the backend: %v", err)
				}
			})
			test(t, b)
		})
	}
}

// Place is a sandbox with the host folders behind its /mnt/data and /home/user.
type Place struct {
	sandbox.Sandbox
	Data, Home string
}

var ids atomic.Int64

// Start starts a sandbox with sandbox.Defaults, changed by edit if it is not nil, and closes it at the end of the test.
func Start(t *testing.T, b sandbox.Backend, edit func(*sandbox.Spec)) *Place {
	t.Helper()
	p := &Place{Data: openDir(t), Home: openDir(t)}
	spec := newSpec(p)
	if edit != nil {
		edit(&spec)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := b.Start(ctx, spec)
	if err != nil {
		t.Fatalf("start a sandbox: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the sandbox: %v", err)
		}
	})
	p.Sandbox = s
	return p
}

// newSpec is the Spec of a sandbox on p's folders with sandbox.Defaults and an ID of its own.
func newSpec(p *Place) sandbox.Spec {
	return sandbox.Spec{
		ID:     "t" + time.Now().Format("150405") + "-" + strconv.FormatInt(ids.Add(1), 10),
		Mounts: []sandbox.Mount{{Source: p.Data, Target: "/mnt/data"}, {Source: p.Home, Target: "/home/user"}},
		Limits: sandbox.Defaults(),
	}
}

// openDir is a folder that programs of another user can write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Outcome is what a call did.
type Outcome struct {
	*sandbox.Result
	Outputs []sandbox.Output
}

// Text is all text of a stream, or of all of them for "".
func (o *Outcome) Text(stream string) string {
	var b strings.Builder
	for _, out := range o.Outputs {
		if stream == "" || out.Stream == stream {
			b.WriteString(out.Text)
		}
	}
	return b.String()
}

// Images are the displays that are not text.
func (o *Outcome) Images() []sandbox.Output {
	var images []sandbox.Output
	for _, out := range o.Outputs {
		if out.MIME != "" {
			images = append(images, out)
		}
	}
	return images
}

// Exec runs a call to its end; an error of the sandbox fails the test.
func (p *Place) Exec(t *testing.T, call sandbox.Call) *Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := &Outcome{}
	r, err := p.Sandbox.Exec(ctx, call, func(out sandbox.Output) { o.Outputs = append(o.Outputs, out) })
	if err != nil {
		t.Fatalf("run %q: %v\noutput so far: %q", call.Code, err, o.Text(""))
	}
	o.Result = r
	return o
}

// Python runs a cell.
func (p *Place) Python(t *testing.T, code string) *Outcome {
	t.Helper()
	return p.Exec(t, sandbox.Call{Kind: sandbox.Python, Code: code})
}

// Bash runs a command.
func (p *Place) Bash(t *testing.T, code string) *Outcome {
	t.Helper()
	return p.Exec(t, sandbox.Call{Kind: sandbox.Bash, Code: code})
}

// Must is a Python cell that has to succeed.
func (p *Place) Must(t *testing.T, code string) *Outcome {
	t.Helper()
	o := p.Python(t, code)
	if o.Status != sandbox.StatusOK {
		t.Fatalf("cell %q: %+v\n%s", code, *o.Result, o.Text(""))
	}
	return o
}

// touch makes a file that a program waits for.
func (p *Place) touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.Data, name), nil, 0o666); err != nil {
		t.Error(err)
	}
}

// eventually waits until a file of the data folder satisfies ok.
func (p *Place) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came about that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (p *Place) size(name string) int64 {
	fi, err := os.Stat(filepath.Join(p.Data, name))
	if err != nil {
		return 0
	}
	return fi.Size()
}

// heartbeat is the file that programs write to 50 times a second while they live.
const heartbeat = "beat"

// beats waits until the heartbeat has grown.
func (p *Place) beats(t *testing.T) {
	t.Helper()
	before := p.size(heartbeat)
	p.eventually(t, "the heartbeat grows", func() bool { return p.size(heartbeat) > before })
}

// stopped fails the test if the heartbeat still grows.
func (p *Place) stopped(t *testing.T) {
	t.Helper()
	before := p.size(heartbeat)
	if before == 0 {
		t.Fatal("there never was a heartbeat")
	}
	// That nothing happens can only be seen by waiting.
	time.Sleep(400 * time.Millisecond)
	if after := p.size(heartbeat); after != before {
		t.Errorf("the program still runs: its heartbeat grew from %d to %d bytes", before, after)
	}
}

// waitFor is Python that waits until a file exists.
func waitFor(name string) string {
	return "import os, time\nwhile not os.path.exists(" + quote(name) + "): time.sleep(0.01)\n"
}

func quote(s string) string { return "'" + s + "'" }
