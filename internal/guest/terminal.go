package guest

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// terminal is one shell of an operator's on a terminal of its own. What it started ends with it.
type terminal struct {
	news chan struct{} // has room for one: there is something to type

	mu    sync.Mutex
	typed []byte
	room  int64 // of TerminalWindow
	freed chan struct{}
	over  bool                    // nothing more is shown
	size  func(rows, cols uint16) // nil before the terminal is open
	rows  uint16
	cols  uint16
}

func newTerminal() *terminal {
	return &terminal{news: make(chan struct{}, 1), room: proto.TerminalWindow, freed: make(chan struct{}, 1)}
}

// take acts on a frame of the host. It never blocks.
func (t *terminal) take(f proto.Frame) error {
	if t == nil {
		return errors.New("guest: a terminal's frame for a call that has none")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case f.Type == proto.Input && len(f.Payload) > 0 && len(f.Payload) <= proto.MaxData:
		if len(t.typed)+len(f.Payload) <= proto.MaxTyped {
			t.typed = append(t.typed, f.Payload...)
		}
		poke(t.news)
	case f.Type == proto.Resize && len(f.Payload) == 4:
		t.rows, t.cols = binary.BigEndian.Uint16(f.Payload), binary.BigEndian.Uint16(f.Payload[2:])
		if t.size != nil {
			t.size(t.rows, t.cols)
		}
	case f.Type == proto.Taken && len(f.Payload) == 4:
		t.room = min(t.room+int64(binary.BigEndian.Uint32(f.Payload)), proto.TerminalWindow)
		poke(t.freed)
	default:
		return errors.New("guest: a terminal's frame that is none")
	}
	return nil
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// shellWait is shellScript for a shell on a terminal. Its arguments are the shell and the shell's.
const shellWait = `read -r _ <&3 || exit 126; exec 3<&-; exec "$@"`

// lastWords is how long the output of a shell that has ended may take: a program that it left behind may write for ever.
const lastWords = 200 * time.Millisecond

// run runs the shell and returns the function that reports its end.
func (t *terminal) run(cfg *Config, procs *processes, c *call, start proto.TerminalCall) func() {
	refuse := func(why string) func() { return func() { c.refuse(why) } }
	if cfg.Shell == "" {
		return refuse("there is no bash or sh in this sandbox")
	}
	master, slave, err := openTerminal()
	if err != nil {
		return refuse("no terminal can be opened: " + err.Error())
	}
	t.mu.Lock()
	t.size = func(rows, cols uint16) { setSize(master, rows, cols) }
	if t.rows == 0 {
		t.rows, t.cols = start.Rows, start.Cols
	}
	t.size(t.rows, t.cols)
	t.mu.Unlock()
	gate, open, err := os.Pipe()
	if err != nil {
		master.Close()
		slave.Close()
		return refuse(err.Error())
	}
	p, err := procs.start(command{
		path: cfg.Shell, args: []string{"sh", "-c", shellWait, "sh", cfg.Shell, "-i"}, dir: cfg.WorkDir,
		env: cfg.environ(c.limits, cfg.callEnv(start.Env)), stdin: slave, files: []*os.File{slave, slave, gate}, limits: c.limits, terminal: true,
	})
	slave.Close()
	gate.Close()
	if err != nil {
		open.Close()
		master.Close()
		return refuse(err.Error())
	}
	c.started()
	_, _ = open.WriteString("\n")
	open.Close()
	end := make(chan struct{})
	said := make(chan struct{})
	go func() {
		defer close(said)
		t.show(master, c, end)
	}()
	go t.typeInto(master, end)
	cause, _ := c.supervise(program{ended: p.ended, interrupt: func() { procs.kill(p) }, kill: func() { procs.kill(p) }})
	select {
	case <-said:
	case <-time.After(lastWords):
	}
	close(end)
	procs.kill(p)
	t.mu.Lock()
	t.size, t.over = nil, true
	t.mu.Unlock()
	master.Close()
	r := proto.CallResult{Status: proto.OK}
	select {
	case <-p.ended:
		r = shellResult(p, p.exitCode())
	default:
	}
	if cause != "" {
		r.Status, r.Error = cause, "hung up"
	}
	return func() { c.finish(r) }
}

// show sends what the terminal shows, as far as the host takes it.
func (t *terminal) show(master *os.File, c *call, end <-chan struct{}) {
	buf := make([]byte, proto.MaxData)
	for {
		t.mu.Lock()
		room := min(t.room, int64(len(buf)))
		t.mu.Unlock()
		if room == 0 {
			select {
			case <-t.freed:
				continue
			case <-end:
				return
			}
		}
		n, err := master.Read(buf[:room])
		t.mu.Lock()
		if n > 0 && !t.over {
			t.room -= int64(n)
			_ = c.w.Write(proto.Frame{Type: proto.Output, Call: c.id, Payload: buf[:n]}, byte(proto.Stdout))
		}
		t.mu.Unlock()
		if err != nil {
			return // the last program has closed it, or it was closed here
		}
	}
}

// typeInto gives the terminal what was typed.
func (t *terminal) typeInto(master *os.File, end <-chan struct{}) {
	for {
		select {
		case <-t.news:
		case <-end:
			return
		}
		t.mu.Lock()
		typed := t.typed
		t.typed = nil
		t.mu.Unlock()
		if _, err := master.Write(typed); err != nil {
			return
		}
	}
}
