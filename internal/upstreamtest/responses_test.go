package upstreamtest_test

import (
	"testing"

	"github.com/openai/openai-go/v3"
	api "github.com/openai/openai-go/v3/responses"

	"github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// The stub's well-behaved form of Responses is what the official SDK reads.
func TestResponsesForOfficialSDK(t *testing.T) {
	up := upstreamtest.Start(t)
	up.Answer(func(*upstreamtest.Request) upstreamtest.Answer {
		return upstreamtest.Do(
			upstreamtest.Reasoning("hm"), upstreamtest.Text("Hi "), upstreamtest.Text("there"),
			upstreamtest.Call{Name: "f", Pieces: []string{`{"x"`, `:1}`}}, upstreamtest.Tokens(7, 9),
		)
	})
	c := client(up.BaseURL())
	params := api.ResponseNewParams{Model: "m", Input: api.ResponseNewParamsInputUnion{OfString: openai.String("hello")}}
	stream := c.Responses.NewStreaming(t.Context(), params)
	defer stream.Close()
	text, args, events := "", "", int64(0)
	var last api.Response
	for ; stream.Next(); events++ {
		ev := stream.Current()
		if ev.SequenceNumber != events {
			t.Errorf("event %d has number %d", events, ev.SequenceNumber)
		}
		switch ev := ev.AsAny().(type) {
		case api.ResponseTextDeltaEvent:
			text += ev.Delta
		case api.ResponseFunctionCallArgumentsDeltaEvent:
			args += ev.Delta
		case api.ResponseCompletedEvent:
			last = ev.Response
		}
	}
	plain, err := c.Responses.New(t.Context(), params)
	if stream.Err() != nil || err != nil {
		t.Fatal(stream.Err(), err)
	}
	if text != "Hi there" || args != `{"x":1}` || up.Last().LastUser() != "hello" || up.Last().Model() != "m" {
		t.Errorf("text %q, arguments %q, asked %q", text, args, up.Last().LastUser())
	}
	for name, r := range map[string]*api.Response{"streamed": &last, "plain": plain} {
		if r.OutputText() != "Hi there" || len(r.Output) != 3 || r.Output[2].AsFunctionCall().CallID != "call_0" || r.Usage.TotalTokens != 16 {
			t.Errorf("%s: %s", name, r.RawJSON())
		}
	}
}
