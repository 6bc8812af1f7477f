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

	"github.com/lathe-gateway/lathe/internal/egress/rule"
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
	// Projects are those of Keys that differ from Sandbox.PerProject.
	Projects []Project `yaml:"projects"`
	Agent    Agent     `yaml:"agent"`
	// SkillsDir is a folder of skills that all projects may read, absolute; "" is none. It is watched.
	SkillsDir string `yaml:"skills_dir"`
	Skills    Skills `yaml:"skills"`
	Server    Server `yaml:"server"`

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
	// HostedTools is lathe (run here) or provider (left to the provider, where it has any: openai-responses, anthropic).
	HostedTools string `yaml:"hosted_tools"`
	// Images says that the model takes images, so that it is shown the figures that its code drew. It is true by default for anthropic.
	Images bool `yaml:"images"`
}

// Sandbox is where code runs and what it may take.
type Sandbox struct {
	// Image is a directory, the name of an image in ImageDirs, an OCI layout or a registry's reference; "" is the image `python`, or else
	// the host's Python.
	Image string `yaml:"image"`
	// Pool is how many started sandboxes wait at least for new containers, PoolMax how many under a burst. 0 starts none ahead.
	Pool    int `yaml:"pool"`
	PoolMax int `yaml:"pool_max"`
	// MaxLive and MaxMemory cap the live sandboxes of this machine, by number and by the sum of their memory limits; 0 means as many as
	// fit three quarters of its memory. QueueTime is how long a call waits for a place.
	MaxLive   int      `yaml:"max_live"`
	MaxMemory Size     `yaml:"max_memory"`
	QueueTime Duration `yaml:"queue_time"`
	Memory    Size     `yaml:"memory"`
	Disk      Size     `yaml:"disk"`
	CPUs      float64  `yaml:"cpus"`
	Processes int      `yaml:"processes"`
	// Files caps the stored versions of one container's files.
	Files       int      `yaml:"files"`
	ExecTimeout Duration `yaml:"exec_timeout"`
	// Network is none, or allowlist: programs reach what Allow names. The four keys behind it count with allowlist only.
	Network string `yaml:"network"`
	// Allow are names, *.names, either with :port; without one it is 80 and 443.
	Allow []string `yaml:"allow"`
	// AllowPrivate are addresses, ranges or names that may be reached although they are not on the public internet; with :port if wanted.
	// An address may then also be named by its number.
	AllowPrivate []string `yaml:"allow_private"`
	// Secrets are headers that the proxy sets on requests over TLS.
	Secrets []DomainSecret `yaml:"secrets"`
	// NetworkBytes caps what a sandbox transfers while it is up, in both directions together.
	NetworkBytes Size `yaml:"network_bytes"`
	// HibernateAfter is for how long no call may have used a container before its memory goes to the disk, and HibernatedMemory how much
	// of it each project may have there; 0 is no limit.
	HibernateAfter   Duration `yaml:"hibernate_after"`
	HibernatedMemory Size     `yaml:"hibernated_memory"`
	ExpireAfter      Duration `yaml:"expire_after"`
	// PerProject is what each project may take that Projects does not say otherwise of.
	PerProject ProjectLimits `yaml:"per_project"`
}

// DomainSecret is a header that programs need not, and cannot, know.
type DomainSecret struct {
	// Domain is as in Allow, and must be within it.
	Domain string `yaml:"domain"`
	Header string `yaml:"header"`
	Value  Secret `yaml:"value"`
}

// Rules are Allow and AllowPrivate as they were checked.
func (s *Sandbox) Rules() rule.List {
	var l rule.List
	for _, text := range s.Allow {
		if d, err := rule.ParseDomain(text); err == nil {
			l.Allow = append(l.Allow, d)
		}
	}
	for _, text := range s.AllowPrivate {
		if e, err := rule.ParseException(text); err == nil {
			l.Except = append(l.Except, e)
		}
	}
	return l
}

// Project is what an operator says of one project.
type Project struct {
	Name string `yaml:"name"`
	// Image is that of the project's sandboxes, as Sandbox.Image is said; "" is Sandbox.Image.
	Image string `yaml:"image,omitempty"`
	// Limits are complete: what the file does not name is Sandbox.PerProject's.
	Limits ProjectLimits `yaml:"limits"`
}

// ProjectLimits is what all containers and files of a project may take together. 0 is no limit.
type ProjectLimits struct {
	// Live is the number of live containers, Memory the sum of their memory limits.
	Live   int  `yaml:"live"`
	Memory Size `yaml:"memory"`
	// Stored is the bytes on disk: volumes, all versions of files, uploads, hibernated memory. Files is the number of files.
	Stored Size `yaml:"stored"`
	Files  int  `yaml:"files"`
	// TimePerDay is for how long code may run in a day (UTC), all calls together.
	TimePerDay Duration `yaml:"time_per_day"`
}

// Agent bounds one turn.
type Agent struct {
	MaxRounds int      `yaml:"max_rounds"`
	MaxCalls  int      `yaml:"max_calls"`
	MaxTime   Duration `yaml:"max_time"`
}

// Server bounds what requests take of the gateway itself.
type Server struct {
	// RequestMemory caps the bytes of all requests' bodies that are held at once, uploads of files apart.
	RequestMemory Size `yaml:"request_memory"`
}

// Skills bounds what is kept of skills.
type Skills struct {
	// PerProject and Stored are the skills of one project, and the bytes of their archives.
	PerProject int  `yaml:"per_project"`
	Stored     Size `yaml:"stored"`
	// Cache is the bytes of unpacked skills on this machine, those in use apart.
	Cache Size `yaml:"cache"`
	// Preload puts the whole text of a request's skills into the prompt, for models that would not read it.
	Preload bool `yaml:"preload"`
}

// Default is the configuration of an empty file, without the folders, which depend on the user (see Load).
func Default() Config {
	return Config{
		Listen: "127.0.0.1:4747",
		Models: []Model{{Name: "demo", Provider: "demo", HostedTools: "lathe"}},
		Sandbox: Sandbox{
			Pool: 2, PoolMax: 8, QueueTime: Duration(30 * time.Second), Memory: 1 << 30, Disk: 5 << 30, CPUs: 1, Processes: 256, Files: 20_000,
			ExecTimeout: Duration(2 * time.Minute), Network: "none", Allow: []string{}, AllowPrivate: []string{}, Secrets: []DomainSecret{}, NetworkBytes: 10 << 30,
			HibernateAfter: Duration(time.Minute), HibernatedMemory: 10 << 30, ExpireAfter: Duration(720 * time.Hour),
		},
		Agent:  Agent{MaxRounds: 32, MaxCalls: 100, MaxTime: Duration(10 * time.Minute)},
		Skills: Skills{PerProject: 1000, Stored: 5 << 30, Cache: 5 << 30},
		Server: Server{RequestMemory: 256 << 20},
	}
}

// YAML is the configuration as a file that gives the same one again, but for the secrets, which are redacted.
func (c *Config) YAML() ([]byte, error) {
	var b bytes.Buffer
	err := yaml.NewEncoder(&b, yaml.IndentSequence(true)).Encode(c)
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
