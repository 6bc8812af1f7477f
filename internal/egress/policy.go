package egress

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/lathe-gateway/lathe/internal/egress/rule"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// Policy is what one container may do within the operator's rules, as a client has asked for it.
type Policy struct {
	// Domains narrow the operator's: names, *.names, or addresses that the operator has excepted. None is all of the operator's.
	Domains []string
	// Secrets are the client's: programs see "$NAME" in the variable NAME, and where that stands in the header of a request over TLS to the
	// domain, the value is put in its place.
	Secrets []turn.DomainSecret
}

// PolicyError says what of a Policy cannot be: Field is allowed_domains[i], or domain_secrets[i].domain, .name or .value.
type PolicyError struct{ Field, Message string }

func (e *PolicyError) Error() string { return e.Field + ": " + e.Message }

// maxPolicy caps both lists of a Policy.
const maxPolicy = 100

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// Check says by a *PolicyError what of a policy cannot be honoured.
func (p *Proxy) Check(policy Policy) error {
	_, _, err := p.read(policy)
	return err
}

// clientSecret is a DomainSecret that was read.
type clientSecret struct {
	domain rule.Domain
	name   string
	value  string
}

func (p *Proxy) read(policy Policy) (own []rule.Domain, secrets []clientSecret, err error) {
	if len(policy.Domains) > maxPolicy {
		return nil, nil, &PolicyError{"allowed_domains", fmt.Sprintf("at most %d domains can be given", maxPolicy)}
	}
	if len(policy.Secrets) > maxPolicy {
		return nil, nil, &PolicyError{"domain_secrets", fmt.Sprintf("at most %d secrets can be given", maxPolicy)}
	}
	for i, s := range policy.Domains {
		field := fmt.Sprintf("allowed_domains[%d]", i)
		d, err := rule.ParseName(s)
		if err != nil {
			return nil, nil, &PolicyError{field, fmt.Sprintf("%.100q %s", s, err)}
		}
		if !p.cfg.Rules.Covers(d) {
			return nil, nil, &PolicyError{field, fmt.Sprintf("the domain %q is not allowed on this server, whose operator allows %s (sandbox.allow)",
				d, names(p.Domains()))}
		}
		own = append(own, d)
	}
	within := own
	if len(within) == 0 {
		within = p.cfg.Rules.Allow
	}
	for i, s := range policy.Secrets {
		c, err := readSecret(s, within)
		if err != nil {
			err.Field = fmt.Sprintf("domain_secrets[%d].%s", i, err.Field)
			return nil, nil, err
		}
		secrets = append(secrets, c)
	}
	return own, secrets, nil
}

func readSecret(s turn.DomainSecret, within []rule.Domain) (clientSecret, *PolicyError) {
	d, err := rule.ParseName(s.Domain)
	if err != nil {
		return clientSecret{}, &PolicyError{"domain", fmt.Sprintf("%.100q %s", s.Domain, err)}
	}
	covered := false
	for _, w := range within {
		covered = covered || w.Covers(d)
	}
	switch {
	case !covered:
		return clientSecret{}, &PolicyError{"domain", fmt.Sprintf("the domain %q is not among the allowed_domains", d)}
	case !variable.MatchString(s.Name):
		return clientSecret{}, &PolicyError{"name", fmt.Sprintf("%.100q is not the name of a variable: use letters, digits and _", s.Name)}
	}
	if err := checkHeader("X", string(s.Value)); err != nil {
		return clientSecret{}, &PolicyError{"value", err.Error()}
	}
	return clientSecret{domain: d, name: s.Name, value: string(s.Value)}, nil
}

// checkHeader says what is wrong with a secret that is to be sent in a header. The text does not have the value.
func checkHeader(name, value string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Errorf("%.100q is not the name of a header", name)
	case hopByHop[http.CanonicalHeaderKey(name)]:
		return fmt.Errorf("the header %s belongs to the connection and cannot be set", name)
	case value == "":
		return errors.New("the secret is empty")
	case len(value) > maxHeader/2:
		return fmt.Errorf("the secret is longer than a header can be (%d KiB)", maxHeader/2>>10)
	case !httpguts.ValidHeaderFieldValue(value) || strings.TrimSpace(value) != value:
		return errors.New("the secret cannot be sent in a header: it has line breaks or other control characters, or begins or ends with a space")
	}
	return nil
}

// hopByHop are the headers that a secret may not be put into.
var hopByHop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Host": true, "Content-Length": true,
}
