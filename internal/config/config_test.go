package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lathe.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, text string, vars map[string]string) (*Config, error) {
	t.Helper()
	if vars == nil {
		vars = map[string]string{}
	}
	if _, set := vars["HOME"]; !set {
		vars["HOME"] = "/home/ann"
	}
	return Load(Source{Path: write(t, text), Env: environment(vars)})
}

var secrets = cmp.Comparer(func(a, b Secret) bool { return a.Reveal() == b.Reveal() })

func TestLoadReadsTheWholeContract(t *testing.T) {
	t.Parallel()
	got, err := load(t, `
listen: 0.0.0.0:4748
projects:
  - {name: research, limits: {live: 0, stored: 1TiB}}
  - name: default
data_dir: /srv/lathe
database: ""
blobs: ""
keys:
  - {name: alice, key: "${LATHE_KEY_ALICE}", project: research}
  - name: ops
    key: "literal$$dollar"
    admin: true
models:
  - name: gpt-oss
    provider: openai-chat
    base_url: http://127.0.0.1:8000/v1/
    api_key: "${VLLM_KEY}"
    model: openai/gpt-oss-120b
    hosted_tools: lathe
    images: true
  - {name: claude, provider: anthropic, api_key: "${VLLM_KEY}"}
  - {name: blind, provider: anthropic, base_url: https://claude.example.com, images: false}
  - {name: "*", provider: demo}
sandbox:
  image: ~/images/python
  pool: 0
  pool_max: 3
  max_live: 40
  max_memory: 16GiB
  queue_time: 5s
  files: 500
  memory: 512MiB
  disk: 2GB
  cpus: 0.5
  processes: ${PROCS}
  exec_timeout: 30s
  network: allowlist
  allow: [pypi.org, "*.example.com:8443"]
  allow_private: [10.0.0.5, "intern.example:8080"]
  secrets:
    - {domain: pypi.org, value: "Bearer ${VLLM_KEY}"}
    - {domain: "a.example.com:8443", header: X-Api-Key, value: k}
  network_bytes: 1GiB
  hibernate_after: 5m
  hibernated_memory: 0
  expire_after: 24h
  per_project: {live: 10, memory: 8GiB, stored: 50GiB, files: 1000, time_per_day: 2h}
agent: {max_rounds: 4, max_calls: 20, max_time: 1m30s}
skills_dir: ~/skills
skills: {per_project: 50, stored: 1GiB, cache: 2GiB, preload: true}
server: {request_memory: 128MiB}
`, map[string]string{"LATHE_KEY_ALICE": "sk-alice-123", "VLLM_KEY": "sk-vllm", "PROCS": "64", "LATHE_IMAGE_DIR": "/img"})
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Listen: "0.0.0.0:4748", DataDir: "/srv/lathe", ImageDirs: []string{"/img"}, File: got.File,
		Keys: []Key{
			{Name: "alice", Key: NewSecret("sk-alice-123"), Project: "research"},
			{Name: "ops", Key: NewSecret("literal$dollar"), Project: "default", Admin: true},
		},
		Models: []Model{
			{
				Name: "gpt-oss", Provider: "openai-chat", BaseURL: "http://127.0.0.1:8000/v1", APIKey: NewSecret("sk-vllm"),
				Model: "openai/gpt-oss-120b", HostedTools: "lathe", Images: true,
			},
			{Name: "claude", Provider: "anthropic", APIKey: NewSecret("sk-vllm"), HostedTools: "lathe", Images: true},
			{Name: "blind", Provider: "anthropic", BaseURL: "https://claude.example.com", HostedTools: "lathe"},
			{Name: "*", Provider: "demo", HostedTools: "lathe"},
		},
		Sandbox: Sandbox{
			Image: "/home/ann/images/python", PoolMax: 3, MaxLive: 40, MaxMemory: 16 << 30, QueueTime: Duration(5 * time.Second), Files: 500,
			PerProject: ProjectLimits{Live: 10, Memory: 8 << 30, Stored: 50 << 30, Files: 1000, TimePerDay: Duration(2 * time.Hour)},
			Memory:     512 << 20, Disk: 2e9, CPUs: 0.5, Processes: 64,
			Network: "allowlist", Allow: []string{"pypi.org", "*.example.com:8443"}, AllowPrivate: []string{"10.0.0.5", "intern.example:8080"},
			Secrets: []DomainSecret{
				{Domain: "pypi.org", Header: "Authorization", Value: NewSecret("Bearer sk-vllm")},
				{Domain: "a.example.com:8443", Header: "X-Api-Key", Value: NewSecret("k")},
			},
			NetworkBytes: 1 << 30,
			ExecTimeout:  Duration(30 * time.Second), HibernateAfter: Duration(5 * time.Minute), ExpireAfter: Duration(24 * time.Hour),
		},
		Projects: []Project{
			{Name: "research", Limits: ProjectLimits{Memory: 8 << 30, Stored: 1 << 40, Files: 1000, TimePerDay: Duration(2 * time.Hour)}},
			{Name: "default", Limits: ProjectLimits{Live: 10, Memory: 8 << 30, Stored: 50 << 30, Files: 1000, TimePerDay: Duration(2 * time.Hour)}},
		},
		Agent:     Agent{MaxRounds: 4, MaxCalls: 20, MaxTime: Duration(90 * time.Second)},
		SkillsDir: "/home/ann/skills", Skills: Skills{PerProject: 50, Stored: 1 << 30, Cache: 2 << 30, Preload: true},
		Server: Server{RequestMemory: 128 << 20},
	}
	if diff := cmp.Diff(want, got, secrets); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty file":      "",
		"comments only":   "# nothing yet\n",
		"keys left blank": "listen:\nmodels:\nsandbox:\n  memory:\nagent: {}\n",
		"document marks":  "---\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := load(t, text, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := Default()
			want.DataDir, want.File = "/home/ann/.local/share/lathe", got.File
			want.ImageDirs = []string{"/home/ann/.local/share/lathe/images", "/var/lib/lathe/images"}
			if diff := cmp.Diff(&want, got, secrets); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	root, err := Load(Source{Env: environment(map[string]string{"HOME": "/root"}), Root: true, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(root.ImageDirs, []string{"/var/lib/lathe/images"}) || root.DataDir != "/root/.local/share/lathe" || root.Listen != "127.0.0.1:0" {
		t.Errorf("as root: image dir %s, data dir %s, listen %s", root.ImageDirs, root.DataDir, root.Listen)
	}
	if got := root.Models; len(got) != 1 || got[0].Name != "demo" || got[0].Provider != "demo" {
		t.Errorf("without a file the models are %v, want demo alone", got)
	}
}

// TestFaults pins each message: they are what a new user reads first.
func TestFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string // without the file's path
	}{
		{"unknown key", "listn: 127.0.0.1:1\n", []string{`:1: listn: unknown key, did you mean "listen"?`}},
		{"skills", "skills: {per_project: 0, stored: 1KiB, cache: much, dir: x}\n", []string{
			`:1: skills.per_project: "0" is not a whole number from 1 to 1000000`, `:1: skills.stored: "1KiB" is out of bounds: allowed are 1MiB to 16TiB`,
			`:1: skills.cache: "much" is not a size: write a number and a unit (KiB, MiB, GiB, TiB, or KB, MB, GB, TB), such as 512MiB`, `:1: skills.dir: unknown key: allowed here are per_project, stored, cache, preload`}},
		{"unknown key far from all", "agent: {zzzzzzz: 1}\n", []string{`:1: agent.zzzzzzz: unknown key: allowed here are max_rounds, max_calls, max_time`}},
		{"twice", "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n", []string{`:2: listen: stands twice, first in line 1: keep one`}},
		{"two documents", "listen: 127.0.0.1:1\n---\nlisten: 127.0.0.1:2\n",
			[]string{`:3: a second document: write one document, without '---' between its parts`}},
		{"not a mapping", "- a\n", []string{`:1: must hold keys with values (listen, data_dir, database, blobs, keys, models, sandbox, projects, agent, skills_dir, skills, server), not a list`}},
		{"scalar for list", "models: demo\n", []string{`:1: models: must be a list (lines that start with '- '), not a single value`}},
		{"list for scalar", "listen: [a]\n", []string{`:1: listen: must be a single value, not a list`}},
		{"listen", "listen: 4747\n", []string{
			`:1: listen: "4747" is not an address: write host:port, such as 127.0.0.1:4747, [::1]:4747 or 0.0.0.0:4747`}},
		{"listen port", "listen: localhost:99999\n", []string{
			`:1: listen: "localhost:99999" has no valid port: write a number from 0 (any free port) to 65535`}},
		{"size", "sandbox: {memory: 1Gi}\n", []string{`:1: sandbox.memory: "1Gi" is not a size: write a number and a unit ` +
			`(KiB, MiB, GiB, TiB, or KB, MB, GB, TB), such as 512MiB`}},
		{"size bounds", "sandbox: {memory: 1MiB}\n", []string{`:1: sandbox.memory: "1MiB" is out of bounds: allowed are 64MiB to 1TiB`}},
		{"duration", "sandbox: {exec_timeout: 120}\n", []string{`:1: sandbox.exec_timeout: "120" is not a duration: write a number and a unit ` +
			`(ms, s, m, h), such as 90s, 2m or 720h`}},
		{"cpus", "sandbox: {cpus: two}\n", []string{`:1: sandbox.cpus: "two" is not a number from 0.05 to 1024`}},
		{"not a number", "sandbox: {cpus: .nan}\n", []string{`:1: sandbox.cpus: ".nan" is not a number from 0.05 to 1024`}},
		{"integer", "agent: {max_rounds: 0}\n", []string{`:1: agent.max_rounds: "0" is not a whole number from 1 to 1000`}},
		{"network", "sandbox: {network: host}\n", []string{
			`:1: sandbox.network: "host" is not allowed: write none or allowlist`}},
		{"allowlist without a list", "sandbox: {network: allowlist}\n", []string{
			`:1: sandbox.allow: is missing: with network: allowlist, write the domains that programs may reach, such as [pypi.org, files.pythonhosted.org]`}},
		{"allow", "sandbox:\n  allow:\n    - https://pypi.org/simple\n    - 10.0.0.1\n    - a.example\n    - a.example\n    - '*'\n", []string{
			`:3: sandbox.allow[0]: "https://pypi.org/simple" is not a domain: write example.com, *.example.com or example.com:8443`,
			`:4: sandbox.allow[1]: "10.0.0.1" is an address: addresses belong into sandbox.allow_private`,
			`:6: sandbox.allow[3]: "a.example" stands twice: keep one`,
			`:7: sandbox.allow[4]: "*" is not a domain: write example.com, *.example.com or example.com:8443`}},
		{"allow_private", "sandbox: {allow_private: [10.0.0.5/8, x y]}\n", []string{
			`:1: sandbox.allow_private[0]: "10.0.0.5/8" is not a range of addresses: write 10.0.0.0/8`,
			`:1: sandbox.allow_private[1]: "x y" is not an address: write 10.0.0.5, 10.0.0.0/8, 10.0.0.5:8080, [fd00::1]:8080 or intern.example:8080`}},
		{"secrets", "sandbox:\n  allow: [a.example]\n  secrets:\n    - {domain: b.example, value: hunter2}\n    - {header: 'A b'}\n    - {domain: a.example, value: \"x\\ny\"}\n", []string{
			`:3: sandbox.secrets: secrets[0] is for "b.example", which is not within sandbox.allow: put the domain there too`,
			`:5: sandbox.secrets[1].domain: is missing: write the domain whose requests get the header`,
			`:5: sandbox.secrets[1].value: is missing: write the header's value, best as a variable: value: "Bearer ${TOKEN}"`,
			`:5: sandbox.secrets[1].header: "A b" is not the name of a header: write Authorization, X-Api-Key or the like`,
			`:6: sandbox.secrets[2].value: has line breaks or other control characters, which a header cannot have`}},
		{"network_bytes", "sandbox: {network_bytes: 1}\n", []string{`:1: sandbox.network_bytes: "1" is out of bounds: allowed are 1MiB to 1024TiB`}},
		{"database", "database: postgres://u:hidden@db/x\n", []string{
			`:1: database: postgres:// comes with a later release: write database: "" for SQLite in data_dir`}},
		{"blobs", "blobs: s3://bucket?region=eu\n", []string{`:1: blobs: s3:// comes with a later release: write blobs: "" for files in data_dir`}},
		{"blobs unknown", "blobs: /tmp/x\n", []string{`:1: blobs: is not allowed: write blobs: "" for files in data_dir`}},
		{"unset variable", "models:\n  - {name: a, provider: openai-chat, base_url: 'http://h/v1', api_key: '${NOPE}'}\n", []string{
			`:2: models[0].api_key: uses the variable NOPE, which is not set: set it in the environment of lathe`}},
		{"single dollar", "data_dir: /srv/$HOME\n", []string{
			`:1: data_dir: holds a single '$': write ${NAME} for a variable of the environment, $$ for the character`}},
		{"variable with default", "data_dir: '${A:-b}'\n", []string{
			`:1: data_dir: holds a ${...} without a variable's name in it: use letters, digits and '_' (no default values); $$ gives a '$'`}},
		{"model without anything", "models:\n  - {}\n", []string{
			`:2: models[0].name: is missing: give it a name`, `:2: models[0].provider: is missing: write openai-chat, openai-responses, anthropic or demo`}},
		{"later provider", "models: [{name: a, provider: bedrock}]\n", []string{
			`:1: models[0].provider: "bedrock" comes with a later release: this one knows openai-chat, openai-responses, anthropic and demo`}},
		{"misspelt provider", "models: [{name: a, provider: openai}, {name: b, provider: openai_chat, base_url: 'http://h/v1'}]\n", []string{
			`:1: models[0].provider: "openai" is not a provider: this release knows openai-chat, openai-responses, anthropic and demo`,
			`:1: models[1].provider: "openai_chat" is not a provider, did you mean "openai-chat"?`}},
		{"no base_url", "models: [{name: a, provider: openai-chat}]\n", []string{
			`:1: models[0].base_url: is missing: write where the server is, with /v1, such as http://127.0.0.1:8000/v1`}},
		{"base_url", "models: [{name: a, provider: openai-chat, base_url: 'localhost:8000'}]\n", []string{
			`:1: models[0].base_url: "localhost:8000" is not a URL: write http:// or https:// with a host, such as http://127.0.0.1:8000/v1`}},
		{"base_url too long", "models: [{name: a, provider: openai-chat, base_url: 'http://h/v1/chat/completions'}]\n", []string{
			`:1: models[0].base_url: "http://h/v1/chat/completions" ends in /chat/completions: write only what comes before it, ` +
				`as the SDKs take it (most often up to /v1)`}},
		{"base_url with password", "models: [{name: a, provider: openai-chat, base_url: 'http://u:hidden@h/v1'}]\n", []string{
			`:1: models[0].base_url: holds a user name or password: put the key into api_key`}},
		{"demo takes no url", "models: [{name: a, provider: demo, base_url: 'http://h/v1'}]\n", []string{
			`:1: models[0].base_url: the provider demo takes none: it is part of lathe and calls nobody`}},
		{"anthropic without a key", "models: [{name: a, provider: anthropic}]\n", []string{
			`:1: models[0].api_key: is missing: give it Anthropic's API key, best as a variable: api_key: "${ANTHROPIC_API_KEY}"`}},
		{"base_url of messages", "models: [{name: a, provider: anthropic, base_url: 'http://h/v1/messages'}]\n", []string{
			`:1: models[0].base_url: "http://h/v1/messages" ends in /messages: write only what comes before it, as the SDKs take it (most often up to /v1)`}},
		{"hosted tools nobody has", "models: [{name: a, provider: demo, hosted_tools: provider}]\n", []string{
			`:1: models[0].hosted_tools: the provider demo has no hosted tools of its own: write "lathe"`}},
		{"hosted tools of chat", "models: [{name: a, provider: openai-chat, base_url: 'http://h/v1', hosted_tools: provider}]\n", []string{
			`:1: models[0].hosted_tools: the provider openai-chat has no hosted tools of its own: write "lathe"`}},
		{"no base_url for responses", "models: [{name: a, provider: openai-responses, hosted_tools: provider}]\n", []string{
			`:1: models[0].base_url: is missing: write where the server is, with /v1, such as http://127.0.0.1:8000/v1`}},
		{"hosted tools", "models: [{name: a, provider: demo, hosted_tools: yes}]\n", []string{
			`:1: models[0].hosted_tools: "yes" is not allowed: write lathe or provider`}},
		{"same model", "models: [{name: a, provider: demo}, {name: a, provider: demo}]\n", []string{
			`:1: models[1].name: "a" is already the name of models[0]: clients could not tell them apart`}},
		{"same keys", "keys: [{name: a, key: hidden-12345}, {name: a, key: hidden-12345}]\n", []string{
			`:1: keys[1].name: "a" is already the name of keys[0]: give each key its own`,
			`:1: keys[1].key: is the same key as that of keys[0]: give each client its own`}},
		{"projects", "projects:\n  - {name: typo, limits: {live: -1}}\n  - {limits: {stored: much}}\n  - {name: default}\n  - {name: default, live: 3}\n", []string{
			`:2: projects[0].name: "typo" is the project of no key: write a name that stands in keys, or "default"`,
			`:2: projects[0].limits.live: "-1" is not a whole number from 0 to 100000`,
			`:3: projects[1].name: is missing: give it a name`,
			`:3: projects[1].limits.stored: "much" is not a size: write a number and a unit (KiB, MiB, GiB, TiB, or KB, MB, GB, TB), such as 512MiB`,
			`:5: projects[3].name: "default" is already the name of projects[2]: write both together`,
			`:5: projects[3].live: unknown key: allowed here are name, image, limits`}},
		{"short key", "keys: [{name: a, key: hidden}]\n", []string{
			":1: keys[0].key: is not a usable key: take at least 8 characters of printable ASCII without spaces, " +
				"such as the output of `openssl rand -hex 24`"}},
		{"alias of nothing", "listen: *nobody\n", []string{`:1: listen: *nobody names no anchor`}},
		{"merge", "sandbox:\n  <<: {cpus: 1}\n", []string{`:2: sandbox.<<: unknown key: merges are not supported, repeat the values`}},
		{"boolean", "keys: [{name: a, key: abcdefgh1, admin: 1}]\n", []string{`:1: keys[0].admin: "1" is neither true nor false`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, test.text, nil)
			if err == nil {
				t.Fatal("Load accepted it")
			}
			var got []string
			for _, f := range err.(Faults) {
				got = append(got, strings.TrimPrefix(f.String(), f.File))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hidden") {
				t.Errorf("the message shows a secret: %s", err)
			}
		})
	}
}

func TestAllFaultsAtOnceInTheOrderOfTheFile(t *testing.T) {
	t.Parallel()
	_, err := load(t, `listen: nowhere
keys:
  - name: a b
    key: "${UNSET_KEY}"
models:
  - name: x
    provider: openai-chat
    base_ur: http://h/v1
sandbox:
  memory: much
  network: bridge
agents: {}
`, nil)
	var lines []int
	for _, f := range err.(Faults) {
		lines = append(lines, f.Line)
	}
	// line 6 is the model's: its base_url is missing.
	if diff := cmp.Diff([]int{1, 3, 4, 6, 8, 10, 11, 12}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s\n%v", diff, err)
	}
}

func TestSyntaxErrorHasALine(t *testing.T) {
	t.Parallel()
	_, err := load(t, "listen: a\nmodels: [\n", nil)
	fs, ok := err.(Faults)
	if !ok || len(fs) != 1 || fs[0].Line == 0 || !strings.Contains(fs[0].Message, "is not YAML") {
		t.Errorf("got %v", err)
	}
}

func TestVariablesCannotChangeTheStructure(t *testing.T) {
	t.Parallel()
	c, err := load(t, `keys: [{name: a, key: "${K}"}]`, map[string]string{"K": `x"},{name:b}#$HOME`})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Keys) != 1 || c.Keys[0].Key.Reveal() != `x"},{name:b}#$HOME` {
		t.Errorf("keys are %d, key is changed", len(c.Keys))
	}
}

func TestImageByNameOrFolder(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"python": "python", "/img": "/img", "./img": filepath.Join(here, "img"), "~/img": "/home/ann/img", "''": "",
	} {
		c, err := load(t, "sandbox: {image: "+given+"}", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Sandbox.Image != want {
			t.Errorf("%s became %s, want %s", given, c.Sandbox.Image, want)
		}
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	c, err := load(t, "sandbox:\n  exec_timeout: &time 90s\nagent: {max_time: *time}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Agent.MaxTime != Duration(90*time.Second) {
		t.Errorf("max_time is %s", c.Agent.MaxTime)
	}
}

func TestShownConfigurationGivesTheSameAgain(t *testing.T) {
	t.Parallel()
	first, err := load(t, "data_dir: /srv/x\nsandbox: {memory: 1536MiB, cpus: 0.5, per_project: {live: 3}, network: allowlist, allow: [a.example], "+
		"secrets: [{domain: a.example, value: hidden}]}\n"+
		"projects: [{name: default, limits: {stored: 1GiB, live: 0}}]\nkeys: [{name: a, key: hidden-hidden}]\n"+
		"models: [{name: m, provider: openai-chat, base_url: 'https://h/v1', api_key: hidden}]\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := first.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hidden") {
		t.Fatalf("shows a secret:\n%s", text)
	}
	if _, err := load(t, string(text), nil); err == nil || strings.Count(err.Error(), "is redacted") != 3 {
		t.Errorf("a redacted key is taken for a key: %v", err)
	}
	again, err := load(t, strings.ReplaceAll(string(text), Redacted, "hidden-again"), nil)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	first.File, again.File = "", ""
	redacted := cmp.Comparer(func(a, b Secret) bool { return a.IsZero() == b.IsZero() })
	if diff := cmp.Diff(first, again, redacted); diff != "" {
		t.Errorf("(-first +again):\n%s\n%s", diff, text)
	}
}

func TestSecretNeverPrints(t *testing.T) {
	t.Parallel()
	s := NewSecret("hunter2hunter2")
	holder := struct{ inner Secret }{s}
	asJSON, _ := json.Marshal(map[string]any{"s": s, "p": &s})
	asYAML, _ := yaml.Marshal(map[string]any{"s": s})
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "s", s, "holder", fmt.Sprintf("%+v", holder))
	for form, text := range map[string]string{
		"v": fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, s), "pointer": fmt.Sprintf("%v %#v", &s, &s),
		"unexported field": fmt.Sprintf("%v %+v %#v", holder, holder, holder),
		"json":             string(asJSON), "yaml": string(asYAML), "slog": logged.String(),
	} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
			t.Errorf("%s shows the secret: %s", form, text)
		}
	}
	if s.String() != Redacted || s.Reveal() != "hunter2hunter2" || !NewSecret("").IsZero() {
		t.Error("Secret lost its text, or an empty one is not empty")
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "10.0.0.1:1": false, "example.org:1": false, "nonsense": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("Loopback(%q) = %v", address, got)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\nmodels: [{name: a, provider: demo}]")
	f.Add("a: &a [*a]\nb: *a\n<<: {}")
	f.Add("sandbox: {memory: 9e99TiB, cpus: '${X}'}")
	f.Fuzz(func(t *testing.T, text string) {
		c := Default()
		d := &decoder{file: "f", env: environment(nil)}
		d.document([]byte(text), &c)
		for _, fault := range d.faults {
			if fault.Message == "" {
				t.Errorf("a fault without words: %+v", fault)
			}
		}
	})
}
