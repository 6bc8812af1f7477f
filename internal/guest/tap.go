package guest

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// drainLimit is how much one drain takes from one pipe. It is the most that a pipe can hold; without a limit a background program that
// writes without end would keep a call from ending.
const drainLimit = 1 << 20

// sink takes what programs write.
type sink interface {
	write(stream proto.Stream, data []byte)
}

// tap takes the output of a session's programs from two pipes, for the call that is attached, or for nobody: programs must never block
// on a full pipe. All it does is under one mutex, so that what was read first is also sent first.
type tap struct {
	mu    sync.Mutex
	to    sink // nil discards
	pipes [2]*os.File
	buf   []byte
	wg    sync.WaitGroup
}

// newTap returns the ends to write to as well; the caller closes them when a program has inherited them. The tap ends when all programs
// have closed them, and with close at the latest.
func newTap() (t *tap, out, err *os.File, fail error) {
	t = &tap{buf: make([]byte, proto.MaxChunk)}
	r1, w1, fail := os.Pipe()
	if fail != nil {
		return nil, nil, nil, fail
	}
	r2, w2, fail := os.Pipe()
	if fail != nil {
		r1.Close()
		w1.Close()
		return nil, nil, nil, fail
	}
	t.pipes = [2]*os.File{r1, r2}
	for i, s := range []proto.Stream{proto.Stdout, proto.Stderr} {
		t.wg.Go(func() { t.follow(t.pipes[i], s) })
	}
	return t, w1, w2, nil
}

// attach gives what comes from now on to to; nil discards it. What was read before went to the one before.
func (t *tap) attach(to sink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.to = to
}

// drain reads what programs have written so far. What a program wrote before it did something that the caller saw has been sent when
// drain returns.
func (t *tap) drain() {
	for i, s := range []proto.Stream{proto.Stdout, proto.Stderr} {
		conn, err := t.pipes[i].SyscallConn()
		if err != nil {
			continue
		}
		_ = conn.Control(func(fd uintptr) {
			for taken := 0; taken < drainLimit; {
				n, err := t.readOnce(fd, s)
				if n <= 0 || err != nil {
					return
				}
				taken += n
			}
		})
	}
}

// send gives f the attached sink, nil if there is none, in order with the output.
func (t *tap) send(f func(to sink)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(t.to)
}

// close ends the tap though programs may still hold the pipes.
func (t *tap) close() {
	t.pipes[0].Close()
	t.pipes[1].Close()
	t.wg.Wait()
}

// follow reads one pipe until its last writer is gone.
func (t *tap) follow(pipe *os.File, stream proto.Stream) {
	defer pipe.Close()
	conn, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	for {
		var n int
		err := conn.Read(func(fd uintptr) bool {
			var err error
			n, err = t.readOnce(fd, stream)
			return !errors.Is(err, syscall.EAGAIN)
		})
		if err != nil || n <= 0 {
			return
		}
	}
}

// readOnce reads without blocking and forwards within the same critical section: when another reader, or the kernel, sees the pipe
// empty, its content has been sent.
func (t *tap) readOnce(fd uintptr, stream proto.Stream) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		n, err := unix.Read(int(fd), t.buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if n > 0 && t.to != nil {
			t.to.write(stream, t.buf[:n])
		}
		return n, err
	}
}
