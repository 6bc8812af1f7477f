package guest

import (
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
)

func TestCallsOfAKernel(t *testing.T) {
	calls, err := decodeCalls(list("1", "f", `{"a":1}`, "2", "g", `{}`))
	if err != nil || len(calls) != 2 || calls[1] != (proto.FunctionCall{ID: 2, Name: "g", Arguments: "{}"}) {
		t.Errorf("%+v, %v", calls, err)
	}
	many := []byte{}
	for range proto.MaxCalls + 1 {
		many = append(many, list("1", "f", "{}")...)
	}
	for name, payload := range map[string][]byte{
		"none": {}, "too few items": list("1", "f"), "no number": list("x", "f", "{}"), "a negative number": list("-1", "f", "{}"),
		"twice the same": list("1", "f", "{}", "1", "g", "{}"), "no JSON": list("1", "f", "{"), "no object": list("1", "f", "[]"),
		"too many": many, "too large": list("1", "f", `{"a":"`+strings.Repeat("x", proto.MaxArguments+64<<10)+`"}`),
		"cut off": list("1", "f", "{}")[:14], "a length beyond the end": {0xff, 0xff, 0xff, 0xff, 1}, "half a length": {0, 0},
	} {
		if calls, err := decodeCalls(payload); err == nil {
			t.Errorf("%s: %+v", name, calls)
		}
	}
}

func FuzzCallsOfAKernel(f *testing.F) {
	f.Add(list("1", "f", `{"a":1}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		calls, err := decodeCalls(payload)
		if err == nil && (len(calls) == 0 || len(calls) > proto.MaxCalls) {
			t.Errorf("%d calls", len(calls))
		}
	})
}

// TestHeldOutputIsBounded: threads of a program that waits may print for ever.
func TestHeldOutputIsBounded(t *testing.T) {
	w := &waiting{}
	for range 10 {
		w.write(proto.Stdout, make([]byte, maxHeld/4))
	}
	if w.size != maxHeld || w.dropped != 6*maxHeld/4 {
		t.Errorf("%d held, %d dropped", w.size, w.dropped)
	}
}
