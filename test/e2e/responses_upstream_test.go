package e2e

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	api "github.com/openai/openai-go/v3/responses"

	up "github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// told is what a client of the official SDK got, whatever the surface.
type told struct {
	text, reasoning string
	calls           []string // name(arguments)
	ids             []string // of calls
	ran             []string // code and what it printed
	tokens          int64
	err             error
}

// surfaces are the ways to ask: each surface, whole and streamed.
var surfaces = map[string]func(*testing.T, *lathe, string, bool, ...string) told{
	"responses plain": func(t *testing.T, l *lathe, prompt string, hosted bool, functions ...string) told {
		r, err := l.sdk().Responses.New(t.Context(), responsesParams(prompt, hosted, functions))
		if err != nil {
			return told{err: err}
		}
		return toldResponse(r)
	},
	"responses streamed": func(t *testing.T, l *lathe, prompt string, hosted bool, functions ...string) told {
		stream := l.sdk().Responses.NewStreaming(t.Context(), responsesParams(prompt, hosted, functions))
		defer stream.Close()
		var out told
		text := ""
		for stream.Next() {
			switch ev := stream.Current().AsAny().(type) {
			case api.ResponseTextDeltaEvent:
				text += ev.Delta
			case api.ResponseCompletedEvent:
				out = toldResponse(&ev.Response)
			}
		}
		if out.err = stream.Err(); out.err == nil && out.text != text {
			t.Errorf("deltas %q, in the end %q", text, out.text)
		}
		out.text = text
		return out
	},
	"chat plain": func(t *testing.T, l *lathe, prompt string, hosted bool, functions ...string) told {
		c, err := l.sdk().Chat.Completions.New(t.Context(), chatParams(prompt, functions), chatTools(hosted)...)
		if err != nil {
			return told{err: err}
		}
		return toldChat(c)
	},
	"chat streamed": func(t *testing.T, l *lathe, prompt string, hosted bool, functions ...string) told {
		params := chatParams(prompt, functions)
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := l.sdk().Chat.Completions.NewStreaming(t.Context(), params, chatTools(hosted)...)
		defer stream.Close()
		var acc openai.ChatCompletionAccumulator
		reasoning, ran := "", ""
		for stream.Next() {
			acc.AddChunk(stream.Current())
			for _, c := range stream.Current().Choices {
				reasoning += unquote(c.Delta.JSON.ExtraFields["reasoning_content"].Raw())
				ran += c.Delta.JSON.ExtraFields["code_interpreter_calls"].Raw()
			}
		}
		out := told{err: stream.Err()}
		if len(acc.Choices) > 0 {
			out = toldChat(&acc.ChatCompletion)
			out.reasoning, out.err = reasoning, stream.Err()
			if strings.Contains(ran, `"logs":"42\n"`) {
				out.ran = []string{"print(6*7)\n -> 42\n"}
			}
		}
		return out
	},
}

func (l *lathe) sdk() *openai.Client {
	c := openai.NewClient(option.WithBaseURL(l.url+"/v1"), option.WithAPIKey(project), option.WithMaxRetries(0))
	return &c
}

func responsesParams(prompt string, hosted bool, functions []string) api.ResponseNewParams {
	params := api.ResponseNewParams{
		Model: "translated", Input: api.ResponseNewParamsInputUnion{OfString: openai.String(prompt)},
		Include: []api.ResponseIncludable{api.ResponseIncludableCodeInterpreterCallOutputs},
	}
	for _, name := range functions {
		params.Tools = append(params.Tools, api.ToolUnionParam{OfFunction: &api.FunctionToolParam{Name: name, Parameters: object{"type": "object"}}})
	}
	if hosted {
		params.Tools = append(params.Tools, api.ToolUnionParam{OfCodeInterpreter: &api.ToolCodeInterpreterParam{
			Container: api.ToolCodeInterpreterContainerUnionParam{OfCodeInterpreterToolAuto: &api.ToolCodeInterpreterContainerCodeInterpreterContainerAutoParam{}},
		}})
	}
	return params
}

func chatParams(prompt string, functions []string) openai.ChatCompletionNewParams {
	params := openai.ChatCompletionNewParams{Model: "translated", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)}}
	for _, name := range functions {
		params.Tools = append(params.Tools, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: name, Parameters: openai.FunctionParameters{"type": "object"},
		}))
	}
	return params
}

func chatTools(hosted bool) []option.RequestOption {
	if !hosted {
		return nil
	}
	return []option.RequestOption{option.WithJSONSet("tools.-1", object{"type": "code_interpreter"})}
}

func toldResponse(r *api.Response) told {
	out := told{text: r.OutputText(), tokens: r.Usage.TotalTokens}
	for _, it := range r.Output {
		switch it := it.AsAny().(type) {
		case api.ResponseReasoningItem:
			for _, c := range it.Content {
				out.reasoning += c.Text
			}
		case api.ResponseFunctionToolCall:
			out.calls, out.ids = append(out.calls, it.Name+"("+it.Arguments+")"), append(out.ids, it.CallID)
		case api.ResponseCodeInterpreterToolCall:
			out.ran = append(out.ran, it.Code+" -> "+it.Outputs[0].AsLogs().Logs)
		}
	}
	return out
}

func toldChat(c *openai.ChatCompletion) told {
	m := c.Choices[0].Message
	out := told{text: m.Content, tokens: c.Usage.TotalTokens, reasoning: unquote(m.JSON.ExtraFields["reasoning_content"].Raw())}
	for _, call := range m.ToolCalls {
		out.calls, out.ids = append(out.calls, call.Function.Name+"("+call.Function.Arguments+")"), append(out.ids, call.ID)
	}
	if ran := m.JSON.ExtraFields["code_interpreter_calls"].Raw(); strings.Contains(ran, `"code":"print(6*7)\n"`) && strings.Contains(ran, `"logs":"42\n"`) {
		out.ran = []string{"print(6*7)\n -> 42\n"}
	}
	return out
}

func unquote(raw string) string {
	return strings.ReplaceAll(strings.Trim(raw, `"`), `\n`, "\n")
}

// TestResponsesUpstream asks a model whose server speaks Responses, over both surfaces, as the official SDK does. Requests are translated:
// that some could be passed on is hidden.
func TestResponsesUpstream(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	l.up.Answer(func(r *up.Request) up.Answer {
		if strings.Contains(r.LastUser(), "two at once") {
			return up.Do(up.Text("Both."), up.Call{Name: "f", Pieces: []string{`{"x"`, `:1}`}}, up.Call{Name: "g", Pieces: []string{`{"y"`, `:2}`}}).
				With(up.Quirks{Interleave: true})
		}
		return up.ByName(r)
	})
	for surface, ask := range surfaces {
		streamed := strings.HasSuffix(surface, "streamed")
		t.Run(surface, func(t *testing.T) {
			got := ask(t, l, "#stub:text", false)
			if got.err != nil || got.text != "Hello from the stub." || got.tokens != 15 {
				t.Errorf("text: %+v", got)
			}
			got = ask(t, l, "#stub:reasoning\nanswer: So.", false)
			if got.err != nil || got.text != "So." || got.reasoning != "The user wants an answer." {
				t.Errorf("reasoning: %+v", got)
			}
			got = ask(t, l, "#stub:client_tool\nargs: {\"x\":1}", false, "f")
			if got.err != nil || !slices.Equal(got.calls, []string{`f({"x":1})`}) || got.ids[0] == "" {
				t.Errorf("client tool: %+v", got)
			}
			got = ask(t, l, "two at once", false, "f", "g")
			if got.err != nil || got.text != "Both." || !slices.Equal(got.calls, []string{`f({"x":1})`, `g({"y":2})`}) || got.ids[0] == got.ids[1] {
				t.Errorf("parallel client tools: %+v", got)
			}
			got = ask(t, l, block("print(6*7)")+"answer: It is {result}.", true)
			if got.err != nil || !strings.Contains(got.text, "Let me compute.") || !strings.Contains(got.text, "42") ||
				!slices.Equal(got.ran, []string{"print(6*7)\n -> 42\n"}) || got.tokens != 30 {
				t.Errorf("hosted code: %+v", got)
			}
			got = ask(t, l, "#stub:mixed\nargs: {}\n"+block("print(6*7)"), true, "f")
			if got.err != nil || !slices.Equal(got.calls, []string{`f({})`}) || len(got.ran) != 1 {
				t.Errorf("hosted and client: %+v", got)
			}
			got = ask(t, l, "#stub:error_before", false)
			if e, ok := errors.AsType[*openai.Error](got.err); !ok || e.StatusCode != http.StatusBadRequest || e.Code != "context_length_exceeded" {
				t.Errorf("error before: %+v", got)
			}
			for _, scenario := range []string{"error_frame", "error_after"} {
				got = ask(t, l, "#stub:"+scenario, false)
				if got.err == nil || streamed && got.text != "Hello from " {
					t.Errorf("%s: %+v", scenario, got)
				}
			}
			if last := l.up.Last(); last.Path != "/v1/responses" || !last.Responses().Stream {
				t.Errorf("the upstream was asked %s %s", last.Path, last.Body)
			}
		})
	}
}

// The second request of a client tool carries the whole turn up again.
func TestResponsesUpstreamReplay(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	l.up.Push(
		up.Do(up.Reasoning("hm"), up.Call{Name: "f", Pieces: []string{`{"x":1}`}}).With(up.Quirks{ReasoningField: "summary"}), up.Say("Done."))
	params := responsesParams("go", true, []string{"f"})
	params.Include = append(params.Include, api.ResponseIncludableReasoningEncryptedContent)
	params.Reasoning.Effort = "low"
	first, err := l.sdk().Responses.New(t.Context(), params)
	must(t, err)
	thought, call := first.Output[0].AsReasoning().ToParam(), first.Output[1].AsFunctionCall().ToParam()
	params.Input = api.ResponseNewParamsInputUnion{OfInputItemList: api.ResponseInputParam{
		api.ResponseInputItemParamOfMessage("go", api.EasyInputMessageRoleUser),
		{OfReasoning: &thought}, {OfFunctionCall: &call},
		{OfFunctionCallOutput: &api.ResponseInputItemFunctionCallOutputParam{
			CallID: openai.String(first.Output[1].CallID),
			Output: api.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: openai.String("ok")},
		}},
	}}
	second, err := l.sdk().Responses.New(t.Context(), params)
	must(t, err)
	if second.OutputText() != "Done." {
		t.Errorf("%s", second.RawJSON())
	}
	body := string(l.up.Last().Body)
	for _, want := range []string{
		`{"id":"reasoning_0","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"sealed_resp_stub_0"}`,
		`"type":"function_call","arguments":"{\"x\":1}"`, `"type":"function_call_output"`, `"output":"ok"`, `"include":["reasoning.encrypted_content"]`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s lacks %s", body, want)
		}
	}
}

// What is passed on, and what is not.
func TestResponsesForwarded(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	const answer = `{ "id" : "resp_theirs", "odd": [1] }`
	const tool = `"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`
	id := strings.Repeat("0a", 16)
	for _, tc := range []struct {
		name, body string
		forwarded  bool
	}{
		{"no tools", `{ "model":"responses", "input":"hi", "brand_new": {"a":1}, "previous_response_id":"resp_` + id + `" }`, true},
		{"client's tools", `{"model":"responses","input":"hi","background":true,"tools":[{"type":"function","name":"f"},{"type":"custom","name":"g"}]}`, true},
		{"their ids", `{"model":"responses","input":[{"type":"message","id":"msg_` + id + id + `","role":"assistant","content":"a"},{"role":"user","content":"hi"}]}`, true},
		{"hosted tools left to the provider", `{"model":"native","input":"hi","conversation":"conv_1",` + tool + `}`, true},
		{"other hosted tools left to the provider", `{"model":"native","input":"hi","tools":[{"type":"web_search"}]}`, true},
		{"ours replace theirs", `{"model":"responses","input":"hi",` + tool + `}`, false},
		{"a run of ours in the history", `{"model":"responses","input":[{"type":"code_interpreter_call","id":"ci_` + id +
			`","code":"1","container_id":"cntr_` + id + `","outputs":[{"type":"logs","logs":"1"}],"status":"completed"},{"role":"user","content":"hi"}]}`, false},
		{"an item of ours, model without tools", `{"model":"native","input":[{"type":"message","id":"msg_` + id + `","role":"assistant","content":"a"},{"role":"user","content":"hi"}]}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.forwarded {
				l.up.Push(up.Answer{Status: http.StatusOK, Body: answer})
			} else {
				l.up.Push(up.Say("Hi."))
			}
			status, got := l.raw(t, "/v1/responses", tc.body)
			last := l.up.Last()
			if status != http.StatusOK || (got == answer) != tc.forwarded || (string(last.Body) == tc.body) != tc.forwarded {
				t.Errorf("status %d %s; the upstream was asked %s", status, got, last.Body)
			}
			if last.Header.Get("Authorization") != "Bearer upstream-key" {
				t.Errorf("credentials %q", last.Header.Get("Authorization"))
			}
		})
	}
	for name, tc := range map[string]struct{ path, body, want string }{
		"web search that is not left to the provider": {"/v1/responses", `{"model":"responses","input":"hi","tools":[{"type":"web_search"}]}`, "web_search"},
		"the provider's code over chat": {"/v1/chat/completions",
			`{"model":"native","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"code_interpreter"}]}`, "/v1/responses only"},
		"an unknown model": {"/v1/responses", `{"model":"","input":"hi"}`, "model"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(l.up.Requests())
			status, got := l.raw(t, tc.path, tc.body)
			if status != http.StatusBadRequest || !strings.Contains(got, tc.want) || len(l.up.Requests()) != before {
				t.Errorf("status %d %s", status, got)
			}
		})
	}
	t.Run("chat without hosted tools", func(t *testing.T) {
		l.up.Push(up.Say("Hi."))
		status, got := l.raw(t, "/v1/chat/completions", `{"model":"native","messages":[{"role":"user","content":"hi"}]}`)
		if status != http.StatusOK || !strings.Contains(got, `"content":"Hi."`) {
			t.Errorf("status %d %s", status, got)
		}
	})
}

// raw posts a body as it is.
func (l *lathe) raw(t *testing.T, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.url+path, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+project)
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, string(got)
}
