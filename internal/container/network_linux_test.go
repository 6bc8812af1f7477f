package container

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/egress"
	"github.com/lathe-gateway/lathe/internal/egress/rule"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// outside is what is beyond the proxy: an index of packages on loopback, which wants a secret, and a name server.
type outside struct {
	*httptest.Server
	port  string
	proxy *egress.Proxy
	log   *logged

	mu      sync.Mutex
	answers map[string][]string // in turn
	asked   []string
	seen    []string // method, host, path and Authorization of each request
}

type logged struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (o *outside) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	host = strings.TrimSuffix(host, ".")
	o.asked = append(o.asked, host)
	list := o.answers[host]
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(list) > 1 {
		o.answers[host] = list[1:]
	}
	return []netip.Addr{netip.MustParseAddr(list[0])}, nil
}

// The secrets of this file: the operator's for the index, the client's for another domain. In two parts, so that this program's own text
// in memory is not found.
var operatorsSecret, clientsSecret = "operator-" + strconv.Itoa(4711) + "-sesame", "client-" + strconv.Itoa(4712) + "-sesame"

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{log: &logged{}, answers: map[string][]string{
		"index.test": {"127.0.0.1"}, "client.test": {"127.0.0.1"}, "open.test": {"127.0.0.1"}, "private.test": {"10.0.0.1"},
		"loopback6.test": {"::1"}, "metadata.test": {"169.254.169.254"}, "mapped.test": {"::ffff:169.254.169.254"},
		"rebind.test": {"127.0.0.1", "127.0.0.2", "127.0.0.1", "169.254.169.254"},
	}}
	wheel := purePackage(t)
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.seen = append(o.seen, r.Method+" "+r.Host+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		o.mu.Unlock()
		switch r.URL.Path {
		case "/simple/tinypure/":
			fmt.Fprintf(w, `<a href="/files/tinypure-1.0-py3-none-any.whl#sha256=%x">tinypure-1.0-py3-none-any.whl</a>`, sha256.Sum256(wheel))
		case "/files/tinypure-1.0-py3-none-any.whl":
			_, _ = w.Write(wheel)
		case "/redirect":
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		default:
			fmt.Fprint(w, "reached ", r.Host)
		}
	}))
	o.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}
	o.StartTLS()
	t.Cleanup(o.Close)
	_, o.port, _ = net.SplitHostPort(o.Listener.Addr().String())
	pool := x509.NewCertPool()
	pool.AddCert(o.Certificate())
	cfg := egress.Config{Resolver: o, Roots: pool, Logger: slog.New(slog.NewTextHandler(o.log, nil))}
	d, err := rule.ParseDomain("*.test:" + o.port)
	must(t, err)
	plain, err := rule.ParseDomain("*.test")
	must(t, err)
	e, err := rule.ParseException("127.0.0.1:" + o.port)
	must(t, err)
	cfg.Rules = rule.List{Allow: []rule.Domain{d, plain}, Except: []rule.Exception{e}}
	index, err := rule.ParseDomain("index.test")
	must(t, err)
	cfg.Secrets = []egress.HeaderSecret{{Domain: index, Header: "Authorization", Value: turn.Secret("Bearer " + operatorsSecret)}}
	o.proxy, err = egress.New(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, o.proxy.Close()) })
	return o
}

// selfSigned is a certificate for the names of this file's servers, which vouches for itself.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"*.test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// purePackage is a wheel with one module.
func purePackage(t *testing.T) []byte {
	t.Helper()
	files := [][2]string{
		{"tinypure.py", "answer = 42\n"},
		{"tinypure-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinypure\nVersion: 1.0\n"},
		{"tinypure-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	record := ""
	add := func(name, text string) {
		f, err := z.Create(name)
		must(t, err)
		_, err = f.Write([]byte(text))
		must(t, err)
	}
	for _, f := range files {
		add(f[0], f[1])
		sum := sha256.Sum256([]byte(f[1]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f[0], base64.RawURLEncoding.EncodeToString(sum[:]), len(f[1]))
	}
	add("tinypure-1.0.dist-info/RECORD", record+"tinypure-1.0.dist-info/RECORD,,\n")
	must(t, z.Close())
	return b.Bytes()
}

func (o *outside) requests() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.seen, "\n")
}

// pip installs from an index on loopback that the operator has excepted, with a secret that no program sees; the package can be imported
// in the same cell, and after the container has slept.
func TestPipInGVisor(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	b := newPlace(t).bench(t, func(c *Config) { c.Egress = o.proxy })
	if _, err := os.Stat("/usr/lib/python3/dist-packages/pip"); err != nil {
		t.Skip("this machine's own Python has no pip (Debian: python3-pip)")
	}
	w := b.open(turn.Hosted{})
	install := "import subprocess, sys\nr = subprocess.run([sys.executable, '-m', 'pip', 'install', '--no-cache-dir', '--index-url', " +
		"'https://index.test:" + o.port + "/simple', '%s'], capture_output=True, text=True)\nr.returncode\n"
	out := python(t, w, fmt.Sprintf(install, "tinypure")+"if r.returncode: print(r.stdout, r.stderr)\nimport tinypure\nprint(tinypure.answer)")
	wantText(t, out, "42\n")
	if !strings.Contains(o.requests(), "/files/tinypure-1.0-py3-none-any.whl Bearer "+operatorsSecret) {
		t.Errorf("the index saw %s", o.requests())
	}
	// Another index, which the operator has not allowed: the model reads why.
	out = python(t, w, strings.ReplaceAll(fmt.Sprintf(install, "other"), "index.test", "pypi.example")+"print('evil' if not r.returncode else r.stderr)")
	if !strings.Contains(text(out), "the domain pypi.example is not allowed") || !strings.Contains(text(out), "sandbox.allow") {
		t.Errorf("pip said %s", text(out))
	}
	b.sleep(w)
	w = b.wake(w)
	wantText(t, python(t, w, "print(tinypure.answer)\n"+
		"import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import tinypure; print(tinypure.answer)'], capture_output=True, text=True).stdout)"),
		"42\n42\n\n")
	python(t, w, getter(o))
	wantText(t, python(t, w, "print(get('https://index.test:' + port + '/after'))"), "200 reached index.test:"+o.port+"\n")
}

// getter is Python that asks for a URL and returns the status and the text, or the error.
func getter(o *outside) string {
	return `
import os, socket, ssl, urllib.request, urllib.error
port = '` + o.port + `'
anyone = ssl._create_unverified_context()
def get(url, context=None, **headers):
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context or ssl.create_default_context()))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=30) as r:
            return f'{r.status} {r.read().decode()}'
    except urllib.error.HTTPError as e:
        return f'{e.code} {e.read().decode()}'
    except Exception as e:
        return f'{type(e).__name__} {e}'
def tunnel(to, sni=None, first=None):
    at = urllib.request.urlsplit(os.environ['HTTPS_PROXY'])
    s = socket.create_connection((at.hostname, at.port), 30)
    s.sendall(f'CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n'.encode())
    head = b''
    while not head.endswith(b'\r\n\r\n'):
        c = s.recv(1)
        if not c: break
        head += c
    if b' 200 ' not in head: return head.decode()
    try:
        if first is not None:
            s.sendall(first)
            return (s.recv(100) or b'closed').decode()
        with anyone.wrap_socket(s, server_hostname=sni) as t:
            t.sendall(f'GET / HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n'.encode())
            return t.makefile('rb').read().decode()
    except OSError as e:
        return f'{type(e).__name__} {e}'
`
}

// Everything but what is allowed is refused, each beside something that differs in what it is refused for and gets through.
func TestRefusedInGVisor(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	b := newPlace(t).bench(t, func(c *Config) { c.Egress = o.proxy })
	w := b.open(turn.Hosted{})
	python(t, w, getter(o))
	for _, tt := range []struct{ what, code, control, want string }{
		{"a name", "get(f'https://evil.example:{port}/', anyone)", "get(f'https://open.test:{port}/', anyone)", "the domain evil.example is not allowed"},
		{"a name over plain HTTP", "get('http://evil.example/')", "", "403 lathe: the domain evil.example is not allowed"},
		{"a private address", "get(f'https://private.test:{port}/', anyone)", "", "not on the public internet"},
		{"IPv6", "get(f'https://loopback6.test:{port}/', anyone)", "", "not on the public internet"},
		{"metadata by name", "get(f'https://metadata.test:{port}/', anyone)", "", "not on the public internet"},
		{"metadata mapped", "get(f'https://mapped.test:{port}/', anyone)", "", "not on the public internet"},
		{"an address", "get(f'https://127.0.0.2:{port}/', anyone)", "tunnel(f'127.0.0.1:{port}')", "addresses by number"},
		{"IPv6 by number", "tunnel(f'[::1]:{port}')", "", "addresses by number"},
		{"metadata", "get('http://169.254.169.254/latest/meta-data/')", "", "addresses by number"},
		{"metadata decimal", "get('http://2852039166/latest/')", "", "not the usual form"},
		{"metadata octal", "get('http://0251.0376.0251.0376/latest/')", "", "not the usual form"},
		{"metadata hex", "get('http://0xA9FEA9FE/latest/')", "", "not the usual form"},
		{"a redirect", "get(f'https://open.test:{port}/redirect?to=http://evil.example/', anyone)",
			"get(f'https://open.test:{port}/redirect?to=https://client.test:{port}/', anyone)", "the domain evil.example is not allowed"},
		{"a redirect to an address", "get(f'https://open.test:{port}/redirect?to=http://127.0.0.2/', anyone)", "", "addresses by number"},
		{"rebinding", "(get(f'https://rebind.test:{port}/', anyone), get(f'https://rebind.test:{port}/', anyone))[1]",
			"get(f'https://rebind.test:{port}/', anyone)", "not on the public internet"},
		{"rebinding to metadata", "get(f'https://rebind.test:{port}/', anyone)", "", "not on the public internet"},
		{"another server name", "tunnel(f'open.test:{port}', 'client.test')", "tunnel(f'open.test:{port}', 'open.test')", "SSL"},
		{"another server name where TLS ends", "tunnel(f'index.test:{port}', 'client.test')", "tunnel(f'index.test:{port}', 'index.test')", "SSL"},
		{"another Host where TLS ends", "get(f'https://index.test:{port}/', anyone, Host='evil.example')", "get(f'https://index.test:{port}/', anyone)", "421 "},
		{"another Host in plain HTTP", "tunnel(f'open.test:{port}', first=b'GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n')", "", "421 "},
		{"raw bytes in a tunnel", "tunnel(f'open.test:{port}', first=b'SSH-2.0-x\\r\\n\\r\\n')", "", "400 "},
		{"DNS in a tunnel", "tunnel('open.test:53')", "", "port 53 of open.test is not allowed"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			before := len(o.requests())
			if got := text(python(t, w, "print("+tt.code+")")); !strings.Contains(got, tt.want) {
				t.Errorf("got %s", got)
			}
			seen := o.requests()[before:]
			if strings.Contains(seen, "evil") {
				t.Errorf("the server saw %s", seen)
			}
			if tt.control == "" {
				return
			}
			if got := text(python(t, w, "print("+tt.control+")")); !strings.Contains(got, "reached ") {
				t.Errorf("the control got %s", got)
			}
		})
	}
	o.mu.Lock()
	for _, name := range o.asked {
		if !strings.HasSuffix(name, ".test") {
			t.Errorf("the name server was asked for %s", name)
		}
	}
	o.mu.Unlock()
}

// There is no other way out than the proxy.
func TestNoOtherWay(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	b := newPlace(t).bench(t, func(c *Config) { c.Egress = o.proxy })
	w := b.open(turn.Hosted{})
	python(t, w, getter(o))
	out := python(t, w, `
def attempt(f):
    try: return f() or 'worked'
    except OSError as e: return type(e).__name__
def udp(to):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.sendto(b'x' * 40, to); s.recvfrom(9)
print(attempt(lambda: socket.create_connection(('127.0.0.1', int(port)), 3)))   # the server's own port, here and on the host
print(attempt(lambda: socket.create_connection(('8.8.8.8', 443), 3)))
print(attempt(lambda: socket.create_connection(('2001:4860:4860::8888', 443), 3)))
print(attempt(lambda: udp(('8.8.8.8', 53))))
print(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)))
print(attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)))
print(attempt(lambda: socket.getaddrinfo('open.test', 443)))
print(get(f'https://open.test:{port}/', anyone))
`)
	lines := strings.Split(strings.TrimSpace(text(out)), "\n")
	for i, line := range lines {
		if last := i == len(lines)-1; last != strings.HasPrefix(line, "200 reached open.test") || (!last && strings.Contains(line, "worked")) {
			t.Errorf("attempt %d: %s", i, line)
		}
	}
	if len(lines) != 8 {
		t.Errorf("got %q", lines)
	}
	conn, err := tls.Dial("tcp", o.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // that it is reached from the host is the control
	must(t, err)
	must(t, conn.Close())
}

// Secrets are where they belong, and nowhere else: neither in the environment, nor in files, nor in the memory of programs and guest.
func TestSecretsInGVisor(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	b := newPlace(t).bench(t, func(c *Config) { c.Egress = o.proxy })
	w := b.open(turn.Hosted{Network: &turn.Network{
		Domains: []string{"index.test", "client.test"}, Secrets: []turn.DomainSecret{{Domain: "client.test", Name: "TOKEN", Value: turn.Secret(clientsSecret)}},
	}})
	python(t, w, getter(o))
	out := python(t, w, `
print(os.environ['TOKEN'])
print(get(f'https://client.test:{port}/a', Authorization='Bearer ' + os.environ['TOKEN']))
print(get(f'https://index.test:{port}/b'))
print(get(f'https://open.test:{port}/', anyone).split(':')[0])
marker = 'marker-' + str(4713) + '-found'
`)
	if got := text(out); !strings.HasPrefix(got, "$TOKEN\n200 reached client.test:"+o.port+"\n200 reached index.test:"+o.port+"\n") {
		t.Errorf("got %s", got)
	}
	for _, want := range []string{"/a Bearer " + clientsSecret, "/b Bearer " + operatorsSecret} {
		if !strings.Contains(o.requests(), want) {
			t.Errorf("the server saw %s, not %s", o.requests(), want)
		}
	}
	wantText(t, bash(t, w, "env | grep -c sesame; cat /proc/*/environ 2>/dev/null | grep -c sesame; grep -rls 'sesame' /mnt /home /tmp /dev/shm | wc -l"), "0\n0\n0\n")
	wantText(t, bash(t, w, "cat /proc/1/mem 2>/dev/null | wc -c; ls /.lathe"), "0\nguest\n")
	b.sleep(w)
	row := b.row(w)
	image := b.memoryDir(row.ID, row.Memory.ID)
	for _, text := range []string{operatorsSecret, clientsSecret} {
		if inMemory(t, image, text) {
			t.Error("a secret is in a sandbox's memory")
		}
	}
	if !inMemory(t, image, "marker-"+strconv.Itoa(4713)+"-found") {
		t.Error("what a program holds was not found either: the search is of no use")
	}
	if strings.Contains(o.log.String(), "sesame") {
		t.Error("a secret is in the log")
	}
}

// inMemory looks for a text in the memory of a container that hibernates: all pages of its programs and of the guest.
func inMemory(t *testing.T, dir, text string) bool {
	t.Helper()
	found, searched := false, int64(0)
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(text))
		searched += int64(len(data))
		return err
	}))
	if searched < 1<<20 {
		t.Fatalf("there are only %d bytes to search", searched)
	}
	return found
}

// 200 connections at once, from one program.
func TestParallelInGVisor(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	b := newPlace(t).bench(t, func(c *Config) { c.Egress = o.proxy })
	w := b.open(turn.Hosted{})
	python(t, w, getter(o))
	wantText(t, python(t, w, `
at = urllib.request.urlsplit(os.environ['HTTPS_PROXY'])
socks = [socket.create_connection((at.hostname, at.port), 60) for _ in range(200)]
for s in socks: s.sendall(f'CONNECT open.test:{port} HTTP/1.1\r\n\r\n'.encode())
done = 0
for s in socks:
    head = b''
    while not head.endswith(b'\r\n\r\n'): head += s.recv(1)
    done += b' 200 ' in head
tunnels = [anyone.wrap_socket(s, server_hostname='open.test') for s in socks]
for t in tunnels: t.sendall(f'GET / HTTP/1.1\r\nHost: open.test:{port}\r\nConnection: close\r\n\r\n'.encode())
print(done, sum(b'reached open.test' in t.makefile('rb').read() for t in tunnels))
`), "200 200\n")
}
