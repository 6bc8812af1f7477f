package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/guest/tunnel"
)

// proxyPort is where programs find the proxy, so that what they remember of it holds after a restore too. Where a program has taken it
// the kernel chooses another.
const proxyPort = 3128

// systemRoots are where distributions have the certificates that programs trust.
var systemRoots = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// network is the sandbox's only way out: a port on its loopback, whose connections are carried to the host. There is none until the
// host says Connect. Its methods but take are for the goroutine that reads the host's frames.
type network struct {
	w    *proto.Writer
	tmp  string
	port int    // that of the last Connect, which the next one tries first
	dir  string // holds the bundle, "" until there is one

	listener net.Listener
	mux      *tunnel.Mux
	carried  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // those that are carried
}

// connect begins to listen and answers the host. That there can be no network is told to the host and is no error.
func (n *network) connect(f proto.Frame) (proto.Frame, error) {
	var c proto.ConnectCall
	if err := proto.DecodeJSON(f, &c); err != nil {
		return proto.Frame{}, err
	}
	n.disconnect()
	info := proto.ConnectedInfo{}
	bundle, err := n.writeBundle(c)
	if err == nil {
		err = n.listen()
	}
	if err != nil {
		info.Error = err.Error()
		return proto.EncodeJSON(proto.Connected, 0, info)
	}
	info.Port, info.Bundle = n.port, bundle
	n.mux = tunnel.New(func(f proto.Frame) error { return n.w.Write(f) }, nil)
	n.carried.Go(func() { n.accept(n.listener, n.mux) })
	return proto.EncodeJSON(proto.Connected, 0, info)
}

func (n *network) listen() error {
	if n.port == 0 {
		n.port = proxyPort
	}
	var err error
	var cfg net.ListenConfig
	for _, port := range []int{n.port, 0} {
		if n.listener, err = cfg.Listen(context.Background(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			n.port = n.listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener
			return nil
		}
	}
	return err
}

// writeBundle writes the certificates that programs trust where they can read but not change them: in a folder of the guest's own, whose
// name nobody could foresee. An earlier bundle is replaced in one step.
func (n *network) writeBundle(c proto.ConnectCall) (string, error) {
	if n.dir == "" {
		dir, err := os.MkdirTemp(n.tmp, ".lathe-trust-"+rand.Text()+"-")
		if err != nil {
			return "", err
		}
		n.dir = dir
	}
	var image string
	for _, path := range systemRoots {
		if data, err := os.ReadFile(path); err == nil && len(data) > 0 {
			image = string(data)
			break
		}
	}
	path := filepath.Join(n.dir, "ca-certificates.crt")
	err := errors.Join(
		os.Chmod(n.dir, 0o755),
		os.WriteFile(path+".new", []byte(certificates(image, c.Roots, c.Trust)), 0o644),
		os.Rename(path+".new", path),
	)
	if err != nil {
		return "", fmt.Errorf("the file of certificates: %w", err)
	}
	return path, nil
}

// certificates puts files of certificates in PEM together, each certificate once: an image and its host mostly trust the same.
func certificates(files ...string) string {
	var out strings.Builder
	seen := map[string]bool{}
	for _, file := range files {
		for block := range strings.SplitAfterSeq(file, "-----END CERTIFICATE-----") {
			if block = strings.TrimSpace(block); block != "" && !seen[block] {
				seen[block] = true
				out.WriteString(block + "\n")
			}
		}
	}
	return out.String()
}

// disconnect resets all connections and listens no more. When it returns nothing of a stream will be sent.
func (n *network) disconnect() {
	if n.listener == nil {
		return
	}
	_ = n.listener.Close()
	n.mux.Close()
	n.mu.Lock()
	for conn := range n.conns {
		abort(conn)
	}
	n.mu.Unlock()
	n.carried.Wait()
	n.listener, n.mux = nil, nil
}

// take takes a stream's frame. One that comes when there is no network was on its way when it ended.
func (n *network) take(f proto.Frame) error {
	if n.mux == nil {
		return nil
	}
	return n.mux.Take(f)
}

func (n *network) accept(l net.Listener, m *tunnel.Mux) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: some will be closed
			time.Sleep(10 * time.Millisecond)
			continue
		}
		s, err := m.Open() // waits while there are too many
		if err != nil {
			abort(conn)
			return
		}
		n.track(conn, true)
		n.carried.Go(func() {
			defer n.track(conn, false)
			carry(conn, s)
		})
	}
}

func (n *network) track(conn net.Conn, is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if is {
		n.conns[conn] = true
	} else {
		delete(n.conns, conn)
	}
}

// abort closes a connection so that the program sees a reset.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// carry moves bytes between a program and the host until both directions have ended, or one has failed.
func carry(conn net.Conn, s *tunnel.Stream) {
	defer s.Close()
	defer conn.Close()
	var up sync.WaitGroup
	up.Go(func() {
		if err := pump(s, conn); err != nil {
			s.Reset()
			return
		}
		_ = s.CloseWrite()
	})
	if err := pump(conn, s); err != nil {
		abort(conn)
		s.Reset()
	} else if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	up.Wait()
}

// pump is io.Copy with a small buffer: a program can have many connections.
func pump(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, proto.MaxData))
	return err
}
