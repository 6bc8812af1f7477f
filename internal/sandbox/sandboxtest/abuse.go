package sandboxtest

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// abuse is one case of the abuse suite: the same code once under the guard, where it must be held, and once without it, where it must
// bite. Without the second run a case could pass because its code is wrong.
type abuse struct {
	name string
	kind sandbox.Kind
	code string
	// held is what the guarded run says, in its output, its status or its error; the case has then been tried.
	held string
	// timeout is of the guarded run only.
	timeout time.Duration
	// bit says whether the attack got through; nil is that it printed the line BIT.
	bit func(*Outcome) bool
	// dies says that the guarded sandbox may end, as the program's failure.
	dies bool
}

// abuseCases is the whole table. The cases of Self and of Rights have guards and controls of their own kind.
func abuseCases() map[string][]abuse {
	return map[string][]abuse{
		"Processes": processAbuse(), "Memory": memoryAbuse(), "Disk": diskAbuse(), "Output": outputAbuse(), "Time": timeAbuse(),
		"Self": selfAbuse(), "Rights": rightsAbuse(),
	}
}

// Control runs Python in gVisor as its root with every capability, a writable root file system and none of our guards. PID 1 survives
// what can be caught. It returns what the program wrote.
type Control func(t *testing.T, code string) string

// Abuse runs the abuse suite, for backends that isolate.
func Abuse(t *testing.T, newBackend func(t *testing.T) sandbox.Backend, control Control) {
	t.Helper()
	b := newBackend(t)
	cases := abuseCases()
	pair := &abusePair{backend: b}
	t.Run("Processes", func(t *testing.T) { pair.run(t, cases["Processes"]) })
	t.Run("Memory", func(t *testing.T) { pair.run(t, cases["Memory"]) })
	t.Run("Output", func(t *testing.T) { pair.run(t, cases["Output"]) })
	t.Run("Time", func(t *testing.T) { pair.runTime(t, cases["Time"]) })
	t.Run("Disk", func(t *testing.T) { pair.run(t, cases["Disk"]) })
	t.Run("Self", func(t *testing.T) { runSelf(t, b, cases["Self"]) })
	t.Run("Calls", func(t *testing.T) { testManyCalls(t, b) })
	t.Run("Rights", func(t *testing.T) { runRights(t, b, cases["Rights"], control) })
	if err := b.Close(); err != nil {
		t.Errorf("close the backend: %v", err)
	}
}

// The limits of the guarded runs; those of the controls hold several times as much.
const (
	abuseMemory    = 256 << 20
	abuseProcesses = 40
	abuseOutput    = 64 << 10
	abuseDisk      = 24 << 20 // and 200 files
	abuseFile      = 1 << 30
)

// abusePair is a sandbox with tight limits and one with loose ones, on which the cases of one group run.
type abusePair struct {
	backend      sandbox.Backend
	tight, loose *Place
}

func (a *abusePair) startTight(t *testing.T) {
	t.Helper()
	dir := smallVolume(t, abuseDisk)
	a.tight = Start(t, a.backend, func(s *sandbox.Spec) {
		s.Mounts[0].Source = dir
		s.Limits.Memory, s.Limits.Processes, s.Limits.Output, s.Limits.FileSize = abuseMemory, abuseProcesses, abuseOutput, abuseFile
	})
	a.tight.Data = dir
	a.tight.Must(t, "1")
}

func (a *abusePair) start(t *testing.T) {
	t.Helper()
	a.startTight(t)
	a.loose = Start(t, a.backend, func(s *sandbox.Spec) {
		s.Limits.Memory, s.Limits.Processes, s.Limits.Output, s.Limits.FileSize = 3<<30, 1000, 64<<20, 64<<40
	})
}

func (a *abusePair) run(t *testing.T, cases []abuse) {
	a.start(t)
	for _, c := range cases {
		ok := t.Run(c.name, func(t *testing.T) {
			a.guarded(t, c)
			if o := a.loose.Exec(t, sandbox.Call{Kind: c.kind, Code: c.code}); !c.through(o) {
				t.Errorf("the control does not bite: %+v\n%.2000s", *o.Result, o.Text(""))
			}
			a.loose.cleared(t)
		})
		if !ok || c.dies {
			a.startTight(t)
		}
	}
}

// guarded runs a case where it must be held, and a cell after it.
func (a *abusePair) guarded(t *testing.T, c abuse) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := &Outcome{}
	r, err := a.tight.Sandbox.Exec(ctx, sandbox.Call{Kind: c.kind, Code: c.code, Timeout: c.timeout},
		func(out sandbox.Output) { o.Outputs = append(o.Outputs, out) })
	if err != nil {
		if !c.dies || !errors.Is(err, sandbox.ErrOutOfMemory) {
			t.Fatalf("%v\n%.2000s", err, o.Text(""))
		}
		waitDone(t, a.tight)
		return // what runs then is the next sandbox
	}
	o.Result = r
	if c.through(o) {
		t.Errorf("it bit: %+v\n%.2000s", *r, o.Text(""))
	}
	if said := string(r.Status) + "\n" + r.Error + "\n" + o.Text(""); !regexp.MustCompile(c.held).MatchString(said) {
		t.Errorf("nothing says %q: %+v\n%.2000s", c.held, *r, o.Text(""))
	}
	a.tight.cleared(t)
}

// through says whether an attack got through.
func (c *abuse) through(o *Outcome) bool {
	if c.bit != nil {
		return c.bit(o)
	}
	return slices.Contains(strings.Split(o.Text(sandbox.Stdout), "\n"), "BIT")
}

// cleared removes what a case has left, and checks that the sandbox still does its work.
func (p *Place) cleared(t *testing.T) {
	t.Helper()
	p.Bash(t, "chmod -R u+rwX . ; find /mnt/data /tmp /dev/shm -mindepth 1 -user \"$(id -u)\" -delete 2>/dev/null; true")
	if o := p.Must(t, "print(1)"); o.Text(sandbox.Stdout) != "1\n" {
		t.Errorf("then Python printed %.200q", o.Text(""))
	}
}

// script is a shell command that runs Python in a process of its own, so that a case begins with memory that is free.
func script(code string) string { return "python3 -I - <<'END'\n" + code + "\nEND\n" }
