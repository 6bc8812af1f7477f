package guest

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// shell is a session of Bash calls: one bash that keeps its directory, variables and functions. It is an interactive one without a
// terminal, since only such a bash drops what it does on SIGINT and lives on.
type shell struct {
	cfg   *Config
	procs *processes
	live  *liveShell
	// lost says that there was a shell before, which has been ended.
	lost bool
}

type liveShell struct {
	proc   *process
	tap    *tap
	in     *os.File
	limits proto.Limits
	codes  chan int // exit codes of commands; closed at the end of what can be read
}

// statusFd is the descriptor on which a shell reports, each with a NUL behind it, the exit codes of its commands. Commands do not inherit
// it, though they may find it: what they write there only ends or confuses their own session.
const statusFd = "9"

// shellSetup leaves nothing of an interactive bash but what it does on SIGINT.
const shellSetup = "PS1= PS2=; set +H +m; unset HISTFILE PS0 PROMPT_COMMAND; printf '0\\0' >&" + statusFd + "\n"

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (sh *shell) run(c *call, start proto.StartCall) func() {
	refuse := func(why string) func() { return func() { c.refuse(why) } }
	if strings.ContainsRune(start.Code, 0) {
		return refuse("the command holds a NUL byte")
	}
	restarted := sh.lost || sh.live != nil && sh.live.dead()
	l, err := sh.ensure(c, start)
	if err != nil {
		return refuse(err.Error())
	}
	sh.lost = false
	if l.limits != c.limits && sh.procs.limit(l.proc, c.limits) == nil {
		l.limits = c.limits
	}
	l.tap.drain() // what it said while it started
	l.tap.attach(c)
	c.started()
	go func() {
		if _, err := io.WriteString(l.in, sh.script(start)); err != nil {
			sh.procs.kill(l.proc) // it reads no more commands
		}
	}()
	var code *int
	over := make(chan struct{})
	go func() {
		defer close(over)
		if n, ok := <-l.codes; ok {
			code = &n
			return
		}
		<-l.proc.ended
	}()
	cause, killed := c.supervise(program{
		ended:     over,
		interrupt: func() { sh.procs.interrupt(l.proc) },
		kill:      func() { sh.procs.kill(l.proc) },
	})
	l.tap.drain()
	l.tap.attach(nil)
	r := proto.CallResult{Status: proto.OK}
	select {
	case <-over:
		if code != nil {
			r = shellResult(nil, *code)
		} else {
			r = shellResult(l.proc, l.proc.exitCode())
		}
	default:
	}
	if cause != "" {
		r.Status, r.Error = cause, c.because(cause)
	}
	if r.KernelRestarted = restarted || killed || l.dead(); killed || l.dead() {
		sh.close()
	}
	return func() { c.finish(r) }
}

// ensure returns a shell that takes commands. It starts in the directory of the call that it is started for.
func (sh *shell) ensure(c *call, start proto.StartCall) (*liveShell, error) {
	if sh.live != nil && !sh.live.dead() {
		return sh.live, nil
	}
	sh.close()
	l, err := sh.start(c, start)
	if err != nil {
		return nil, err
	}
	boot := time.NewTimer(bootTime)
	defer boot.Stop()
	select {
	case _, ok := <-l.codes:
		if ok {
			sh.live = l
			return l, nil
		}
		err = errors.New("bash did not start")
	case <-c.interrupts:
		err = errors.New("interrupted before it started")
	case <-c.kills:
		err = errors.New("interrupted before it started")
	case <-boot.C:
		err = errors.New("bash did not start within a minute")
	}
	sh.live = l
	sh.close()
	return nil, err
}

func (sh *shell) start(c *call, start proto.StartCall) (*liveShell, error) {
	if filepath.Base(sh.cfg.Shell) != "bash" {
		return nil, errors.New("there is no bash in this sandbox: a session needs one, commands without a session run in sh")
	}
	t, out, errOut, err := newTap()
	if err != nil {
		return nil, err
	}
	files := []*os.File{out, errOut}
	fail := func(err error) (*liveShell, error) {
		for _, f := range files {
			f.Close()
		}
		t.close()
		return nil, err
	}
	r1, w1, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	files = append(files, r1, w1)
	r2, w2, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	files = append(files, r2, w2)
	if _, err := w1.WriteString(shellSetup); err != nil {
		return fail(err)
	}
	dir := sh.cfg.WorkDir
	if start.Dir != "" {
		dir = sh.cfg.path(start.Dir)
	}
	// Standard input is what bash reads commands from; it moves its own copy of the channel away from where commands would find it.
	p, err := sh.procs.start(command{
		path: sh.cfg.Shell, args: []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}, dir: dir,
		env: sh.cfg.environ(c.limits, nil), stdin: r1, files: []*os.File{out, errOut, nil, nil, nil, nil, nil, nil, w2}, limits: c.limits,
	})
	if err != nil {
		return fail(err)
	}
	for _, f := range []*os.File{out, errOut, r1, w2} {
		f.Close()
	}
	l := &liveShell{proc: p, tap: t, in: w1, limits: c.limits, codes: make(chan int)}
	go l.listen(r2)
	return l, nil
}

// listen passes exit codes on until the shell is gone, or a program has garbled them.
func (l *liveShell) listen(pipe *os.File) {
	defer pipe.Close()
	defer close(l.codes)
	r := bufio.NewReaderSize(pipe, 16)
	for {
		text, err := r.ReadSlice(0)
		if err != nil {
			return
		}
		code, err := strconv.Atoi(string(text[:len(text)-1]))
		if err != nil {
			return
		}
		select {
		case l.codes <- code:
		case <-l.proc.ended:
			return
		}
	}
}

// script is what bash reads for one command.
func (sh *shell) script(start proto.StartCall) string {
	var b strings.Builder
	for name, value := range sh.cfg.callEnv(start.Env) {
		if identifier.MatchString(name) {
			b.WriteString("export " + name + "=" + quote(value) + "\n")
		}
	}
	b.WriteString("eval " + quote(start.Code) + " </dev/null " + statusFd + ">&-\n")
	b.WriteString("printf '%s\\0' \"$?\" >&" + statusFd + "\n")
	return b.String()
}

// quote is a string as one line of bash.
func quote(s string) string {
	return "$'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(s) + "'"
}

func (l *liveShell) dead() bool {
	select {
	case <-l.proc.ended:
		return true
	default:
		return false
	}
}

func (sh *shell) close() {
	if l := sh.live; l != nil {
		sh.procs.kill(l.proc)
		l.in.Close()
		l.tap.close()
		sh.live = nil
	}
}
