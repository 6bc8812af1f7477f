package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lathe-gateway/lathe/internal/egress/rule"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// resolver is a name server with fixed answers, which it gives in turn, and a memory of what it was asked.
type resolver struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   []string
}

func (r *resolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, host)
	list := r.answers[strings.TrimSuffix(host, ".")]
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(list) > 1 {
		r.answers[strings.TrimSuffix(host, ".")] = list[1:]
	}
	var out []netip.Addr
	for _, s := range strings.Fields(list[0]) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func (r *resolver) questions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// world is a proxy with a server behind it, and programs in front of it.
type world struct {
	t        *testing.T
	dns      *resolver
	proxy    *Proxy
	gate     *Gate
	plain    *httptest.Server // as plain.test
	secure   *httptest.Server // as *.test
	address  string           // of the proxy, for programs
	log      bytes.Buffer
	mu       sync.Mutex
	requests []*http.Request // as the servers saw them
	outcomes map[string]int
}

func port(s *httptest.Server) string {
	_, p, _ := net.SplitHostPort(s.Listener.Addr().String())
	return p
}

// newWorld allows plain.test and *.test at the servers' ports, and their address. edit changes the rest.
func newWorld(t *testing.T, policy Policy, edit func(*Config, *world)) *world {
	t.Helper()
	w := &world{t: t, dns: &resolver{answers: map[string][]string{}}, outcomes: map[string]int{}}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.requests = append(w.requests, r)
		w.mu.Unlock()
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(rw, r, r.URL.Query().Get("to"), http.StatusFound)
		case "/echo":
			_, _ = io.Copy(rw, r.Body)
		default:
			rw.Header().Set("Keep-Alive", "timeout=5")
			fmt.Fprint(rw, "hello from ", r.Host)
		}
	})
	w.plain, w.secure = httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	ca := testAuthority(t)
	w.secure.TLS = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return ca.leaf(h.ServerName) }}
	w.secure.StartTLS()
	t.Cleanup(w.plain.Close)
	t.Cleanup(w.secure.Close)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	cfg := Config{
		Resolver: w.dns, Roots: pool, Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: &w.log}, nil)),
		Observe: func(outcome string) { w.mu.Lock(); w.outcomes[outcome]++; w.mu.Unlock() },
	}
	for _, s := range []string{"plain.test:" + port(w.plain), "*.test:" + port(w.secure), "*.standard.test"} {
		cfg.Rules.Allow = append(cfg.Rules.Allow, domain(t, s))
	}
	for _, s := range []string{"127.0.0.1:" + port(w.plain), "127.0.0.1:" + port(w.secure)} {
		cfg.Rules.Except = append(cfg.Rules.Except, exception(t, s))
	}
	for _, name := range []string{"plain.test", "secure.test", "other.test"} {
		w.dns.answers[name] = []string{"127.0.0.1"}
	}
	if edit != nil {
		edit(&cfg, w)
	}
	var err error
	if w.proxy, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if w.gate, err = w.proxy.Open("cntr_test", policy); err != nil {
		t.Fatal(err)
	}
	w.listen()
	return w
}

// listen plays the sandbox: what connects is served by the gate.
func (w *world) listen() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.address = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { w.gate.Network().Serve(ctx, c) })
		}
	})
	w.t.Cleanup(func() {
		ln.Close()
		cancel()
		w.gate.Close()
		serving.Wait()
		if err := w.proxy.Close(); err != nil {
			w.t.Error(err)
		}
		if len(w.proxy.dials) != 0 {
			w.t.Errorf("%d connections still count", len(w.proxy.dials))
		}
	})
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func testAuthority(t *testing.T) *authority {
	t.Helper()
	a, err := newAuthority("the servers of the test", []rule.Domain{{Name: "test"}, {Name: "127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func domain(t *testing.T, s string) rule.Domain {
	t.Helper()
	d, err := rule.ParseDomain(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func exception(t *testing.T, s string) rule.Exception {
	t.Helper()
	e, err := rule.ParseException(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// client is a program: it trusts what programs are told to trust, or the servers' own authority.
func (w *world) client(trusts string) *http.Client {
	tr := &http.Transport{
		Proxy:           func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: w.address}, nil },
		TLSClientConfig: &tls.Config{RootCAs: w.proxy.cfg.Roots},
	}
	if trusts != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(trusts)) {
			w.t.Fatal("no certificates")
		}
		tr.TLSClientConfig.RootCAs = pool
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// get is the status and the body of an answer, or the error.
func get(c *http.Client, url string) string {
	resp, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

// raw sends bytes to the proxy, which must make it close the connection, and returns all that comes back.
func (w *world) raw(text string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	got, _ := io.ReadAll(c)
	return string(got)
}

func (w *world) seen() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

func TestAllowed(t *testing.T) {
	w := newWorld(t, Policy{}, nil)
	c := w.client("")
	for _, url := range []string{"http://plain.test:" + port(w.plain) + "/", "https://secure.test:" + port(w.secure) + "/"} {
		want := "200 hello from " + strings.TrimSuffix(strings.SplitN(url, "://", 2)[1], "/")
		if got := get(c, url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	// Plain HTTP within CONNECT, as some clients do it for every URL.
	host := "plain.test:" + port(w.plain)
	got := w.raw("CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n\r\nGET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, "hello from "+host) {
		t.Errorf("HTTP within a tunnel: %q", got)
	}
	if w.outcomes["ok"] != 3 || w.outcomes["refused"] != 0 {
		t.Errorf("outcomes %v", w.outcomes)
	}
	big := bytes.Repeat([]byte("0123456789"), 300_000)
	resp, err := c.Post("https://secure.test:"+port(w.secure)+"/echo", "", bytes.NewReader(big))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

// Every destination that is refused, beside one that differs only in what it is refused for.
func TestRefused(t *testing.T) {
	w := newWorld(t, Policy{}, func(_ *Config, w *world) {
		for name, addr := range map[string]string{
			"private.test": "10.0.0.1", "loopback6.test": "::1", "metadata.test": "169.254.169.254", "metadata6.test": "fd00:ec2::254",
			"mapped.test": "::ffff:169.254.169.254", "nat64.test": "64:ff9b::7f00:1", "6to4.test": "2002:7f00:1::1", "zero.test": "0.0.0.0",
			"other-loopback.test": "127.0.0.2", "multicast.test": "224.0.0.1", "cgnat.test": "100.64.0.1",
		} {
			w.dns.answers[name] = []string{addr}
		}
		w.dns.answers["mixed.test"] = []string{"10.0.0.1 127.0.0.1"}
	})
	c := w.client("")
	http, https := ":"+port(w.plain), ":"+port(w.secure)
	for url, want := range map[string]string{
		"http://plain.test" + http + "/":   "200 hello",
		"https://mixed.test" + https + "/": "200 hello", // of two addresses the one that is excepted

		"http://evil.example/":                  "403 lathe: the domain evil.example is not allowed: this container may reach plain.test",
		"https://evil.example/":                 "the domain evil.example is not allowed",
		"http://plain.test/":                    "403 lathe: port 80 of plain.test is not allowed",
		"https://plain.test:53/":                "port 53 of plain.test is not allowed",
		"https://sub.plain.test/":               "port 443 of sub.plain.test is not allowed",
		"http://127.0.0.2" + http + "/":         "403 lathe: addresses by number such as 127.0.0.2",
		"https://[::1]" + https + "/":           "addresses by number such as ::1",
		"https://[::ffff:127.0.0.1]" + https:    "addresses by number",
		"http://169.254.169.254/latest/":        "403 lathe: addresses by number",
		"http://2852039166/latest/":             "400 lathe: ",
		"http://0xA9FEA9FE/latest/":             "400 lathe: ",
		"http://0251.0376.0251.0376/latest/":    "400 lathe: ",
		"http://169.254.43518/latest/":          "400 lathe: ",
		"http://[fd00:ec2::254]/":               "403 lathe: addresses by number",
		"https://2852039166/":                   "not the usual form of an address",
		"https://private.test" + https:          "private.test is not on the public internet",
		"https://loopback6.test" + https:        "is not on the public internet",
		"https://other-loopback.test" + https:   "is not on the public internet",
		"https://metadata.test" + https:         "is not on the public internet",
		"https://metadata6.test" + https:        "is not on the public internet",
		"https://mapped.test" + https:           "is not on the public internet",
		"https://nat64.test" + https:            "is not on the public internet",
		"https://6to4.test" + https:             "is not on the public internet",
		"https://zero.test" + https:             "is not on the public internet",
		"https://multicast.test" + https:        "is not on the public internet",
		"https://cgnat.test" + https:            "is not on the public internet",
		"https://a.standard.test/":              "cannot be resolved",
		"http://plain.test" + http + "/nothing": "200 ",
	} {
		if got := get(c, url); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	// The exception is for the address by its number too, with its port.
	if got := get(c, "http://127.0.0.1"+http+"/"); got != "200 hello from 127.0.0.1"+http {
		t.Errorf("the excepted address: %s", got)
	}
	// What is not allowed is not even asked for: no question leaves this machine with words of the program in it.
	for _, q := range w.dns.questions() {
		if strings.Contains(q, "evil") || !strings.HasSuffix(q, ".test.") {
			t.Errorf("the name server was asked for %s", q)
		}
	}
	if !strings.Contains(w.log.String(), "target=evil.example:80") || !strings.Contains(w.log.String(), "container=cntr_test") {
		t.Errorf("the log has %s", w.log.String())
	}
	if w.outcomes["refused"] < 20 {
		t.Errorf("outcomes %v", w.outcomes)
	}
}

// A redirect is another request, and decided as one.
func TestRedirect(t *testing.T) {
	w := newWorld(t, Policy{}, nil)
	c := w.client("")
	base := "http://plain.test:" + port(w.plain)
	if got := get(c, base+"/redirect?to="+url.QueryEscape("https://other.test:"+port(w.secure)+"/")); !strings.HasPrefix(got, "200 hello from other.test") {
		t.Errorf("an allowed one: %s", got)
	}
	for _, to := range []string{"http://evil.example/", "http://127.0.0.2:" + port(w.plain) + "/", "http://169.254.169.254/"} {
		if got := get(c, base+"/redirect?to="+url.QueryEscape(to)); !strings.Contains(got, "not allowed") {
			t.Errorf("a redirect to %s: %s", to, got)
		}
	}
}

// A name server that changes its answer between the check and the connection gets nowhere: there is one question, and its answer is dialed.
func TestRebinding(t *testing.T) {
	w := newWorld(t, Policy{}, func(_ *Config, w *world) {
		w.dns.answers["rebind.test"] = []string{"127.0.0.1", "10.0.0.1", "127.0.0.1", "127.0.0.2"}
	})
	url := "https://rebind.test:" + port(w.secure) + "/"
	for i, want := range []string{"200 hello", "not on the public internet", "200 hello", "not on the public internet"} {
		if got := get(w.client(""), url); !strings.Contains(got, want) {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
		if asked := len(w.dns.questions()); asked != i+1 {
			t.Errorf("request %d: the name server was asked %d times", i, asked)
		}
	}
}

// hello sends the beginning of TLS for a name through a tunnel to secure.test, and returns how it ended.
func (w *world) hello(sni string) error {
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	host := "secure.test:" + port(w.secure)
	_, _ = io.WriteString(c, "CONNECT "+host+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	r := bufio.NewReader(c)
	if resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}); err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("connect: %v, %v", resp, err)
	}
	return tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true}).Handshake() //nolint:gosec // who is there does not matter
}

func TestServerName(t *testing.T) {
	for what, edit := range map[string]func(*Config, *world){
		"through": nil,
		"ended here": func(cfg *Config, w *world) {
			cfg.Secrets = []HeaderSecret{{Domain: domain(t, "secure.test:"+port(w.secure)), Header: "X-Key", Value: "k"}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, Policy{}, edit)
			for _, sni := range []string{"secure.test", "SECURE.test"} {
				if err := w.hello(sni); err != nil {
					t.Errorf("the right name: %v", err)
				}
			}
			for _, sni := range []string{"other.test", "evil.example", "", "ssecure.test", "secure.test.evil"} {
				if err := w.hello(sni); err == nil {
					t.Errorf("the name %q was let through", sni)
				}
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		w := newWorld(t, Policy{}, nil)
		host := "secure.test:" + port(w.secure)
		for _, text := range []string{"SSH-2.0-x\r\n", "\x00\x00\x00\x00\r\n\r\n", "\x16\x03\x01\x00\x05hello", "EHLO x\r\n"} {
			got := w.raw("CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" + text)
			if rest := strings.TrimPrefix(got, "HTTP/1.1 200 Connection established\r\n\r\n"); strings.HasPrefix(rest, "HTTP/1.1 2") {
				t.Errorf("%q: %q", text, got)
			}
		}
		if n := len(w.seen()); n != 0 {
			t.Errorf("%d requests have reached the server", n)
		}
	})
}

// The Host header never names another server than the one that was decided on.
func TestHost(t *testing.T) {
	w := newWorld(t, Policy{}, func(cfg *Config, w *world) {
		cfg.Secrets = []HeaderSecret{{Domain: domain(t, "secure.test:"+port(w.secure)), Header: "X-Key", Value: "k"}}
	})
	plain, secure := "plain.test:"+port(w.plain), "secure.test:"+port(w.secure)
	// A request for an absolute URL: RFC 9112 has proxies replace it.
	got := w.raw("GET http://" + plain + "/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
	if !strings.Contains(got, "hello from "+plain) {
		t.Errorf("got %q", got)
	}
	for _, host := range []string{"evil.example", "other.test", "plain.test", plain + "0"} {
		got := w.raw("CONNECT " + plain + " HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
		if misdirected := strings.Contains(got, "HTTP/1.1 421 "); misdirected == (host == "plain.test") {
			t.Errorf("within a tunnel, Host %s: %q", host, got)
		}
	}
	c := w.client(w.gate.Network().Trust)
	for host, want := range map[string]string{"": "200 hello from " + secure, secure: "200 ", "evil.example": "421 ", "other.test": "421 "} {
		req, _ := http.NewRequest(http.MethodGet, "https://"+secure+"/", nil)
		req.Host = host
		resp, err := c.Do(req)
		if err != nil {
			t.Errorf("Host %q: %v", host, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := fmt.Sprintf("%d %s", resp.StatusCode, body); !strings.HasPrefix(got, want) {
			t.Errorf("Host %q: %s, want %s", host, got, want)
		}
	}
	for _, r := range w.seen() {
		if strings.Contains(r.Host, "evil") {
			t.Errorf("a server was asked for %s", r.Host)
		}
	}
	for text, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: " + plain + "\r\nConnection: close\r\n\r\n":                      "HTTP/1.1 400 ",
		"GET ftp://" + plain + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":               "HTTP/1.1 400 ",
		"GET https://" + secure + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":            "HTTP/1.1 400 ",
		"TRACE http://" + plain + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":            "HTTP/1.1 405 ",
		"CONNECT plain.test HTTP/1.1\r\nHost: plain.test\r\n\r\n":                                 "HTTP/1.1 400 \"plain.test\" has no port",
		"CONNECT evil.example:443 HTTP/1.1\r\nHost: plain.test\r\n\r\n":                           "HTTP/1.1 403 the domain evil.example is not allowed",
		"GET http://" + plain + "@evil.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": "HTTP/1.1 403 ",
	} {
		if got := w.raw(text); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %s", text, got, want)
		}
	}
}

func TestHopByHop(t *testing.T) {
	w := newWorld(t, Policy{}, nil)
	got := w.raw("GET http://plain.test:" + port(w.plain) + "/?a=b;c&%zz HTTP/1.1\r\nHost: x\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nX-Other: 2\r\n" +
		"Proxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\nKeep-Alive: 5\r\n\r\n")
	r := w.seen()[0]
	for _, name := range []string{"X-Mine", "Proxy-Authorization", "Proxy-Connection", "Te", "Keep-Alive", "Connection", "X-Forwarded-For"} {
		if v := r.Header.Get(name); v != "" {
			t.Errorf("the server got %s: %s", name, v)
		}
	}
	if r.Header.Get("X-Other") != "2" || r.URL.RawQuery != "a=b;c&%zz" {
		t.Errorf("the server got %v, %s", r.Header, r.URL.RawQuery)
	}
	if strings.Contains(got, "Keep-Alive: timeout") {
		t.Errorf("the program got %q", got)
	}
}

func TestNarrowed(t *testing.T) {
	w := newWorld(t, Policy{Domains: []string{"secure.test"}}, nil)
	c := w.client("")
	if got := get(c, "https://secure.test:"+port(w.secure)+"/"); !strings.HasPrefix(got, "200 ") {
		t.Errorf("the client's domain: %s", got)
	}
	if got := get(c, "https://other.test:"+port(w.secure)+"/"); !strings.Contains(got, "other.test is not allowed: this container may reach secure.test;") {
		t.Errorf("another of the operator's: %s", got)
	}
	if got := get(c, "http://127.0.0.1:"+port(w.plain)+"/"); !strings.Contains(got, "not allowed") {
		t.Errorf("an address of the operator's: %s", got)
	}
}

func TestCheck(t *testing.T) {
	w := newWorld(t, Policy{}, nil)
	ok := turn.DomainSecret{Domain: "secure.test", Name: "TOKEN", Value: "v"}
	with := func(edit func(*turn.DomainSecret)) Policy {
		s := ok
		edit(&s)
		return Policy{Domains: []string{"secure.test"}, Secrets: []turn.DomainSecret{s}}
	}
	for name, tt := range map[string]struct {
		policy      Policy
		field, text string
	}{
		"fine":               {with(func(*turn.DomainSecret) {}), "", ""},
		"wildcard":           {Policy{Domains: []string{"*.a.test", "127.0.0.1"}}, "", ""},
		"not the operator's": {Policy{Domains: []string{"secure.test", "evil.example"}}, "allowed_domains[1]", "evil.example"},
		"wider":              {Policy{Domains: []string{"*.plain.example"}}, "allowed_domains[0]", "*.plain.example"},
		"no domain":          {Policy{Domains: []string{"https://secure.test"}}, "allowed_domains[0]", "not a domain"},
		"an address":         {Policy{Domains: []string{"10.0.0.1"}}, "allowed_domains[0]", "10.0.0.1"},
		"too many":           {Policy{Domains: make([]string, 101)}, "allowed_domains", "100"},
		"another domain":     {with(func(s *turn.DomainSecret) { s.Domain = "other.test" }), "domain_secrets[0].domain", "other.test"},
		"no variable":        {with(func(s *turn.DomainSecret) { s.Name = "A B" }), "domain_secrets[0].name", "variable"},
		"no value":           {with(func(s *turn.DomainSecret) { s.Value = "" }), "domain_secrets[0].value", "empty"},
		"line break":         {with(func(s *turn.DomainSecret) { s.Value = "sesame\r\nX: y" }), "domain_secrets[0].value", "line breaks"},
		"too long":           {with(func(s *turn.DomainSecret) { s.Value = turn.Secret(strings.Repeat("x", 1<<20)) }), "domain_secrets[0].value", "longer"},
	} {
		t.Run(name, func(t *testing.T) {
			err := w.proxy.Check(tt.policy)
			if tt.field == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			e, ok := errors.AsType[*PolicyError](err)
			if !ok || e.Field != tt.field || !strings.Contains(e.Message, tt.text) || strings.Contains(e.Message, "sesame") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNew(t *testing.T) {
	for name, s := range map[string]HeaderSecret{
		"not allowed": {Domain: rule.Domain{Name: "evil.example"}, Header: "X", Value: "v"},
		"no header":   {Domain: rule.Domain{Name: "a.example"}, Header: "A b", Value: "v"},
		"hop by hop":  {Domain: rule.Domain{Name: "a.example"}, Header: "transfer-encoding", Value: "v"},
		"line break":  {Domain: rule.Domain{Name: "a.example"}, Header: "X", Value: "sesame\n"},
	} {
		_, err := New(Config{Rules: rule.List{Allow: []rule.Domain{{Name: "a.example"}}}, Secrets: []HeaderSecret{s}})
		if err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v %s", turn.Secret("sesame"), HeaderSecret{Value: "sesame"}, turn.DomainSecret{Value: "sesame"}, turn.Secret("sesame")); strings.Contains(s, "sesame") {
		t.Errorf("a secret prints: %s", s)
	}
}
