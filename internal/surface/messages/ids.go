package messages

import "strings"

// Ids are the same on every API but for their prefix, which clients of this protocol look at: toolu_ for call_, srvtoolu_ for ci_. Those
// that were not minted here stay as they are.
const (
	clientCall, ourCall     = "toolu_", "call_"
	clientHosted, ourHosted = "srvtoolu_", "ci_"
)

func swap(id, from, to string) string {
	rest, ok := strings.CutPrefix(id, from)
	if !ok {
		return id
	}
	// call_h marks a call of a turn with hosted tools (package turn).
	if digits := strings.TrimPrefix(rest, "h"); len(digits) != 32 || !isHex(digits) {
		return id
	}
	return to + rest
}

func ownCallID(id string) string      { return swap(id, clientCall, ourCall) }
func clientCallID(id string) string   { return swap(id, ourCall, clientCall) }
func ownHostedID(id string) string    { return swap(id, clientHosted, ourHosted) }
func clientHostedID(id string) string { return swap(id, ourHosted, clientHosted) }
