package server

import (
	"net"
	"net/http"
	"net/url"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// local is who calls where there are no keys.
var local = auth.Principal{Name: "local", Project: "default", Admin: true}

// principal says who sends r: by key, or where there are none by the loopback rule.
func (s *Server) principal(r *http.Request) (auth.Principal, error) {
	if !s.cfg.Keys.Empty() {
		return s.cfg.Keys.Request(r)
	}
	if reason := notLocal(r); reason != "" {
		return auth.Principal{}, turn.Errorf(turn.KindForbidden,
			"this server has no keys and so serves only programs on its own machine, but %s: add keys to lathe.yaml and send one", reason)
	}
	return local, nil
}

// operators lets in keys with admin, and programs on this machine.
func (s *Server) operators(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		reason := notLocal(r)
		if reason == "" {
			next.ServeHTTP(w, r)
			return nil
		}
		if s.cfg.Keys.Empty() {
			_, err := s.principal(r)
			return err
		}
		p, err := s.cfg.Keys.Request(r)
		if err != nil {
			return err
		}
		if !p.Admin {
			return turn.Errorf(turn.KindForbidden, "the key %q may not do this: it needs admin: true in lathe.yaml", p.Name)
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// notLocal returns "" for a request that a program on this machine sent on its own account, else what speaks against it. A page in a
// browser on this machine is not that: it comes with a foreign Host (DNS rebinding), Origin or Sec-Fetch-Site. Nor is a proxy that
// forwards for others.
func notLocal(r *http.Request) string {
	switch {
	case !loopbackHost(r.RemoteAddr):
		return "the connection comes from another one"
	case !loopbackHost(r.Host):
		return "the Host header names another one"
	case r.Header.Values("Origin") != nil && !loopbackOrigin(r.Header.Values("Origin")):
		return "the Origin header names another one"
	case r.Header.Get("Sec-Fetch-Site") == "cross-site":
		return "a web page of another site sent it"
	}
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"} {
		if r.Header.Values(name) != nil {
			return "a proxy forwarded it (" + name + ")"
		}
	}
	return ""
}

func loopbackOrigin(values []string) bool {
	if len(values) != 1 {
		return false
	}
	u, err := url.Parse(values[0])
	return err == nil && u.Host != "" && loopbackHost(u.Host)
}

// loopbackHost takes a host with or without a port.
func loopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
		if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
			host = host[1 : len(host)-1]
		}
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
