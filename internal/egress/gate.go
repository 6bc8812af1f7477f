package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lathe-gateway/lathe/internal/egress/rule"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// Gate is one container's way to the network while its sandbox is up. It is safe for concurrent use.
type Gate struct {
	p         *Proxy
	log       *slog.Logger
	own       []rule.Domain
	secrets   []clientSecret
	authority *authority // nil where nothing has a secret
	transport *http.Transport
	forward   *httputil.ReverseProxy

	ctx     context.Context
	stop    context.CancelFunc
	carried atomic.Int64 // bytes, in both directions
	refused atomic.Int64

	mu        sync.Mutex
	conns     map[*conn]bool
	upstreams map[*upstream]bool
}

// Open returns the Gate of a container, which the log calls id. Its error is a *PolicyError, or that of making an authority.
func (p *Proxy) Open(id string, policy Policy) (*Gate, error) {
	own, secrets, err := p.read(policy)
	if err != nil {
		return nil, err
	}
	g := &Gate{p: p, log: p.cfg.Logger.With("container", id), own: own, secrets: secrets, conns: map[*conn]bool{}, upstreams: map[*upstream]bool{}}
	var secret []rule.Domain
	for _, s := range p.cfg.Secrets {
		secret = append(secret, s.Domain)
	}
	for _, s := range secrets {
		secret = append(secret, s.domain)
	}
	if len(secret) > 0 {
		if g.authority, err = newAuthority(id, secret); err != nil {
			return nil, err
		}
	}
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.transport = &http.Transport{
		DialContext:         func(ctx context.Context, _, addr string) (net.Conn, error) { return g.dialAddress(ctx, addr) },
		TLSClientConfig:     tlsClient(p.cfg.Roots),
		TLSHandshakeTimeout: helloTime, IdleConnTimeout: 30 * time.Second, MaxIdleConns: 32, ResponseHeaderTimeout: idleTime,
		ForceAttemptHTTP2: true, DisableCompression: true, MaxResponseHeaderBytes: 4 * maxHeader,
	}
	g.forward = &httputil.ReverseProxy{
		Rewrite: g.rewrite, Transport: g.transport, FlushInterval: -1, ErrorHandler: g.failed,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	return g, nil
}

// Network is what a sandbox is connected to.
func (g *Gate) Network() *sandbox.Network {
	n := &sandbox.Network{Serve: g.serve, Roots: g.p.roots, Env: map[string]string{}}
	if g.authority != nil {
		n.Trust = g.authority.pem
	}
	for _, s := range g.secrets {
		n.Env[s.name] = "$" + s.name
	}
	return n
}

// Close ends all connections of the container.
func (g *Gate) Close() {
	g.stop()
	g.mu.Lock()
	ups := slices.Collect(maps.Keys(g.upstreams))
	for c := range g.conns {
		_ = c.Conn.Close()
	}
	g.mu.Unlock()
	for _, up := range ups {
		_ = up.Close()
	}
}

// serve has the contract of sandbox.Network.Serve.
func (g *Gate) serve(ctx context.Context, raw net.Conn) {
	c := &conn{Conn: raw, gate: g, closed: make(chan struct{})}
	g.mu.Lock()
	ended := g.ctx.Err() != nil
	if !ended {
		g.conns[c] = true
	}
	g.mu.Unlock()
	if ended || !g.p.outerConns.push(c) {
		_ = c.Close()
		return
	}
	select {
	case <-c.closed:
	case <-ctx.Done():
		_ = raw.Close()
		<-c.closed // by the server, which cannot read it any more
	}
}

// conn is a program's connection. It counts what it carries.
type conn struct {
	net.Conn
	gate   *Gate
	once   sync.Once
	closed chan struct{}
}

var errBytes = errors.New("egress: the container has used up what it may transfer")

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.count(n, err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.count(n, err)
}

func (c *conn) count(n int, err error) error {
	if c.gate.carried.Add(int64(n)) > c.gate.p.cfg.Bytes && err == nil {
		return errBytes
	}
	return err
}

// CloseWrite is for those who know that a program can read on.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.gate.mu.Lock()
		delete(c.gate.conns, c)
		c.gate.mu.Unlock()
		close(c.closed)
	})
	return err
}

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// dialAddress is dial for the transport, which speaks of host:port. It decides anew: the same request may have been retried.
func (g *Gate) dialAddress(ctx context.Context, addr string) (net.Conn, error) {
	t, err := rule.ParseTarget(addr, 0)
	if err == nil {
		err = g.permits(t)
	}
	if err != nil {
		return nil, err
	}
	return g.dial(ctx, t)
}

func (g *Gate) permits(t rule.Target) error {
	if g.carried.Load() > g.p.cfg.Bytes {
		return g.refusal(t, errBytes)
	}
	if err := g.p.cfg.Rules.Permits(t, g.own); err != nil {
		return g.refusal(t, err)
	}
	return nil
}

// dial resolves, checks, and connects to what was checked.
func (g *Gate) dial(ctx context.Context, t rule.Target) (net.Conn, error) {
	addrs, err := g.resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	select {
	case g.p.dials <- struct{}{}:
	default:
		return nil, &failure{status: http.StatusServiceUnavailable, text: "this server has too many connections open; try again later"}
	}
	var last error
	for _, a := range addrs {
		d := net.Dialer{Timeout: dialTime}
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, t.Port).String())
		if err == nil {
			return g.hold(c)
		}
		last = err
	}
	<-g.p.dials
	return nil, unreachable(t, last)
}

// hold keeps a connection to a server until it is closed, by the Gate's end at the latest.
func (g *Gate) hold(c net.Conn) (net.Conn, error) {
	u := &upstream{Conn: c, gate: g}
	g.mu.Lock()
	g.upstreams[u] = true
	ended := g.ctx.Err() != nil
	g.mu.Unlock()
	if ended {
		return nil, errors.Join(net.ErrClosed, u.Close())
	}
	return u, nil
}

// upstream is a connection to a server; it counts against maxUpstream.
type upstream struct {
	net.Conn
	gate *Gate
}

func (u *upstream) CloseWrite() error { return closeWrite(u.Conn) }

func (u *upstream) Close() error {
	u.gate.mu.Lock()
	held := u.gate.upstreams[u]
	delete(u.gate.upstreams, u)
	u.gate.mu.Unlock()
	if held {
		<-u.gate.p.dials
	}
	return u.Conn.Close()
}

// resolve returns the addresses that may be connected to, at least one.
func (g *Gate) resolve(ctx context.Context, t rule.Target) ([]netip.Addr, error) {
	if t.Addr.IsValid() {
		if err := g.p.cfg.Rules.Address(t, t.Addr); err != nil {
			return nil, g.refusal(t, err)
		}
		return []netip.Addr{t.Addr}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	// The dot keeps this machine's search list out.
	found, err := g.p.cfg.Resolver.LookupNetIP(ctx, "ip", t.Host+".")
	if err != nil || len(found) == 0 {
		return nil, &failure{status: http.StatusBadGateway, text: fmt.Sprintf("the name %s cannot be resolved", t.Host), cause: err}
	}
	var allowed []netip.Addr
	for _, a := range found {
		a = a.Unmap() // the resolver writes answers of both kinds in one form
		if err = g.p.cfg.Rules.Address(t, a); err == nil {
			allowed = append(allowed, a)
		}
	}
	if len(allowed) == 0 {
		return nil, g.refusal(t, errResolved)
	}
	return allowed, nil
}

// errResolved is rule.ErrAddress of an address that a name has resolved to.
var errResolved = fmt.Errorf("resolved: %w", rule.ErrAddress)

// refusal puts into words why a program may not go to t, notes it, and says whose decision it is.
func (g *Gate) refusal(t rule.Target, why error) *failure {
	f := &failure{status: http.StatusForbidden, cause: why}
	switch {
	case errors.Is(why, errBytes):
		f.text = fmt.Sprintf("this container has transferred the %d MiB that the operator's key sandbox.network_bytes allows", g.p.cfg.Bytes>>20)
	case errors.Is(why, errResolved):
		f.text = fmt.Sprintf("%s is not on the public internet: the operator's key sandbox.allow_private decides", t.Host)
	case errors.Is(why, rule.ErrAddress):
		f.text = fmt.Sprintf("addresses by number such as %s are not allowed: the operator's key sandbox.allow_private decides", t.Host)
	case errors.Is(why, rule.ErrPort):
		f.text = fmt.Sprintf("port %d of %s is not allowed: the operator's key sandbox.allow decides", t.Port, t.Host)
	default:
		f.text = fmt.Sprintf("the domain %s is not allowed: this container may reach %s; the operator's key sandbox.allow decides", t.Host, names(g.reach()))
	}
	g.note(t.String(), f)
	return f
}

// reach is what the container may reach, in words.
func (g *Gate) reach() []string {
	if len(g.own) == 0 {
		return g.p.Domains()
	}
	out := make([]string, len(g.own))
	for i, d := range g.own {
		out[i] = d.String()
	}
	return out
}

func (g *Gate) note(target string, f *failure) {
	level := slog.LevelInfo
	if n := g.refused.Add(1); n > loggedRefused {
		level = slog.LevelDebug // a program that tries for ever must not fill the log
	}
	g.log.Log(g.ctx, level, "a program's connection was refused", "target", target, "reason", f.text)
}

// failure is why a program gets no answer of the server that it wanted. Its text is for the program.
type failure struct {
	status int
	text   string
	cause  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }

func unreachable(t rule.Target, err error) *failure {
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return &failure{status: http.StatusGatewayTimeout, text: fmt.Sprintf("%s did not answer in time", t), cause: err}
	}
	return &failure{status: http.StatusBadGateway, text: fmt.Sprintf("%s cannot be reached", t), cause: err}
}
