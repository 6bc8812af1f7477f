package guest

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// The Python kernel's source is all four files, in one namespace.
var (
	//go:embed wire.py
	wireSource string
	//go:embed display.py
	displaySource string
	//go:embed calls.py
	callsSource string
	//go:embed kernel.py
	mainSource string

	kernelSource = wireSource + displaySource + callsSource + mainSource
)

// kernelStub reads the kernel's source from fd 3, where requests follow it. Until the kernel has started, nothing is imported from the
// working directory: a file of a user's that is called random.py would keep it from starting.
const kernelStub = `import os, sys
sys.path[:] = filter(None, sys.path)
n = int.from_bytes(os.read(3, 4), "big")
s = b""
while len(s) < n:
    s += os.read(3, n - len(s))
exec(compile(s, "<lathe kernel>", "exec"))`

// bootTime is how long the interpreter may take to start, and replyTime how long it may leave a reply unread.
const (
	bootTime  = time.Minute
	replyTime = 5 * time.Second
)

// interpreter is a session in a language that has a kernel: one kernel, replaced when it dies. Only one call runs at a time; the caller
// sees to that.
type interpreter struct {
	cfg    *Config
	procs  *processes
	lang   *language
	kernel *kernel
	// told says that a call's result has already reported the death of kernel, lost that there was one before which has been ended.
	told, lost bool
	// dir is where the next cell changes to before it runs: set for a kernel's first one.
	dir string
	// waiting is the program of kernel that waits for results, nil for none.
	waiting *waiting
	// spawned says that programs have started others, which may live on.
	spawned bool
}

// kernel is one interpreter.
type kernel struct {
	proc   *process
	in     *os.File
	pipes  *os.File // new descriptors 1 and 2 go over it; nil where the language does not take any
	w      *proto.Writer
	limits proto.Limits

	ready chan struct{} // closed when it has started
	done  chan reply    // the reply to the running call
	deaf  chan struct{} // closed when nothing more comes from it

	mu     sync.Mutex
	tap    *tap          // of its descriptors 1 and 2; see output
	call   uint32        // the id whose frames are taken; guarded by mu
	asks   bool          // its program may call functions
	runs   chan struct{} // closed when the call's code runs
	broken bool          // it sent what is not the protocol
}

// reply is the kernel's own account of a call.
type reply struct {
	status, err string
	code        int
	spawned     bool // it has started other programs
	// calls is set where the program has not ended: it waits for their results.
	calls []proto.FunctionCall
}

func (in *interpreter) run(c *call, start proto.StartCall) func() {
	payload := list(start.Code, in.cfg.path(start.Dir))
	if in.lang.functions {
		payload = append(payload, list(strings.Join(start.Functions, "\n"), in.freshPipes())...)
	}
	for k, v := range in.cfg.callEnv(start.Env) {
		payload = append(payload, list(k, v)...)
	}
	return in.request(c, proto.Start, payload)
}

// request runs one request of the kernel and returns the function that reports its end.
func (in *interpreter) request(c *call, kind proto.Type, payload []byte) func() {
	if in.waits() && kind == proto.Start {
		return func() { c.refuse(proto.RefusedWaiting) }
	}
	if in.waiting != nil && kind == proto.Warm {
		c.started()
		return func() { c.finish(proto.CallResult{Status: proto.OK}) } // it is as warm as can be
	}
	restarted := in.lost || in.kernel != nil && in.kernel.dead() && !in.told
	k, err := in.ensure(c)
	if err != nil {
		return func() { c.refuse(err.Error()) }
	}
	in.lost = false
	if k.limits != c.limits {
		if err := in.procs.limit(k.proc, in.lang.limits(c.limits)); err == nil {
			k.limits = c.limits
		}
	}
	if kind == proto.Start {
		payload = in.enter(payload)
	}
	finish := in.exchange(c, k, proto.Frame{Type: kind, Call: c.id, Payload: payload}, restarted)
	if in.waiting != nil {
		k.output().attach(in.waiting) // a Renew has come between
	}
	return finish
}

// exchange sends a request to the kernel, follows what comes of it and returns the function that reports that.
func (in *interpreter) exchange(c *call, k *kernel, f proto.Frame, restarted bool) func() {
	c.started()
	k.output().send(func(sink) {
		for _, p := range c.held {
			c.write(p.stream, p.data)
		}
	})
	k.begin(c)
	go func() {
		if err := k.w.Write(f); err != nil {
			in.procs.kill(k.proc) // it can never answer
		}
	}()
	cause, killed, said := in.follow(c, k)
	in.spawned = in.spawned || said != nil && said.spawned
	if said != nil && said.calls != nil && !killed {
		if cause == "" && !c.last {
			return in.pause(c, k, said.calls)
		}
		killed, said = in.unblock(c, k)
	}
	k.end()
	r := in.result(c, k, said, cause, killed)
	r.KernelRestarted = r.KernelRestarted || restarted
	return func() { c.finish(r) }
}

// follow returns when the kernel has answered, or is gone.
func (in *interpreter) follow(c *call, k *kernel) (cause string, killed bool, said *reply) {
	ended, got := k.watch()
	cause, killed = c.supervise(program{
		ended:     ended,
		interrupt: func() { go in.interrupt(k, c.id, ended) },
		kill:      func() { in.procs.kill(k.proc) },
	})
	return cause, killed, got()
}

// interrupt sends SIGINT to the running call, once the kernel can tell for which call it is: it ignores one that comes between two.
func (in *interpreter) interrupt(k *kernel, call uint32, ended <-chan struct{}) {
	k.mu.Lock()
	runs := k.runs
	k.mu.Unlock()
	select {
	case <-runs:
	case <-ended:
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.call == call {
		in.procs.interrupt(k.proc)
	}
}

// enter fills in the directory of a kernel's first cell. A warm kernel was started before the container's files were mounted, so it must
// change to its directory again even if that has the same name.
func (in *interpreter) enter(payload []byte) []byte {
	code := 4 + int(binary.BigEndian.Uint32(payload))
	if dir := binary.BigEndian.Uint32(payload[code:]); dir == 0 && in.dir != "" {
		rest := payload[code+4:]
		payload = append(payload[:code:code], list(in.dir)...)
		payload = append(payload, rest...)
	}
	in.dir = ""
	return payload
}

// result puts together what the kernel says and what was done to it. A kernel that is dead, or was killed, is given up.
func (in *interpreter) result(c *call, k *kernel, r *reply, cause string, killed bool) proto.CallResult {
	out := proto.CallResult{Status: proto.OK}
	if r != nil && !killed {
		out = proto.CallResult{Status: r.status, ExitCode: r.code, Error: r.err}
	}
	if k.dead() || killed {
		in.procs.kill(k.proc) // what it left behind does not outlive it
		in.told = true
		out.KernelRestarted = true
		if r == nil || killed {
			out.Status = proto.Killed
			out.Error = "the interpreter " + k.proc.death()
			if k.corrupt() {
				out.Error = "the interpreter was killed: its channel to the sandbox was garbled"
			}
			out.ExitCode = k.proc.exitCode()
		}
	}
	if cause != "" {
		out.Status, out.Error = cause, c.because(cause)
		if killed {
			out.Error += "; the program did not react to the interrupt and was killed, its variables are lost"
		}
	}
	return out
}

// ensure returns a kernel that has started. A call that is interrupted while it waits is given up, the start goes on.
func (in *interpreter) ensure(c *call) (*kernel, error) {
	if in.kernel == nil || in.kernel.dead() {
		in.close()
		k, err := startKernel(in.cfg, in.procs, in.lang, c.limits)
		if err != nil {
			return nil, err
		}
		in.kernel, in.told, in.dir = k, false, in.cfg.WorkDir
	}
	k := in.kernel
	boot := time.NewTimer(bootTime)
	defer boot.Stop()
	select {
	case <-k.ready:
		return k, nil
	case <-k.proc.ended:
		return nil, errors.New(in.lang.name + " did not start: " + k.proc.death() + k.complaint())
	case <-c.interrupts:
		return nil, errors.New("interrupted before it started")
	case <-c.kills:
		return nil, errors.New("interrupted before it started")
	case <-boot.C:
		in.procs.kill(k.proc)
		return nil, errors.New(in.lang.name + " did not start within a minute" + k.complaint())
	}
}

func (in *interpreter) close() {
	if k := in.kernel; k != nil {
		in.procs.kill(k.proc)
		k.in.Close()
		k.output().close()
		if k.pipes != nil {
			k.pipes.Close()
		}
		in.kernel, in.waiting, in.spawned = nil, nil, false
	}
}

// begin makes c the call that the kernel's frames and output belong to.
func (k *kernel) begin(c *call) {
	select {
	case <-k.done: // a reply that nobody asked for
	default:
	}
	k.mu.Lock()
	k.call, k.runs, k.asks = c.id, make(chan struct{}), c.program != ""
	k.mu.Unlock()
	k.output().attach(c)
}

// end is the counterpart of begin; what the kernel's programs have written so far is sent first.
func (k *kernel) end() {
	k.output().drain()
	k.output().attach(nil)
	k.mu.Lock()
	k.call = 0
	k.mu.Unlock()
}

// watch returns a channel that is closed when the running call is over, and a function to ask after that what the kernel said; nil
// is nothing.
func (k *kernel) watch() (<-chan struct{}, func() *reply) {
	over := make(chan struct{})
	var said *reply
	go func() {
		defer close(over)
		select {
		case r := <-k.done:
			said = &r
		case <-k.proc.ended:
			// Its last words may still be in the channel, which ends with them unless a child of it lives on.
			select {
			case <-k.deaf:
			case <-time.After(killTime / 2):
			}
			select {
			case r := <-k.done:
				said = &r
			default:
			}
		}
	}()
	return over, func() *reply {
		select {
		case <-over:
			return said
		default:
			return nil
		}
	}
}

// listen acts on the kernel's frames until it is gone. User code can send any: a frame of no running call is dropped, one that is not
// the protocol ends the kernel.
func (k *kernel) listen(procs *processes, pipe *os.File) {
	defer pipe.Close()
	defer close(k.deaf)
	r := proto.NewReader(bufio.NewReaderSize(pipe, 64<<10), proto.MaxPayload)
	for {
		f, err := r.Next()
		if err == nil {
			if f.Type != proto.Hello && f.Type != proto.Started {
				k.output().drain()
			}
			err = k.handle(f)
		}
		if err != nil {
			k.giveUp(procs)
			return
		}
	}
}

// giveUp ends a kernel whose channel is closed or garbled: it can never end a call. One that is dying is left to it.
func (k *kernel) giveUp(procs *processes) {
	select {
	case <-k.proc.ended:
		return
	case <-time.After(killTime / 2):
	}
	k.mu.Lock()
	k.broken = true
	k.mu.Unlock()
	procs.kill(k.proc)
}

func (k *kernel) handle(f proto.Frame) error {
	k.mu.Lock()
	mine := f.Call != 0 && f.Call == k.call
	k.mu.Unlock()
	switch f.Type {
	case proto.Hello:
		select {
		case <-k.ready:
		default:
			close(k.ready)
		}
	case proto.Ping:
		// It waits for this; if it does not read, the channel is full and the kernel lost.
		_ = k.in.SetWriteDeadline(time.Now().Add(replyTime))
		defer func() { _ = k.in.SetWriteDeadline(time.Time{}) }()
		return k.w.Write(proto.Frame{Type: proto.Hello, Call: f.Call})
	case proto.Output:
		stream, data, err := proto.DecodeOutput(f.Payload)
		if err != nil {
			return err
		}
		k.output().send(func(to sink) {
			if c, ok := to.(*call); ok && mine {
				c.write(stream, data)
			}
		})
	case proto.Display:
		if _, _, err := proto.DecodeDisplay(f.Payload); err != nil {
			return err
		}
		k.output().send(func(to sink) {
			if c, ok := to.(*call); ok && mine {
				c.display(f.Payload)
			}
		})
	case proto.Started:
		k.mu.Lock()
		defer k.mu.Unlock()
		if !mine {
			return nil
		}
		select {
		case <-k.runs:
			return errors.New("guest: the kernel started a call twice")
		default:
			close(k.runs)
		}
	case proto.Result:
		if mine {
			return k.reply(f.Payload)
		}
	case proto.Calls:
		if mine {
			return k.asked(f.Payload)
		}
	default:
		return errors.New("guest: unexpected frame from the kernel")
	}
	return nil
}

func (k *kernel) reply(payload []byte) error {
	fields := bytes.SplitN(payload, []byte{0}, 3)
	if len(fields) != 3 {
		return errors.New("guest: bad result from the kernel")
	}
	number, spawned := strings.CutSuffix(string(fields[1]), "+")
	code, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	r := reply{status: proto.Failed, code: code, err: string(fields[2]), spawned: spawned}
	if string(fields[0]) == proto.OK {
		r.status = proto.OK
	}
	k.answer(r)
	return nil
}

func (k *kernel) answer(r reply) {
	select {
	case k.done <- r:
	default: // one result a call
	}
}

func (k *kernel) dead() bool {
	select {
	case <-k.proc.ended:
		return true
	default:
		return k.corrupt()
	}
}

func (k *kernel) corrupt() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken
}

// complaint is the end of what the interpreter wrote while it started.
func (k *kernel) complaint() string {
	k.output().drain()
	var text string
	k.output().send(func(to sink) {
		if t, ok := to.(*tail); ok && len(t.data) > 0 {
			text = ": " + string(t.data)
		}
	})
	return text
}

// tail keeps the end of what is written.
type tail struct{ data []byte }

func (t *tail) write(_ proto.Stream, data []byte) {
	t.data = append(t.data, data...)
	if n := len(t.data); n > 1<<10 {
		t.data = append([]byte(nil), t.data[n-1<<10:]...)
	}
}
