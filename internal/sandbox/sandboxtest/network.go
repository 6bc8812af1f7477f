package sandboxtest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// dial is Python that connects to the proxy of the environment.
const dial = `
import os, socket
from urllib.parse import urlsplit
def dial():
    at = urlsplit(os.environ['HTTP_PROXY'])
    return socket.create_connection((at.hostname, at.port), 30)
None`

// upper answers each line in capitals, and a line "reset" with a reset.
func upper(_ context.Context, conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if line == "reset\n" {
			if r, ok := conn.(interface{ Reset() }); ok {
				r.Reset()
			}
			return
		}
		if _, werr := io.WriteString(conn, strings.ToUpper(line)); err != nil || werr != nil {
			return
		}
	}
}

func (p *Place) connect(t *testing.T, n *sandbox.Network) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Connect(ctx, n); err != nil {
		t.Fatalf("connect: %v", err)
	}
}

// testConnect: what Connect gives programs, and what it must not take from calls.
func testConnect(t *testing.T, b sandbox.Backend) {
	t.Run("none", func(t *testing.T) {
		p := Start(t, b, nil)
		o := p.Must(t, "import os; [os.environ.get(n) for n in ('HTTP_PROXY', 'https_proxy', 'SSL_CERT_FILE', 'PIP_CERT')]")
		if got := o.Text(sandbox.Value); got != "[None, None, None, None]" {
			t.Errorf("without a network programs are told %s", got)
		}
	})
	t.Run("connections", func(t *testing.T) { testConnections(t, b) })
	t.Run("200 at once", func(t *testing.T) {
		p := Start(t, b, nil)
		p.connect(t, &sandbox.Network{Serve: upper})
		o := p.Must(t, dial+`
socks = [dial() for _ in range(200)]
for i, s in enumerate(socks): s.sendall(b'line %d\n' % i)
print(sum(s.makefile('rb').readline() == b'LINE %d\n' % i for i, s in enumerate(socks)))
for s in socks: s.close()`)
		if o.Text(sandbox.Stdout) != "200\n" {
			t.Errorf("answered: %s", o.Text(""))
		}
	})
	t.Run("more than there may be", func(t *testing.T) {
		p := Start(t, b, nil)
		var now, most atomic.Int64
		p.connect(t, &sandbox.Network{Serve: func(ctx context.Context, conn net.Conn) {
			for n := now.Add(1); n > most.Load(); {
				most.Store(n)
			}
			defer now.Add(-1)
			upper(ctx, conn)
		}})
		o := p.Must(t, dial+`
first = [dial() for _ in range(400)]
for s in first[:300]: s.close()
s = dial(); s.sendall(b'last\n'); s.makefile('rb').readline()`)
		if got := o.Text(sandbox.Value); got != `b'LAST\n'` || most.Load() > 256 {
			t.Errorf("got %s, and up to %d at once", got, most.Load())
		}
	})
	t.Run("a flood", func(t *testing.T) { testStreams(t, b) })
	t.Run("after a checkpoint", func(t *testing.T) {
		p := Start(t, b, nil)
		p.connect(t, &sandbox.Network{Serve: upper})
		// A program that goes on talking while the checkpoint is taken. The fake keeps neither it nor what pickle does not take.
		p.Must(t, dial+`
import subprocess, sys
subprocess.Popen([sys.executable, '-c', '''
import os, socket, time
from urllib.parse import urlsplit
at = urlsplit(os.environ['HTTP_PROXY'])
while True:
    try:
        s = socket.create_connection((at.hostname, at.port), 30)
        while True: s.sendall(bytes(1 << 16)); s.recv(1 << 16)
    except OSError: time.sleep(0.01)
'''], stdout=-3, stderr=-3)
del subprocess, sys; None`)
		dir := checkpoint(t, p)
		p, err := restore(t, b, dir, p, nil)
		if err != nil {
			t.Fatalf("restore: %v", err)
		}
		p.connect(t, &sandbox.Network{Serve: upper})
		o := p.Must(t, "s = dial(); s.sendall(b'again\\n'); s.makefile('rb').readline()")
		if got := o.Text(sandbox.Value); got != `b'AGAIN\n'` {
			t.Errorf("got %s", got)
		}
	})
}

func testConnections(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	p.connect(t, &sandbox.Network{Serve: upper, Trust: "-- the trust of this test --", Env: map[string]string{"MINE": "$MINE"}})
	p.Must(t, dial)
	for name, tt := range map[string]struct{ code, want string }{
		"talk":       {"s = dial(); s.sendall(b'hello\\n'); s.makefile('rb').readline()", `b'HELLO\n'`},
		"half close": {"s = dial(); s.sendall(b'no end'); s.shutdown(1); s.makefile('rb').read()", `b'NO END'`},
		"reset": {"s = dial(); s.sendall(b'reset\\n')\ntry: out = s.recv(1)\nexcept OSError as e: out = type(e).__name__\nout",
			"'ConnectionResetError'"},
		"large": {"s = dial(); import threading\nbig = b'y' * 5_000_000\n" +
			"t = threading.Thread(target=lambda: (s.sendall(big), s.shutdown(1))); t.start()\n" +
			"got = s.makefile('rb').read(); t.join(); got == big.upper()", "True"},
		"trust":     {"open(os.environ['SSL_CERT_FILE']).read().endswith('-- the trust of this test --\\n')", "True"},
		"own names": {"os.environ['MINE']", "'$MINE'"},
	} {
		t.Run(name, func(t *testing.T) {
			if o := p.Must(t, tt.code); o.Text(sandbox.Value) != tt.want {
				t.Errorf("got %.200s, want %s", o.Text(sandbox.Value), tt.want)
			}
		})
	}
	t.Run("bash too", func(t *testing.T) {
		if o := p.Bash(t, "echo $https_proxy; test -r $CURL_CA_BUNDLE && echo readable"); !strings.HasPrefix(o.Text(""), "http://127.0.0.1:") ||
			!strings.HasSuffix(o.Text(""), "\nreadable\n") {
			t.Errorf("got %s", o.Text(""))
		}
	})
	t.Run("connected again", func(t *testing.T) {
		p.Must(t, "s = dial(); s.sendall(b'a\\n'); s.recv(2)")
		p.connect(t, &sandbox.Network{Serve: func(_ context.Context, conn net.Conn) {
			_, _ = io.WriteString(conn, "the second")
			_ = conn.Close()
		}})
		o := p.Must(t, "try: old = s.recv(1)\nexcept OSError as e: old = type(e).__name__\nold, dial().makefile('rb').read()")
		if got, want := o.Text(sandbox.Value), "('ConnectionResetError', b'the second')"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// testStreams: programs that fill their connections in both directions, and open and close others all the time, delay no cell for long.
func testStreams(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	release := make(chan struct{})
	defer close(release)
	var carried atomic.Int64
	p.connect(t, &sandbox.Network{Serve: func(ctx context.Context, conn net.Conn) {
		go func() {
			buf := make([]byte, 32<<10)
			for err := error(nil); err == nil; {
				_, err = conn.Write(buf)
			}
		}()
		buf := make([]byte, 32<<10)
		for {
			n, err := conn.Read(buf)
			if carried.Add(int64(n)); err != nil {
				return
			}
			if carried.Load() > 64<<20 { // enough: from here on nobody reads
				select {
				case <-release:
				case <-ctx.Done():
				}
				return
			}
		}
	}})
	p.Must(t, dial+`
import threading, subprocess, sys
code = '''
import os, socket, threading
from urllib.parse import urlsplit
at = urlsplit(os.environ['HTTP_PROXY'])
def flood():
    while True:
        try:
            s = socket.create_connection((at.hostname, at.port), 30)
            while True: s.sendall(bytes(1 << 16))
        except OSError: pass
def churn():
    while True:
        try: socket.create_connection((at.hostname, at.port), 30).close()
        except OSError: pass
for f in [flood] * 20 + [churn] * 4: threading.Thread(target=f).start()
'''
child = subprocess.Popen([sys.executable, '-c', code], stdout=-3, stderr=-3)
None`)
	p.eventually(t, "the flood comes", func() bool { return carried.Load() > 1<<20 })
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		var out strings.Builder
		_, err := p.Sandbox.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: "print('cell')"}, func(o sandbox.Output) { out.WriteString(o.Text) })
		cancel()
		if err != nil || out.String() != "cell\n" {
			t.Fatalf("cell %d: %q, %v", i, out.String(), err)
		}
	}
	// An interrupt gets through as well.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := p.Sandbox.Exec(ctx, sandbox.Call{Kind: sandbox.Python, Code: "import time; time.sleep(60)"}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
	p.Must(t, "child.kill(); None")
}
