package guest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// processes starts programs, waits for them and kills them. Every program is started in a scope, a mark that all its descendants carry
// whatever they do (fork, setsid, a changed name), so that a call's programs can be found and killed.
type processes struct {
	isolate, reap bool
	user          uint32 // uid and gid of all programs, with isolate
	// name makes the marks of this guest its own where several share a machine.
	name string
	stop chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex // held from fork to registration, and from wait to its record
	live   map[int]*process
	scopes int
	taps   map[*tap]bool // of shells, which programs in the background keep open
}

// process is a program that was started.
type process struct {
	pid    int
	scope  scope
	ended  chan struct{} // closed when it has been waited for
	status syscall.WaitStatus
}

// scope is a mark; see processes.
type scope int

// command is what to start.
type command struct {
	path, dir string
	args, env []string
	stdin     *os.File   // nil is /dev/null
	files     []*os.File // fds 1, 2 and so on; nil is closed
	limits    proto.Limits
	terminal  bool // stdin is a terminal, and is to be the program's controlling one
}

func newProcesses(cfg Config) *processes {
	ps := &processes{
		isolate: cfg.Isolate, reap: cfg.Reap, user: cfg.User, live: map[int]*process{}, stop: make(chan struct{}), taps: map[*tap]bool{},
		name: fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano()),
	}
	if cfg.Reap {
		ps.wg.Go(ps.reapAll)
	}
	return ps
}

// start runs cmd in a session and scope of its own. The program has its limits some moments after it has begun: whoever starts one makes
// it wait (for a first line or request) before it does what it was started for.
func (ps *processes) start(cmd command) (*process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	files := []uintptr{null.Fd()}
	if cmd.stdin != nil {
		files[0] = cmd.stdin.Fd()
	}
	for _, f := range cmd.files {
		fd := ^uintptr(0) // ForkExec closes what is -1
		if f != nil {
			fd = f.Fd()
		}
		files = append(files, fd)
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.scopes++
	p := &process{scope: scope(ps.scopes), ended: make(chan struct{})}
	sys := ps.attributes(p.scope)
	sys.Setctty = cmd.terminal
	p.pid, err = syscall.ForkExec(cmd.path, cmd.args, &syscall.ProcAttr{
		Dir: cmd.dir, Env: append(cmd.env, ps.mark(p.scope)), Files: files, Sys: sys,
	})
	if err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", cmd.path, cmd.dir, err)
	}
	ps.live[p.pid] = p
	if !ps.reap {
		ps.wg.Go(func() { ps.await(p) })
	}
	if err := setLimits(p.pid, cmd.limits, ps.isolate); err != nil {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		return nil, fmt.Errorf("limits of %s: %w", cmd.path, err)
	}
	return p, nil
}

// limit changes the limits of a running program; its children have those that were set when they were forked.
func (ps *processes) limit(p *process, l proto.Limits) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.live[p.pid] != p {
		return os.ErrProcessDone
	}
	return setLimits(p.pid, l, ps.isolate)
}

// interrupt sends SIGINT to the program's group, as a terminal would.
func (ps *processes) interrupt(p *process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.live[p.pid] == p {
		_ = unix.Kill(-p.pid, unix.SIGINT)
	}
}

// kill kills the program and everything that it or its descendants started, and returns when none of it runs any more.
func (ps *processes) kill(p *process) {
	ps.mu.Lock()
	if ps.live[p.pid] == p {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
	ps.mu.Unlock()
	// A program may fork while it is looked for, so look until nothing is found. One that outruns this is ended with all others.
	begin := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		found := ps.find(p.scope)
		if len(found) == 0 {
			break
		}
		for _, pid := range found {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if time.Since(begin) > killTime/2 {
			if !ps.isolate || time.Since(begin) > 4*killTime {
				break
			}
			ps.killAll()
		}
		time.Sleep(wait)
	}
	select {
	case <-p.ended:
	case <-time.After(killTime):
	}
}

// close kills everything that was started here, and waits for it.
func (ps *processes) close() {
	ps.mu.Lock()
	for pid := range ps.live {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
	ps.mu.Unlock()
	if ps.isolate {
		ps.killAll()
	}
	for range 50 {
		found := ps.find(0)
		if len(found) == 0 {
			break
		}
		for _, pid := range found {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
	ps.mu.Lock()
	taps := slices.Collect(maps.Keys(ps.taps))
	ps.mu.Unlock()
	for _, t := range taps {
		t.close()
	}
	close(ps.stop)
	ps.wg.Wait()
}

// watch closes t at the end if programs have not done so before.
func (ps *processes) watch(t *tap) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.taps[t] = true
	ps.wg.Go(func() {
		t.wg.Wait()
		ps.mu.Lock()
		defer ps.mu.Unlock()
		delete(ps.taps, t)
	})
}

// killAll ends every other process of the namespace. The guest is PID 1 there, and spared.
func (ps *processes) killAll() {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, unix.SIGKILL)
	}
}

// await waits for one child. It is used where other children of this process are not the guest's.
func (ps *processes) await(p *process) {
	for {
		// WNOWAIT, so that the pid cannot be reused before the lock is held and everybody knows that it is gone.
		if err := waitExited(p.pid); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(p.pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	ps.record(p.pid, status)
}

// record notes the end of a child; mu is held.
func (ps *processes) record(pid int, status syscall.WaitStatus) {
	if p := ps.live[pid]; p != nil {
		delete(ps.live, pid)
		p.status = status
		close(p.ended)
	}
}

// mark is the environment variable by which a scope's programs are found where there is no group for it. The value 0 is every scope's
// common beginning.
func (ps *processes) mark(s scope) string {
	if s == 0 {
		return "LATHE_SCOPE=" + ps.name + "."
	}
	return "LATHE_SCOPE=" + ps.name + "." + strconv.Itoa(int(s)) + "."
}

// death describes how a program ended that was not meant to.
func (p *process) death() string {
	switch {
	case p.status.Signaled() && p.status.Signal() == unix.SIGKILL:
		return "was killed by SIGKILL, most often for want of memory"
	case p.status.Signaled():
		return fmt.Sprintf("was killed by %s (%v)", unix.SignalName(p.status.Signal()), p.status.Signal())
	}
	return fmt.Sprintf("exited with status %d", p.status.ExitStatus())
}

// exitCode is the status as a shell would report it.
func (p *process) exitCode() int {
	if p.status.Signaled() {
		return 128 + int(p.status.Signal())
	}
	return p.status.ExitStatus()
}
