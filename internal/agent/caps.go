package agent

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// spent is why a turn gets its last round, "" while it need not.
type spent string

const (
	spentRounds  spent = "rounds"
	spentCalls   spent = "calls"
	spentTime    spent = "time"
	spentRepeats spent = "repeats"
)

// maxRepeats is how often in a row the same code may have the same result.
const maxRepeats = 3

// spend says whether a limit of the turn has been reached.
func (l *loop) spend() spent {
	calls := l.cfg.MaxCalls
	if h := l.req.Hosted; h != nil && h.MaxCalls != nil {
		calls = min(calls, *h.MaxCalls)
	}
	switch {
	case l.repeats.count >= maxRepeats:
		return spentRepeats
	case l.calls >= calls:
		return spentCalls
	case time.Since(l.start) >= l.cfg.MaxTime:
		return spentTime
	case l.rounds >= l.cfg.MaxRounds:
		return spentRounds
	}
	return ""
}

// why is the reason in words, for the model and the client.
func (s spent) why() string {
	return map[spent]string{
		spentRounds:  "the limit of steps for this answer is reached",
		spentCalls:   "the limit of tool calls for this answer is reached",
		spentTime:    "the time for this answer is up",
		spentRepeats: "the same call had the same result several times in a row",
	}[s]
}

// sentence tells the model.
func (s spent) sentence() string {
	return s.why() + ", so no more code can be run. Answer now with what you have."
}

// repeats counts calls in a row that were the same and had the same result. Ids do not count: they always differ.
type repeats struct {
	last  [sha256.Size]byte
	count int
}

func (r *repeats) add(name, code, result string) {
	h := sha256.Sum256(fmt.Appendf(nil, "%d %d %s%s%s", len(name), len(code), name, code, result))
	if h != r.last {
		r.count = 0
	}
	r.last = h
	r.count++
}
