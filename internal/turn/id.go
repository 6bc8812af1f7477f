package turn

import (
	"crypto/rand"
	"encoding/hex"
)

// NewID mints an opaque id: prefix plus 32 hex digits of fresh randomness ("cntr_" gives cntr_9f...). At most 64 characters, the same
// on every API.
func NewID(prefix string) string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return prefix + hex.EncodeToString(b[:])
}
