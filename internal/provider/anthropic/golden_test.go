package anthropic

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/lathe-gateway/lathe/internal/goldentest"
	"github.com/lathe-gateway/lathe/internal/provider/providertest"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// decodeLines pushes one event a line; ids that are minted are toolu_m0, toolu_m1 ...
func decodeLines(data string) ([]turn.Event, error) {
	return providertest.DecodeLines(&decoder{newID: providertest.NewID("toolu_m")}, data)
}

func TestDecodeGolden(t *testing.T) {
	providertest.DecodeGolden(t, func(data string) []byte { return dumped(decodeLines(data)) })
}

// TestDecodeWhole is what a surface of the same protocol gets.
func TestDecodeWhole(t *testing.T) {
	goldentest.Each(t, "decode-whole", func(_ *testing.T, in []byte) []txtar.File {
		d := &decoder{newID: providertest.NewID("toolu_m"), whole: true}
		return []txtar.File{{Name: "events", Data: dumped(providertest.DecodeLines(d, string(in)))}}
	})
}

func dumped(events []turn.Event, err error) []byte {
	out := providertest.Dump(events)
	if s, ok := errors.AsType[*upstream.Said](err); ok {
		return fmt.Appendf(out, "error %s: %s\n", s.Type, s.Message)
	} else if err != nil {
		return fmt.Appendf(out, "error: %s\n", turn.AsError(err).Message)
	}
	return out
}

func TestEncodeGolden(t *testing.T) {
	for name, tc := range encodeCases() {
		t.Run(name, func(t *testing.T) {
			var body []byte
			out, err := tc.enc.request(tc.req)
			if err == nil {
				var wrong error
				if body, wrong = wire.Marshal(out); wrong != nil {
					t.Fatal(wrong)
				}
			}
			providertest.EncodeGolden(t, name, tc.pins, body, err)
		})
	}
}

type encodeCase struct {
	pins string
	enc  encoder
	req  *turn.Request
}

func says(role turn.Role, text string) turn.Message {
	return turn.Message{Role: role, Parts: []turn.Part{turn.Text{Text: text}}}
}

func result(id string, parts ...turn.Part) turn.Result { return turn.Result{CallID: id, Parts: parts} }
