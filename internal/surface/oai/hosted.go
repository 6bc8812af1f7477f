package oai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Python is the name of code_interpreter in turn.Hosted (package tool).
const Python = "python"

const maxFileIDs = 50

// Container is what a code_interpreter tool says of its container (wire/openai.md 1.2): an id, or the object {"type": "auto"}.
type Container struct {
	ID string
	// Auto says that the object came; the rest is of it.
	Auto              bool
	Type, MemoryLimit string
	FileIDs           []string
	Network           *NetworkPolicy
}

// NetworkPolicy mirrors network_policy of containers (wire/openai.md 1.2): disabled, or allowlist with at least one domain.
type NetworkPolicy struct {
	Type           string
	AllowedDomains []string
	DomainSecrets  json.RawMessage
}

// Read is the canonical form of a policy; nil is nothing said. path is that of network_policy. What the operator allows is not known here.
func (p *NetworkPolicy) Read(path string) (*turn.Network, error) {
	if p == nil {
		return nil, nil
	}
	hasSecrets := len(p.DomainSecrets) > 0 && string(p.DomainSecrets) != "null"
	switch {
	case p.Type == "":
		return nil, Missing(path + ".type")
	case p.Type != "allowlist" && p.Type != "disabled":
		return nil, turn.Invalid(path+".type", "%s.type must be allowlist or disabled, got %q", path, p.Type)
	case p.Type == "disabled" && (len(p.AllowedDomains) > 0 || hasSecrets):
		return nil, turn.Invalid(path+".type", "a disabled network_policy has neither allowed_domains nor domain_secrets; use allowlist")
	case p.Type == "disabled":
		return &turn.Network{Disabled: true}, nil
	case len(p.AllowedDomains) == 0:
		return nil, Missing(path + ".allowed_domains")
	}
	n := &turn.Network{Domains: p.AllowedDomains}
	if !hasSecrets {
		return n, nil
	}
	var secrets []json.RawMessage
	if json.Unmarshal(p.DomainSecrets, &secrets) != nil {
		return nil, turn.Invalid(path+".domain_secrets", "%s.domain_secrets must be an array", path)
	}
	for i, raw := range secrets {
		at := At(path+".domain_secrets", i)
		f, err := fields(at, raw, []string{"domain", "name", "value"})
		if err != nil {
			return nil, err
		}
		var s turn.DomainSecret
		for name, dst := range map[string]any{"domain": &s.Domain, "name": &s.Name, "value": &s.Value} {
			if !f.Has(name) {
				return nil, Missing(at + "." + name)
			}
			if err := f.Read(name, dst, "a string"); err != nil {
				return nil, err
			}
		}
		n.Secrets = append(n.Secrets, s)
	}
	return n, nil
}

// Hosted makes the part of a turn.Request that a code_interpreter tool asks for. path is that of the tool. Nil is a tool that says nothing
// of its container: as much as auto.
func (c *Container) Hosted(path string) (*turn.Hosted, error) {
	h := &turn.Hosted{Tools: []string{Python}}
	if c == nil {
		return h, nil
	}
	path += ".container"
	if !c.Auto {
		if h.Container = c.ID; h.Container == "" {
			return nil, turn.Invalid(path, "container must be a container's id or {\"type\": \"auto\"}")
		}
		return h, nil
	}
	if c.Type != "auto" {
		return nil, turn.Invalid(path+".type", "container.type must be \"auto\", got %q", c.Type)
	}
	if len(c.FileIDs) > maxFileIDs {
		return nil, turn.Invalid(path+".file_ids", "file_ids may name at most %d files, got %d", maxFileIDs, len(c.FileIDs))
	}
	h.FileIDs = c.FileIDs
	var err error
	if h.Network, err = c.Network.Read(path + ".network_policy"); err != nil {
		return nil, err
	}
	limit, ok := memoryLimits[c.MemoryLimit]
	if !ok {
		return nil, turn.Invalid(path+".memory_limit", "memory_limit must be 1g, 4g, 16g or 64g, got %q", c.MemoryLimit)
	}
	h.MemoryLimit = limit
	return h, nil
}

// MemoryLimit is a memory_limit in bytes, 0 for "".
func MemoryLimit(s string) (bytes int64, ok bool) {
	bytes, ok = memoryLimits[s]
	return bytes, ok
}

// AddFile puts an uploaded file that the input names into the container too, as the service does. h may be nil: there is no container.
func AddFile(h *turn.Hosted, path, id string) error {
	if h == nil || id == "" || slices.Contains(h.FileIDs, id) {
		return nil
	}
	if len(h.FileIDs) == maxFileIDs {
		return turn.Invalid(path, "a request may name at most %d files", maxFileIDs)
	}
	h.FileIDs = append(h.FileIDs[:len(h.FileIDs):len(h.FileIDs)], id)
	return nil
}

var memoryLimits = map[string]int64{"": 0, "1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}

// ReplayedStatus is the status of a hosted call that a client sends back.
func ReplayedStatus(path, status string) (turn.Status, error) {
	switch status {
	case "":
		return turn.StatusCompleted, nil
	case "completed", "failed", "incomplete":
		return turn.Status(status), nil
	case "in_progress", "interpreting": // the client kept what it had when its stream broke
		return turn.StatusIncomplete, nil
	}
	return "", turn.Invalid(path, "status must be in_progress, interpreting, completed, incomplete or failed, got %q", status)
}

// ReplayedOutput is an output of a hosted call that a client sends back: logs, or an image by its data URI.
func ReplayedOutput(path, kind, logs, uri string) (turn.Output, error) {
	switch kind {
	case "logs":
		return turn.Output{Text: logs}, nil
	case "image":
		mime, data, ok := DataURI(uri)
		if !ok || !strings.HasPrefix(mime, "image/") {
			return turn.Output{}, turn.Unsupported(path+".url",
				"an output image must be a data URI of an image in base64; send outputs: null instead")
		}
		return turn.Output{MIME: mime, Data: data}, nil
	}
	return turn.Output{}, turn.Invalid(path+".type", "an output must be of type logs or image, got %q", kind)
}
