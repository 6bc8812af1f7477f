package turn

import "log/slog"

// Network is a client's network_policy (wire/openai.md 1.2).
type Network struct {
	// Disabled is a container without a network; the rest is empty then.
	Disabled bool
	// Domains are names and *.names within the operator's.
	Domains []string
	Secrets []DomainSecret `json:",omitempty"`
}

// DomainSecret is put in the place of "$Name" in the headers of requests to Domain. Programs never see Value.
type DomainSecret struct {
	Domain, Name string
	Value        Secret
}

// Secret is a text that neither fmt nor slog print. JSON writes it: a request can be kept and read again.
type Secret string

const redacted = "[redacted]"

// String is not the secret.
func (Secret) String() string { return redacted }

// GoString is not the secret.
func (Secret) GoString() string { return redacted }

// LogValue serves slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
