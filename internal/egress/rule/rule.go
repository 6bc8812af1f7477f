// Package rule decides what a sandbox may reach: names by the operator's list, addresses by what they are and by the operator's
// exceptions. It resolves nothing and connects to nothing; package egress does that, and package config reads the rules. It imports
// nothing of this project.
package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Target is where a program wants to go.
type Target struct {
	// Host is a name in lower case without the dot at its end, or an address in its usual form.
	Host string
	// Addr is valid if the program named an address.
	Addr netip.Addr
	Port uint16
}

// String is host:port.
func (t Target) String() string {
	if t.Addr.IsValid() {
		return netip.AddrPortFrom(t.Addr, t.Port).String()
	}
	return t.Host + ":" + strconv.Itoa(int(t.Port))
}

// ParseTarget reads host, host:port or [address]:port. Port 0 as fallback makes a port necessary. Forms that some programs take for
// addresses (0x7f.1, 017700000001, 2130706433) are refused, so that nobody downstream can read another address out of a name.
func ParseTarget(s string, fallback uint16) (Target, error) {
	host, port, err := splitPort(s)
	if err != nil {
		return Target{}, err
	}
	if port == 0 {
		port = fallback
	}
	if port == 0 {
		return Target{}, fmt.Errorf("%.100q has no port", s)
	}
	t := Target{Port: port}
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && a.Zone() == "" && (bracketed == a.Is6()) {
		t.Addr, t.Host = a, a.String()
		return t, nil
	}
	t.Host, err = name(host)
	return t, err
}

// splitPort splits off :port, 0 if there is none.
func splitPort(s string) (host string, port uint16, err error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasSuffix(s, "]") {
		return s, 0, nil
	}
	n, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || n == 0 || s[i+1] == '0' {
		return "", 0, fmt.Errorf("%.100q has no valid port", s)
	}
	return s[:i], uint16(n), nil
}

// name checks a name of the DNS and gives it its one form.
func name(s string) (string, error) {
	host := strings.ToLower(strings.TrimSuffix(s, "."))
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", fmt.Errorf("%.100q is not a name", s)
		}
		for _, c := range []byte(label) {
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return "", fmt.Errorf("%.100q is not a name (letters of other alphabets are written as xn--...)", s)
			}
		}
	}
	if len(host) > 253 {
		return "", fmt.Errorf("%.100q... is longer than a name can be", s)
	}
	// As the URL standard has it: a name whose last label is a number is an address.
	last := labels[len(labels)-1]
	if strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == "" {
		return "", fmt.Errorf("%.100q is not the usual form of an address", s)
	}
	return host, nil
}

// Domain is an entry of a list of names.
type Domain struct {
	// Name is without the "*." of a wildcard. In a client's list it may be an address.
	Name string
	// Wild matches every name below Name, and not Name itself.
	Wild bool
	// Port is the only one; 0 is 80 and 443.
	Port uint16
}

// ParseDomain reads an entry of the operator's list: name, *.name, either with :port.
func ParseDomain(s string) (Domain, error) {
	host, port, err := splitPort(s)
	if err != nil {
		return Domain{}, errDomain
	}
	d := Domain{Port: port}
	host, d.Wild = strings.CutPrefix(host, "*.")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return Domain{}, errors.New("is an address: addresses belong into sandbox.allow_private")
	}
	if d.Name, err = name(host); err != nil {
		return Domain{}, errDomain
	}
	return d, nil
}

var errDomain = errors.New("is not a domain: write example.com, *.example.com or example.com:8443")

// ParseName reads an entry of a client's list: name, *.name or an address, without a port.
func ParseName(s string) (Domain, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return Domain{Name: a.String()}, nil
	}
	d, err := ParseDomain(s)
	if err == nil && d.Port != 0 {
		err = errors.New("has a port: write the name alone")
	}
	return d, err
}

// String is the entry as it is written.
func (d Domain) String() string {
	s := d.Name
	if d.Wild {
		s = "*." + s
	}
	if d.Port != 0 {
		s += ":" + strconv.Itoa(int(d.Port))
	}
	return s
}

// Has says whether a host is of the domain, whatever the port.
func (d Domain) Has(host string) bool {
	if d.Wild {
		return strings.HasSuffix(host, "."+d.Name)
	}
	return host == d.Name
}

// Covers says whether all of o is of the domain, whatever the ports.
func (d Domain) Covers(o Domain) bool {
	if o.Wild {
		return d.Wild && (o.Name == d.Name || d.Has(o.Name))
	}
	return d.Has(o.Name)
}

// Exception is an address that may be reached although it is none of the public internet, or although it was named by its number.
type Exception struct {
	// Prefix is of addresses, or Name is a name whose addresses are excepted.
	Prefix netip.Prefix
	Name   string
	// Port is the only one; 0 is every port that is allowed otherwise.
	Port uint16
}

// ParseException reads 10.0.0.5, 10.0.0.0/8, fd00::1, or a name, each with :port if wanted ([fd00::1]:8080).
func ParseException(s string) (Exception, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if p.Masked() != p || p.Addr().Is4In6() {
			return Exception{}, fmt.Errorf("is not a range of addresses: write %s", p.Masked())
		}
		return Exception{Prefix: p}, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return single(a, 0)
	}
	t, err := ParseTarget(s, 1)
	if err != nil {
		return Exception{}, errors.New("is not an address: write 10.0.0.5, 10.0.0.0/8, 10.0.0.5:8080, [fd00::1]:8080 or intern.example:8080")
	}
	if !strings.HasSuffix(s, ":"+strconv.Itoa(int(t.Port))) {
		t.Port = 0
	}
	if t.Addr.IsValid() {
		return single(t.Addr, t.Port)
	}
	return Exception{Name: t.Host, Port: t.Port}, nil
}

func single(a netip.Addr, port uint16) (Exception, error) {
	if a.Zone() != "" || a.Is4In6() {
		return Exception{}, errors.New("is not an address that can be excepted: write it in its plain form, without a zone")
	}
	return Exception{Prefix: netip.PrefixFrom(a, a.BitLen()), Port: port}, nil
}

// List is everything that the operator allows.
type List struct {
	Allow  []Domain
	Except []Exception
}

// Errors by which a Refusal says what kind it is.
var (
	// ErrName: neither the operator nor the client has named it.
	ErrName = errors.New("the name is not allowed")
	// ErrPort: the name is allowed, the port is not.
	ErrPort = errors.New("the port is not allowed")
	// ErrAddress: the address is none of the public internet, or was named by its number.
	ErrAddress = errors.New("the address is not allowed")
)

// Permits says by its error why a program may not go to t. own, if it is not empty, is the client's list, which narrows the operator's.
// The address that a name resolves to is Address's to decide.
func (l List) Permits(t Target, own []Domain) error {
	if len(own) > 0 && !slices.ContainsFunc(own, func(d Domain) bool { return d.Has(t.Host) }) {
		return ErrName
	}
	if t.Addr.IsValid() {
		if slices.ContainsFunc(l.Except, func(e Exception) bool { return e.has(t, t.Addr) && (e.Port != 0 || usual(t.Port)) }) {
			return nil
		}
		return ErrAddress
	}
	err := ErrName
	for _, d := range l.Allow {
		if !d.Has(t.Host) {
			continue
		}
		if d.Port == t.Port || d.Port == 0 && usual(t.Port) {
			return nil
		}
		err = ErrPort
	}
	return err
}

func usual(port uint16) bool { return port == 80 || port == 443 }

// Covers says whether the operator's list has all of an entry of a client's.
func (l List) Covers(o Domain) bool {
	if a, err := netip.ParseAddr(o.Name); err == nil {
		return slices.ContainsFunc(l.Except, func(e Exception) bool { return e.Prefix.IsValid() && e.Prefix.Contains(a) })
	}
	return slices.ContainsFunc(l.Allow, func(d Domain) bool { return d.Covers(o) })
}

// Address says by its error why a, to which t resolves, may not be connected to.
func (l List) Address(t Target, a netip.Addr) error {
	if a.Zone() == "" && Public(a) {
		return nil
	}
	if slices.ContainsFunc(l.Except, func(e Exception) bool { return e.has(t, a) }) {
		return nil
	}
	return ErrAddress
}

func (e Exception) has(t Target, a netip.Addr) bool {
	if e.Port != 0 && e.Port != t.Port {
		return false
	}
	if e.Name != "" {
		return e.Name == t.Host && !metadata(a)
	}
	// Where clouds give out credentials, only the very address will do.
	return e.Prefix.Contains(a) && (e.Prefix.IsSingleIP() || !metadata(a))
}

// metadata are the addresses at which clouds tell machines their secrets.
func metadata(a netip.Addr) bool {
	return slices.Contains([]netip.Addr{
		netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"), netip.MustParseAddr("169.254.170.23"),
		netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"),
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("fd20:ce::254"),
	}, a)
}

// special are the ranges that are not of the public internet, or that lead to other addresses than they show: IANA's registries of
// special-purpose addresses, and multicast.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	// Of 2000::/3, beside which nothing of IPv6 is public: Teredo, ORCHID and other protocols, documentation, 6to4.
	"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
)

var global6 = netip.MustParsePrefix("2000::/3")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// Public says whether an address is one of the public internet. IPv4 in the clothes of IPv6 (mapped, NAT64, 6to4) never is.
func Public(a netip.Addr) bool {
	if !a.IsValid() || a.Is6() && !global6.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}
