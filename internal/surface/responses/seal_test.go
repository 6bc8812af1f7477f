package responses

import (
	"testing"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestSealComesBack(t *testing.T) {
	for name, r := range map[string]turn.Reasoning{
		"nothing":            {},
		"of this protocol":   {Encrypted: "gAAAAABo"},
		"signed":             {Signature: "S+/="},
		"signed and sealed":  {Signature: "S", Encrypted: "E", Field: "reasoning_details"},
		"redacted":           {Encrypted: "D", Field: "redacted_thinking"},
		"looks like ours":    {Encrypted: sealPrefix + "!"},
		"looks more like it": {Encrypted: sealPrefix + "eyJ4"},
	} {
		t.Run(name, func(t *testing.T) {
			var got turn.Reasoning
			unseal(seal(r), &got)
			if got.Signature != r.Signature || got.Encrypted != r.Encrypted || got.Field != r.Field {
				t.Errorf("got %+v, want %+v", got, r)
			}
		})
	}
	if s := seal(turn.Reasoning{Text: "open", Field: "reasoning_content"}); s != "" {
		t.Errorf("reasoning that nobody sealed gets %q", s)
	}
}
