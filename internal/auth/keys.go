package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// Key is one API key and who it stands for.
type Key struct {
	Secret    string
	Principal Principal
}

// Keys turns API keys into principals. It keeps only their hashes. A nil or empty Keys knows nobody.
type Keys struct {
	entries []entry
}

type entry struct {
	hash      [sha256.Size]byte
	principal Principal
}

// NewKeys keeps keys.
func NewKeys(keys []Key) *Keys {
	k := &Keys{}
	for _, key := range keys {
		k.entries = append(k.entries, entry{sha256.Sum256([]byte(key.Secret)), key.Principal})
	}
	return k
}

// Empty says that there are no keys, in which case package server serves loopback only.
func (k *Keys) Empty() bool { return k == nil || len(k.entries) == 0 }

// Find returns whose key secret is. Its time does not depend on which key it is, nor on how much of one is right.
func (k *Keys) Find(secret string) (Principal, bool) {
	hash := sha256.Sum256([]byte(secret))
	var found Principal
	ok := false
	for _, e := range k.entries {
		if subtle.ConstantTimeCompare(hash[:], e.hash[:]) == 1 {
			found, ok = e.principal, true
		}
	}
	return found, ok
}

// Request returns who sends r: the key of "Authorization: Bearer" or of "x-api-key". Both may be there if they are the same. Errors are
// *turn.Error.
func (k *Keys) Request(r *http.Request) (Principal, error) {
	secret, err := requestKey(r)
	if err != nil {
		return Principal{}, err
	}
	p, ok := k.Find(secret)
	if !ok {
		return Principal{}, unauthenticated("this API key is not one of this server's keys: check the key that the client sends, " +
			"or add it to keys in lathe.yaml")
	}
	return p, nil
}

func requestKey(r *http.Request) (string, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, secret, _ := strings.Cut(header, " ")
		secret = strings.TrimSpace(secret)
		if !strings.EqualFold(scheme, "Bearer") || secret == "" {
			return "", unauthenticated("the Authorization header must be: Bearer, a space and the API key")
		}
		if other := r.Header.Get("X-Api-Key"); other != "" && other != secret {
			return "", unauthenticated("the headers Authorization and x-api-key have different API keys: send one of them")
		}
		return secret, nil
	}
	if secret := r.Header.Get("X-Api-Key"); secret != "" {
		return secret, nil
	}
	return "", unauthenticated("no API key: send one as Authorization: Bearer KEY")
}

func unauthenticated(message string) error {
	return &turn.Error{Kind: turn.KindUnauthenticated, Code: "invalid_api_key", Message: message}
}
