// Package config reads lathe.yaml: strict YAML with variables, in which everything that is wrong is reported at once, each fault with
// its line and what is allowed. It is the only place that reads the environment (cmd/lathe hands it os.LookupEnv) and the only one that knows the file's
// form; the wiring turns a Config into the parts. Only cmd/lathe may import it.
//
// To add a key: a field with its yaml tag below, its default in Default, its line in the table of the mapping in schema.go, and a case in
// the tests for each value that it refuses.
package config

import (
	"bytes"
	"net"
	"time"

	"github.com/goccy/go-yaml"
)

// Config is one configuration, complete and checked.
type Config struct {
	// Listen is host:port; port 0 takes any free one.
	Listen string `yaml:"listen"`
	// DataDir is absolute. It belongs to one process.
	DataDir string `yaml:"data_dir"`
	// Database is "": SQLite in DataDir. Nothing else comes with this release.
	Database string `yaml:"database"`
	// Blobs is "": files in DataDir. Nothing else comes with this release.
	Blobs string `yaml:"blobs"`
	// Keys are the clients' API keys. None means that only clients on loopback are served.
	Keys    []Key   `yaml:"keys"`
	Models  []Model `yaml:"models"`
	Sandbox Sandbox `yaml:"sandbox"`
	Agent   Agent   `yaml:"agent"`

	// ImageDirs are the folders that named images are looked for in, in order. It is no key of the file: LATHE_IMAGE_DIR alone where
	// that is set, else the user's own (for others than root) and the machine's.
	ImageDirs []string `yaml:"-"`
	// Runsc is the path of gVisor's program: LATHE_RUNSC; "" means beside lathe, or in PATH. Not a key of the file.
	Runsc string `yaml:"-"`
	// File is the path that was read, "" if there was none.
	File string `yaml:"-"`
}

// Key is one API key of a client.
type Key struct {
	Name string `yaml:"name"`
	Key  Secret `yaml:"key"`
	// Project owns what this key stores; "default" if the file names none.
	Project string `yaml:"project"`
	// Admin opens /metrics and the operator's pages.
	Admin bool `yaml:"admin"`
}

// Model is one name that clients ask for and where it is answered.
type Model struct {
	// Name is what clients ask for; "*" takes every other name.
	Name     string `yaml:"name"`
	Provider string `yaml:"provider"`
	// BaseURL is what the vendor's SDK takes, without a trailing slash: with /v1 for OpenAI's forms, without for anthropic, where "" is
	// Anthropic's own.
	BaseURL string `yaml:"base_url,omitempty"`
	APIKey  Secret `yaml:"api_key,omitzero"`
	// Model is the provider's own name; "" means the name that the client asked for.
	Model string `yaml:"model,omitempty"`
	// HostedTools is lathe (run here) or provider (left to the provider, where it has any: openai-responses).
	HostedTools string `yaml:"hosted_tools"`
	// Images says that the model takes images, so that it is shown the figures that its code drew. It is true by default for anthropic.
	Images bool `yaml:"images"`
}

// Sandbox is where code runs and what it may take.
type Sandbox struct {
	// Image is a directory, or the name of an image in ImageDirs; "" is the image `python`, or else the host's Python.
	Image string `yaml:"image"`
	// Pool is accepted and has no effect in this release: no sandboxes are started ahead.
	Pool        int      `yaml:"pool"`
	Memory      Size     `yaml:"memory"`
	Disk        Size     `yaml:"disk"`
	CPUs        float64  `yaml:"cpus"`
	Processes   int      `yaml:"processes"`
	ExecTimeout Duration `yaml:"exec_timeout"`
	Network     string   `yaml:"network"`
	// HibernateAfter is accepted and has no effect in this release: memory is not kept on disk. An idle sandbox is freed after 20
	// minutes; its files stay.
	HibernateAfter Duration `yaml:"hibernate_after"`
	ExpireAfter    Duration `yaml:"expire_after"`
}

// Agent bounds one turn.
type Agent struct {
	MaxRounds int      `yaml:"max_rounds"`
	MaxTime   Duration `yaml:"max_time"`
}

// Default is the configuration of an empty file, without the folders, which depend on the user (see Load).
func Default() Config {
	return Config{
		Listen: "127.0.0.1:4747",
		Models: []Model{{Name: "demo", Provider: "demo", HostedTools: "lathe"}},
		Sandbox: Sandbox{
			Pool: 2, Memory: 1 << 30, Disk: 5 << 30, CPUs: 1, Processes: 256,
			ExecTimeout: Duration(2 * time.Minute), Network: "none",
			HibernateAfter: Duration(time.Minute), ExpireAfter: Duration(720 * time.Hour),
		},
		Agent: Agent{MaxRounds: 32, MaxTime: Duration(10 * time.Minute)},
	}
}

// YAML is the configuration as a file that gives the same one again, but for the secrets, which are redacted.
func (c *Config) YAML() ([]byte, error) {
	var b bytes.Buffer
	idle := []*yaml.Comment{yaml.LineComment(" has no effect in this release")}
	err := yaml.NewEncoder(&b, yaml.IndentSequence(true), yaml.WithComment(yaml.CommentMap{
		"$.sandbox.pool": idle, "$.sandbox.hibernate_after": idle,
	})).Encode(c)
	return b.Bytes(), err
}

// Loopback says whether host:port can only be reached from this machine. A name other than localhost counts as reachable.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
