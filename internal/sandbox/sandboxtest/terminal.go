package sandboxtest

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// screen is what a terminal has shown.
type screen struct {
	sandbox.Terminal
	t    *testing.T
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
	end  error
}

func openTerminal(t *testing.T, p *Place) *screen {
	t.Helper()
	term, err := p.OpenTerminal(t.Context(), sandbox.TerminalSpec{Rows: 30, Cols: 100, Term: "xterm"})
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{Terminal: term, t: t, news: make(chan struct{}, 1)}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := term.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.end = err
			s.mu.Unlock()
			select {
			case s.news <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { term.Close() })
	return s
}

func (s *screen) enter(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s, line); err != nil {
		s.t.Errorf("typing %q: %v", line, err)
	}
}

// command enters a line at the prompt. What is typed before a shell asks for it can be lost in gVisor, when the shell changes the mode of
// its terminal.
func (s *screen) command(line string) {
	s.t.Helper()
	s.sees("ready> ")
	s.enter(line + "\n")
}

// sees waits until the terminal shows text, after what it waited for last.
func (s *screen) sees(text string) {
	s.t.Helper()
	timeout := time.After(patience)
	for {
		s.mu.Lock()
		at := strings.Index(s.text.String(), text)
		all := s.text.String()
		if at >= 0 {
			s.text.Next(at + len(text))
		}
		s.mu.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-s.news:
		case <-timeout:
			s.t.Fatalf("the terminal shows %q, and never %q", all, text)
		}
	}
}

// testTerminal: an operator's shell, with a real terminal, beside calls.
func testTerminal(t *testing.T, b sandbox.Backend) {
	p := Start(t, b, nil)
	s := openTerminal(t, p)
	s.enter("PS1='ready''> '\n")
	s.command("stty size; tty >/dev/null && echo a ter''minal $TERM")
	s.sees("30 100\r\n")
	s.sees("a terminal xterm\r\n")
	s.command("echo from the terminal > shared; pwd; id -u")
	if o := p.Bash(t, "until [ -s shared ]; do sleep 0.05; done; cat shared; echo back > answer"); o.Text("") != "from the terminal\n" {
		t.Errorf("a call sees %q", o.Text(""))
	}
	s.command("cat ans''wer")
	s.sees("back\r\n")
	if err := s.Resize(50, 132); err != nil {
		t.Error(err)
	}
	s.command("stty size")
	s.sees("50 132\r\n")
	s.command("sh -c \"echo run''ning; exec sleep 1000\"")
	s.sees("running\r\n")
	s.enter("\x03")
	s.command("echo inter''rupted $?")
	s.sees("interrupted 130\r\n")
	s.command("head -c 3000000 /dev/zero | tr '\\0' y; echo; echo wri''tten")
	s.sees("written\r\n")
	s.command("echo sec''ret > /dev/tty")
	s.sees("secret\r\n")
	s.command("(echo $BASHPID > pid; exec sleep 1000) &")
	p.Bash(t, "until [ -s pid ]; do sleep 0.05; done")
	s.command("exit 7")
	r, err := s.Result(t.Context())
	if err != nil || r.ExitCode != 7 || r.Status != sandbox.StatusError {
		t.Errorf("it ended as %+v, %v", r, err)
	}
	timeout := time.After(patience)
	for {
		s.mu.Lock()
		end := s.end
		s.mu.Unlock()
		if end == io.EOF {
			break
		}
		select {
		case <-s.news:
		case <-timeout:
			t.Fatalf("reading ends with %v", end)
		}
	}
	if o := p.Bash(t, "[ ! -d /proc/$(cat pid) ] || grep -q 'State:.*Z' /proc/$(cat pid)/status"); o.Status != sandbox.StatusOK {
		t.Errorf("what the shell started is still there: %s", o.Text(""))
	}
	t.Run("hang up", func(t *testing.T) {
		s := openTerminal(t, p)
		s.enter("echo u''p; trap '' HUP INT TERM; while :; do sleep 1; done\n")
		s.sees("up\r\n")
		s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if r, err := s.Result(ctx); err != nil || r.Status != sandbox.StatusInterrupted {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("nobody reads", func(t *testing.T) {
		term, err := p.OpenTerminal(t.Context(), sandbox.TerminalSpec{Rows: 24, Cols: 80})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(term, "while :; do echo flood; done\n"); err != nil {
			t.Error(err)
		}
		p.Must(t, "x = 1") // it holds up nothing else
		term.Close()
	})
	t.Run("two at once", func(t *testing.T) {
		a, b := openTerminal(t, p), openTerminal(t, p)
		a.enter("X=a; echo $X''1\n")
		b.enter("echo \"<$X>\"\n")
		a.sees("a1\r\n")
		b.sees("<>\r\n")
	})
}
