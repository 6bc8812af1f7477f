package egress

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Secrets reach the server of their domain, over TLS, and nobody else.
func TestSecrets(t *testing.T) {
	const operators, clients = "operators-sesame", "clients-sesame"
	w := newWorld(t, Policy{Secrets: []turn.DomainSecret{{Domain: "other.test", Name: "TOKEN", Value: clients}}}, func(cfg *Config, w *world) {
		cfg.Secrets = []HeaderSecret{{Domain: domain(t, "secure.test"), Header: "Authorization", Value: "Bearer " + operators}}
		w.dns.answers["third.test"] = []string{"127.0.0.1"}
	})
	network := w.gate.Network()
	if network.Env["TOKEN"] != "$TOKEN" || strings.Contains(fmt.Sprint(network), "sesame") {
		t.Errorf("a sandbox is told %v", network.Env)
	}
	c := w.client(network.Trust + w.roots())
	do := func(url string, header ...string) http.Header {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Add(header[i], header[i+1])
		}
		before := len(w.seen())
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return w.seen()[before].Header
	}
	at := ":" + port(w.secure) + "/"
	if h := do("https://secure.test"+at, "Authorization", "Bearer of the program", "X-Key", "$TOKEN"); h.Get("Authorization") != "Bearer "+operators || h.Get("X-Key") != "$TOKEN" {
		t.Errorf("the operator's domain got %v", h)
	}
	h := do("https://other.test"+at, "Authorization", "Bearer $TOKEN", "X-Key", "a${TOKEN}b $TOKENS $OTHER", "X-Basic", "Basic dXNlcjokVE9LRU4=")
	if h.Get("Authorization") != "Bearer "+clients || h.Get("X-Key") != "a"+clients+"b $TOKENS $OTHER" || h.Get("X-Basic") != "Basic dXNlcjpjbGllbnRzLXNlc2FtZQ==" {
		t.Errorf("the client's domain got %v", h)
	}
	if h := do("https://third.test"+at, "Authorization", "Bearer $TOKEN"); h.Get("Authorization") != "Bearer $TOKEN" {
		t.Errorf("a third domain got %v", h)
	}
	if h := do("http://plain.test:"+port(w.plain)+"/", "Authorization", "Bearer $TOKEN"); h.Get("Authorization") != "Bearer $TOKEN" {
		t.Errorf("without TLS a server got %v", h)
	}
	if strings.Contains(w.log.String(), "sesame") {
		t.Error("a secret is in the log")
	}
}

// roots are the authority of the test's servers in PEM, for programs that reach them from end to end.
func (w *world) roots() string {
	leaf, err := w.secure.TLS.GetCertificate(clientHello("secure.test"))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[1]}))
}

// An authority is for its domains only, for a short time, and another for each container.
func TestAuthority(t *testing.T) {
	policy := Policy{Secrets: []turn.DomainSecret{{Domain: "secure.test", Name: "A", Value: "v"}}}
	w := newWorld(t, policy, nil)
	other, err := w.proxy.Open("cntr_other", policy)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.authority.pem == w.gate.authority.pem {
		t.Error("two containers share an authority")
	}
	none, err := w.proxy.Open("cntr_none", Policy{})
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if none.Network().Trust != "" {
		t.Error("a container without secrets trusts an authority of ours")
	}
	pool := x509.NewCertPool()
	pool.AddCert(w.gate.authority.cert)
	for name, want := range map[string]bool{"secure.test": true, "evil.example": false, "127.0.0.1": false} {
		leaf, err := w.gate.authority.leaf(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); (err == nil) != want {
			t.Errorf("a certificate for %s: %v", name, err)
		}
	}
	if a := w.gate.authority.cert; time.Until(a.NotAfter) > authorityTime || strings.Contains(w.gate.authority.pem, "PRIVATE") {
		t.Errorf("good until %v", a.NotAfter)
	}
	// A program that trusts only what was there before does not take our certificate for the server's.
	if got := get(w.client(w.roots()), "https://secure.test:"+port(w.secure)+"/"); !strings.Contains(got, "unknown authority") {
		t.Errorf("got %s", got)
	}
}

// A server whose certificate is bad is not hidden behind ours.
func TestBadServer(t *testing.T) {
	w := newWorld(t, Policy{Secrets: []turn.DomainSecret{{Domain: "secure.test", Name: "A", Value: "v"}}}, func(cfg *Config, _ *world) {
		cfg.Roots = x509.NewCertPool()
	})
	got := get(w.client(w.gate.Network().Trust), "https://secure.test:"+port(w.secure)+"/")
	if !strings.HasPrefix(got, "502 lathe: the certificate of secure.test") || len(w.seen()) != 0 {
		t.Errorf("got %s", got)
	}
}

func TestBytes(t *testing.T) {
	w := newWorld(t, Policy{}, func(cfg *Config, _ *world) { cfg.Bytes = 1 << 20 })
	url := "http://plain.test:" + port(w.plain) + "/echo"
	if resp, err := w.client("").Post(url, "", strings.NewReader(strings.Repeat("x", 2<<20))); err == nil {
		if got, err := io.ReadAll(resp.Body); err == nil && len(got) == 2<<20 {
			t.Error("twice as much as is allowed has passed")
		}
		resp.Body.Close()
	}
	if got := get(w.client(""), url); strings.HasPrefix(got, "200") {
		t.Errorf("then: %s", got)
	}
}

// A connection that says nothing, and one that is in the middle of something, end with the sandbox.
func TestClose(t *testing.T) {
	w := newWorld(t, Policy{}, nil)
	var conns []net.Conn
	for _, text := range []string{"", "GET http://pla", "CONNECT secure.test:" + port(w.secure) + " HTTP/1.1\r\n\r\n"} {
		c, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	buf := make([]byte, 100)
	if _, err := conns[2].Read(buf); err != nil { // the tunnel stands
		t.Fatal(err)
	}
	w.gate.Close()
	for i, c := range conns {
		if _, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if got := w.raw("GET http://plain.test/ HTTP/1.1\r\nHost: x\r\n\r\n"); got != "" {
		t.Errorf("after the end: %q", got)
	}
}

func TestParallel(t *testing.T) {
	w := newWorld(t, Policy{}, nil)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			url := "http://plain.test:" + port(w.plain) + "/"
			if i%2 == 0 {
				url = "https://secure.test:" + port(w.secure) + "/"
			}
			if got := get(w.client(""), url); !strings.HasPrefix(got, "200 ") {
				t.Errorf("%s: %s", url, got)
			}
		})
	}
	wg.Wait()
}
