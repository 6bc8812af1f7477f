package responses

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	api "github.com/openai/openai-go/v3/responses"

	"github.com/lathe-gateway/lathe/internal/surface/oai"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func sdk(t *testing.T, s turn.Streamer) openai.Client {
	t.Helper()
	srv := httptest.NewServer(testHandler(s))
	t.Cleanup(srv.Close)
	return openai.NewClient(option.WithBaseURL(srv.URL), option.WithAPIKey("key"), option.WithMaxRetries(0))
}

func sdkParams() api.ResponseNewParams {
	return api.ResponseNewParams{
		Model: "m",
		Input: api.ResponseNewParamsInputUnion{OfString: openai.String("plot")},
		Tools: []api.ToolUnionParam{
			{OfCodeInterpreter: &api.ToolCodeInterpreterParam{Container: api.ToolCodeInterpreterContainerUnionParam{
				OfCodeInterpreterToolAuto: &api.ToolCodeInterpreterContainerCodeInterpreterContainerAutoParam{},
			}}},
			{OfFunction: &api.FunctionToolParam{Name: "mail", Parameters: map[string]any{"type": "object"}, Strict: param.NewOpt(true)}},
		},
		Include: []api.ResponseIncludable{api.ResponseIncludableCodeInterpreterCallOutputs},
	}
}

func sdkScript(t *testing.T) *script {
	return parseScript(t, `
Started
HostedStarted {"ID":"ci_a","Tool":"python","Container":"cntr_1"}
HostedCodeDelta {"Delta":"print"}
HostedCodeDelta {"Delta":"(1)"}
HostedCodeDone {"Code":"print(1)"}
HostedRunning
HostedDone {"Call":{"id":"ci_a","status":"completed","outputs":[{"text":"1\n"},{"mime":"image/png","data":"iVBORw=="}]}}
MessageStarted
TextDelta {"Text":"It is "}
TextDelta {"Text":"one."}
Annotated {"Annotation":{"File":{"id":"cfile_1","container":"cntr_1","name":"a.png"},"Start":0,"End":0}}
MessageDone
CallStarted {"CallID":"call_a","Name":"mail"}
CallDelta {"Delta":"{}"}
CallDone {"Call":{"call_id":"call_a","name":"mail","arguments":"{}"}}
Finished {"Reason":"tool_calls","Usage":{"Input":5,"Output":7,"Reasoning":2}}`)
}

func checkSDKResponse(t *testing.T, r *api.Response) {
	t.Helper()
	if r.Status != api.ResponseStatusCompleted || r.OutputText() != "It is one." || r.Usage.TotalTokens != 12 || len(r.Output) != 3 {
		t.Fatalf("got %s", r.RawJSON())
	}
	run := r.Output[0].AsCodeInterpreterCall()
	if run.Code != "print(1)" || run.ContainerID != "cntr_1" || len(run.Outputs) != 2 || run.Outputs[0].AsLogs().Logs != "1\n" ||
		!strings.HasPrefix(run.Outputs[1].AsImage().URL, "data:image/png;base64,") {
		t.Errorf("code run: %s", run.RawJSON())
	}
	cited := r.Output[1].AsMessage().Content[0].AsOutputText().Annotations[0].AsContainerFileCitation()
	if cited.FileID != "cfile_1" || cited.ContainerID != "cntr_1" {
		t.Errorf("citation: %s", cited.RawJSON())
	}
	if call := r.Output[2].AsFunctionCall(); call.CallID != "call_a" || call.Name != "mail" || call.Arguments != "{}" {
		t.Errorf("call: %s", call.RawJSON())
	}
}

func TestSDKPlain(t *testing.T) {
	s := sdkScript(t)
	client := sdk(t, s)
	r, err := client.Responses.New(t.Context(), sdkParams())
	if err != nil {
		t.Fatal(err)
	}
	checkSDKResponse(t, r)
	if h := s.got[0].Hosted; h == nil || !cmp.Equal(h.Tools, []string{oai.Python}) || len(s.got[0].Tools) != 1 {
		t.Errorf("the turn was asked %+v", s.got[0])
	}
}

func TestSDKStreamed(t *testing.T) {
	client := sdk(t, sdkScript(t))
	stream := client.Responses.NewStreaming(t.Context(), sdkParams())
	defer stream.Close()
	var text, code string
	var last *api.Response
	for n := int64(0); stream.Next(); n++ {
		ev := stream.Current()
		if ev.SequenceNumber != n {
			t.Errorf("event %d has number %d", n, ev.SequenceNumber)
		}
		switch ev := ev.AsAny().(type) {
		case api.ResponseTextDeltaEvent:
			text += ev.Delta
		case api.ResponseCodeInterpreterCallCodeDeltaEvent:
			code += ev.Delta
		case api.ResponseCompletedEvent:
			last = &ev.Response
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if last == nil || text != "It is one." || code != "print(1)" {
		t.Fatalf("text %q, code %q, completed %v", text, code, last != nil)
	}
	checkSDKResponse(t, last)
}

// What the SDK got goes back as it is, and the history is whole.
func TestSDKReplay(t *testing.T) {
	s := sdkScript(t)
	client := sdk(t, s)
	first, err := client.Responses.New(t.Context(), sdkParams())
	if err != nil {
		t.Fatal(err)
	}
	params := sdkParams()
	run, message := first.Output[0].AsCodeInterpreterCall().ToParam(), first.Output[1].AsMessage().ToParam()
	call := first.Output[2].AsFunctionCall().ToParam()
	items := api.ResponseInputParam{api.ResponseInputItemParamOfMessage("plot", api.EasyInputMessageRoleUser)}
	items = append(items,
		api.ResponseInputItemUnionParam{OfCodeInterpreterCall: &run},
		api.ResponseInputItemUnionParam{OfOutputMessage: &message},
		api.ResponseInputItemUnionParam{OfFunctionCall: &call},
		api.ResponseInputItemUnionParam{OfFunctionCallOutput: &api.ResponseInputItemFunctionCallOutputParam{
			CallID: openai.String("call_a"),
			Output: api.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: openai.String("sent")},
		}})
	params.Input = api.ResponseNewParamsInputUnion{OfInputItemList: items}
	if _, err := client.Responses.New(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	got := s.got[1]
	if len(got.Items) != 5 || got.Hosted.Recent != "cntr_1" {
		t.Fatalf("history %#v, hosted %+v", got.Items, got.Hosted)
	}
	want := turn.HostedCall{
		ID: "ci_a", Tool: oai.Python, Container: "cntr_1", Code: "print(1)", Status: turn.StatusCompleted,
		Outputs: []turn.Output{{Text: "1\n"}, {MIME: "image/png", Data: []byte("\x89PNG")}},
	}
	if diff := cmp.Diff(turn.Item(want), got.Items[1]); diff != "" {
		t.Errorf("the run (-want +got):\n%s", diff)
	}
}

func TestSDKErrors(t *testing.T) {
	limited := &turn.Error{Kind: turn.KindRateLimited, Message: "slow down"}
	client := sdk(t, &script{err: limited})
	_, err := client.Responses.New(t.Context(), sdkParams())
	checkSDKError(t, "plain", err)
	stream := client.Responses.NewStreaming(t.Context(), sdkParams())
	if stream.Next() {
		t.Error("an event before the error")
	}
	checkSDKError(t, "streamed", stream.Err())

	client = sdk(t, &script{events: []turn.Event{turn.Started{}, turn.MessageStarted{}, turn.TextDelta{Text: "It"}}, err: limited})
	stream = client.Responses.NewStreaming(t.Context(), sdkParams())
	defer stream.Close()
	events := 0
	for stream.Next() {
		events++
	}
	if err := stream.Err(); events < 5 || err == nil || !strings.Contains(err.Error(), "slow down") {
		t.Errorf("after the first event: %d events, then %v", events, err)
	}
}

func checkSDKError(t *testing.T, where string, err error) {
	t.Helper()
	e, ok := errors.AsType[*openai.Error](err)
	if !ok || e.StatusCode != 429 || e.Code != "rate_limit_exceeded" || e.Message != "slow down" {
		t.Errorf("%s: got %v", where, err)
	}
}

func TestSDKCancel(t *testing.T) {
	e := &endless{ended: make(chan error, 1)}
	client := sdk(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	stream := client.Responses.NewStreaming(ctx, sdkParams())
	defer stream.Close()
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	cancel()
	if err := <-e.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the turn ended with %v", err)
	}
}
