package guest

import (
	"os"
	"strconv"
	"sync"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// shellScript waits for a line on fd 3, which comes when the limits are set, and runs the arguments, joined, as the command. A single
// argument is at most 128 KiB.
const shellScript = `read -r _ <&3 || exit 126; exec 3<&-; _lathe=; for _ do _lathe=$_lathe$_; done; shift $#; eval "$_lathe"`

// maxArg is how much of a command goes into one argument; maxCommand what all of them may have beside a usual environment.
const (
	maxArg     = 100 << 10
	maxCommand = 1 << 20
)

// runShell runs one command in a shell of its own and returns the function that reports its end. Programs that it left in the
// background live on, unless it was stopped; their output is then discarded.
func runShell(cfg *Config, procs *processes, c *call, start proto.StartCall) func() {
	refuse := func(why string) func() { return func() { c.refuse(why) } }
	if cfg.Shell == "" {
		return refuse("there is no bash or sh in this sandbox")
	}
	if len(start.Code) > maxCommand {
		return refuse("the command is longer than 1 MiB; write it to a file and run that")
	}
	dir := cfg.WorkDir
	if start.Dir != "" {
		dir = cfg.path(start.Dir)
	}
	args := []string{"bash", "-c", shellScript, "bash"}
	for code := start.Code; len(code) > 0; {
		n := min(len(code), maxArg)
		args = append(args, code[:n])
		code = code[n:]
	}
	return runProgram(procs, c, single{
		path: cfg.Shell, dir: dir, args: args, env: cfg.environ(c.limits, cfg.callEnv(start.Env)), limits: c.limits,
		input: "\n",
	})
}

// single is a program that is a call of its own.
type single struct {
	path, dir string
	args, env []string
	limits    proto.Limits
	// input comes on fd 3 when the limits are set: the program waits for it.
	input string
}

// runProgram runs a program and returns the function that reports its end.
func runProgram(procs *processes, c *call, s single) func() {
	refuse := func(why string) func() { return func() { c.refuse(why) } }
	t, out, errOut, err := newTap()
	if err != nil {
		return refuse(err.Error())
	}
	procs.watch(t)
	t.attach(c)
	gate, open, err := os.Pipe()
	if err != nil {
		out.Close()
		errOut.Close()
		t.close()
		return refuse(err.Error())
	}
	p, err := procs.start(command{
		path: s.path, dir: s.dir, args: s.args, env: s.env, files: []*os.File{out, errOut, gate}, limits: s.limits,
	})
	out.Close()
	errOut.Close()
	gate.Close()
	if err != nil {
		open.Close()
		t.close()
		return refuse(err.Error())
	}
	c.started()
	var fed sync.WaitGroup
	fed.Go(func() { // a program that does not read holds up nobody
		_, _ = open.WriteString(s.input)
		open.Close()
	})
	defer func() {
		open.Close()
		fed.Wait()
	}()
	return finishProgram(procs, c, t, p)
}

func finishProgram(procs *processes, c *call, t *tap, p *process) func() {
	cause, killed := c.supervise(program{
		ended:     p.ended,
		interrupt: func() { procs.interrupt(p) },
		kill:      func() { procs.kill(p) },
	})
	if cause != "" && !killed {
		// The shell is gone, but what it started may have ignored the interrupt.
		procs.kill(p)
	}
	t.drain()
	t.attach(nil)
	r := proto.CallResult{Status: proto.OK}
	select {
	case <-p.ended:
		r = shellResult(p, p.exitCode())
	default:
		// It was killed and is not gone: the host's kernel has it in an uninterruptible wait.
	}
	if cause != "" {
		r.Status, r.Error = cause, c.because(cause)
	}
	return func() { c.finish(r) }
}

// shellResult is the result of a command that ended with code; p is the shell where it is dead, nil where it lives on.
func shellResult(p *process, code int) proto.CallResult {
	r := proto.CallResult{Status: proto.OK, ExitCode: code}
	switch {
	case p != nil && p.status.Signaled():
		r.Status, r.Error = proto.Killed, "the shell "+p.death()
	case code != 0:
		r.Status, r.Error = proto.Failed, "exit status "+strconv.Itoa(code)
	}
	return r
}
