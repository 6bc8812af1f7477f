package rule

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"example.com":           "example.com:80",
		"EXAMPLE.com.:443":      "example.com:443",
		"a_b.x-y.example:8080":  "a_b.x-y.example:8080",
		"127.0.0.1:81":          "127.0.0.1:81",
		"[::1]":                 "[::1]:80",
		"[0:0::1]:443":          "[::1]:443",
		"[::ffff:10.0.0.1]:443": "[::ffff:10.0.0.1]:443",
		"xn--bcher-kva.example": "xn--bcher-kva.example:80",
		"4chan.org":             "4chan.org:80",
	} {
		got, err := ParseTarget(in, 80)
		if err != nil || got.String() != want {
			t.Errorf("%q: %v, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", ".", ":80", "a..b", "-a.b", "a-.b", "a b", "a/b", "a@b", "a\x00b", "a%b", "bücher.example", "user:pw@host:80", "a:0", "a:080",
		"a:70000", "a:-1", "a:http", "a:80:80", "::1", "::1:80", "[::1", "[127.0.0.1]:80", "[fe80::1%eth0]:80", "fe80::1%1",
		strings.Repeat("a", 64) + ".b", strings.Repeat("a.", 127) + "bb",
		// 169.254.169.254 and 127.0.0.1 in forms that C libraries take.
		"2852039166", "0xA9FEA9FE", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518", "169.16689662", "127.1", "0177.0.0.1",
		"0x7f.1", "017700000001", "127.0.0.1.", "127.0.0.01", "1.2.3.4.5", "0x", "a.0x1",
	} {
		if got, err := ParseTarget(in, 80); err == nil {
			t.Errorf("%q was taken for %+v", in, got)
		}
	}
	if _, err := ParseTarget("a.b", 0); err == nil {
		t.Error("a target without a port was taken")
	}
}

func TestParseDomain(t *testing.T) {
	for _, in := range []string{"example.com", "*.example.com", "example.com:8443", "*.a.b:81", "localhost"} {
		if d, err := ParseDomain(in); err != nil || d.String() != in {
			t.Errorf("%q: %v, %v", in, d, err)
		}
	}
	for _, in := range []string{"*", "*.", "", "a.*", "*a.b", "https://a.b", "a.b/c", "10.0.0.1", "[::1]", "[::1]:80", "10.0.0.1:80", "a b", "12345"} {
		if d, err := ParseDomain(in); err == nil {
			t.Errorf("%q was taken for %+v", in, d)
		}
	}
	if _, err := ParseName("a.b:80"); err == nil {
		t.Error("a client's entry with a port was taken")
	}
	if d, err := ParseName("10.0.0.1"); err != nil || d.Name != "10.0.0.1" {
		t.Errorf("%v, %v", d, err)
	}
}

func list(t *testing.T, allow, except string) List {
	t.Helper()
	var l List
	for _, s := range strings.Fields(allow) {
		d, err := ParseDomain(s)
		if err != nil {
			t.Fatal(err)
		}
		l.Allow = append(l.Allow, d)
	}
	for _, s := range strings.Fields(except) {
		e, err := ParseException(s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		l.Except = append(l.Except, e)
	}
	return l
}

func target(t *testing.T, s string) Target {
	t.Helper()
	got, err := ParseTarget(s, 443)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPermits(t *testing.T) {
	l := list(t, "pypi.org *.example.com intern.example:8080", "127.0.0.2:8081 10.1.0.0/16 intern.example:8080")
	own := func(names ...string) (out []Domain) {
		for _, s := range names {
			d, err := ParseName(s)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, d)
		}
		return out
	}
	tests := []struct {
		to   string
		own  []Domain
		want error
	}{
		{"pypi.org", nil, nil},
		{"pypi.org:80", nil, nil},
		{"PyPI.org.:443", nil, nil},
		{"pypi.org:53", nil, ErrPort},
		{"pypi.org:22", nil, ErrPort},
		{"evilpypi.org", nil, ErrName},
		{"pypi.org.evil", nil, ErrName},
		{"a.pypi.org", nil, ErrName},
		{"a.b.example.com", nil, nil},
		{"example.com", nil, ErrName},
		{"evilexample.com", nil, ErrName},
		{"intern.example:8080", nil, nil},
		{"intern.example:443", nil, ErrPort},
		{"127.0.0.2:8081", nil, nil},
		{"127.0.0.2:8082", nil, ErrAddress},
		{"127.0.0.1:8081", nil, ErrAddress},
		{"10.1.2.3", nil, nil},
		{"10.1.2.3:8081", nil, ErrAddress},
		{"10.2.2.3", nil, ErrAddress},
		{"8.8.8.8", nil, ErrAddress},
		{"[::ffff:10.1.2.3]", nil, ErrAddress},
		{"pypi.org", own("pypi.org"), nil},
		{"a.example.com", own("pypi.org"), ErrName},
		{"a.example.com", own("*.example.com"), nil},
		{"a.example.com", own("a.example.com"), nil},
		{"b.example.com", own("a.example.com"), ErrName},
		{"10.1.2.3", own("pypi.org"), ErrName},
		{"10.1.2.3", own("10.1.2.3"), nil},
		{"evil.example", own("evil.example"), ErrName},
	}
	for _, tt := range tests {
		if err := l.Permits(target(t, tt.to), tt.own); !errors.Is(err, tt.want) {
			t.Errorf("%s within %v: %v, want %v", tt.to, tt.own, err, tt.want)
		}
	}
	for name, want := range map[string]bool{
		"pypi.org": true, "*.pypi.org": false, "a.example.com": true, "*.a.example.com": true, "*.example.com": true, "example.com": false,
		"*.com": false, "10.1.9.9": true, "10.2.9.9": false, "8.8.8.8": false, "evil.example": false,
	} {
		if got := l.Covers(own(name)[0]); got != want {
			t.Errorf("covers %s: %v", name, got)
		}
	}
}

func TestAddress(t *testing.T) {
	for _, s := range []string{"8.8.8.8", "1.1.1.1", "151.101.0.223", "2a04:4e42::223", "2606:4700::1111", "100.63.255.255", "172.32.0.1", "223.255.255.255"} {
		if !Public(netip.MustParseAddr(s)) {
			t.Errorf("%s counts as private", s)
		}
	}
	refused := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.8.8.8", "169.254.1.1", "169.254.169.254", "172.16.0.1",
		"172.31.255.255", "192.0.0.192", "192.168.1.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::8.8.8.8", "64:ff9b::8.8.8.8", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1",
		"2001::1", "2001:db8::1", "2002:0808:0808::1", "2002:7f00:1::", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "3fff::1",
	}
	name := Target{Host: "a.example", Port: 443}
	for _, s := range refused {
		a := netip.MustParseAddr(s)
		if Public(a) || !errors.Is(list(t, "a.example", "10.9.9.9").Address(name, a), ErrAddress) {
			t.Errorf("%s counts as public", s)
		}
	}
	if err := (List{}).Address(name, netip.MustParseAddr("fe80::1%eth0")); err == nil {
		t.Error("an address with a zone was taken")
	}
	tests := []struct {
		except, to, addr string
		ok               bool
	}{
		{"10.0.0.5", "a.example", "10.0.0.5", true},
		{"10.0.0.5", "a.example", "10.0.0.6", false},
		{"10.0.0.0/8", "a.example", "10.3.0.6", true},
		{"10.0.0.5:8080", "a.example:8080", "10.0.0.5", true},
		{"10.0.0.5:8080", "a.example:443", "10.0.0.5", false},
		{"a.example:8080", "a.example:8080", "10.0.0.5", true},
		{"a.example:8080", "b.example:8080", "10.0.0.5", false},
		{"a.example", "a.example", "fd00::1", true},
		{"a.example", "a.example", "169.254.169.254", false},
		{"fd00::/8", "a.example", "fd00:ec2::254", false},
		{"169.254.0.0/16", "a.example", "169.254.169.254", false},
		{"169.254.0.0/16", "a.example", "169.254.1.1", true},
		{"169.254.169.254", "a.example", "169.254.169.254", true},
		{"127.0.0.1", "a.example", "::ffff:127.0.0.1", false},
		{"[::1]:8080", "a.example:8080", "::1", true},
	}
	for _, tt := range tests {
		if err := list(t, "", tt.except).Address(target(t, tt.to), netip.MustParseAddr(tt.addr)); (err == nil) != tt.ok {
			t.Errorf("%s resolves to %s with the exception %s: %v", tt.to, tt.addr, tt.except, err)
		}
	}
	for _, bad := range []string{"", "10.0.0.5/8", "a b", "10.0.0.5:0", "::ffff:10.0.0.1", "fe80::1%eth0", "*.a.example", "0x7f.1", "::ffff:10.0.0.0/104"} {
		if e, err := ParseException(bad); err == nil {
			t.Errorf("%q was taken for %+v", bad, e)
		}
	}
}

// FuzzParseTarget: what is taken has one form that reads back as itself, and no characters that mean something elsewhere.
func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"example.com:443", "[::1]:80", "127.0.0.1", "0x7f.1", "a@b:1", "a\r\nb:80", "[fe80::1%x]:1", "A.:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTarget(s, 80)
		if err != nil {
			return
		}
		if again, err := ParseTarget(got.String(), 0); err != nil || again != got {
			t.Errorf("%q is %+v, but reads back as %+v, %v", s, got, again, err)
		}
		if strings.ContainsAny(got.Host, " \t\r\n\x00/@?#%\\\"'") || got.Host != strings.ToLower(got.Host) {
			t.Errorf("%q gives the host %q", s, got.Host)
		}
		if _, err := netip.ParseAddr(got.Host); (err == nil) != got.Addr.IsValid() {
			t.Errorf("%q: %q is an address for one and a name for the other", s, got.Host)
		}
	})
}
