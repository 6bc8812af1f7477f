package guest

import (
	"errors"
	"os"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// startKernel starts an interpreter with its kernel: requests on fd 3, messages on fd 4 and, where it takes new pipes, those over fd 5.
func startKernel(cfg *Config, procs *processes, lang *language, limits proto.Limits) (*kernel, error) {
	path := lang.path(cfg)
	if path == "" {
		return nil, errors.New("there is no " + lang.name + " in this sandbox: it needs an image that has it")
	}
	t, out, errOut, err := newTap()
	if err != nil {
		return nil, err
	}
	files := []*os.File{out, errOut}
	fail := func(err error) (*kernel, error) {
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
	if _, err := w1.Write(list(lang.source)); err != nil { // it is smaller than a pipe
		return fail(err)
	}
	inherited := []*os.File{out, errOut, r1, w2}
	var pipes, theirs *os.File
	if lang.functions {
		if pipes, theirs, err = socketPair(); err != nil {
			return fail(err)
		}
		files = append(files, pipes, theirs)
		inherited = append(inherited, theirs)
	}
	t.attach(&tail{})
	p, err := procs.start(command{
		path: path, args: append([]string{path}, lang.args(limits)...), dir: cfg.WorkDir, env: cfg.environ(limits, nil),
		files: inherited, limits: lang.limits(limits),
	})
	if err != nil {
		return fail(err)
	}
	for _, f := range inherited {
		f.Close()
	}
	k := &kernel{
		proc: p, tap: t, in: w1, w: proto.NewWriter(w1), limits: limits, pipes: pipes,
		ready: make(chan struct{}), done: make(chan reply, 1), deaf: make(chan struct{}),
	}
	go k.listen(procs, r2)
	return k, nil
}
