package messages

import (
	"encoding/json"
	"time"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// usage counts apart what the cache had and got, as the protocol does.
func usage(u turn.Usage) wire.Usage {
	out := wire.Usage{
		InputTokens: new(max(u.Input-u.Cached-u.CacheWrite, 0)), CacheCreationTokens: &u.CacheWrite, CacheReadTokens: &u.Cached,
		CacheCreation: &wire.CacheCreation{Ephemeral5m: u.CacheWrite}, OutputTokens: &u.Output,
		ServiceTier: "standard", InferenceGeo: "not_available", Extra: wire.Extra{"speed": json.RawMessage(`"standard"`)},
	}
	if u.Reasoning > 0 {
		out.OutputTokensDetails = &wire.OutputTokensDetails{ThinkingTokens: u.Reasoning}
	}
	return out
}

// mergeUsage takes what the server says besides counts, and the counts too where it was asked once: those of several rounds are added up
// already.
func mergeUsage(to *wire.Usage, own wire.Usage, rounds int) {
	if rounds <= 1 {
		hosted := to.ServerToolUse
		*to = own
		if to.ServerToolUse == nil {
			to.ServerToolUse = hosted
		}
		return
	}
	if own.ServiceTier != "" {
		to.ServiceTier = own.ServiceTier
	}
	if own.InferenceGeo != "" {
		to.InferenceGeo = own.InferenceGeo
	}
	for name, value := range own.Extra {
		to.Extra[name] = value
	}
}

// reasons are the ends that each reason to stop may have in the server's words.
var reasons = map[string]turn.Reason{
	wire.StopEndTurn: turn.ReasonStop, wire.StopSequence: turn.ReasonStop, wire.StopMaxTokens: turn.ReasonLength,
	wire.StopContextWindow: turn.ReasonLength, wire.StopToolUse: turn.ReasonCalls, wire.StopPauseTurn: turn.ReasonPause,
	wire.StopRefusal: turn.ReasonFilter,
}

// mergeEnding takes the server's own words for the end, unless the turn ended otherwise than its last message: where a call ran here, say.
func mergeEnding(to *wire.Ending, own wire.Ending, reason turn.Reason) {
	if own.StopReason == nil {
		return
	}
	if known, ok := reasons[*own.StopReason]; ok && known != reason || !ok && reason != turn.ReasonStop {
		return
	}
	container := to.Container
	*to = own
	if container != nil {
		to.Container = container
	}
}

// expiry is a time as the protocol writes it. A container that never expires has one far away, since clients want a time.
func expiry(unix int64) string {
	if unix == 0 {
		return "9999-12-31T23:59:59Z"
	}
	return time.Unix(unix, 0).UTC().Format(time.RFC3339)
}
