package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/egress/rule"
)

// clientHello is a hello for a name, as a server's configuration sees it.
func clientHello(name string) *tls.ClientHelloInfo { return &tls.ClientHelloInfo{ServerName: name} }

// recordHello is what a client sends first.
func recordHello(name string) []byte {
	var out bytes.Buffer
	_ = tls.Client(recorder{w: &out}, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake() //nolint:gosec // goes nowhere
	return out.Bytes()
}

type recorder struct {
	net.Conn
	w io.Writer
}

func (r recorder) Write(p []byte) (int, error) { return r.w.Write(p) }
func (r recorder) Read([]byte) (int, error)    { return 0, io.EOF }
func (r recorder) Close() error                { return nil }

type reader struct {
	net.Conn
	r io.Reader
}

func (r reader) Read(p []byte) (int, error) { return r.r.Read(p) }

func TestReadHello(t *testing.T) {
	whole := recordHello("secure.test")
	raw, hello, err := readHello(t.Context(), reader{r: bytes.NewReader(append(bytes.Clone(whole), "more"...))})
	if err != nil || hello.ServerName != "secure.test" || !bytes.HasPrefix(raw, whole) {
		t.Errorf("%v, %v", hello, err)
	}
	// What is needed of it fits many records: a name must not hide behind a cut.
	split := append([]byte{22, 3, 1, 0, 10}, whole[5:15]...)
	rest := whole[15:]
	split = append(split, 22, 3, 1, byte(len(rest)>>8), byte(len(rest)))
	split = append(split, rest...)
	if _, hello, err := readHello(t.Context(), reader{r: bytes.NewReader(split)}); err != nil || hello.ServerName != "secure.test" {
		t.Errorf("in two records: %v, %v", hello, err)
	}
	if err := checkName(rule.Target{Host: "a.test"}, &tls.ClientHelloInfo{ServerName: "a.test", Extensions: []uint16{encryptedHello}}); err == nil {
		t.Error("an encrypted name was let through")
	}
	for _, cut := range []int{0, 1, 5, 20, len(whole) - 1} {
		if _, _, err := readHello(t.Context(), reader{r: bytes.NewReader(whole[:cut])}); err == nil {
			t.Errorf("a hello of %d bytes was taken", cut)
		}
	}
}

// FuzzHello: whatever a program sends, what is passed on begins as it came, and its name is the one that was seen.
func FuzzHello(f *testing.F) {
	f.Add(recordHello("secure.test"))
	f.Add(recordHello(""))
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		raw, hello, err := readHello(t.Context(), reader{r: bytes.NewReader(in)})
		if err != nil {
			return
		}
		if !bytes.HasPrefix(in, raw) || len(raw) > maxHeader {
			t.Fatal("not what came")
		}
		if _, again, err := readHello(t.Context(), reader{r: bytes.NewReader(raw)}); err != nil || again.ServerName != hello.ServerName {
			t.Fatalf("a server would read %v, %v and not %s", again, err, hello.ServerName)
		}
	})
}

// FuzzProgram lets a program say anything to the proxy: nothing but the allowed name is resolved, and nothing but its address dialed.
func FuzzProgram(f *testing.F) {
	f.Add("GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n")
	f.Add("CONNECT plain.test:443 HTTP/1.1\r\n\r\n\x16\x03\x01")
	f.Add("CONNECT plain.test:443 HTTP/1.1\r\n\r\nGET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	f.Add("GET http://plain.test:80@evil.example:80/ HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://[::1]/ HTTP/1.1\r\n\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		dns := &resolver{answers: map[string][]string{}}
		p, err := New(Config{
			Rules: rule.List{Allow: []rule.Domain{{Name: "plain.test"}}}, Resolver: strict{t, dns},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		g, err := p.Open("cntr_fuzz", Policy{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		here, there := net.Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		served := make(chan struct{})
		go func() {
			defer close(served)
			g.Network().Serve(ctx, there)
		}()
		go func() {
			_, _ = io.WriteString(here, in)
			_ = here.Close()
		}()
		got, _ := io.ReadAll(here)
		if strings.Contains(string(got), "HTTP/1.1 200 ") {
			t.Errorf("%q was answered %q", in, got)
		}
		<-served
	})
}

// strict knows plain.test as a private address, and fails the test for any other name.
type strict struct {
	t   *testing.T
	dns *resolver
}

func (s strict) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host != "plain.test." {
		s.t.Errorf("asked for %q", host)
		return nil, errors.New("no such host")
	}
	return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
}
