package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// peer plays a guest. What it sends is up to the test.
type peer struct {
	t    *testing.T
	conn net.Conn
	r    *proto.Reader
	w    *proto.Writer
}

// connect makes a link and its peer. The peer has answered the greeting if hello is true.
func connect(t *testing.T, limits sandbox.Limits, hello bool) (*Link, *peer) {
	t.Helper()
	host, guest := net.Pipe()
	l := New(host, limits, slog.New(slog.DiscardHandler))
	p := &peer{t: t, conn: guest, r: proto.NewReader(guest, proto.MaxPayload), w: proto.NewWriter(guest)}
	t.Cleanup(func() {
		_ = guest.Close()
		_ = l.Close()
	})
	p.expect(proto.Ping)
	if hello {
		p.send(proto.Hello, 0, `{"version":3,"isolated":true}`)
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return l, p
}

func (p *peer) expect(want proto.Type) proto.Frame {
	p.t.Helper()
	f, err := p.r.Next()
	if err != nil || f.Type != want {
		p.t.Errorf("the host sent frame type %d, %v; want type %d", f.Type, err, want)
	}
	return f
}

func (p *peer) send(t proto.Type, call uint32, payload string) {
	// The host may have hung up by then, which is what some tests are about.
	_ = p.w.Write(proto.Frame{Type: t, Call: call, Payload: []byte(payload)})
}

func (p *peer) output(call uint32, s proto.Stream, text string) {
	p.send(proto.Output, call, string(rune(s))+text)
}

// collect runs a Python call and returns what came of it.
func collect(ctx context.Context, l *Link) (string, *sandbox.Result, error) {
	var b strings.Builder
	r, err := l.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: "code"}, func(o sandbox.Output) {
		b.WriteString(o.Stream + ":" + o.Text + o.MIME + ";")
	})
	return b.String(), r, err
}

func TestExec(t *testing.T) {
	limits := sandbox.Defaults()
	limits.Output = 40
	tests := map[string]struct {
		guest  func(p *peer, id uint32) // from the call's Start on; it hangs up afterwards
		output string
		check  func(r *sandbox.Result, err error) bool
	}{
		"result": {
			guest: func(p *peer, id uint32) {
				p.send(proto.Started, id, "")
				p.output(id, proto.Stdout, "a")
				p.output(id, proto.Stderr, "b")
				p.output(id, proto.Value, "c")
				p.output(id, proto.DisplayText, "d")
				p.send(proto.Display, id, "\x09image/pngxyz")
				p.send(proto.Result, id, `{"status":"error","exit_code":3,"error":"E: e","truncated":5,"kernel_restarted":true}`)
			},
			output: "stdout:a;stderr:b;result:c;display:d;display:image/png;",
			check: func(r *sandbox.Result, err error) bool {
				return err == nil && r.Status == sandbox.StatusError && r.ExitCode == 3 && r.Error == "E: e" && r.Truncated == 5 && r.KernelRestarted
			},
		},
		"refused": {
			guest: func(p *peer, id uint32) { p.send(proto.Refused, id, "no python") },
			check: func(r *sandbox.Result, err error) bool {
				return r == nil && errors.Is(err, sandbox.ErrNotStarted) && !errors.Is(err, sandbox.ErrDied) && strings.Contains(err.Error(), "no python")
			},
		},
		"hangs up before the start":  {guest: func(*peer, uint32) {}, check: notStarted},
		"hangs up after the start":   {guest: func(p *peer, id uint32) { p.send(proto.Started, id, "") }, check: died},
		"result of a call unstarted": {guest: func(p *peer, id uint32) { p.send(proto.Result, id, `{"status":"ok"}`) }, check: notStarted},
		"output of a call unstarted": {guest: func(p *peer, id uint32) { p.output(id, proto.Stdout, "x") }, check: notStarted},
		"started twice":              {guest: startedThen(proto.Started, ""), check: died},
		"refused after the start":    {guest: startedThen(proto.Refused, "no"), check: died},
		"a frame of the host":        {guest: startedThen(proto.Start, "{}"), check: died},
		"an unknown stream":          {guest: startedThen(proto.Output, "\x09x"), check: died},
		"a display without type":     {guest: startedThen(proto.Display, "\x00"), check: died},
		"an unknown status":          {guest: startedThen(proto.Result, `{"status":"fine"}`), check: died},
		"a negative count":           {guest: startedThen(proto.Result, `{"status":"ok","truncated":-1}`), check: died},
		"not JSON":                   {guest: startedThen(proto.Result, `status`), check: died},
		"a large result":             {guest: startedThen(proto.Result, `{"status":"ok","error":"`+strings.Repeat("x", maxMessage)+`"}`), check: died},
		"a second hello":             {guest: startedThen(proto.Hello, `{"version":3}`), check: died},
		"another call": {
			guest: func(p *peer, id uint32) { p.send(proto.Started, id, ""); p.send(proto.Result, id+1, `{"status":"ok"}`) },
			check: died,
		},
		"garbage": {
			guest: func(p *peer, id uint32) {
				p.send(proto.Started, id, "")
				_, _ = p.conn.Write([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
			},
			check: died,
		},
		"more output than allowed": {
			guest: func(p *peer, id uint32) {
				p.send(proto.Started, id, "")
				p.output(id, proto.Stdout, strings.Repeat("x", 30))
				p.output(id, proto.Stderr, strings.Repeat("y", 30))
				p.send(proto.Display, id, "\x09image/pngxyz")
				p.send(proto.Result, id, `{"status":"ok"}`)
			},
			output: "stdout:" + strings.Repeat("x", 30) + ";stderr:" + strings.Repeat("y", 10) + ";",
			check:  func(r *sandbox.Result, err error) bool { return err == nil && r.Truncated == 20+12 },
		},
		"text that is not text": {
			guest: func(p *peer, id uint32) {
				p.send(proto.Started, id, "")
				p.output(id, proto.Stdout, "\xe2")
				p.output(id, proto.Stderr, "e\xff")
				p.output(id, proto.Stdout, "\x82")
				p.output(id, proto.Stderr, "\xf0\x9f")
				p.output(id, proto.Stdout, "\xacend\xe2")
				p.send(proto.Result, id, `{"status":"error","error":"\ud800"}`)
			},
			output: "stderr:e\uFFFD;stdout:€end;stdout:\uFFFD;stderr:\uFFFD;",
			check:  func(r *sandbox.Result, err error) bool { return err == nil && r.Error == "\uFFFD" },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l, p := connect(t, limits, true)
			go func() {
				f := p.expect(proto.Start)
				tt.guest(p, f.Call)
				_ = p.conn.Close()
			}()
			output, r, err := collect(t.Context(), l)
			if !tt.check(r, err) {
				t.Errorf("got %+v, %v", r, err)
			}
			if tt.output != "" && output != tt.output {
				t.Errorf("output %q, want %q", output, tt.output)
			}
			<-l.Done()
			if _, _, err := collect(t.Context(), l); !errors.Is(err, sandbox.ErrNotStarted) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func notStarted(_ *sandbox.Result, err error) bool {
	return errors.Is(err, sandbox.ErrNotStarted) && !errors.Is(err, sandbox.ErrDied)
}

func died(_ *sandbox.Result, err error) bool {
	return errors.Is(err, sandbox.ErrDied) && !errors.Is(err, sandbox.ErrNotStarted)
}

func startedThen(t proto.Type, payload string) func(*peer, uint32) {
	return func(p *peer, id uint32) {
		p.send(proto.Started, id, "")
		p.send(t, id, payload)
	}
}

func TestReady(t *testing.T) {
	tests := map[string]struct{ hello, err string }{
		"another version": {`{"version":1}`, "another lathe"},
		"not JSON":        {"hello", "payload"},
		"too long":        {`{"version":3,"notes":["` + strings.Repeat("x", maxMessage) + `"]}`, "bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l, p := connect(t, sandbox.Defaults(), false)
			go p.send(proto.Hello, 0, tt.hello)
			if err := l.Ready(t.Context()); !errors.Is(err, sandbox.ErrNotStarted) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		l, _ := connect(t, sandbox.Defaults(), false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Ready(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// A guest that does nothing about an interrupt does not keep the caller.
func TestCancelOfADeafGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := connect(t, sandbox.Defaults(), true)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			id := p.expect(proto.Start).Call
			p.send(proto.Started, id, "")
			p.output(id, proto.Stdout, "begun")
			cancel()
			p.expect(proto.Interrupt)
			p.expect(proto.Kill)
			time.Sleep(5 * time.Second)
			p.output(id, proto.Stdout, "late")
			p.send(proto.Result, id, `{"status":"interrupted"}`)
			id = p.expect(proto.Start).Call
			p.send(proto.Started, id, "")
			p.send(proto.Result, id, `{"status":"ok"}`)
		}()
		begin := time.Now()
		output, _, err := collect(ctx, l)
		if took := time.Since(begin); took != cancelTime || !errors.Is(err, context.Canceled) || output != "stdout:begun;" {
			t.Errorf("got %q, %v after %v", output, err, took)
		}
		// The next call waits until the guest has ended the first, and sees nothing of it.
		output, r, err := collect(t.Context(), l)
		if took := time.Since(begin); err != nil || r.Status != sandbox.StatusOK || output != "" || took < 5*time.Second {
			t.Errorf("then got %q, %+v, %v after %v", output, r, err, took)
		}
		_ = l.Close()
	})
}

// A guest that falls silent is given up: after a cancellation, beyond a call's time, and before it acknowledges.
func TestSilence(t *testing.T) {
	limits := sandbox.Defaults()
	limits.ExecTime = time.Minute
	tests := map[string]struct {
		started bool
		cancel  bool
		after   time.Duration
		want    error
	}{
		"never acknowledged": {after: startTime, want: sandbox.ErrNotStarted},
		"never ended":        {started: true, after: limits.ExecTime + slack, want: sandbox.ErrDied},
		"cancelled":          {started: true, cancel: true, after: cancelTime + slack, want: context.Canceled},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, p := connect(t, limits, true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					id := p.expect(proto.Start).Call
					if tt.started {
						p.send(proto.Started, id, "")
					}
					if tt.cancel {
						cancel()
					}
					_, _ = io.Copy(io.Discard, p.conn)
				}()
				begin := time.Now()
				_, _, err := collect(ctx, l)
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				<-l.Done()
				if took := time.Since(begin); took != tt.after {
					t.Errorf("given up after %v, want %v", took, tt.after)
				}
				_ = l.Close()
			})
		})
	}
}

// A guest that stops reading keeps neither calls that wait, nor Close.
func TestGuestDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := connect(t, sandbox.Defaults(), true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, _, err := collect(ctx, l)
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
			t.Errorf("got %v after %v", err, took)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A sink that is slow holds up neither the guest nor another call, and what waits for it is bounded.
func TestSlowSink(t *testing.T) {
	l, p := connect(t, sandbox.Defaults(), true)
	release := make(chan struct{})
	const frames = 3 * maxQueue
	go func() {
		id := p.expect(proto.Start).Call
		p.send(proto.Started, id, "")
		for i := range frames {
			p.output(id, proto.Stream(1+i%2), "x")
		}
		p.send(proto.Result, id, `{"status":"ok"}`)
		id = p.expect(proto.Start).Call
		p.send(proto.Started, id, "")
		p.send(proto.Result, id, `{"status":"ok"}`)
	}()
	var got int64
	slow := make(chan *sandbox.Result)
	entered := make(chan struct{})
	go func() {
		r, err := l.Exec(t.Context(), sandbox.Call{Kind: sandbox.Python}, func(o sandbox.Output) {
			if got == 0 {
				close(entered)
			}
			got += int64(len(o.Text))
			<-release
		})
		if err != nil {
			t.Error(err)
		}
		slow <- r
	}()
	<-entered
	if _, err := l.Exec(t.Context(), sandbox.Call{Kind: sandbox.Bash}, nil); err != nil {
		t.Errorf("the other call: %v", err)
	}
	close(release)
	r := <-slow
	// The sink takes the queue as it is at the moment, and a new one fills behind it.
	if got+r.Truncated != frames || r.Truncated == 0 || got > 2*maxQueue {
		t.Errorf("delivered %d, truncated %d of %d", got, r.Truncated, frames)
	}
}

func TestUnknownKind(t *testing.T) {
	l, _ := connect(t, sandbox.Defaults(), true)
	if _, err := l.Exec(t.Context(), sandbox.Call{Kind: "perl"}, nil); !errors.Is(err, sandbox.ErrNotStarted) {
		t.Errorf("got %v", err)
	}
}

func TestWithEnv(t *testing.T) {
	call := sandbox.Call{Env: map[string]string{"A": "call"}}
	got := WithEnv(call, map[string]string{"A": "spec", "B": "spec"})
	if got.Env["A"] != "call" || got.Env["B"] != "spec" || len(call.Env) != 1 {
		t.Errorf("got %v, and the call's own is now %v", got.Env, call.Env)
	}
}

func TestGuestLimits(t *testing.T) {
	for _, memory := range []int64{0, 32 << 20, 64 << 20, 256 << 20, 1 << 30, 64 << 30} {
		got := guestLimits(sandbox.Limits{Memory: memory, CPUs: 1.5, Disk: 7}).Memory
		if memory == 0 && got != 0 || memory > 0 && (got >= memory || got < memory/2) {
			t.Errorf("of %d bytes the program gets %d", memory, got)
		}
	}
	if g := guestLimits(sandbox.Limits{CPUs: 1.5, Disk: 7}); g.Threads != 2 || g.FileSize != 7 {
		t.Errorf("got %+v", g)
	}
}

// FuzzGuest lets the guest say anything once a call has started: the link must end, or the call must, and nothing else may happen.
func FuzzGuest(f *testing.F) {
	frame := func(frames ...proto.Frame) []byte {
		var b bytes.Buffer
		w := proto.NewWriter(&b)
		for _, fr := range frames {
			_ = w.Write(fr)
		}
		return b.Bytes()
	}
	f.Add(frame(proto.Frame{Type: proto.Output, Call: 1, Payload: []byte("\x01hi")}, proto.Frame{Type: proto.Result, Call: 1, Payload: []byte(`{"status":"ok"}`)}))
	f.Add(frame(proto.Frame{Type: proto.Display, Call: 1, Payload: []byte("\x09image/png\x00")}))
	f.Add(frame(proto.Frame{Type: proto.Hello, Payload: []byte(`{}`)}))
	f.Add([]byte("\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		l, p := connect(t, sandbox.Limits{Output: 100}, true)
		go func() {
			p.send(proto.Started, p.expect(proto.Start).Call, "")
			_, _ = p.conn.Write(wire)
			_ = p.conn.Close()
		}()
		output, r, err := collect(t.Context(), l)
		if (r == nil) == (err == nil) || err != nil && !errors.Is(err, sandbox.ErrDied) {
			t.Errorf("%+v, %v", r, err)
		}
		if len(output) > 100*20 {
			t.Errorf("%d bytes of output with a limit of 100", len(output))
		}
	})
}

// Close makes the guest end its programs, which it may still report before the link is down: that was once taken for a result.
func TestResultWhileClosing(t *testing.T) {
	l, p := connect(t, sandbox.Defaults(), true)
	go func() {
		id := p.expect(proto.Start).Call
		p.send(proto.Started, id, "")
		l.mu.Lock()
		call := l.calls[id]
		l.mu.Unlock()
		<-call.started
		l.mu.Lock()
		l.closing = true // as Close does first
		l.mu.Unlock()
		p.send(proto.Result, id, `{"status":"killed"}`)
		_ = p.conn.Close()
	}()
	if _, r, err := collect(t.Context(), l); !died(r, err) {
		t.Errorf("got %+v, %v", r, err)
	}
}
