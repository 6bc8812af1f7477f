package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written with a unit: 512MiB, 1GiB.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// MarshalText writes the largest binary unit that divides s.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

func parseSize(s string) (Size, error) {
	for _, u := range sizeUnits {
		number, found := strings.CutSuffix(s, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || n < 0 || n*float64(u.bytes) > math.MaxInt64/2 || math.IsNaN(n) {
			break
		}
		return Size(n * float64(u.bytes)), nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return Size(n), nil
	}
	return 0, errors.New("is not a size: write a number and a unit (KiB, MiB, GiB, TiB, or KB, MB, GB, TB), such as 512MiB")
}

// Duration is a time.Duration that prints without zero parts: 2m, 720h.
type Duration time.Duration

// MarshalText writes d as String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func parseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("is not a duration: write a number and a unit (ms, s, m, h), such as 90s, 2m or 720h")
	}
	return Duration(d), nil
}

func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("is not an address: write host:port, such as 127.0.0.1:4747, [::1]:4747 or 0.0.0.0:4747")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return errors.New("has no valid port: write a number from 0 (any free port) to 65535")
	}
	if host != "" && net.ParseIP(strings.SplitN(host, "%", 2)[0]) == nil && !hostName.MatchString(host) {
		return errors.New("has no valid host: write an IP address or a host name of this machine")
	}
	return nil
}

var (
	hostName    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
	simpleName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	modelName   = regexp.MustCompile(`^(\*|[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,255})$`)
	printableID = regexp.MustCompile(`^[!-~]+$`)
)

func checkName(s string) error {
	if !simpleName.MatchString(s) {
		return errors.New("is not a name: use letters, digits, '.', '_' and '-', at most 64, starting with a letter or digit")
	}
	return nil
}

func checkModelName(s string) error {
	if !modelName.MatchString(s) {
		return errors.New(`is not a model's name: use letters, digits and ._:/@+- (at most 256), or "*" for every other name`)
	}
	return nil
}

func checkUpstreamName(s string) error {
	if s != "" && !printableID.MatchString(s) {
		return errors.New("is not a model's name: it holds a space or a character that is not printable ASCII")
	}
	return nil
}

// unquoted is an error whose message must not show the value, since that holds a secret.
type unquoted struct{ error }

// checkBaseURL takes what the OpenAI SDKs take as base_url.
func checkBaseURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("is not a URL: write http:// or https:// with a host, such as http://127.0.0.1:8000/v1")
	}
	if u.User != nil {
		return unquoted{errors.New("holds a user name or password: put the key into api_key")}
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return errors.New("holds a query or fragment: write only the part before it")
	}
	path := strings.TrimRight(u.Path, "/")
	for _, end := range []string{"/chat/completions", "/responses", "/completions", "/messages"} {
		if strings.HasSuffix(path, end) {
			return fmt.Errorf("ends in %s: write only what comes before it, as the SDKs take it (most often up to /v1)", end)
		}
	}
	return nil
}

// expand replaces ${NAME} by the variable's value and $$ by $.
func expand(s string, env func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		if after, ok := strings.CutPrefix(rest, "$"); ok {
			b.WriteByte('$')
			s = after
			continue
		}
		name, after, ok := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
		if !strings.HasPrefix(rest, "{") || !ok {
			return "", errors.New("holds a single '$': write ${NAME} for a variable of the environment, $$ for the character")
		}
		if !variableName.MatchString(name) {
			return "", errors.New("holds a ${...} without a variable's name in it: use letters, digits and '_' (no default values); $$ gives a '$'")
		}
		value, set := env(name)
		if !set {
			return "", fmt.Errorf("uses the variable %s, which is not set: set it in the environment of lathe", name)
		}
		b.WriteString(value)
		s = after
	}
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
