package config

import (
	"fmt"
	"log/slog"
)

// Secret is a text that does not print itself: fmt, slog, JSON and YAML all show Redacted. Only Reveal returns the text. The zero value
// is an empty secret and shows as "".
type Secret struct {
	// A pointer, so that fmt shows an address even where a Secret sits in an unexported field and its methods are out of reach.
	text *string
}

// Redacted is what stands where a secret would.
const Redacted = "[redacted]"

// NewSecret wraps text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the text itself. Hand it only to what checks or sends it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero says whether there is no secret.
func (s Secret) IsZero() bool { return s.text == nil }

// String is Redacted, or "" for an empty secret.
func (s Secret) String() string {
	if s.text == nil {
		return ""
	}
	return Redacted
}

// Format makes every verb, %#v and %x included, print String.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText serves JSON and every other encoder of texts.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML serves YAML encoders.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// LogValue serves slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
