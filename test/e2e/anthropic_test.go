package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"github.com/lathe-gateway/lathe/internal/upstreamtest"
	"github.com/lathe-gateway/lathe/internal/wire/anthropic"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// conversation is the newest request as Anthropic's server got it, one message a line.
func (l *lathe) conversation() string {
	var out strings.Builder
	for _, m := range l.up.Last().Messages().Messages {
		out.WriteString(m.Role + ":")
		for _, b := range m.Content.Blocks {
			switch b := b.(type) {
			case *anthropic.Text:
				out.WriteString(" " + b.Text)
			case *anthropic.Thinking:
				fmt.Fprintf(&out, " <%s|%s>", b.Thinking, b.Signature)
			case *anthropic.RedactedThinking:
				fmt.Fprintf(&out, " <%s>", b.Data)
			case *anthropic.ToolUse:
				fmt.Fprintf(&out, " [%s %s]", b.Name, b.Input)
			case *anthropic.ToolResult:
				text := ""
				for _, c := range b.Content.Blocks {
					if t, ok := c.(*anthropic.Text); ok {
						text += t.Text
					}
				}
				fmt.Fprintf(&out, " {%s}", strings.TrimSpace(text))
			case *anthropic.Image:
				fmt.Fprintf(&out, " (%s %s)", b.Source.MediaType, b.Source.Data)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (l *lathe) heard(t *testing.T, want string) {
	t.Helper()
	if got := l.conversation(); got != want {
		t.Errorf("the model's server got\n%swant\n%s", got, want)
	}
}

func ok(t *testing.T, r reply) reply {
	t.Helper()
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r
}

func TestAnthropicText(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lathe, ask func(question) reply) {
		l.up.Push(upstreamtest.Do(upstreamtest.Text("Hi "), upstreamtest.Text("<you>"), upstreamtest.Usage(oaichat.Usage{
			PromptTokens: 100, CompletionTokens: 5, PromptTokensDetails: &oaichat.PromptDetails{CachedTokens: 60, CacheWriteTokens: 30}})))
		r := ok(t, ask(question{text: "hello"}))
		if r.text != "Hi <you>" || r.finish != "stop" && r.finish != "completed" || r.input != 100 || r.cached != 60 {
			t.Errorf("%+v", r)
		}
		if up := l.up.Last().Messages(); up.Model != "claude-real" {
			t.Errorf("asked for the model %s", up.Model)
		}
	})
}

func TestAnthropicClientTools(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lathe, ask func(question) reply) {
		l.up.Push(
			upstreamtest.Do(upstreamtest.Text("Let me see."), upstreamtest.Call{Name: "weather", Pieces: []string{"", `{"city":`, `"Oslo"}`}}),
			upstreamtest.Do(upstreamtest.Call{Name: "weather", Pieces: []string{`{"city":"Rome"}`}}, upstreamtest.Call{Name: "time"}),
		)
		one := ok(t, ask(question{text: "go", functions: []string{"weather", "time"}}))
		if one.text != "Let me see." || len(one.calls) != 1 || one.calls[0].name != "weather" || one.calls[0].arguments != `{"city":"Oslo"}` {
			t.Fatalf("%+v", one)
		}
		two := ok(t, ask(question{text: "go", functions: []string{"weather", "time"}, before: &one, results: []string{"cold"}}))
		l.heard(t, "user: go\nassistant: Let me see. [weather {\"city\":\"Oslo\"}]\nuser: {cold}\n")
		if len(two.calls) != 2 || two.calls[0].id == two.calls[1].id || two.calls[1].name != "time" || two.calls[1].arguments != "{}" {
			t.Fatalf("%+v", two)
		}
		l.up.Push(upstreamtest.Say("Warm."))
		three := ok(t, ask(question{text: "again", functions: []string{"weather", "time"}, before: &two, results: []string{"warm", "noon"}}))
		l.heard(t, "user: again\nassistant: [weather {\"city\":\"Rome\"}] [time {}]\nuser: {warm} {noon}\n")
		if three.text != "Warm." {
			t.Errorf("%+v", three)
		}
	})
}

// Code runs here; what the model thought before it goes back to it with its signature, in its place.
func TestAnthropicHostedCode(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lathe, ask func(question) reply) {
		l.up.Push(
			upstreamtest.Do(upstreamtest.Reasoning("I must "), upstreamtest.Reasoning("compute."), upstreamtest.Redacted("sealed"), upstreamtest.Text("Computing."),
				upstreamtest.Call{Name: "python", Pieces: upstreamtest.CodeArguments("print(6*7)", 4)}),
			upstreamtest.Do(upstreamtest.Reasoning("Done."), upstreamtest.Text("It is 42.")),
		)
		r := ok(t, ask(question{text: "6*7?", hosted: true, effort: "high"}))
		if !strings.HasSuffix(r.text, "It is 42.") || r.code != "print(6*7)" || r.logs != "42\n" || r.input != 20 {
			t.Errorf("%+v", r)
		}
		l.heard(t, "user: 6*7?\nassistant: <I must compute.|sig_0_0> <sealed> Computing. [python {\"code\":\"print(6*7)\"}]\nuser: {42}\n")
		up := l.up.Last().Messages()
		if up.Thinking == nil || up.Thinking.Type != "adaptive" || up.OutputConfig.Effort != "high" {
			t.Errorf("%s", l.up.Last().Body)
		}
	})
}

// A client of Responses hands the signature back in encrypted_content. Chat Completions cannot: the call goes on without the thought.
func TestAnthropicThinkingBeforeAClientTool(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lathe, ask func(question) reply) {
		l.up.Push(
			upstreamtest.Do(upstreamtest.Reasoning("hm"), upstreamtest.Redacted("sealed"), upstreamtest.Call{Name: "time", Pieces: []string{"{}"}}),
			upstreamtest.Say("Noon."),
		)
		one := ok(t, ask(question{text: "go", functions: []string{"time"}, effort: "low"}))
		ok(t, ask(question{text: "go", functions: []string{"time"}, effort: "low", before: &one, results: []string{"12"}}))
		thought := ""
		if one.output != nil {
			thought = "<hm|sig_0_0> <sealed> "
		}
		l.heard(t, "user: go\nassistant: "+thought+"[time {}]\nuser: {12}\n")
	})
}

func TestAnthropicImage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lathe, ask func(question) reply) {
		l.up.Push(upstreamtest.Say("A dot."))
		r := ok(t, ask(question{text: "what?", image: "data:image/png;base64,iVBORw=="}))
		if r.text != "A dot." {
			t.Errorf("%+v", r)
		}
		l.heard(t, "user: what? (image/png iVBORw==)\n")
	})
}

func TestAnthropicLength(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lathe, ask func(question) reply) {
		l.up.Push(upstreamtest.Do(upstreamtest.Text("Once"), upstreamtest.Finish("max_tokens")))
		if r := ok(t, ask(question{text: "tell"})); r.text != "Once" || r.finish != "length" && r.finish != "incomplete" {
			t.Errorf("%+v", r)
		}
	})
}

func TestAnthropicErrorBefore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		answer upstreamtest.Answer
		status int
		says   string
	}{
		{upstreamtest.Fail(http.StatusBadRequest, "prompt is too long: 9 tokens > 8 maximum"), 400, "context_length_exceeded"},
		{upstreamtest.Fail(http.StatusUnauthorized, "invalid x-api-key"), 502, "upstream_unauthorized"},
		{upstreamtest.RateLimited(7), 429, "rate limit"},
		{upstreamtest.Overloaded(), 503, "overloaded"},
	} {
		t.Run(tc.says, func(t *testing.T) {
			each(t, func(t *testing.T, l *lathe, ask func(question) reply) {
				l.up.Push(tc.answer)
				r := ask(question{text: "hello"})
				e, ok := errors.AsType[*openai.Error](r.err)
				if !ok || e.StatusCode != tc.status || !strings.Contains(e.RawJSON(), tc.says) {
					t.Fatalf("%v", r.err)
				}
				if after := e.Response.Header.Get("Retry-After"); tc.status == 429 && after != "7" {
					t.Errorf("Retry-After %q", after)
				}
			})
		})
	}
}

// errorText is all that the server said: the SDK's own text has only the status.
func errorText(err error) string {
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return e.RawJSON()
	}
	return err.Error()
}

func TestAnthropicErrorInTheStream(t *testing.T) {
	t.Parallel()
	frame := upstreamtest.Frame(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	for name, answer := range map[string]upstreamtest.Answer{
		"error": upstreamtest.Do(upstreamtest.Text("Hi "), frame), "cut": upstreamtest.Do(upstreamtest.Text("Hi "), upstreamtest.Cut{}),
		"no end": upstreamtest.Say("Hi ").With(upstreamtest.Quirks{NoFinish: true}),
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lathe, ask func(question) reply) {
				l.up.Push(answer)
				r := ask(question{text: "hello"})
				want := "broke off"
				if name == "error" {
					want = "Overloaded"
				}
				if r.err == nil || !strings.Contains(errorText(r.err), want) {
					t.Errorf("%v", r.err)
				}
				if strings.HasSuffix(t.Name(), "streamed") && r.text != "Hi " {
					t.Errorf("before the error came %q", r.text)
				}
			})
		})
	}
}
