package container

import (
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/egress"
	"github.com/lathe-gateway/lathe/internal/egress/rule"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// allowing is a proxy whose operator allows these domains.
func allowing(t testing.TB, domains ...string) *egress.Proxy {
	t.Helper()
	var cfg egress.Config
	for _, s := range domains {
		d, err := rule.ParseDomain(s)
		must(t, err)
		cfg.Rules.Allow = append(cfg.Rules.Allow, d)
	}
	p, err := egress.New(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func TestPolicyIsFixed(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Egress = allowing(t, "pypi.org", "*.example.com") })
	ctx := as(t, "p")
	secret := []turn.DomainSecret{{Domain: "pypi.org", Name: "TOKEN", Value: "sesame"}}
	tests := map[string]struct {
		network *turn.Network
		reaches string
	}{
		"nothing said": {nil, "pypi.org *.example.com"},
		"disabled":     {&turn.Network{Disabled: true}, ""},
		"narrowed":     {&turn.Network{Domains: []string{"a.example.com"}}, "a.example.com"},
		"with secrets": {&turn.Network{Domains: []string{"pypi.org"}, Secrets: secret}, "pypi.org"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			row, err := b.Create(ctx, NewContainer{Name: "x", Network: tt.network})
			must(t, err)
			if got := strings.Join(b.Reaches(row), " "); got != tt.reaches {
				t.Errorf("made by name it reaches %q, want %q", got, tt.reaches)
			}
			h := turn.Hosted{Session: name, Network: tt.network}
			if got := strings.Join(b.Reach(ctx, &h), " "); got != tt.reaches {
				t.Errorf("foreseen %q, want %q", got, tt.reaches)
			}
			row = b.row(b.open(h))
			if got := strings.Join(b.Reaches(row), " "); got != tt.reaches {
				t.Errorf("made by a request it reaches %q, want %q", got, tt.reaches)
			}
			fork, err := b.Fork(ctx, row.ID, NewFork{})
			must(t, err)
			if got := strings.Join(b.Reaches(fork), " "); got != tt.reaches || string(fork.Network) != string(row.Network) {
				t.Errorf("its fork reaches %q, want %q", got, tt.reaches)
			}
			// The same again, or nothing, finds it; another one does not change it.
			for _, again := range []*turn.Network{tt.network, nil} {
				if got := b.row(b.open(turn.Hosted{Session: name, Network: again})); got.ID != row.ID {
					t.Errorf("%+v made another container", again)
				}
			}
			_, err = b.Open(ctx, &turn.Hosted{Session: name, Network: &turn.Network{Domains: []string{"other.example.com"}}})
			if e := turn.AsError(err); e == nil || e.Param != "container.network_policy" {
				t.Errorf("another policy for a session: %v", err)
			}
			w := b.open(turn.Hosted{Recent: row.ID, Network: &turn.Network{Domains: []string{"other.example.com"}}})
			if notes := strings.Join(w.Notes(), ""); b.row(w).ID == row.ID || !strings.Contains(notes, "another network policy") {
				t.Errorf("another policy for a replayed one: %s, %q", b.row(w).ID, notes)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		for param, n := range map[string]*turn.Network{
			"allowed_domains[1]":       {Domains: []string{"pypi.org", "evil.example"}},
			"domain_secrets[0].domain": {Domains: []string{"pypi.org"}, Secrets: []turn.DomainSecret{{Domain: "evil.example", Name: "N", Value: "v"}}},
		} {
			_, err := b.Create(ctx, NewContainer{Name: "x", Network: n})
			if e := turn.AsError(err); e == nil || e.Kind != turn.KindInvalid || e.Param != "network_policy."+param || !strings.Contains(e.Message, "evil.example") {
				t.Errorf("create: %+v", e)
			}
			_, err = b.Check(ctx, &turn.Hosted{Network: n})
			if e := turn.AsError(err); e == nil || e.Param != "container.network_policy."+param {
				t.Errorf("check: %+v", e)
			}
		}
	})
}

func TestNoNetwork(t *testing.T) {
	b := newBench(t, nil)
	ctx := as(t, "p")
	_, err := b.Create(ctx, NewContainer{Name: "x", Network: &turn.Network{Domains: []string{"pypi.org"}}})
	if e := turn.AsError(err); e == nil || e.Kind != turn.KindUnsupported || !strings.Contains(e.Message, "sandbox.network") {
		t.Errorf("got %v", err)
	}
	if got := b.Reach(ctx, &turn.Hosted{}); got != nil {
		t.Errorf("reaches %q", got)
	}
	out := python(t, b.open(turn.Hosted{Network: &turn.Network{Disabled: true}}), "import os; print(os.environ.get('HTTPS_PROXY'))")
	wantText(t, out, "None\n")
}

// An operator who allows less than before is obeyed by containers that were made before; one who allows more changes nothing for those
// that have a list of their own, or none.
func TestOperatorChanges(t *testing.T) {
	own := store.Container{Network: []byte(`{"domains":["a.example","b.example"],"secrets":[{"Domain":"b.example","Name":"N","Value":"v"}]}`)}
	all, none := store.Container{Network: []byte(`{}`)}, store.Container{}
	for name, tt := range map[string]struct {
		allow          []string
		own, all, none string
		secrets        int
	}{
		"both":    {[]string{"a.example", "b.example"}, "a.example b.example", "a.example b.example", "", 1},
		"less":    {[]string{"a.example"}, "a.example", "a.example", "", 0},
		"others":  {[]string{"c.example"}, "", "c.example", "", 0},
		"more":    {[]string{"*.example"}, "a.example b.example", "*.example", "", 1},
		"nothing": {nil, "", "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Manager{}
			if tt.allow != nil {
				m.Egress = allowing(t, tt.allow...)
			}
			for row, want := range map[*store.Container]string{&own: tt.own, &all: tt.all, &none: tt.none} {
				if got := strings.Join(m.Reaches(*row), " "); got != want {
					t.Errorf("%s reaches %q, want %q", row.Network, got, want)
				}
			}
			if p, _ := m.policyOf(own); tt.own != "" && len(p.Secrets) != tt.secrets {
				t.Errorf("%d secrets", len(p.Secrets))
			}
		})
	}
}
