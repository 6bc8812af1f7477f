package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

const connected = `{"port":3128,"bundle":"/tmp/.lathe-trust-1/ca"}`

// echo gives back what it gets.
var echo = &sandbox.Network{
	Serve: func(_ context.Context, conn net.Conn) { _, _ = io.Copy(struct{ io.Writer }{conn}, conn) },
	Trust: "PEM", Env: map[string]string{"MINE": "1"},
}

// online connects a link whose peer plays along.
func online(t *testing.T, l *Link, p *peer) {
	t.Helper()
	go func() {
		p.expect(proto.Connect)
		p.send(proto.Connected, 0, connected)
	}()
	if err := l.Connect(t.Context(), echo); err != nil {
		t.Fatal(err)
	}
}

func TestConnect(t *testing.T) {
	l, p := connect(t, sandbox.Defaults(), true)
	online(t, l, p)
	go func() {
		p.send(proto.Open, 5, "")
		p.send(proto.Data, 5, "hello")
		p.send(proto.EOF, 5, "")
	}()
	if f := p.expect(proto.Data); f.Call != 5 || string(f.Payload) != "hello" {
		t.Errorf("got %d %q", f.Call, f.Payload)
	}
	p.expect(proto.EOF)

	// Calls are told of it, and not in place of what they say themselves.
	env := func(call sandbox.Call) map[string]string {
		result := make(chan error)
		go func() {
			_, err := l.Exec(t.Context(), call, nil)
			result <- err
		}()
		f := p.expect(proto.Start)
		var start proto.StartCall
		if err := proto.DecodeJSON(f, &start); err != nil {
			t.Fatal(err)
		}
		p.send(proto.Started, f.Call, "")
		p.send(proto.Result, f.Call, `{"status":"ok"}`)
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		return start.Env
	}
	got := env(sandbox.Call{Kind: sandbox.Python, Env: map[string]string{"https_proxy": "own"}})
	if got["HTTPS_PROXY"] != "http://127.0.0.1:3128" || got["https_proxy"] != "own" || got["SSL_CERT_FILE"] != "/tmp/.lathe-trust-1/ca" || got["MINE"] != "1" {
		t.Errorf("got %v", got)
	}

	go func() {
		p.expect(proto.Disconnect)
		p.send(proto.Open, 6, "") // was under way
		p.send(proto.Data, 6, "x")
		p.send(proto.Disconnected, 0, "")
	}()
	if err := l.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := env(sandbox.Call{Kind: sandbox.Python}); len(got) != 0 {
		t.Errorf("without a network calls get %v", got)
	}
	if err := l.Disconnect(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
	online(t, l, p)
}

func TestConnectRefused(t *testing.T) {
	l, p := connect(t, sandbox.Defaults(), true)
	go func() {
		p.expect(proto.Connect)
		p.send(proto.Connected, 0, `{"error":"no loopback"}`)
		p.expect(proto.Disconnect)
		p.send(proto.Disconnected, 0, "")
	}()
	if err := l.Connect(t.Context(), echo); err == nil {
		t.Error("no error")
	}
	online(t, l, p)
}

// What a hostile guest may not say of the network ends the link.
func TestNetworkProtocol(t *testing.T) {
	tests := map[string]struct {
		online bool
		frame  proto.Frame
	}{
		"stream without a network": {false, proto.Frame{Type: proto.Open, Call: 1}},
		"answer without a network": {false, proto.Frame{Type: proto.Connected, Payload: []byte(connected)}},
		"a second answer":          {true, proto.Frame{Type: proto.Connected, Payload: []byte(connected)}},
		"an end nobody asked for":  {true, proto.Frame{Type: proto.Disconnected}},
		"a frame of the host":      {true, proto.Frame{Type: proto.Connect, Payload: []byte("{}")}},
		"opened twice":             {true, proto.Frame{Type: proto.Open, Call: 9}},
		"too much at once":         {true, proto.Frame{Type: proto.Data, Call: 9, Payload: make([]byte, proto.MaxData+1)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l, p := connect(t, sandbox.Defaults(), true)
			if tt.online {
				online(t, l, p)
				p.send(proto.Open, 9, "")
			}
			_ = p.w.Write(tt.frame)
			<-l.Done()
		})
	}
	for _, bad := range []string{
		`{"port":0,"bundle":"/x"}`, `{"port":70000,"bundle":"/x"}`, `{"port":1,"bundle":"x"}`, `{"port":1,"bundle":"/x\n"}`, `no`,
	} {
		l, p := connect(t, sandbox.Defaults(), true)
		go func() {
			p.expect(proto.Connect)
			p.send(proto.Connected, 0, bad)
		}()
		if err := l.Connect(t.Context(), echo); err == nil {
			t.Errorf("the answer %s was taken", bad)
		}
		<-l.Done()
	}
}

// A guest that does not answer is given up when the caller's time is over, and everything of its network with it.
func TestConnectSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := connect(t, sandbox.Defaults(), true)
		go p.expect(proto.Connect)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Connect(ctx, echo); err == nil {
			t.Error("no error")
		}
		<-l.Done()
	})
}

// A guest that reads nothing of its streams, and a Serve that never returns by itself, hold up neither calls nor the end.
func TestStuckStreams(t *testing.T) {
	l, p := connect(t, sandbox.Defaults(), true)
	go func() {
		p.expect(proto.Connect)
		p.send(proto.Connected, 0, connected)
	}()
	ended := make(chan struct{}, proto.MaxStreams)
	err := l.Connect(t.Context(), &sandbox.Network{Serve: func(ctx context.Context, conn net.Conn) {
		for err := error(nil); err == nil; {
			_, err = conn.Write(make([]byte, 1<<20))
		}
		<-ctx.Done()
		ended <- struct{}{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint32(proto.MaxStreams) {
		p.send(proto.Open, id+1, "")
	}
	result := make(chan error)
	go func() {
		_, err := l.Exec(t.Context(), sandbox.Call{Kind: sandbox.Bash}, nil)
		result <- err
	}()
	for got := 0; ; got++ {
		f, err := p.r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Type == proto.Start {
			p.send(proto.Started, f.Call, "")
			p.send(proto.Result, f.Call, `{"status":"ok"}`)
			break
		}
		if f.Type != proto.Data {
			t.Fatalf("frame of type %d", f.Type)
		}
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for range proto.MaxStreams {
		<-ended
	}
	if err := l.Connect(t.Context(), echo); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("connect after the end: %v", err)
	}
}

// FuzzNetwork lets a guest say anything once it has a network: the link must live or end, and nothing else.
func FuzzNetwork(f *testing.F) {
	var b bytes.Buffer
	w := proto.NewWriter(&b)
	for _, fr := range []proto.Frame{
		{Type: proto.Open, Call: 1}, {Type: proto.Data, Call: 1, Payload: []byte("x")}, {Type: proto.Room, Call: 1, Payload: proto.EncodeRoom(1)},
		{Type: proto.EOF, Call: 1}, {Type: proto.Reset, Call: 1},
	} {
		_ = w.Write(fr)
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		l, p := connect(t, sandbox.Defaults(), true)
		online(t, l, p)
		go func() { _, _ = io.Copy(io.Discard, p.conn) }()
		_, _ = p.conn.Write(wire)
		_ = p.conn.Close()
		<-l.Done()
		_ = l.Close()
	})
}
