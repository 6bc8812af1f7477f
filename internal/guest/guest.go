// Package guest is the program that runs inside a sandbox, as PID 1 and root: it takes calls from the host in frames of package proto,
// runs them as an unprivileged user in long-lived kernels (Python: kernel.py, node: kernel.js) or in shells, sends their output while it
// is made, and enforces their time and limits. What it cannot enforce (memory of all processes together, disk, network) is the sandbox's around it.
//
// The programs are hostile to it, and so is the Python kernel, which user code can take over: what they send is capped, bounded in memory
// and never trusted beyond their own call. cmd/lathe-guest is its main; sandbox/fake runs it in-process for tests of other packages.
package guest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// How long a program has between SIGINT and SIGKILL. After a cancellation everything must be gone within a second; a program whose time
// is over may take longer to come to its end, and keeps its variables on a busy machine.
const (
	cancelGrace  = 600 * time.Millisecond
	timeoutGrace = 2 * time.Second
)

// killTime is how long it may take to see that something is dead or gone.
const killTime = 500 * time.Millisecond

// Config says how programs are run. The zero value runs them as the caller's own user, for tests.
type Config struct {
	// Isolate runs programs as uid and gid User without capabilities. It needs root, and a process namespace of one's own: what
	// outlives a call and cannot be told apart is killed with everything else in the namespace.
	Isolate bool
	// User is another than the guest's own.
	User uint32
	// Reap makes the guest wait for all orphans, as PID 1 must.
	Reap bool
	// Env is the base of every program's environment, "name=value".
	Env []string
	// Python, Shell and Node are absolute paths; "" looks for python3, for bash or sh, and for node, in Env's PATH. LATHE_KERNEL=plain in
	// Env keeps the kernel from using IPython.
	Python, Shell, Node string
	// Self is the guest's own program, which is also the editor's; "" edits within this process, for tests.
	Self string
	// WorkDir is where calls start that name no directory; Home and Tmp are HOME and TMPDIR. Those that do not exist are replaced by
	// Tmp, and by "/".
	WorkDir, Home, Tmp string
	// MapPath translates the paths in Call.Dir and in values of Call.Env; nil leaves them.
	MapPath func(string) string
	// Renew, if it is not nil, is called after a restore, before the kernel renews itself. A call whose Renew fails is refused.
	Renew func(proto.RenewCall) error
	// Notes are reported to the host in the hello frame.
	Notes []string
	Log   *slog.Logger
}

// Serve answers the host until it sends Shutdown, closes r, or sends what is not the protocol; only the last is an error. It then kills
// everything it started and returns. It never closes r or w.
func Serve(cfg Config, r io.Reader, w io.Writer) error {
	cfg.setDefaults()
	s := &server{
		cfg: cfg, w: proto.NewWriter(w), procs: newProcesses(cfg),
		calls: map[uint32]*call{}, busy: map[sessionKey]bool{},
	}
	s.sessions = &sessions{cfg: &s.cfg, procs: s.procs, byKey: map[sessionKey]*seat{}}
	s.network = &network{w: s.w, tmp: cfg.Tmp, conns: map[net.Conn]bool{}}
	err := s.listen(proto.NewReader(bufio.NewReaderSize(r, 64<<10), proto.MaxPayload))
	s.mu.Lock()
	for _, c := range s.calls {
		c.kill()
	}
	s.mu.Unlock()
	s.procs.close()
	s.running.Wait()
	s.sessions.close()
	s.network.disconnect()
	return err
}

type server struct {
	cfg      Config
	w        *proto.Writer
	procs    *processes
	sessions *sessions
	network  *network
	running  sync.WaitGroup

	mu    sync.Mutex
	calls map[uint32]*call
	busy  map[sessionKey]bool
}

func (s *server) listen(r *proto.Reader) error {
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.Type == proto.Shutdown {
			return nil
		}
		if err := s.take(f); err != nil {
			return err
		}
	}
}

func (s *server) take(f proto.Frame) error {
	switch f.Type {
	case proto.Ping:
		s.network.disconnect() // a new host knows nothing of streams that were
		s.send(proto.EncodeJSON(proto.Hello, 0, proto.HelloInfo{
			Version: proto.Version, Isolated: s.cfg.Isolate, Notes: s.cfg.Notes,
		}))
	case proto.Start, proto.Resume, proto.Warm, proto.Renew, proto.Terminal:
		return s.start(f)
	case proto.Input, proto.Resize, proto.Taken:
		s.mu.Lock()
		c := s.calls[f.Call]
		s.mu.Unlock()
		if c == nil {
			return nil // it has ended meanwhile
		}
		return c.terminal.take(f)
	case proto.Interrupt, proto.Kill:
		s.mu.Lock()
		defer s.mu.Unlock()
		if c := s.calls[f.Call]; c != nil && f.Type == proto.Kill {
			c.kill()
		} else if c != nil {
			c.interrupt()
		}
	case proto.Connect:
		answer, err := s.network.connect(f)
		if err != nil {
			return err
		}
		s.send(answer, nil)
	case proto.Disconnect:
		s.network.disconnect()
		s.send(proto.Frame{Type: proto.Disconnected}, nil)
	case proto.Data, proto.Room, proto.EOF, proto.Reset:
		return s.network.take(f)
	default:
		return fmt.Errorf("guest: unexpected frame of type %d", f.Type)
	}
	return nil
}

// start decodes a call and runs it in a goroutine of its own.
func (s *server) start(f proto.Frame) error {
	c := newCall(s.w, f.Call)
	run, err := s.decode(c, f)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[f.Call] != nil || s.busy[c.session] {
		// The host waits for a Result before it sends the next to a session; this answers one that does not.
		c.refuse("another call of this session is running")
		return nil
	}
	s.calls[f.Call], s.busy[c.session] = c, true
	s.running.Go(func() {
		finish := run()
		s.mu.Lock()
		delete(s.calls, c.id)
		delete(s.busy, c.session)
		s.mu.Unlock()
		finish()
	})
	return nil
}

// decode returns the function that runs the call and returns the one that reports its end, which must come after the call's slot has
// been freed: the host may send the next one at once.
func (s *server) decode(c *call, f proto.Frame) (func() func(), error) {
	c.session = defaultPython
	switch f.Type {
	case proto.Warm:
		var w proto.WarmCall
		if err := proto.DecodeJSON(f, &w); err != nil {
			return nil, err
		}
		c.limits, c.timeout = w.Limits, time.Duration(w.TimeoutMS)*time.Millisecond
		return s.inPython(c, proto.Warm, list(w.Modules...)), nil
	case proto.Renew:
		var r proto.RenewCall
		if err := proto.DecodeJSON(f, &r); err != nil {
			return nil, err
		}
		c.limits = r.Limits
		return func() func() { return s.renew(c, r) }, nil
	case proto.Resume:
		var r proto.ResumeCall
		if err := proto.DecodeJSON(f, &r); err != nil {
			return nil, err
		}
		c.limits, c.timeout = r.Limits, time.Duration(r.TimeoutMS)*time.Millisecond
		return s.inSession(c, func(in session) func() { return in.(*interpreter).resume(c, r) }), nil //nolint:forcetypeassert // of defaultPython
	}
	if f.Type == proto.Terminal {
		var t proto.TerminalCall
		if err := proto.DecodeJSON(f, &t); err != nil {
			return nil, err
		}
		c.session, c.limits = sessionKey{"terminal", strconv.FormatUint(uint64(c.id), 10)}, t.Limits
		c.terminal = newTerminal()
		return func() func() { return c.terminal.run(&s.cfg, s.procs, c, t) }, nil
	}
	var st proto.StartCall
	if err := proto.DecodeJSON(f, &st); err != nil {
		return nil, err
	}
	c.session, c.limits, c.timeout = sessionKey{st.Kind, st.Session}, st.Limits, time.Duration(st.TimeoutMS)*time.Millisecond
	c.left = max(0, st.Limits.Output)
	if c.session == defaultPython && len(st.Functions) > 0 {
		c.program = st.Program
	}
	switch {
	case len(st.Session) > proto.MaxSession:
		return nil, errors.New("guest: the name of a session is too long")
	case st.Kind == proto.Bash && st.Session == "":
		return func() func() { return runShell(&s.cfg, s.procs, c, st) }, nil
	case st.Kind == proto.Edit:
		return func() func() { return runEdit(&s.cfg, s.procs, c, st) }, nil
	case st.Kind == proto.Bash || languages[st.Kind] != nil:
		return s.inSession(c, func(in session) func() { return in.run(c, st) }), nil
	}
	return nil, fmt.Errorf("guest: unknown kind of call %.20q", st.Kind)
}

// renew renews what was restored: the guest's own surroundings, and every Python kernel that lives. No other call runs meanwhile.
func (s *server) renew(c *call, r proto.RenewCall) func() {
	if s.cfg.Renew != nil {
		if err := s.cfg.Renew(r); err != nil {
			return func() { c.refuse(err.Error()) }
		}
	}
	payload := list("0")
	if r.Fresh {
		payload = list("1")
		for k, v := range threadEnv(r.Limits) {
			payload = append(payload, list(k, v)...)
		}
	}
	kernels := s.sessions.kernels(proto.Python)
	if len(kernels) == 0 {
		c.started()
		return func() { c.finish(proto.CallResult{Status: proto.OK}) }
	}
	finish := kernels[0].request(c, proto.Renew, payload)
	for _, in := range kernels[1:] {
		quiet := newCall(proto.NewWriter(io.Discard), c.id) // the host knows of one call only
		quiet.limits = c.limits
		in.request(quiet, proto.Renew, payload)
	}
	return finish
}

// inSession returns the function that runs the call in its session.
func (s *server) inSession(c *call, run func(session) func()) func() func() {
	return func() func() {
		in, err := s.sessions.take(c.session)
		if err != nil {
			return func() { c.refuse(err.Error()) }
		}
		defer s.sessions.give(c.session)
		return run(in)
	}
}

// inPython is inSession for a request that only the default Python kernel knows.
func (s *server) inPython(c *call, t proto.Type, payload []byte) func() func() {
	return s.inSession(c, func(in session) func() { return in.(*interpreter).request(c, t, payload) }) //nolint:forcetypeassert // of defaultPython
}

func (s *server) send(f proto.Frame, err error) {
	if err == nil {
		// A host that is gone shows as the end of what is read from it.
		_ = s.w.Write(f)
	}
}

// list encodes strings for the kernel: each its length in four bytes, big endian, and the string.
func list(items ...string) []byte {
	var out []byte
	for _, s := range items {
		n := len(s)
		out = append(out, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		out = append(out, s...)
	}
	return out
}
