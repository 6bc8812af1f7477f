package link

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// maxQueue is how many pieces of output wait for a slow sink; neighbours on one stream are one piece. What is beyond is dropped and
// counted, as only a program that changes streams with every few bytes gets there.
const maxQueue = 1 << 16

// pending is a call between Start and Result. The link's reader fills it, the goroutine of Exec empties it.
type pending struct {
	id      uint32
	free    func()        // gives the session to its next call
	news    chan struct{} // has room for one: there is something to deliver
	started chan struct{} // closed when the guest has acknowledged the call
	ended   chan struct{} // closed when over is set

	mu        sync.Mutex
	queue     []piece
	left      int64
	dropped   int64
	abandoned bool
	begin     time.Time
	result    *sandbox.Result
	refused   error
	over      bool

	rest map[proto.Stream][]byte // the cut character at the end of each stream; only deliver uses it
}

// piece is output as it came.
type piece struct {
	stream proto.Stream // 0 for an image
	mime   string
	data   []byte
}

func newPending(id uint32, limit int64, free func()) *pending {
	return &pending{
		id: id, free: free, left: limit, news: make(chan struct{}, 1), started: make(chan struct{}), ended: make(chan struct{}), rest: map[proto.Stream][]byte{},
	}
}

func (p *pending) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandoned, p.queue = true, nil
}

// take takes a frame of the guest and says whether it was the call's last. It never blocks.
func (p *pending) take(f proto.Frame) (over bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() {
		select {
		case p.news <- struct{}{}:
		default:
		}
	}()
	running := !p.begin.IsZero()
	switch {
	case f.Type == proto.Started && !running:
		p.begin = time.Now()
		close(p.started)
		return false, nil
	case f.Type == proto.Refused && !running:
		p.over, p.refused = true, refusal(string(f.Payload))
		close(p.ended)
		return true, nil
	case f.Type == proto.Output && running:
		stream, data, err := proto.DecodeOutput(f.Payload)
		if err == nil {
			p.add(stream, data)
		}
		return false, err
	case f.Type == proto.Display && running:
		mime, data, err := proto.DecodeDisplay(f.Payload)
		if err == nil {
			p.addImage(mime, data)
		}
		return false, err
	case f.Type == proto.Result && running:
		return true, p.finish(f)
	case f.Type == proto.Calls && running:
		return true, p.wait(f)
	}
	return false, fmt.Errorf("unexpected frame of type %d", f.Type)
}

func (p *pending) add(stream proto.Stream, data []byte) {
	n := min(int64(len(data)), p.left)
	if p.abandoned || len(p.queue) >= maxQueue {
		n = 0
	}
	p.left -= n
	p.dropped += int64(len(data)) - n
	if n == 0 {
		return
	}
	if last := len(p.queue) - 1; last >= 0 && p.queue[last].stream == stream {
		p.queue[last].data = append(p.queue[last].data, data[:n]...)
		return
	}
	p.queue = append(p.queue, piece{stream: stream, data: bytes.Clone(data[:n])})
}

func (p *pending) addImage(mime string, data []byte) {
	n := int64(len(data) + len(mime))
	if n > p.left || p.abandoned || len(p.queue) >= maxQueue {
		p.dropped += n
		return
	}
	p.left -= n
	p.queue = append(p.queue, piece{mime: mime, data: bytes.Clone(data)})
}

func (p *pending) finish(f proto.Frame) error {
	var r proto.CallResult
	if err := proto.DecodeJSON(f, &r); err != nil {
		return err
	}
	s, ok := status(r.Status)
	if !ok || r.Truncated < 0 {
		return errors.New("a result that cannot be")
	}
	p.over = true
	close(p.ended)
	p.result = &sandbox.Result{
		Status: s, ExitCode: r.ExitCode, Error: clean(clip(r.Error, 4<<10)), Truncated: r.Truncated + p.dropped,
		KernelRestarted: r.KernelRestarted, Duration: time.Since(p.begin),
	}
	return nil
}

// deliver gives sink what has come and says whether the call is over.
func (p *pending) deliver(sink func(sandbox.Output)) bool {
	p.mu.Lock()
	queue, over := p.queue, p.over
	p.queue = nil
	p.mu.Unlock()
	if sink == nil {
		return over
	}
	for _, pc := range queue {
		if pc.stream == 0 {
			sink(sandbox.Output{Stream: sandbox.Display, MIME: pc.mime, Data: pc.data})
			continue
		}
		if text := p.decode(pc.stream, pc.data); text != "" {
			sink(sandbox.Output{Stream: streams[pc.stream], Text: text})
		}
	}
	if over {
		for _, s := range []proto.Stream{proto.Stdout, proto.Stderr, proto.Value, proto.DisplayText} {
			if len(p.rest[s]) > 0 {
				sink(sandbox.Output{Stream: streams[s], Text: "\uFFFD"})
			}
		}
	}
	return over
}

var streams = map[proto.Stream]string{
	proto.Stdout: sandbox.Stdout, proto.Stderr: sandbox.Stderr, proto.Value: sandbox.Value, proto.DisplayText: sandbox.Display,
}

// decode makes valid UTF-8 of a stream's next bytes, and keeps a character that was cut at their end for the next time.
func (p *pending) decode(stream proto.Stream, data []byte) string {
	data = append(p.rest[stream], data...)
	cut := len(data)
	for back := 1; back < utf8.UTFMax && back <= len(data); back++ {
		if c := data[len(data)-back]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(data[len(data)-back:]) {
				cut = len(data) - back
			}
			break
		}
	}
	p.rest[stream] = bytes.Clone(data[cut:])
	return clean(string(data[:cut]))
}

// outcome is what Exec returns for a call that is over.
func (p *pending) outcome() (*sandbox.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result, p.refused
}
