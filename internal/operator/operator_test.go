package operator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// echo is a terminal that shows what is typed, and its size when that changes.
type echo struct {
	net.Conn
	far net.Conn
}

func newEcho() *echo {
	near, far := net.Pipe()
	return &echo{near, far}
}

func (e *echo) Read(b []byte) (int, error)  { return e.far.Read(b) }
func (e *echo) Write(b []byte) (int, error) { return e.Conn.Write(b) }
func (e *echo) Close() error                { return e.Conn.Close() } // Read then gives io.EOF
func (e *echo) Resize(rows, cols uint16) error {
	_, err := e.Conn.Write([]byte{'<', byte(rows), byte(cols), '>'})
	return err
}

func listen(t *testing.T, dir string) {
	t.Helper()
	s, err := Listen(dir, Config{
		Logger: slog.New(slog.DiscardHandler),
		OpenTerminal: func(_ context.Context, container, term string, size Size) (Terminal, func(context.Context) Exit, error) {
			if container != "c" {
				return nil, nil, errors.New("no such container")
			}
			if term != "xterm" || size != (Size{24, 80}) {
				t.Errorf("TERM %q, size %v", term, size)
			}
			return newEcho(), func(context.Context) Exit { return Exit{Code: 7, Error: "why"} }, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTerminal(t *testing.T) {
	for name, dir := range map[string]string{"short": t.TempDir(), "long": filepath.Join(t.TempDir(), strings.Repeat("long/", 30))} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if _, err := Dial(t.Context(), dir, "c", "xterm", Size{24, 80}); !errors.Is(err, ErrNotRunning) {
				t.Errorf("before: %v", err)
			}
			// One that a process that was killed has left.
			if err := os.WriteFile(filepath.Join(dir, Socket), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			listen(t, dir)
			info, err := os.Stat(filepath.Join(dir, Socket))
			if err != nil || info.Mode() != os.ModeSocket|0o600 {
				t.Errorf("the socket has %v, %v", info.Mode(), err)
			}
			if _, err := Dial(t.Context(), dir, "other", "xterm", Size{24, 80}); err == nil || err.Error() != "no such container" {
				t.Errorf("another container: %v", err)
			}
			c, err := Dial(t.Context(), dir, "c", "xterm", Size{24, 80})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			long := strings.Repeat("typed ", 20000)
			go func() {
				_, _ = io.WriteString(c, long)
				_ = c.Resize(Size{50, 100})
			}()
			got := make([]byte, len(long)+4)
			if _, err := io.ReadFull(c, got); err != nil || string(got) != long+"<\x32\x64>" {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestEnd: the operator hears how the shell ended.
func TestEnd(t *testing.T) {
	near, far := net.Pipe()
	term := newEcho()
	go show(far, term, func(context.Context) Exit { return Exit{Code: 7, Error: "why"} })
	term.Close()
	kind, data, err := readFrame(near)
	if err != nil || kind != frameExit || string(data) != `{"code":7,"error":"why"}` {
		t.Errorf("got %q %q, %v", kind, data, err)
	}
}

func TestOthersAreRefused(t *testing.T) {
	python, err := exec.LookPath("/usr/bin/python3")
	if os.Geteuid() != 0 || err != nil {
		t.Skip("needs root, to be somebody else, and /usr/bin/python3")
	}
	dir, err := os.MkdirTemp("", "operator")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listen(t, dir)
	for _, p := range []string{dir, filepath.Join(dir, Socket)} {
		if err := os.Chmod(p, 0o777); err != nil { // what the check of the peer stands behind
			t.Fatal(err)
		}
	}
	connect := `import socket,sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
try:
    s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"); print(s.recv(100)[:12])
except OSError: print(b"")`
	for uid, want := range map[uint32]string{65534: "b''\n", 0: "b'HTTP/1.1 404'\n"} {
		cmd := exec.Command(python, "-c", connect, filepath.Join(dir, Socket))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("user %d gets %q, %v, want %q", uid, out, err, want)
		}
	}
}

func TestFrames(t *testing.T) {
	if _, _, err := readFrame(strings.NewReader("d\xff\xff\xff\xffx")); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a frame of 4 GiB: %v", err)
	}
}
