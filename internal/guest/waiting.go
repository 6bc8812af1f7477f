package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

// maxHeld is how much output is kept that threads of a program make while it waits.
const maxHeld = 256 << 10

// waiting is a program that has called functions: its interpreter is stopped until the results come. It takes what its threads and child
// processes print meanwhile. Everything that a host needs to let it go on later is here, so that it survives a checkpoint of the sandbox.
type waiting struct {
	name    string
	timeout time.Duration // what is left of its time, 0 for no limit
	// left and dropped are those of its call.
	left, dropped int64
	held          []piece
	size          int
}

type piece struct {
	stream proto.Stream
	data   []byte
}

func (w *waiting) write(stream proto.Stream, data []byte) {
	n := min(len(data), maxHeld-w.size)
	w.size += n
	w.dropped += int64(len(data) - n)
	if n > 0 {
		w.held = append(w.held, piece{stream, append([]byte(nil), data[:n]...)})
	}
}

// waits says whether a program waits. One whose interpreter has died does not.
func (in *interpreter) waits() bool {
	if in.waiting != nil && (in.kernel == nil || in.kernel.dead()) {
		in.waiting = nil
	}
	return in.waiting != nil
}

// asked takes the calls of a program.
func (k *kernel) asked(payload []byte) error {
	k.mu.Lock()
	asks := k.asks
	k.mu.Unlock()
	if !asks {
		return errors.New("guest: the kernel calls functions that it does not have")
	}
	calls, err := decodeCalls(payload)
	if err != nil {
		return err
	}
	k.answer(reply{calls: calls})
	return nil
}

// decodeCalls reads what any program may have written in the kernel's name.
func decodeCalls(payload []byte) ([]proto.FunctionCall, error) {
	items, err := unlist(payload, 3*proto.MaxCalls)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 || len(items)%3 != 0 {
		return nil, errors.New("guest: bad calls from the kernel")
	}
	var calls []proto.FunctionCall
	seen, size := map[uint32]bool{}, 0
	for ; len(items) > 0; items = items[3:] {
		id, err := strconv.ParseUint(items[0], 10, 32)
		size += len(items[2])
		if err != nil || seen[uint32(id)] || size > proto.MaxArguments+64<<10 || !strings.HasPrefix(items[2], "{") || !json.Valid([]byte(items[2])) {
			return nil, errors.New("guest: bad calls from the kernel")
		}
		seen[uint32(id)] = true
		calls = append(calls, proto.FunctionCall{ID: uint32(id), Name: items[1], Arguments: items[2]})
	}
	return calls, nil
}

// unlist is the inverse of list.
func unlist(payload []byte, most int) ([]string, error) {
	var items []string
	for len(payload) > 0 {
		if len(payload) < 4 || len(items) == most {
			return nil, errors.New("guest: bad list from the kernel")
		}
		n := int64(binary.BigEndian.Uint32(payload))
		if payload = payload[4:]; n > int64(len(payload)) {
			return nil, errors.New("guest: bad list from the kernel")
		}
		items = append(items, string(payload[:n]))
		payload = payload[n:]
	}
	return items, nil
}

// pause keeps the program of a call whose interpreter waits, and returns the function that reports its calls.
func (in *interpreter) pause(c *call, k *kernel, calls []proto.FunctionCall) func() {
	w := &waiting{name: c.program}
	k.output().drain()
	k.output().send(func(sink) { w.left, w.dropped = c.left, c.dropped })
	k.output().attach(w)
	k.mu.Lock()
	k.call = 0
	k.mu.Unlock()
	if c.timeout > 0 {
		w.timeout = max(c.timeout-time.Since(c.begun), time.Second)
	}
	in.waiting = w
	return func() {
		if f, err := proto.EncodeJSON(proto.Calls, c.id, proto.CallsInfo{Calls: calls}); err == nil {
			_ = c.w.Write(f)
		}
	}
}

// resume lets the program that waits go on, as the call c.
func (in *interpreter) resume(c *call, r proto.ResumeCall) func() {
	if !in.waits() || !r.Interrupt && in.waiting.name != r.Program {
		return func() { c.refuse(proto.RefusedGone) }
	}
	w, k := in.waiting, in.kernel
	in.waiting = nil
	if k.limits != c.limits {
		if err := in.procs.limit(k.proc, in.lang.limits(c.limits)); err == nil {
			k.limits = c.limits
		}
	}
	c.program, c.last = w.name, r.Interrupt
	if !r.Interrupt {
		c.timeout = w.timeout
	}
	k.output().send(func(sink) { c.left, c.dropped, c.held = w.left, w.dropped, w.held })
	return in.exchange(c, k, proto.Frame{Type: proto.Resume, Call: c.id, Payload: resumption(r)}, false)
}

func resumption(r proto.ResumeCall) []byte {
	switch {
	case r.Interrupt:
		return list("interrupt")
	case r.TimedOut:
		return list("timeout")
	}
	out := list("results")
	for _, res := range r.Results {
		failed := "0"
		if res.Error {
			failed = "1"
		}
		out = append(out, list(strconv.FormatUint(uint64(res.ID), 10), failed, res.Text)...)
	}
	return out
}

// unblock ends a program that began to wait when it was to end: SIGINT alone does not reach one that is stopped.
func (in *interpreter) unblock(c *call, k *kernel) (killed bool, said *reply) {
	ended, got := k.watch()
	go func() {
		if err := k.w.Write(proto.Frame{Type: proto.Resume, Call: c.id, Payload: list("interrupt")}); err != nil {
			in.procs.kill(k.proc)
		}
	}()
	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		killed = true
	case <-c.kills:
		killed = true
	}
	said = got()
	if said != nil && said.calls != nil {
		killed = true // it waits again
	}
	if killed {
		in.procs.kill(k.proc)
	}
	return killed, said
}
