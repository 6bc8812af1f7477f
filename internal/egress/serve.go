package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/egress/rule"
)

// serveProgram answers what programs say to their proxy: CONNECT host:port, or a request for http://host/...
func (p *Proxy) serveProgram(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return // every connection of queue is one
	}
	switch {
	case r.Method == http.MethodConnect:
		c.gate.connect(w, r)
	case r.URL.IsAbs() && r.URL.Scheme == "http":
		t, err := rule.ParseTarget(r.URL.Host, 80)
		if err != nil {
			err = &failure{status: http.StatusBadRequest, text: err.Error()}
		} else {
			err = c.gate.permits(t)
		}
		if err != nil {
			c.gate.answer(w, err)
			return
		}
		c.gate.pass(w, r, way{target: t})
	default:
		c.gate.answer(w, &failure{
			status: http.StatusBadRequest, text: "this is an HTTP proxy: it takes CONNECT host:port and requests for http://host/path",
		})
	}
}

// way is where the requests of a connection lead, in the context of each.
type way struct {
	target rule.Target
	tls    bool
}

type wayKey struct{}

// pass sends a request on to its server, and the answer back.
func (g *Gate) pass(w http.ResponseWriter, r *http.Request, to way) {
	if r.Method == http.MethodTrace {
		g.answer(w, &failure{status: http.StatusMethodNotAllowed, text: "TRACE is not allowed"})
		return
	}
	g.p.cfg.Observe("ok")
	g.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), wayKey{}, to)))
}

// rewrite makes the request that goes to the server. ReverseProxy has removed what belongs to the connection.
func (g *Gate) rewrite(r *httputil.ProxyRequest) {
	to, _ := r.In.Context().Value(wayKey{}).(way)
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.User = "http", to.target.String(), nil
	r.Out.URL.RawQuery = r.In.URL.RawQuery // as it was, parseable or not
	// Whatever Host header came, the server gets that of the target (RFC 9112 section 3.2.2).
	r.Out.Host = to.target.Host
	if to.target.Addr.Is6() {
		r.Out.Host = "[" + r.Out.Host + "]"
	}
	if to.tls {
		r.Out.URL.Scheme = "https"
		g.inject(r.Out.Header, to.target)
	}
	if standard := map[string]uint16{"http": 80, "https": 443}[r.Out.URL.Scheme]; to.target.Port != standard {
		r.Out.Host = to.target.String()
	}
}

// failed answers for a server that could not.
func (g *Gate) failed(w http.ResponseWriter, r *http.Request, err error) {
	to, _ := r.Context().Value(wayKey{}).(way)
	if _, ok := errors.AsType[*failure](err); !ok {
		f := unreachable(to.target, err)
		if bad, is := errors.AsType[*tls.CertificateVerificationError](err); is {
			f.text = fmt.Sprintf("the certificate of %s is not to be trusted: %v", to.target, bad.Err)
		}
		err = f
	}
	g.answer(w, err)
}

// answer tells a program why it gets nothing else.
func (g *Gate) answer(w http.ResponseWriter, err error) {
	f := g.outcome(err)
	w.Header().Set("Connection", "close")
	http.Error(w, "lathe: "+f.text, f.status)
}

func (g *Gate) outcome(err error) *failure {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{status: http.StatusBadGateway, text: "the connection failed", cause: err}
	}
	if f.status == http.StatusForbidden || f.status == http.StatusMisdirectedRequest {
		g.p.cfg.Observe("refused")
	} else {
		g.p.cfg.Observe("failed")
	}
	return f
}

// connect answers a CONNECT: where the target has a secret TLS ends here, else the bytes are passed on.
func (g *Gate) connect(w http.ResponseWriter, r *http.Request) {
	t, err := rule.ParseTarget(r.RequestURI, 0)
	if err != nil {
		err = &failure{status: http.StatusBadRequest, text: err.Error()}
	} else {
		err = g.permits(t)
	}
	ends := err == nil && g.hasSecret(t)
	var up net.Conn
	if err == nil && !ends {
		up, err = g.dial(r.Context(), t)
	}
	owned := false
	client, buffered, herr := http.NewResponseController(w).Hijack()
	defer func() {
		if up != nil {
			_ = up.Close()
		}
		if owned {
			_ = client.Close()
		}
	}()
	if herr != nil {
		return
	}
	owned = true
	_ = client.SetDeadline(time.Now().Add(helloTime))
	if err != nil {
		g.refuseTunnel(client, err)
		return
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	if err := g.tunnel(prefixed(client, buffered.Reader), up, t, &owned); err != nil {
		_ = g.outcome(err) // it is counted; the program sees the end of its connection
	}
}

// refuseTunnel answers a CONNECT with no. Most clients show only the status line, so the reason stands there too.
func (g *Gate) refuseTunnel(c net.Conn, err error) {
	f := g.outcome(err)
	reason := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, f.text)
	body := "lathe: " + f.text + "\n"
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %.400s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		f.status, reason, len(body), body)
	_ = closeWrite(c)
}

// tunnel carries what comes behind CONNECT. TLS must be for the target; what is no TLS must be HTTP, and goes the way of requests. It
// sets owned to false where another takes the connection over.
func (g *Gate) tunnel(client *peeked, up net.Conn, t rule.Target, owned *bool) error {
	first, err := client.r.Peek(1)
	if err != nil {
		return err
	}
	const handshake = 22 // the type of a TLS record
	if first[0] != handshake {
		_ = client.SetDeadline(time.Time{})
		*owned = !g.p.innerConns.push(&inner{Conn: client, gate: g, way: way{target: t}})
		return nil
	}
	if up == nil {
		conn := tls.Server(client, g.authority.config(t.Host))
		if err := conn.HandshakeContext(g.ctx); err != nil {
			return g.refusedTLS(t, err)
		}
		_ = client.SetDeadline(time.Time{})
		*owned = !g.p.innerConns.push(&inner{Conn: conn, gate: g, way: way{target: t, tls: true}})
		return nil
	}
	hello, sni, err := readHello(g.ctx, client)
	if err == nil {
		err = checkName(t, sni)
	}
	if err != nil {
		_, _ = client.Write(alert)
		return g.refusedTLS(t, err)
	}
	_ = client.SetDeadline(time.Time{})
	if _, err := up.Write(hello); err != nil {
		return unreachable(t, err)
	}
	g.p.cfg.Observe("ok")
	splice(client, up)
	return nil
}

func (g *Gate) refusedTLS(t rule.Target, err error) error {
	f := &failure{status: http.StatusForbidden, text: "TLS to " + t.String() + ": " + err.Error(), cause: err}
	g.note(t.String(), f)
	return f
}

// serveInner answers a request on a connection that the program takes for one to the server.
func (p *Proxy) serveInner(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*inner)
	if !ok {
		return
	}
	fallback := uint16(80)
	if c.way.tls {
		fallback = 443
	}
	if t, err := rule.ParseTarget(r.Host, fallback); err != nil || t != c.way.target && !(t.Host == c.way.target.Host && !strings.Contains(r.Host, ":")) {
		f := &failure{status: http.StatusMisdirectedRequest, text: fmt.Sprintf("the Host header %.100q is not that of the connection, which is to %s", r.Host, c.way.target)}
		c.gate.note(c.way.target.String(), f)
		c.gate.answer(w, f)
		return
	}
	if err := c.gate.permits(c.way.target); err != nil {
		c.gate.answer(w, err)
		return
	}
	c.gate.pass(w, r, c.way)
}

// inner is a connection of serveInner.
type inner struct {
	net.Conn
	gate *Gate
	way  way
}

// peeked is a connection of which something has been read ahead.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func prefixed(c net.Conn, ahead *bufio.Reader) *peeked { return &peeked{c, ahead} }

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }
func (p *peeked) CloseWrite() error          { return closeWrite(p.Conn) }

// splice carries bytes between two connections until both directions have ended, or nothing has moved for tunnelIdle.
func splice(a, b net.Conn) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			if copyIdle(way[1], way[0]) != nil {
				_, _ = a.Close(), b.Close()
				return
			}
			_ = closeWrite(way[1])
		})
	}
	wg.Wait()
}

func copyIdle(to, from net.Conn) error {
	buf := make([]byte, 32<<10)
	for {
		_ = from.SetReadDeadline(time.Now().Add(tunnelIdle))
		n, err := from.Read(buf)
		if n > 0 {
			_ = to.SetWriteDeadline(time.Now().Add(tunnelIdle))
			if _, werr := to.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func tlsClient(roots *x509.CertPool) *tls.Config {
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}
