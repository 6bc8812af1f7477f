package egress

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lathe-gateway/lathe/internal/egress/rule"
)

// authority signs the certificates that one container's programs see where TLS ends in the proxy. It may sign for the domains with
// secrets only, and its key never leaves this process. A container whose sandbox starts anew gets another.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// How long what an authority signs is good for. A sandbox that is idle ends long before.
const (
	authorityTime = 30 * 24 * time.Hour
	leafTime      = 24 * time.Hour
	clockSkew     = time.Hour
)

func newAuthority(id string, domains []rule.Domain) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Lathe, for container " + id, Organization: []string{"Lathe"}},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityTime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true,
	}
	for _, d := range domains {
		if a, err := netip.ParseAddr(d.Name); err == nil {
			template.PermittedIPRanges = append(template.PermittedIPRanges, &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())})
		} else {
			template.PermittedDNSDomains = append(template.PermittedDNSDomains, d.Name)
		}
	}
	if len(template.PermittedDNSDomains) == 0 {
		template.PermittedDNSDomains = []string{"invalid"} // a list without names would permit every one
	}
	if len(template.PermittedIPRanges) == 0 {
		template.ExcludedIPRanges = []*net.IPNet{
			{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	a := &authority{key: key, pem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), leaves: map[string]*tls.Certificate{}}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	return a, nil
}

func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// config ends TLS for one host, and for no other name.
func (a *authority) config(host string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if err := checkServerName(host, h.ServerName); err != nil {
				return nil, err
			}
			return a.leaf(host)
		},
	}
}

// maxLeaves bounds what a program can have made by asking for all names below a wildcard.
const maxLeaves = 256

func (a *authority) leaf(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if c := a.leaves[host]; c != nil && now.Before(c.Leaf.NotAfter.Add(-clockSkew)) {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{Organization: []string{"Lathe"}},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(leafTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		template.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	c := &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}
	a.leaves[host] = c
	return c, nil
}

// alert is a TLS record: fatal, unrecognized_name.
var alert = []byte{21, 3, 3, 0, 2, 2, 112}

// encryptedHello is the extension encrypted_client_hello: it hides the name that is really meant.
const encryptedHello = 0xfe0d

var errRead = errors.New("read")

// readHello reads the first message of a TLS client, at most maxHeader bytes, and returns it as it came.
func readHello(ctx context.Context, c net.Conn) (raw []byte, hello *tls.ClientHelloInfo, err error) {
	var seen bytes.Buffer
	src := readOnly{Conn: c, r: io.TeeReader(io.LimitReader(c, maxHeader), &seen)}
	err = tls.Server(src, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			hello = h
			return nil, errRead
		},
	}).HandshakeContext(ctx)
	if hello == nil {
		return nil, nil, fmt.Errorf("no hello: %w", err)
	}
	return seen.Bytes(), hello, nil
}

// readOnly keeps crypto/tls from answering.
type readOnly struct {
	net.Conn
	r io.Reader
}

func (r readOnly) Read(p []byte) (int, error)  { return r.r.Read(p) }
func (r readOnly) Write(p []byte) (int, error) { return len(p), nil }
func (r readOnly) Close() error                { return nil }

// checkName says why a hello may not go to t: TLS that goes through must be for the name that was asked for.
func checkName(t rule.Target, hello *tls.ClientHelloInfo) error {
	if slices.Contains(hello.Extensions, encryptedHello) {
		return errors.New("the server's name is encrypted (ECH): switch that off in the client")
	}
	return checkServerName(t.Host, hello.ServerName)
}

// checkServerName compares the name in a hello. Clients that go to an address send none.
func checkServerName(host, sni string) error {
	if _, err := netip.ParseAddr(host); err == nil && sni == "" {
		return nil
	}
	if !strings.EqualFold(strings.TrimSuffix(sni, "."), host) {
		return fmt.Errorf("the server name %.100q in the TLS hello is not %s", sni, host)
	}
	return nil
}

// hasSecret says whether TLS to t ends here.
func (g *Gate) hasSecret(t rule.Target) bool {
	return slices.ContainsFunc(g.p.cfg.Secrets, func(s HeaderSecret) bool { return s.of(t) }) ||
		slices.ContainsFunc(g.secrets, func(s clientSecret) bool { return s.domain.Has(t.Host) })
}

// of says whether the secret is for t. A domain without a port is for 443 and whatever else the operator allows.
func (s HeaderSecret) of(t rule.Target) bool {
	return s.Domain.Has(t.Host) && (s.Domain.Port == 0 || s.Domain.Port == t.Port)
}

var placeholder = regexp.MustCompile(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

// inject puts the secrets of t into a request's header.
func (g *Gate) inject(h http.Header, t rule.Target) {
	values := map[string]string{}
	for _, s := range g.secrets {
		if s.domain.Has(t.Host) {
			values[s.name] = s.value
		}
	}
	if len(values) > 0 {
		for _, list := range h {
			for i, v := range list {
				list[i] = fill(v, values)
			}
		}
	}
	for _, s := range g.p.cfg.Secrets {
		if s.of(t) {
			h.Set(s.Header, string(s.Value))
		}
	}
}

// fill replaces $NAME and ${NAME}, within the name and password of basic authentication too.
func fill(v string, values map[string]string) string {
	if scheme, code, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "basic") {
		if plain, err := base64.StdEncoding.DecodeString(code); err == nil {
			return scheme + " " + base64.StdEncoding.EncodeToString([]byte(fill(string(plain), values)))
		}
	}
	return placeholder.ReplaceAllStringFunc(v, func(m string) string {
		if value, ok := values[strings.Trim(m, "${}")]; ok {
			return value
		}
		return m
	})
}
