package guest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/lathe-gateway/lathe/internal/guest/editor"
	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// editArgument, as its only argument, makes the guest's program the editor of one call.
const editArgument = "edit"

// runEdit runs the editor as a program of its own, as the user of all programs, and returns the function that reports its end. Its memory
// and processes are not limited: it is our code, with bounds of its own, and a Go program reserves more than it uses.
func runEdit(cfg *Config, procs *processes, c *call, start proto.StartCall) func() {
	if cfg.Self == "" {
		return editHere(cfg, c, start)
	}
	limits := c.limits
	limits.Memory, limits.Processes = 0, 0
	dir := cfg.WorkDir
	if start.Dir != "" {
		dir = cfg.path(start.Dir)
	}
	return runProgram(procs, c, single{
		path: cfg.Self, args: []string{"edit", editArgument}, dir: dir, env: cfg.environ(limits, cfg.callEnv(start.Env)),
		limits: limits, input: start.Code,
	})
}

// editHere is for tests without isolation, whose program is not a guest's.
func editHere(cfg *Config, c *call, start proto.StartCall) func() {
	env := map[string]string{"HOME": cfg.Home}
	for k, v := range start.Env {
		env[k] = v
	}
	dir := cfg.WorkDir
	if start.Dir != "" {
		dir = cfg.path(start.Dir)
	}
	c.started()
	out, err := edit([]byte(start.Code), editor.Env{
		Dir: dir, Map: cfg.MapPath,
		Lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	if err != nil {
		return func() { c.finish(proto.CallResult{Status: proto.Failed, ExitCode: 1, Error: err.Error()}) }
	}
	c.write(proto.Stdout, out)
	return func() { c.finish(proto.CallResult{Status: proto.OK}) }
}

func edit(request []byte, env editor.Env) ([]byte, error) {
	var call proto.EditCall
	if err := json.Unmarshal(request, &call); err != nil {
		return nil, err
	}
	return json.Marshal(editor.Run(call, env))
}

// editMain is the editor's process: the request comes on fd 3, the result goes to stdout.
func editMain() int {
	signal.Ignore(syscall.SIGXFSZ) // a file that may not grow so far is an error, not an end
	request, err := io.ReadAll(io.LimitReader(os.NewFile(3, "request"), proto.MaxPayload))
	if err == nil {
		var dir string
		if dir, err = os.Getwd(); err == nil {
			var out []byte
			if out, err = edit(request, editor.Env{Dir: dir, Lookup: os.LookupEnv}); err == nil {
				_, err = os.Stdout.Write(out)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
