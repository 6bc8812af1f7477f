package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// host is the test's end of a guest that runs in this process.
type host struct {
	t    *testing.T
	in   *os.File
	r    *proto.Reader
	w    *proto.Writer
	end  chan error // what Serve returned
	last uint32
}

func serve(t *testing.T, cfg Config) *host {
	t.Helper()
	gr, hw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	hr, gw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Tmp == "" {
		cfg.Tmp = t.TempDir()
		cfg.WorkDir, cfg.Home = cfg.Tmp, cfg.Tmp
	}
	cfg.Env = append([]string{"LATHE_KERNEL=plain"}, cfg.Env...)
	h := &host{t: t, in: hw, r: proto.NewReader(hr, proto.MaxPayload), w: proto.NewWriter(hw), end: make(chan error, 1)}
	go func() {
		h.end <- Serve(cfg, gr, gw)
		gw.Close()
	}()
	t.Cleanup(func() {
		hw.Close()
		hr.Close()
		select {
		case <-h.end:
		case <-time.After(time.Minute):
			t.Error("the guest does not end")
		}
		gr.Close()
	})
	return h
}

// python3 is the interpreter itself, which the PATH may only name through a script.
var python3 = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

func needPython(t *testing.T) string {
	t.Helper()
	p, err := python3()
	if err != nil {
		t.Skipf("no python3 in the PATH: %v", err)
	}
	return p
}

// badKernel is an interpreter that takes its source, says hello, and then does as body says.
func badKernel(t *testing.T, hello bool, body string) string {
	t.Helper()
	head := "#!" + needPython(t) + `
import os, sys, time
def frame(kind, call, payload=b""): os.write(4, len(payload).to_bytes(4, "big") + bytes((kind,)) + call + payload)
def request():
    head = os.read(3, 9)
    if not head: os._exit(0)
    os.read(3, int.from_bytes(head[:4], "big"))
    return head[5:9]
left = int.from_bytes(os.read(3, 4), "big")
while left: left -= len(os.read(3, left))
`
	if hello {
		head += "frame(2, bytes(4), b'bad')\n"
	}
	file := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(file, []byte(head+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

func (h *host) send(t proto.Type, call uint32, v any) {
	h.t.Helper()
	f, err := proto.EncodeJSON(t, call, v)
	if err == nil {
		err = h.w.Write(f)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) next() proto.Frame {
	h.t.Helper()
	f, err := h.r.Next()
	if err != nil {
		h.t.Fatalf("read from the guest: %v", err)
	}
	return f
}

// until reads up to a frame of the type; another end of the call fails the test.
func (h *host) until(want proto.Type) {
	h.t.Helper()
	for {
		switch f := h.next(); f.Type {
		case want:
			return
		case proto.Refused, proto.Result:
			h.t.Fatalf("the call ended: %s", f.Payload)
		}
	}
}

// answer is all that the guest says to one call.
type answer struct {
	started  bool
	refused  string
	output   map[proto.Stream]string
	displays int
	result   proto.CallResult
}

func (h *host) start(c proto.StartCall) uint32 {
	h.t.Helper()
	h.last++
	if c.Limits.Output == 0 {
		c.Limits.Output = 1 << 20
	}
	h.send(proto.Start, h.last, c)
	return h.last
}

// finish reads until the call is over.
func (h *host) finish(id uint32) answer {
	h.t.Helper()
	a := answer{output: map[proto.Stream]string{}}
	for {
		f := h.next()
		if f.Call != id {
			h.t.Fatalf("frame type %d for call %d, want %d", f.Type, f.Call, id)
		}
		switch f.Type {
		case proto.Started:
			a.started = true
		case proto.Output:
			s, data, err := proto.DecodeOutput(f.Payload)
			if err != nil {
				h.t.Fatal(err)
			}
			a.output[s] += string(data)
		case proto.Display:
			a.displays++
		case proto.Refused:
			a.refused = string(f.Payload)
			return a
		case proto.Result:
			if err := proto.DecodeJSON(f, &a.result); err != nil {
				h.t.Fatal(err)
			}
			return a
		default:
			h.t.Fatalf("frame type %d", f.Type)
		}
	}
}

func (h *host) run(kind, code string) answer {
	h.t.Helper()
	return h.finish(h.start(proto.StartCall{Kind: kind, Code: code}))
}

func TestHello(t *testing.T) {
	h := serve(t, Config{Notes: []string{"a note"}})
	for range 2 { // a restored guest is greeted again
		h.send(proto.Ping, 0, nil)
		var info proto.HelloInfo
		if err := proto.DecodeJSON(h.next(), &info); err != nil {
			t.Fatal(err)
		}
		if info.Version != proto.Version || info.Isolated || len(info.Notes) != 1 {
			t.Errorf("got %+v", info)
		}
	}
}

func TestEnds(t *testing.T) {
	tests := map[string]struct {
		host  func(h *host)
		fails bool
	}{
		"end of input":     {host: func(h *host) { h.in.Close() }},
		"shutdown":         {host: func(h *host) { h.send(proto.Shutdown, 0, nil) }},
		"a guest's frame":  {host: func(h *host) { h.send(proto.Result, 1, nil) }, fails: true},
		"garbage":          {host: func(h *host) { _, _ = h.in.Write([]byte("garbage garbage")) }, fails: true},
		"an unknown kind":  {host: func(h *host) { h.send(proto.Start, 1, proto.StartCall{Kind: "perl"}) }, fails: true},
		"a start not JSON": {host: func(h *host) { _ = h.w.Write(proto.Frame{Type: proto.Start, Call: 1, Payload: []byte("{")}) }, fails: true},
		"while a call runs": {host: func(h *host) {
			h.start(proto.StartCall{Kind: proto.Bash, Code: "echo x; trap '' INT TERM; while :; do sleep 1; done"})
			h.until(proto.Output)
			h.in.Close()
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := serve(t, Config{})
			tt.host(h)
			err := <-h.end
			h.end <- nil // for the cleanup
			if (err != nil) != tt.fails {
				t.Errorf("Serve returned %v", err)
			}
		})
	}
}

func TestOneOfAKind(t *testing.T) {
	h := serve(t, Config{})
	first := h.start(proto.StartCall{Kind: proto.Bash, Code: "echo up; sleep 100"})
	h.until(proto.Output)
	if a := h.run(proto.Bash, "echo second"); a.started || !strings.Contains(a.refused, "another call") {
		t.Errorf("the second: %+v", a)
	}
	h.send(proto.Interrupt, 12345, nil) // a call that does not run
	h.send(proto.Interrupt, first, nil)
	if a := h.finish(first); a.result.Status != proto.Interrupted {
		t.Errorf("the first: %+v", a)
	}
	if a := h.run(proto.Bash, "echo third"); a.output[proto.Stdout] != "third\n" {
		t.Errorf("the third: %+v", a)
	}
}

func TestKillDoesNotWait(t *testing.T) {
	h := serve(t, Config{Python: needPython(t)})
	for _, c := range []proto.StartCall{
		{Kind: proto.Bash, Code: "trap '' INT; echo up; while :; do sleep 1; done"},
		{Kind: proto.Python, Code: "print('up')\nimport time; time.sleep(100)"},
	} {
		id := h.start(c)
		h.until(proto.Output)
		h.send(proto.Kill, id, nil)
		if a := h.finish(id); a.result.Status != proto.Interrupted || a.result.KernelRestarted != (c.Kind == proto.Python) {
			t.Errorf("%s: %+v", c.Kind, a)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Run("no shell", func(t *testing.T) {
		a := serve(t, Config{Env: []string{"PATH=/nowhere"}}).run(proto.Bash, "true")
		if a.started || !strings.Contains(a.refused, "no bash") {
			t.Errorf("%+v", a)
		}
	})
	t.Run("no python", func(t *testing.T) {
		a := serve(t, Config{Env: []string{"PATH=/nowhere"}}).run(proto.Python, "1")
		if a.started || !strings.Contains(a.refused, "no python3") {
			t.Errorf("%+v", a)
		}
	})
	t.Run("a shell that is no program", func(t *testing.T) {
		a := serve(t, Config{Shell: "/etc/hostname"}).run(proto.Bash, "true")
		if a.started || !strings.Contains(a.refused, "/etc/hostname") {
			t.Errorf("%+v", a)
		}
	})
	t.Run("a long command", func(t *testing.T) {
		a := serve(t, Config{}).run(proto.Bash, strings.Repeat("#", maxCommand+1))
		if a.started || !strings.Contains(a.refused, "1 MiB") {
			t.Errorf("%+v", a)
		}
	})
	t.Run("a directory that is not there", func(t *testing.T) {
		h := serve(t, Config{})
		a := h.finish(h.start(proto.StartCall{Kind: proto.Bash, Code: "true", Dir: "/no/such/folder"}))
		if a.started || !strings.Contains(a.refused, "/no/such/folder") {
			t.Errorf("%+v", a)
		}
	})
	t.Run("python that ends at once", func(t *testing.T) {
		h := serve(t, Config{Python: badKernel(t, false, "print('no library', file=sys.stderr)\nsys.exit(4)")})
		for range 2 {
			a := h.run(proto.Python, "1")
			if a.started || !strings.Contains(a.refused, "exited with status 4") || !strings.Contains(a.refused, "no library") {
				t.Errorf("%+v", a)
			}
		}
	})
	t.Run("python that never starts", func(t *testing.T) {
		h := serve(t, Config{Python: badKernel(t, false, "time.sleep(1000)")})
		id := h.start(proto.StartCall{Kind: proto.Python, Code: "1"})
		h.send(proto.Interrupt, id, nil)
		if a := h.finish(id); a.started || !strings.Contains(a.refused, "interrupted") {
			t.Errorf("%+v", a)
		}
	})
}

// User code can become the kernel and say anything. It may spoil its own call, never the guest or the next kernel.
func TestHostileKernel(t *testing.T) {
	tests := map[string]struct {
		body   string
		status string // "" for any
		err    string
	}{
		"an unknown frame":    {"c = request()\nframe(200, c)\nSLEEP", proto.Killed, "garbled"},
		"a frame of the host": {"c = request()\nframe(13, c)\nSLEEP", proto.Killed, "garbled"},
		"a huge frame":        {"c = request()\nos.write(4, b'\\xff' * 9)\nSLEEP", proto.Killed, "garbled"},
		"half a frame": {
			"c = request()\nos.write(4, b'\\0\\0\\1\\0\\x08' + c + b'half')\nos.close(4)\nSLEEP", proto.Killed, "garbled",
		},
		"started twice":             {"c = request()\nframe(6, c)\nframe(6, c)\nSLEEP", proto.Killed, "garbled"},
		"a bad stream":              {"c = request()\nframe(8, c, b'\\x09x')\nSLEEP", proto.Killed, "garbled"},
		"a bad display":             {"c = request()\nframe(9, c, b'\\0')\nSLEEP", proto.Killed, "garbled"},
		"a bad result":              {"c = request()\nframe(12, c, b'ok')\nSLEEP", proto.Killed, "garbled"},
		"a result without a number": {"c = request()\nframe(12, c, b'ok\\0x\\0')\nSLEEP", proto.Killed, "garbled"},
		"a status of its own":       {"c = request()\nframe(12, c, b'fine\\x000\\0')\nSLEEP", proto.Failed, ""},
		"many results":              {"c = request()\nfor _ in range(1000): frame(12, c, OK)\nSLEEP", proto.OK, ""},
		"a result of another call":  {"c = request()\nframe(12, b'abcd', OK)\nframe(12, c, b'error\\x007\\0mine')\nSLEEP", proto.Failed, "mine"},
		"a result, then death":      {"c = request()\nframe(12, c, OK)\nos._exit(9)", proto.OK, ""},
		"questions unread":          {"c = request()\nfor _ in range(100000): frame(1, c)\nSLEEP", "", ""},
		"a long error":              {"c = request()\nframe(12, c, b'error\\x001\\0' + b'e' * 1000000)\nSLEEP", proto.Failed, "eee"},
		"frames between calls": {
			"frame(8, b'aaaa', b'\\x01x')\nframe(9, bytes(4), b'\\x01a')\nc = request()\nframe(12, c, OK)\nframe(8, c, b'\\x01late')\nSLEEP", proto.OK, "",
		},
		"deaf to interrupts": {"import signal\nsignal.signal(2, signal.SIG_IGN)\nc = request()\nSLEEP", proto.Timeout, "was killed"},
	}
	words := strings.NewReplacer("SLEEP", "time.sleep(100)", "OK", "b'ok\\x000\\0'")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := serve(t, Config{Python: badKernel(t, true, words.Replace(tt.body))})
			for range 2 {
				a := h.finish(h.start(proto.StartCall{Kind: proto.Python, Code: "1", TimeoutMS: 3000}))
				r := a.result
				if !a.started || tt.status != "" && r.Status != tt.status || !strings.Contains(r.Error, tt.err) || len(r.Error) > maxError {
					t.Errorf("%+v", a)
				}
				if a := h.run(proto.Bash, "echo fine"); a.output[proto.Stdout] != "fine\n" {
					t.Errorf("the shell: %+v", a)
				}
				if tt.status == proto.OK || tt.status == proto.Failed || tt.status == "" {
					break // this kernel goes on, and answers nothing more
				}
			}
		})
	}
}

// A kernel that floods both the channel and the pipes cannot take the guest's memory or go beyond the call's output.
func TestHostileFlood(t *testing.T) {
	h := serve(t, Config{Python: badKernel(t, true, `c = request()
for _ in range(50):
    frame(8, c, b"\x01" + b"x" * 100000)
    frame(9, c, b"\x09image/png" + b"y" * 100000)
    os.write(1, b"z" * 100000)
frame(12, c, b"ok\x000\0")
time.sleep(100)`)})
	a := h.finish(h.start(proto.StartCall{Kind: proto.Python, Code: "1", Limits: proto.Limits{Output: 150000}}))
	total := len(a.output[proto.Stdout]) + a.displays*100010
	if a.result.Status != proto.OK || total > 150000 || int64(total)+a.result.Truncated != 50*(100000+100010+100000) {
		t.Errorf("%d bytes, %d displays, %+v", len(a.output[proto.Stdout]), a.displays, a.result)
	}
}

// An interrupt may come at any moment: while the kernel prints, changes streams, displays, ends. The state must survive them all.
func TestInterruptAnywhere(t *testing.T) {
	for _, kernel := range []string{"plain", "ipython"} { // where there is no IPython both are plain
		t.Run(kernel, func(t *testing.T) {
			interruptAnywhere(t, serve(t, Config{Python: needPython(t), Env: []string{"LATHE_KERNEL=" + kernel}}))
		})
	}
}

func interruptAnywhere(t *testing.T, h *host) {
	t.Helper()
	h.run(proto.Python, "n = 0")
	code := "n += 1\nimport sys\nfor i in range(200):\n    print(i); print(i, file=sys.stderr)\n    if i % 20 == 0: display(i)\nn"
	for i := range 80 {
		id := h.start(proto.StartCall{Kind: proto.Python, Code: code})
		h.until(proto.Started)
		// Spread over the life of the cell, which is a few milliseconds long.
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		h.send(proto.Interrupt, id, nil)
		if a := h.finish(id); a.result.KernelRestarted || a.result.Status != proto.OK && a.result.Status != proto.Interrupted {
			t.Fatalf("round %d: %+v", i, a.result)
		}
		// What is left of the interrupt must not reach the next cell, and the channel must be in step.
		a := h.run(proto.Python, "print('next')\n'end'")
		if a.result.Status != proto.OK || a.output[proto.Stdout] != "next\n" || a.output[proto.Value] != "'end'" {
			t.Fatalf("round %d, the next cell: %+v", i, a)
		}
	}
}

func TestWarmAndRenew(t *testing.T) {
	h := serve(t, Config{Python: needPython(t)})
	h.last++
	h.send(proto.Warm, h.last, proto.WarmCall{Modules: []string{"json", "no_such_module"}})
	a := h.finish(h.last)
	if a.result.Status != proto.OK || !strings.Contains(a.result.Error, "no_such_module: ModuleNotFoundError") {
		t.Errorf("warm: %+v", a)
	}
	if a := h.run(proto.Python, "import sys\n'json' in sys.modules, 'json' in globals()"); a.output[proto.Value] != "(True, False)" {
		t.Errorf("after warming: %+v", a)
	}
	for _, fresh := range []bool{false, true} {
		h.run(proto.Python, "import random\nrandom.seed(7)\nwant = random.random()\nrandom.seed(7)")
		h.last++
		h.send(proto.Renew, h.last, proto.RenewCall{Fresh: fresh})
		if a := h.finish(h.last); a.result.Status != proto.OK {
			t.Errorf("renew: %+v", a)
		}
		if a := h.run(proto.Python, "random.random() == want"); a.output[proto.Value] != map[bool]string{false: "True", true: "False"}[fresh] {
			t.Errorf("fresh is %v, and the program's own seed still holds: %s", fresh, a.output[proto.Value])
		}
	}
}

func TestDrainEnds(t *testing.T) {
	tp, out, errOut, err := newTap()
	if err != nil {
		t.Fatal(err)
	}
	defer tp.close()
	defer errOut.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "yes")
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			tp.drain()
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("a drain does not end while a program writes")
	}
	cancel()
	_ = cmd.Wait()
}

func TestEnviron(t *testing.T) {
	cfg := Config{Env: []string{"PATH=/p", "LANG=de_DE", "KEEP=1", "bad"}, Home: "/", Tmp: "/", Shell: "/s", Python: "/y",
		MapPath: func(p string) string { return strings.Replace(p, "/mnt/data", "/elsewhere", 1) }}
	cfg.setDefaults()
	cfg.Home = "/h"
	env := cfg.environ(proto.Limits{Threads: 3}, cfg.callEnv(map[string]string{
		"KEEP": "2", "OUT": "/mnt/data/out", "": "x", "a=b": "x", "nul": "a\x00b",
	}))
	got := map[string]string{}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		if _, twice := got[k]; twice {
			t.Errorf("%s is there twice", k)
		}
		got[k] = v
	}
	for k, want := range map[string]string{
		"PATH": "/h/.local/bin:/p", "LANG": "de_DE", "KEEP": "2", "OUT": "/elsewhere/out", "OMP_NUM_THREADS": "3", "MPLBACKEND": "Agg", "HOME": "/h",
		"SHELL": "/s", "": "", "a": "", "nul": "", "bad": "",
	} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}
}

func TestDeath(t *testing.T) {
	h := serve(t, Config{})
	for sig, want := range map[string]string{"SEGV": "SIGSEGV", "KILL": "SIGKILL, most often for want of memory", "TERM": "SIGTERM"} {
		if a := h.run(proto.Bash, fmt.Sprintf("kill -%s $$", sig)); a.result.Status != proto.Killed || !strings.Contains(a.result.Error, want) {
			t.Errorf("%s: %+v", sig, a.result)
		}
	}
}
