// Package operator is the socket by which commands of this machine's operator reach a running gateway: a Unix socket in data_dir that
// only the gateway's own user, and root, may use. It speaks HTTP; a terminal takes the connection over. It knows no container and no
// sandbox: what it offers is handed to it. Only cmd/lathe may import it.
package operator

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Socket is its name in data_dir.
const Socket = "operator.sock"

// Size is that of a terminal, in characters.
type Size struct{ Rows, Cols uint16 }

// Terminal is what is needed of one: see sandbox.Terminal.
type Terminal interface {
	io.ReadWriteCloser
	Resize(rows, cols uint16) error
}

// Config is what the socket offers.
type Config struct {
	// OpenTerminal opens a terminal into a container; term is TERM. Exit waits for its end and says how it ended.
	OpenTerminal func(ctx context.Context, container, term string, size Size) (t Terminal, exit func(context.Context) Exit, err error)
	Logger       *slog.Logger
}

// Exit is how a terminal's shell ended.
type Exit struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"`
}

// Server serves the socket.
type Server struct {
	cfg    Config
	http   *http.Server
	ln     net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Listen makes the socket in dir, a folder of this user's alone that nobody else serves, in the place of one that a process that ended
// has left. Close ends it, and all terminals.
func Listen(dir string, cfg Config) (*Server, error) {
	path := filepath.Join(dir, Socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("operator's socket: %w", err)
	}
	short, done, err := shorten(dir)
	if err != nil {
		return nil, fmt.Errorf("operator's socket: %w", err)
	}
	defer done()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(short, Socket), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("operator's socket: %w", err)
	}
	ln.SetUnlinkOnClose(false) // by the name that only now leads there
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	s := &Server{cfg: cfg, ln: &guarded{ln, cfg.Logger}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /terminal", s.terminal)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() { _ = s.http.Serve(s.ln) })
	return s, nil
}

// Close ends everything. Idempotent.
func (s *Server) Close() error {
	s.cancel()
	err := s.http.Close()
	s.wg.Wait()
	return err
}

// guarded lets only this user and root in.
type guarded struct {
	*net.UnixListener
	log *slog.Logger
}

func (g *guarded) Accept() (net.Conn, error) {
	for {
		conn, err := g.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peer(conn)
		if err == nil && (uid == 0 || uid == os.Geteuid()) {
			return conn, nil
		}
		g.log.Warn("somebody else's connection to the operator's socket was refused", "uid", uid, "error", err)
		_ = conn.Close()
	}
}

// The frames of a connection that is a terminal: a type, the length of what follows in four bytes, big endian, and that.
const (
	frameData   = 'd' // typed, or shown
	frameResize = 'r' // rows and columns, two bytes each
	frameExit   = 'x' // an Exit, as JSON; the last
)

const (
	protocol = "lathe-terminal"
	maxFrame = 64 << 10
)

func writeFrame(w io.Writer, kind byte, data []byte) error {
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(data)))
	_, err := w.Write(append(b, data...))
	return err
}

func readFrame(r io.Reader) (kind byte, data []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxFrame {
		return 0, nil, errors.New("operator: a frame that is too large")
	}
	data = make([]byte, size)
	_, err = io.ReadFull(r, data)
	return head[0], data, err
}

func (s *Server) terminal(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	rows, _ := strconv.ParseUint(q.Get("rows"), 10, 16) // 0 is a terminal without a size
	cols, _ := strconv.ParseUint(q.Get("cols"), 10, 16)
	if r.Header.Get("Upgrade") != protocol {
		http.Error(w, "this lathe speaks another version with its commands: use the one that the gateway was started with", http.StatusBadRequest)
		return
	}
	t, exit, err := s.cfg.OpenTerminal(r.Context(), q.Get("container"), q.Get("term"), Size{uint16(rows), uint16(cols)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	defer t.Close()
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(s.ctx, func() { _ = t.Close(); _ = conn.Close() })()
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n"); err != nil {
		return
	}
	s.wg.Go(func() {
		typeInto(t, buf.Reader)
		_ = t.Close() // the operator has left, or the shell has ended
	})
	show(conn, t, exit)
}

// typeInto passes on what comes from the operator until that ends.
func typeInto(t Terminal, r io.Reader) {
	for {
		kind, data, err := readFrame(r)
		switch {
		case err != nil:
			return
		case kind == frameData:
			_, err = t.Write(data)
		case kind == frameResize && len(data) == 4:
			err = t.Resize(binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:]))
		}
		if err != nil {
			return
		}
	}
}

// show passes on what the terminal shows, and then how it ended.
func show(conn net.Conn, t Terminal, exit func(context.Context) Exit) {
	buf := make([]byte, 32<<10)
	for {
		n, err := t.Read(buf)
		if n > 0 && writeFrame(conn, frameData, buf[:n]) != nil {
			return
		}
		if err != nil {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if data, err := json.Marshal(exit(ctx)); err == nil {
		_ = writeFrame(conn, frameExit, data)
	}
}

// Client is a terminal at the operator's end.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
	mu   sync.Mutex // of writing
	rest []byte
	// Exit is how it ended, once Read has returned io.EOF.
	Exit Exit
}

// ErrNotRunning: no gateway serves the data directory.
var ErrNotRunning = errors.New("no gateway runs with this data_dir")

// Dial opens a terminal into a container of the gateway that has dir as its data directory.
func Dial(ctx context.Context, dir, container, term string, size Size) (*Client, error) {
	short, done, err := shorten(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	defer done()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(short, Socket))
	if err != nil {
		return nil, fmt.Errorf("%w (%s): %w", ErrNotRunning, dir, err)
	}
	q := url.Values{"container": {container}, "term": {term}, "rows": {strconv.Itoa(int(size.Rows))}, "cols": {strconv.Itoa(int(size.Cols))}}
	c := &Client{conn: conn, r: bufio.NewReader(conn)}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, err = fmt.Fprintf(conn, "POST /terminal?%s HTTP/1.1\r\nHost: operator\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: 0\r\n\r\n", q.Encode(), protocol)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what there is of it
		return nil, errors.Join(errors.New(strings.TrimSpace(string(text))), conn.Close())
	}
	return c, nil
}

// Read gives what the terminal shows, io.EOF at its end.
func (c *Client) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		kind, data, err := readFrame(c.r)
		switch {
		case errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		case kind == frameExit:
			if err := json.Unmarshal(data, &c.Exit); err != nil {
				return 0, err
			}
			return 0, io.EOF
		case kind == frameData:
			c.rest = data
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write types.
func (c *Client) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := 0; at < len(b); at += maxFrame {
		if err := writeFrame(c.conn, frameData, b[at:min(len(b), at+maxFrame)]); err != nil {
			return at, err
		}
	}
	return len(b), nil
}

// Resize tells the new size.
func (c *Client) Resize(s Size) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return writeFrame(c.conn, frameResize, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Rows), s.Cols))
}

// Close hangs up.
func (c *Client) Close() error { return c.conn.Close() }
