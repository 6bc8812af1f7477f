package config

import (
	"errors"
	"regexp"

	"github.com/goccy/go-yaml/ast"

	"github.com/lathe-gateway/lathe/internal/egress/rule"
)

// texts sets a list of strings that check accepts, each once.
func (d *decoder) texts(to *[]string, check func(string) error) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		out := []string{}
		d.list(n, path, func(n ast.Node, path string) {
			text := ""
			d.text(&text, check)(n, path)
			if text == "" {
				return
			}
			for _, other := range out {
				if other == text {
					d.fault(n, path, "%q stands twice: keep one", text)
					return
				}
			}
			out = append(out, text)
		})
		*to = out
	}
}

func (d *decoder) domainSecrets(n ast.Node, path string, s *Sandbox) {
	out := []DomainSecret{}
	d.list(n, path, func(n ast.Node, path string) {
		secret := DomainSecret{Header: "Authorization"}
		present := d.mapping(n, path, []field{
			{"domain", d.text(&secret.Domain, func(text string) error { _, err := rule.ParseDomain(text); return err })},
			{"header", d.text(&secret.Header, checkHeaderName)},
			{"value", d.secret(&secret.Value, checkHeaderValue)},
		})
		if present["domain"] == nil {
			d.fault(n, path+".domain", "is missing: write the domain whose requests get the header")
		}
		if present["value"] == nil {
			d.fault(n, path+".value", `is missing: write the header's value, best as a variable: value: "Bearer ${TOKEN}"`)
		}
		out = append(out, secret)
	})
	s.Secrets = out
}

// network holds the keys of the network against each other.
func (d *decoder) network(n ast.Node, path string, present map[string]ast.Node, s *Sandbox) {
	if s.Network == "allowlist" && present["allow"] == nil && present["allow_private"] == nil {
		d.fault(n, path+".allow", "is missing: with network: allowlist, write the domains that programs may reach, such as [pypi.org, files.pythonhosted.org]")
	}
	rules := s.Rules()
	for i, secret := range s.Secrets {
		if domain, err := rule.ParseDomain(secret.Domain); err == nil && !rules.Covers(domain) {
			d.fault(present["secrets"], path+".secrets", "secrets[%d] is for %q, which is not within %s.allow: put the domain there too", i, secret.Domain, path)
		}
	}
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+$`)

func checkHeaderName(s string) error {
	if !headerName.MatchString(s) {
		return errors.New("is not the name of a header: write Authorization, X-Api-Key or the like")
	}
	return nil
}

func checkHeaderValue(s string) error {
	if s == Redacted {
		return errRedacted
	}
	for _, c := range []byte(s) {
		if c < ' ' || c == 0x7f {
			return errors.New("has line breaks or other control characters, which a header cannot have")
		}
	}
	if s == "" || len(s) > 32<<10 || s[0] == ' ' || s[len(s)-1] == ' ' {
		return errors.New("cannot be a header's value: it is empty, longer than 32 KiB, or begins or ends with a space")
	}
	return nil
}
