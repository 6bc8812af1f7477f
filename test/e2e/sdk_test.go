package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	api "github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// question is one turn as a program that uses OpenAI's SDK asks it.
type question struct {
	model, text, image string
	functions          []string // the client's own
	hosted             bool
	effort             string
	results            []string // of the calls of before, in their order
	before             *reply
}

// reply is what the program got.
type reply struct {
	text, finish string
	calls        []call
	code, logs   string // of hosted calls
	input        int64
	cached       int64
	err          error

	message *openai.ChatCompletionMessage // of Chat Completions
	output  []api.ResponseOutputItemUnion // of Responses
}

type call struct{ id, name, arguments string }

// ask is one of the ways in which a program asks.
type ask func(ctx context.Context, c openai.Client, q question) reply

var asks = map[string]ask{
	"chat plain": chatPlain, "chat streamed": chatStreamed, "responses plain": responsesPlain, "responses streamed": responsesStreamed,
}

var emptySchema = map[string]any{"type": "object", "properties": map[string]any{}, "additionalProperties": false}

func askChat(q question) (openai.ChatCompletionNewParams, []option.RequestOption) {
	user := openai.UserMessage(q.text)
	if q.image != "" {
		user = openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
			openai.TextContentPart(q.text), openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: q.image}),
		})
	}
	p := openai.ChatCompletionNewParams{Model: q.model, Messages: []openai.ChatCompletionMessageParamUnion{user}, ReasoningEffort: shared.ReasoningEffort(q.effort)}
	if q.before != nil {
		p.Messages = append(p.Messages, q.before.message.ToParam())
		for i, r := range q.results {
			p.Messages = append(p.Messages, openai.ToolMessage(r, q.before.calls[i].id))
		}
	}
	tools := []any{}
	for _, f := range q.functions {
		tools = append(tools, object{"type": "function", "function": object{"name": f, "parameters": emptySchema}})
	}
	if q.hosted {
		tools = append(tools, object{"type": "code_interpreter"})
	}
	if len(tools) == 0 {
		return p, nil
	}
	return p, []option.RequestOption{option.WithJSONSet("tools", tools)} // code_interpreter is an extension that the SDK does not know
}

// interpreterCalls is our extension of a message.
type interpreterCalls struct {
	Calls []struct {
		Code    string
		Outputs []struct{ Logs string }
	} `json:"code_interpreter_calls"`
}

func (r *reply) chat(c openai.ChatCompletion) {
	choice := c.Choices[0]
	r.message = &choice.Message
	r.text, r.finish = choice.Message.Content, choice.FinishReason
	r.input, r.cached = c.Usage.PromptTokens, c.Usage.PromptTokensDetails.CachedTokens
	for _, t := range choice.Message.ToolCalls {
		r.calls = append(r.calls, call{t.ID, t.Function.Name, t.Function.Arguments})
	}
}

func chatPlain(ctx context.Context, c openai.Client, q question) (r reply) {
	p, options := askChat(q)
	res, err := c.Chat.Completions.New(ctx, p, options...)
	if r.err = err; err != nil {
		return r
	}
	r.chat(*res)
	var ext interpreterCalls
	if r.err = json.Unmarshal([]byte(res.Choices[0].Message.RawJSON()), &ext); r.err != nil {
		return r
	}
	for _, c := range ext.Calls {
		r.code += c.Code
		for _, o := range c.Outputs {
			r.logs += o.Logs
		}
	}
	return r
}

func chatStreamed(ctx context.Context, c openai.Client, q question) (r reply) {
	p, options := askChat(q)
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(ctx, p, options...)
	defer stream.Close()
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		chunk := stream.Current()
		if !acc.AddChunk(chunk) {
			r.err = fmt.Errorf("the SDK does not take %s", chunk.RawJSON())
			return r
		}
		for _, choice := range chunk.Choices {
			var ext interpreterCalls
			if r.err = json.Unmarshal([]byte(choice.Delta.RawJSON()), &ext); r.err != nil {
				return r
			}
			for _, c := range ext.Calls {
				r.code += c.Code
				for _, o := range c.Outputs {
					r.logs += o.Logs
				}
			}
		}
	}
	if len(acc.Choices) > 0 {
		r.chat(acc.ChatCompletion)
	}
	r.err = stream.Err()
	return r
}

func askResponses(q question) api.ResponseNewParams {
	content := api.ResponseInputMessageContentListParam{{OfInputText: &api.ResponseInputTextParam{Text: q.text}}}
	if q.image != "" {
		content = append(content, api.ResponseInputContentUnionParam{OfInputImage: &api.ResponseInputImageParam{
			Detail: api.ResponseInputImageDetailAuto, ImageURL: openai.String(q.image)}})
	}
	items := api.ResponseInputParam{api.ResponseInputItemParamOfMessage(content, api.EasyInputMessageRoleUser)}
	if q.before != nil {
		for _, o := range q.before.output {
			switch o := o.AsAny().(type) {
			case api.ResponseOutputMessage:
				items = append(items, api.ResponseInputItemUnionParam{OfOutputMessage: new(o.ToParam())})
			case api.ResponseFunctionToolCall:
				items = append(items, api.ResponseInputItemUnionParam{OfFunctionCall: new(o.ToParam())})
			case api.ResponseReasoningItem:
				items = append(items, api.ResponseInputItemUnionParam{OfReasoning: new(o.ToParam())})
			}
		}
		for i, r := range q.results {
			items = append(items, api.ResponseInputItemUnionParam{OfFunctionCallOutput: &api.ResponseInputItemFunctionCallOutputParam{
				CallID: openai.String(q.before.calls[i].id), Output: api.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: openai.String(r)}}})
		}
	}
	p := api.ResponseNewParams{
		Model: q.model, Input: api.ResponseNewParamsInputUnion{OfInputItemList: items}, Store: openai.Bool(false),
		Include: []api.ResponseIncludable{api.ResponseIncludableCodeInterpreterCallOutputs, api.ResponseIncludableReasoningEncryptedContent},
	}
	if q.effort != "" {
		p.Reasoning.Effort = shared.ReasoningEffort(q.effort)
	}
	for _, f := range q.functions {
		p.Tools = append(p.Tools, api.ToolParamOfFunction(f, emptySchema, true))
	}
	if q.hosted {
		p.Tools = append(p.Tools, api.ToolUnionParam{OfCodeInterpreter: &api.ToolCodeInterpreterParam{Container: api.ToolCodeInterpreterContainerUnionParam{
			OfCodeInterpreterToolAuto: &api.ToolCodeInterpreterContainerCodeInterpreterContainerAutoParam{}}}})
	}
	return p
}

func (r *reply) response(res *api.Response) {
	r.output = res.Output
	r.text, r.finish = res.OutputText(), string(res.Status)
	r.input, r.cached = res.Usage.InputTokens, res.Usage.InputTokensDetails.CachedTokens
	for _, o := range res.Output {
		switch o := o.AsAny().(type) {
		case api.ResponseFunctionToolCall:
			r.calls = append(r.calls, call{o.CallID, o.Name, o.Arguments})
		case api.ResponseCodeInterpreterToolCall:
			r.code += o.Code
			for _, out := range o.Outputs {
				r.logs += out.Logs
			}
		}
	}
}

func responsesPlain(ctx context.Context, c openai.Client, q question) (r reply) {
	res, err := c.Responses.New(ctx, askResponses(q))
	if r.err = err; err == nil {
		r.response(res)
	}
	return r
}

func responsesStreamed(ctx context.Context, c openai.Client, q question) (r reply) {
	stream := c.Responses.NewStreaming(ctx, askResponses(q))
	defer stream.Close()
	text := ""
	for stream.Next() {
		switch ev := stream.Current().AsAny().(type) {
		case api.ResponseTextDeltaEvent:
			text += ev.Delta
		case api.ResponseCompletedEvent:
			r.response(&ev.Response)
		case api.ResponseIncompleteEvent:
			r.response(&ev.Response)
		case api.ResponseFailedEvent:
			r.response(&ev.Response)
			r.err = fmt.Errorf("%s: %s", ev.Response.Error.Code, ev.Response.Error.Message)
		case api.ResponseErrorEvent:
			r.err = fmt.Errorf("%s: %s", ev.Code, ev.Message)
		}
	}
	if err := stream.Err(); err != nil {
		r.err = err
	}
	r.text = text
	return r
}

// each runs f for every way of asking, over a gateway of its own.
func each(t *testing.T, f func(t *testing.T, l *lathe, ask func(q question) reply)) {
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLathe(t, nil)
			l.up.Answer(nil)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			f(t, l, func(q question) reply {
				q.model = "claude"
				return ask(ctx, *l.sdk(), q)
			})
		})
	}
}
