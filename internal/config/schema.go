package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/lathe-gateway/lathe/internal/egress/rule"
)

// providers are all that lathe.yaml may name. Those that are not in this release are refused with that reason.
var providers = []struct {
	name    string
	release bool
}{
	{"openai-chat", true}, {"openai-responses", true}, {"anthropic", true}, {"demo", true},
	{"bedrock", false}, {"gemini", false},
}

func (d *decoder) root(c *Config) []field {
	return []field{
		{"listen", d.text(&c.Listen, checkListen)},
		{"data_dir", d.text(&c.DataDir, checkPath)},
		{"database", d.text(&c.Database, later("database", "SQLite in data_dir", "postgres://", "postgresql://"))},
		{"blobs", d.text(&c.Blobs, later("blobs", "files in data_dir", "s3://"))},
		{"keys", func(n ast.Node, path string) { d.keys(n, path, c) }},
		{"models", func(n ast.Node, path string) { d.models(n, path, c) }},
		{"sandbox", func(n ast.Node, path string) {
			d.network(n, path, d.mapping(n, path, d.sandbox(&c.Sandbox)), &c.Sandbox)
		}},
		{"projects", func(n ast.Node, path string) { d.projects(n, path, c) }},
		{"agent", func(n ast.Node, path string) { d.mapping(n, path, d.agent(&c.Agent)) }},
		{"skills_dir", d.text(&c.SkillsDir, checkPath)},
		{"skills", func(n ast.Node, path string) {
			d.mapping(n, path, []field{
				{"per_project", d.integer(&c.Skills.PerProject, 1, 1_000_000)},
				{"stored", unit(d, &c.Skills.Stored, parseSize, 1<<20, 1<<44)},
				{"cache", unit(d, &c.Skills.Cache, parseSize, 1<<20, 1<<44)},
				{"preload", d.boolean(&c.Skills.Preload)},
			})
		}},
		{"server", func(n ast.Node, path string) {
			d.mapping(n, path, []field{{"request_memory", unit(d, &c.Server.RequestMemory, parseSize, 64<<20, 1<<40)}})
		}},
	}
}

func (d *decoder) sandbox(s *Sandbox) []field {
	const day = Duration(24 * time.Hour)
	return []field{
		{"image", d.text(&s.Image, nil)},
		{"pool", d.integer(&s.Pool, 0, 1000)},
		{"pool_max", d.integer(&s.PoolMax, 0, 1000)},
		{"max_live", d.integer(&s.MaxLive, 0, 100_000)},
		{"max_memory", unit(d, &s.MaxMemory, parseSize, 0, 1<<44)},
		{"queue_time", unit(d, &s.QueueTime, parseDuration, Duration(time.Second), Duration(time.Hour))},
		{"memory", unit(d, &s.Memory, parseSize, 64<<20, 1<<40)},
		{"disk", unit(d, &s.Disk, parseSize, 16<<20, 1<<44)},
		{"cpus", d.float(&s.CPUs, 0.05, 1024)},
		{"processes", d.integer(&s.Processes, 16, 100_000)},
		{"files", d.integer(&s.Files, 1, 1_000_000)},
		{"exec_timeout", unit(d, &s.ExecTimeout, parseDuration, Duration(time.Second), day)},
		{"network", d.text(&s.Network, oneOf("none", "allowlist"))},
		{"allow", d.texts(&s.Allow, func(text string) error { _, err := rule.ParseDomain(text); return err })},
		{"allow_private", d.texts(&s.AllowPrivate, func(text string) error { _, err := rule.ParseException(text); return err })},
		{"secrets", func(n ast.Node, path string) { d.domainSecrets(n, path, s) }},
		{"network_bytes", unit(d, &s.NetworkBytes, parseSize, 1<<20, 1<<50)},
		{"hibernate_after", unit(d, &s.HibernateAfter, parseDuration, Duration(time.Second), 365*day)},
		{"hibernated_memory", unit(d, &s.HibernatedMemory, parseSize, 0, 1<<50)},
		{"expire_after", unit(d, &s.ExpireAfter, parseDuration, Duration(time.Minute), 3650*day)},
		{"per_project", func(n ast.Node, path string) { d.mapping(n, path, d.projectLimits(&s.PerProject)) }},
	}
}

func (d *decoder) agent(a *Agent) []field {
	return []field{
		{"max_rounds", d.integer(&a.MaxRounds, 1, 1000)},
		{"max_calls", d.integer(&a.MaxCalls, 1, 100_000)},
		{"max_time", unit(d, &a.MaxTime, parseDuration, Duration(time.Second), Duration(24*time.Hour))},
	}
}

func (d *decoder) keys(n ast.Node, path string, c *Config) {
	var seen []Key
	d.list(n, path, func(n ast.Node, path string) {
		k := Key{Project: "default"}
		present := d.mapping(n, path, []field{
			{"name", d.text(&k.Name, checkName)},
			{"key", d.secret(&k.Key, checkKey)},
			{"project", d.text(&k.Project, checkName)},
			{"admin", d.boolean(&k.Admin)},
		})
		d.require(n, path, present, "name", "key")
		for i, other := range seen {
			if k.Name != "" && k.Name == other.Name {
				d.fault(present["name"], path+".name", "%q is already the name of keys[%d]: give each key its own", k.Name, i)
			}
			if !k.Key.IsZero() && k.Key.Reveal() == other.Key.Reveal() {
				d.fault(present["key"], path+".key", "is the same key as that of keys[%d]: give each client its own", i)
			}
		}
		seen = append(seen, k)
	})
	c.Keys = seen
}

func (d *decoder) models(n ast.Node, path string, c *Config) {
	var seen []Model
	d.list(n, path, func(n ast.Node, path string) {
		m := Model{HostedTools: "lathe"}
		present := d.mapping(n, path, []field{
			{"name", d.text(&m.Name, checkModelName)},
			{"provider", d.text(&m.Provider, checkProvider)},
			{"base_url", d.text(&m.BaseURL, checkBaseURL)},
			{"api_key", d.secret(&m.APIKey, checkAPIKey)},
			{"model", d.text(&m.Model, checkUpstreamName)},
			{"hosted_tools", d.text(&m.HostedTools, oneOf("lathe", "provider"))},
			{"images", d.boolean(&m.Images)},
		})
		m.BaseURL = strings.TrimRight(m.BaseURL, "/")
		if m.Provider == "anthropic" && present["images"] == nil {
			m.Images = true // all of its models do
		}
		d.require(n, path, present, "name", "provider")
		d.providerKeys(n, path, present, m)
		for i, other := range seen {
			if m.Name != "" && m.Name == other.Name {
				d.fault(present["name"], path+".name", "%q is already the name of models[%d]: clients could not tell them apart", m.Name, i)
			}
		}
		seen = append(seen, m)
	})
	if len(seen) > 0 {
		c.Models = seen
	}
}

// providerKeys holds the keys of a model against its provider.
func (d *decoder) providerKeys(n ast.Node, path string, present map[string]ast.Node, m Model) {
	switch m.Provider {
	case "openai-responses":
		d.require(n, path, present, "base_url")
		return
	case "openai-chat":
		d.require(n, path, present, "base_url")
	case "anthropic":
		if present["base_url"] == nil && present["api_key"] == nil {
			d.fault(n, path+".api_key", `is missing: give it Anthropic's API key, best as a variable: api_key: "${ANTHROPIC_API_KEY}"`)
		}
		return
	case "demo":
		for _, key := range []string{"base_url", "api_key"} {
			if at := present[key]; at != nil {
				d.fault(at, path+"."+key, "the provider demo takes none: it is part of lathe and calls nobody")
			}
		}
	default:
		return
	}
	if m.HostedTools == "provider" {
		d.fault(present["hosted_tools"], path+".hosted_tools", `the provider %s has no hosted tools of its own: write "lathe"`, m.Provider)
	}
}

func (d *decoder) require(n ast.Node, path string, present map[string]ast.Node, keys ...string) {
	for _, key := range keys {
		if present[key] == nil {
			d.fault(n, path+"."+key, "is missing: %s", required[key])
		}
	}
}

var required = map[string]string{
	"name":     "give it a name",
	"key":      `give it the client's API key, best as a variable: key: "${LATHE_KEY}"`,
	"provider": "write " + list("or"),
	"base_url": "write where the server is, with /v1, such as http://127.0.0.1:8000/v1",
}

// list names the providers of this release: a, b and c.
func list(last string) string {
	names := released()
	n := len(names) - 1
	return strings.Join(names[:n], ", ") + " " + last + " " + names[n]
}

func released() []string {
	var out []string
	for _, p := range providers {
		if p.release {
			out = append(out, p.name)
		}
	}
	return out
}

func checkProvider(s string) error {
	var all []string
	for _, p := range providers {
		if p.name == s && !p.release {
			return fmt.Errorf("comes with a later release: this one knows %s", list("and"))
		}
		if p.name == s {
			return nil
		}
		all = append(all, p.name)
	}
	if s := suggest(s, all); s != "" {
		return errors.New("is not a provider" + s)
	}
	return fmt.Errorf("is not a provider: this release knows %s", list("and"))
}

func checkKey(s string) error {
	if s == Redacted {
		return errRedacted
	}
	if len(s) < 8 || !printableID.MatchString(s) {
		return errors.New("is not a usable key: take at least 8 characters of printable ASCII without spaces, " +
			"such as the output of `openssl rand -hex 24`")
	}
	return nil
}

func checkAPIKey(s string) error {
	if s == Redacted {
		return errRedacted
	}
	if s != "" && !printableID.MatchString(s) {
		return errors.New("is not a usable key: it holds a space, a line break or a character that is not printable ASCII")
	}
	return nil
}

// errRedacted refuses what `lathe config show` prints in a secret's place, which everyone could guess.
var errRedacted = errors.New("is redacted: put the secret back, best as a variable")

func checkPath(s string) error {
	if strings.ContainsRune(s, 0) {
		return errors.New("is not a path")
	}
	return nil
}

// later accepts "" only; what the contract has for later is refused with that reason.
func later(key, now string, schemes ...string) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		scheme, _, found := strings.Cut(s, "://")
		if found && slices.Contains(schemes, scheme+"://") {
			return unquoted{fmt.Errorf(`%s:// comes with a later release: write %s: "" for %s`, scheme, key, now)}
		}
		return unquoted{fmt.Errorf(`is not allowed: write %s: "" for %s`, key, now)}
	}
}

func oneOf(allowed ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(allowed, s) {
			return nil
		}
		return fmt.Errorf("is not allowed: write %s", strings.Join(allowed, " or "))
	}
}
