// Package egress is the way of programs in sandboxes to the network: an HTTP proxy on the host that lets through what the operator allows
// and nothing else. A Proxy has the operator's rules; a Gate is one container's part of it, with a policy of its own, and is what a
// sandbox is connected to.
//
// Names are resolved here and nowhere else, once for each connection, and what is dialed is the address that was checked. TLS goes
// through from end to end, with a look at the name that it is for; only for domains with secrets it ends here, under an authority
// made for that one container, so that the secret is put in where no program can see it. Package container opens Gates; cmd/lathe makes
// the Proxy. The rules themselves are in egress/rule.
package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/egress/rule"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Resolver finds the addresses of a name, as *net.Resolver does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config is what a Proxy is made of. The zero value allows nothing.
type Config struct {
	// Rules are the operator's.
	Rules rule.List
	// Secrets are the operator's, by domain.
	Secrets []HeaderSecret
	// Bytes caps what one Gate carries in both directions together; 0 is 10 GiB.
	Bytes int64
	// Resolver is net.DefaultResolver if nil.
	Resolver Resolver
	// Roots are trusted where TLS ends here; nil is this machine's.
	Roots *x509.CertPool
	// Observe is told of every connection that was let through ("ok"), refused or has failed; nil is nobody.
	Observe func(outcome string)
	Logger  *slog.Logger
}

// HeaderSecret is a header that is set on every request over TLS to a domain, whatever the program says. It does not print its value.
type HeaderSecret struct {
	Domain rule.Domain
	Header string
	Value  turn.Secret
}

// The bounds of what a program can make the proxy do.
const (
	maxHeader     = 64 << 10
	headerTime    = 30 * time.Second
	idleTime      = 5 * time.Minute
	tunnelIdle    = 15 * time.Minute
	resolveTime   = 10 * time.Second
	dialTime      = 10 * time.Second
	helloTime     = 15 * time.Second
	maxUpstream   = 1024 // connections of all gates together
	loggedRefused = 20   // of each gate; the rest is counted
)

// Proxy serves the Gates of all containers. It is safe for concurrent use.
type Proxy struct {
	cfg   Config
	roots string // this machine's, in PEM
	dials chan struct{}

	// outer speaks with programs, inner reads what they say on a connection that they think leads to the server itself.
	outer, inner             *http.Server
	outerConns, innerConns   *queue
	outerServed, innerServed chan struct{}
}

// New returns a Proxy. It listens nowhere: connections come through Gates.
func New(cfg Config) (*Proxy, error) {
	if cfg.Bytes == 0 {
		cfg.Bytes = 10 << 30
	}
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	var errs []error
	for _, s := range cfg.Secrets {
		if err := checkHeader(s.Header, string(s.Value)); err != nil {
			errs = append(errs, fmt.Errorf("egress: the secret for %s: %w", s.Domain, err))
		}
		if !cfg.Rules.Covers(s.Domain) {
			errs = append(errs, fmt.Errorf("egress: the secret for %s: sandbox.allow does not have this domain", s.Domain))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p := &Proxy{
		cfg: cfg, roots: hostRoots(), dials: make(chan struct{}, maxUpstream),
		outerConns: newQueue(), innerConns: newQueue(), outerServed: make(chan struct{}), innerServed: make(chan struct{}),
	}
	p.outer, p.inner = p.server(p.serveProgram), p.server(p.serveInner)
	go func() { _ = p.outer.Serve(p.outerConns); close(p.outerServed) }()
	go func() { _ = p.inner.Serve(p.innerConns); close(p.innerServed) }()
	return p, nil
}

// connKey is the key of a connection's *conn in the context of its requests.
type connKey struct{}

func (p *Proxy) server(h http.HandlerFunc) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		// What a hostile program writes is no news for the log.
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
}

// Close ends all connections. Gates are of no use any more.
func (p *Proxy) Close() error {
	err := errors.Join(p.outer.Close(), p.inner.Close())
	<-p.outerServed
	<-p.innerServed
	return err
}

// Domains are the operator's names, as they are written; clients may ask for these.
func (p *Proxy) Domains() []string {
	out := make([]string, len(p.cfg.Rules.Allow))
	for i, d := range p.cfg.Rules.Allow {
		out[i] = d.String()
	}
	return out
}

// hostRoots are this machine's certificate authorities in PEM, "" if it has none.
func hostRoots() string {
	for _, path := range []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
	} {
		if data, err := os.ReadFile(path); err == nil {
			return string(data)
		}
	}
	return ""
}

// queue is a listener that gets its connections from push.
type queue struct {
	conns chan net.Conn
	done  chan struct{}
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), done: make(chan struct{})} }

// push hands a connection to the server, which owns it then; false if there is no server any more.
func (q *queue) push(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.done:
		return false
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	select {
	case <-q.done: // http.Server calls it once more
	default:
		close(q.done)
	}
	return nil
}

func (q *queue) Addr() net.Addr { return queueAddr{} }

type queueAddr struct{}

func (queueAddr) Network() string { return "egress" }
func (queueAddr) String() string  { return "egress" }

// names puts a list into words for an error.
func names(list []string) string {
	const most = 20
	if len(list) == 0 {
		return "nothing"
	}
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}
