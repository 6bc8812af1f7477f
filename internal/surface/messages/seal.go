package messages

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// sealPrefix begins a signature of ours. No provider's begins so: they are base64, which has no dot.
const sealPrefix = "lathe.1."

// sealed is what this protocol has no field for and another needs back with the reasoning. Thinking is there where the client wanted none
// of it (display: omitted).
type sealed struct {
	ID        string   `json:"id,omitempty"`
	Encrypted string   `json:"encrypted,omitempty"`
	Field     string   `json:"field,omitempty"`
	Thinking  string   `json:"thinking,omitempty"`
	Summary   []string `json:"summary,omitempty"`
	// Summarized says that the thinking that the client has is a summary.
	Summarized bool `json:"summarized,omitempty"`
}

// seal is the signature of reasoning: the server's own, or else what its provider needs back. Clients hand it back unread.
func seal(r turn.Reasoning, omitted bool) string {
	if r.Signature != "" {
		return r.Signature
	}
	s := sealed{ID: r.ID, Encrypted: r.Encrypted, Field: r.Field, Summarized: len(r.Summary) > 0 && !omitted && r.Text == ""}
	if omitted || len(r.Summary) > 0 && !s.Summarized {
		s.Thinking, s.Summary = r.Text, r.Summary
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return sealPrefix // strings always encode
	}
	return sealPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// unseal makes reasoning of a thinking block. A signature that is not as seal made it is taken for a server's.
func unseal(thinking, signature string) turn.Reasoning {
	r := turn.Reasoning{Text: thinking, Signature: signature}
	body, own := strings.CutPrefix(signature, sealPrefix)
	if !own {
		return r
	}
	var s sealed
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(raw, &s) != nil {
		return turn.Reasoning{Text: thinking} // no server would take the rest
	}
	r = turn.Reasoning{ID: s.ID, Encrypted: s.Encrypted, Field: s.Field, Text: thinking}
	switch {
	case s.Thinking != "" || s.Summary != nil:
		r.Text, r.Summary = s.Thinking, s.Summary
	case s.Summarized:
		r.Text, r.Summary = "", strings.Split(thinking, summaryBreak)
	}
	return r
}

// summaryBreak stands between the parts of a summary.
const summaryBreak = "\n\n"
