package turn

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// NewID mints an opaque id: prefix plus 32 hex digits of fresh randomness ("cntr_" gives cntr_9f...). At most 64 characters, the same
// on every API.
func NewID(prefix string) string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return prefix + hex.EncodeToString(b[:])
}

// hiddenPrefix begins the ids of client calls in turns that may have hidden steps. No other call id of ours begins so: h is no hex digit.
const hiddenPrefix = "call_h"

// NewHiddenCallID mints the id of a call in a turn that has hosted tools: by it the steps that the client's protocol cannot carry are
// found again.
func NewHiddenCallID() string { return NewID(hiddenPrefix) }

// IsHiddenCallID says whether NewHiddenCallID may have made id.
func IsHiddenCallID(id string) bool {
	digits, ok := strings.CutPrefix(id, hiddenPrefix)
	return ok && len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == ""
}
