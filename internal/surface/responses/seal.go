package responses

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// sealPrefix begins an encrypted_content of ours. No provider's begins so: they are base64, which has no dot.
const sealPrefix = "lathe.1."

// sealed is what this protocol has no field for and another needs back with the reasoning.
type sealed struct {
	Signature string `json:"signature,omitempty"`
	Encrypted string `json:"encrypted,omitempty"`
	Field     string `json:"field,omitempty"`
}

// seal is the reasoning's encrypted_content. What a server of this protocol sealed stays as it is; the signature of other protocols, or
// what they sealed, is wrapped. Clients hand it back unread.
func seal(r turn.Reasoning) string {
	if r.Signature == "" && (r.Field == "" || r.Encrypted == "") {
		return r.Encrypted
	}
	raw, err := json.Marshal(sealed{r.Signature, r.Encrypted, r.Field})
	if err != nil {
		return r.Encrypted // a struct of strings always encodes
	}
	return sealPrefix + base64.RawURLEncoding.EncodeToString(raw)
}

// unseal puts an encrypted_content back into reasoning. One that is not as seal made it is taken for a server's.
func unseal(content string, r *turn.Reasoning) {
	r.Encrypted = content
	body, ours := strings.CutPrefix(content, sealPrefix)
	if !ours {
		return
	}
	var s sealed
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(raw, &s) != nil {
		return
	}
	r.Signature, r.Encrypted, r.Field = s.Signature, s.Encrypted, s.Field
}
