package upstreamtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/lathe-gateway/lathe/internal/upstreamtest"
)

func post(t *testing.T, url, body string) *http.Response {
	t.Helper()
	res, err := http.Post(url+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func client(url string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url), option.WithAPIKey("test"), option.WithMaxRetries(0))
}

func params(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:         "m",
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
}

// The stub's well-behaved form is what the official SDK reads.
func TestStreamForOfficialSDK(t *testing.T) {
	up := upstreamtest.Start(t, upstreamtest.Do(
		upstreamtest.Text("Hi "), upstreamtest.Text("there"),
		upstreamtest.Call{Name: "python", Pieces: upstreamtest.CodeArguments("print(1)", 4)},
		upstreamtest.Call{ID: "call_x", Name: "weather"},
		upstreamtest.Tokens(7, 9),
	))
	c := client(up.BaseURL())
	stream := c.Chat.Completions.NewStreaming(t.Context(), params("hello"))
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("the SDK does not take %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	msg := acc.Choices[0].Message
	if msg.Content != "Hi there" || acc.Choices[0].FinishReason != "tool_calls" {
		t.Errorf("content %q, finish %q", msg.Content, acc.Choices[0].FinishReason)
	}
	if len(msg.ToolCalls) != 2 || msg.ToolCalls[0].Function.Arguments != `{"code":"print(1)"}` || msg.ToolCalls[1].ID != "call_x" {
		t.Errorf("calls %+v", msg.ToolCalls)
	}
	if acc.Usage.PromptTokens != 7 || acc.Usage.TotalTokens != 16 {
		t.Errorf("usage %+v", acc.Usage)
	}
	if got := up.Last().LastUser(); got != "hello" {
		t.Errorf("recorded user message %q", got)
	}
	if got := up.Last().Header.Get("Authorization"); got != "Bearer test" {
		t.Errorf("recorded authorization %q", got)
	}
}

func TestWholeForOfficialSDK(t *testing.T) {
	up := upstreamtest.Start(t, upstreamtest.Do(upstreamtest.Text("Hi"), upstreamtest.Call{Name: "f", Pieces: []string{"{", "}"}}))
	c := client(up.BaseURL())
	p := params("hello")
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	res, err := c.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if m := res.Choices[0].Message; m.Content != "Hi" || m.ToolCalls[0].Function.Arguments != "{}" || m.ToolCalls[0].ID != "call_0" {
		t.Errorf("message %s", m.RawJSON())
	}
}

func TestMisbehaviour(t *testing.T) {
	const ask = `{"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}`
	two := upstreamtest.Do(
		upstreamtest.Call{Name: "a", Pieces: []string{"1", "2"}}, upstreamtest.Call{Name: "b", Pieces: []string{"3", "4"}})
	for _, tc := range []struct {
		name         string
		answer       upstreamtest.Answer
		want, reject []string
	}{
		{"first index 1", two.With(upstreamtest.Quirks{FirstIndex: 1}), []string{`"index":2`}, nil},
		{"no ids", two.With(upstreamtest.Quirks{NoIDs: true}), nil, []string{`"id":"call`}},
		{"numeric ids", two.With(upstreamtest.Quirks{NumericIDs: true}), []string{`"id":1000`, `"id":1001`}, nil},
		{"object arguments", two.With(upstreamtest.Quirks{ArgumentsObject: true}), []string{`"arguments":12`}, nil},
		{"no index", two.With(upstreamtest.Quirks{NoIndex: true}), nil, []string{`tool_calls":[{"index"`}},
		{"finish stop", two.With(upstreamtest.Quirks{FinishStop: true}), []string{`"finish_reason":"stop"`}, []string{`"finish_reason":"tool_calls"`}},
		{"no finish", two.With(upstreamtest.Quirks{NoFinish: true}), []string{"[DONE]"}, []string{`"finish_reason":"`}},
		{"no done", two.With(upstreamtest.Quirks{NoDone: true}), nil, []string{"[DONE]"}},
		{"usage on finish", two.With(upstreamtest.Quirks{Usage: upstreamtest.UsageOnFinish}), []string{`"tool_calls"}],"usage":{`}, []string{`"choices":[]`}},
		{"no usage", two.With(upstreamtest.Quirks{Usage: upstreamtest.UsageNone}), nil, []string{"prompt_tokens"}},
		{"plain", two.With(upstreamtest.Quirks{Plain: true}), []string{`"object":"chat.completion"`}, []string{"data:"}},
		{"null content", two.With(upstreamtest.Quirks{NullContent: true}), []string{`"content":null`}, nil},
		{"comments", two.With(upstreamtest.Quirks{Comments: true}), []string{": OPENROUTER"}, nil},
		{"refuses stream_options", two.With(upstreamtest.Quirks{RefuseStreamOptions: true}), []string{`"error"`}, []string{"data:"}},
		{"reasoning", upstreamtest.Do(upstreamtest.Reasoning("hm")).With(upstreamtest.Quirks{ReasoningField: "reasoning"}), []string{`"reasoning":"hm"`}, nil},
		{"rate limit", upstreamtest.RateLimited(3), []string{"rate_limit_exceeded"}, nil},
		{"529", upstreamtest.Overloaded(), []string{"overloaded"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			up := upstreamtest.Start(t, tc.answer)
			body, err := io.ReadAll(post(t, up.BaseURL(), ask).Body)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range tc.want {
				if !strings.Contains(string(body), w) {
					t.Errorf("no %s in\n%s", w, body)
				}
			}
			for _, w := range tc.reject {
				if strings.Contains(string(body), w) {
					t.Errorf("%s in\n%s", w, body)
				}
			}
		})
	}
}

func TestInterleave(t *testing.T) {
	up := upstreamtest.Start(t, upstreamtest.Do(
		upstreamtest.Call{Name: "a", Pieces: []string{"1", "2"}}, upstreamtest.Call{Name: "b", Pieces: []string{"3", "4"}},
	).With(upstreamtest.Quirks{Interleave: true}))
	body, err := io.ReadAll(post(t, up.BaseURL(), `{"model":"m","stream":true,"messages":[]}`).Body)
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, piece := range []string{`"1"`, `"3"`, `"2"`, `"4"`} {
		i := strings.Index(string(body), `"arguments":`+piece)
		if i <= at {
			t.Fatalf("piece %s out of turn in\n%s", piece, body)
		}
		at = i
	}
}

func TestPausesCutsAndLeaving(t *testing.T) {
	proceed, reached, slow := make(chan struct{}), make(chan struct{}), make(chan struct{})
	up := upstreamtest.Start(t,
		upstreamtest.Answer{BeforeHeaders: slow},
		upstreamtest.Do(upstreamtest.Text("a"), upstreamtest.Reached(reached), upstreamtest.Wait(proceed), upstreamtest.Cut{}),
	)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", up.BaseURL()+"/chat/completions", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
		}
		answered <- err
	}()
	waitFor(t, func() bool { return up.Last() != nil })
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("slow headers: %v", err)
	}
	wait(t, up.Last().Gone())
	wait(t, up.Last().Done())

	res := post(t, up.BaseURL(), `{"model":"m","stream":true,"messages":[]}`)
	wait(t, reached)
	close(proceed)
	body, err := io.ReadAll(res.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(body), `"a"`) {
		t.Errorf("cut: %v after %s", err, body)
	}
}

func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing within 10 s")
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("nothing within 10 s")
		}
	}
}

func TestRunScenario(t *testing.T) {
	up := upstreamtest.Start(t)
	up.Answer(upstreamtest.ByName)
	const tools = `"tools":[{"type":"function","function":{"name":"python_2","parameters":{"properties":{"code":{}}}}}]`
	user := "do it\n```python\nprint(1)\n```\nthen\n```python\nprint(2)\n```\nanswer: got {result}!"
	round := func(results ...string) string {
		messages := []map[string]any{{"role": "user", "content": user}}
		for _, r := range results {
			// A tool's image comes in a message of the user, which is not one that a user wrote.
			image := map[string]any{"type": "image_url", "image_url": map[string]string{"url": "data:,"}}
			messages = append(messages, map[string]any{"role": "tool", "content": r, "tool_call_id": "call_0"},
				map[string]any{"role": "user", "content": []any{map[string]string{"type": "text", "text": "Images:"}, image}})
		}
		raw, err := json.Marshal(messages)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(post(t, up.BaseURL(), `{"model":"stub-run",`+tools+`,"messages":`+string(raw)+`}`).Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	if got := round(); !strings.Contains(got, `print(1)`) || !strings.Contains(got, `"name":"python_2"`) {
		t.Errorf("round 0: %s", got)
	}
	if got := round("one"); !strings.Contains(got, `print(2)`) {
		t.Errorf("round 1: %s", got)
	}
	if got := round("one", "two"); !strings.Contains(got, `got two!`) {
		t.Errorf("round 2: %s", got)
	}
}

func TestCommand(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "stub")
	if out, err := exec.Command("go", "build", "-o", bin, "./cmd/stub").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(bin)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSpace(line)
	res := post(t, base, `{"model":"any","messages":[{"role":"user","content":"#stub:rate_limit"}]}`)
	if res.StatusCode != 429 || res.Header.Get("Retry-After") != "1" {
		t.Errorf("rate_limit: status %d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
	res, err = http.Get(strings.TrimSuffix(base, "/v1") + "/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var seen []struct{ Path string }
	if err := json.NewDecoder(res.Body).Decode(&seen); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]struct{ Path string }{{"/v1/chat/completions"}}, seen); diff != "" {
		t.Error(diff)
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the end of its input: %v", err)
	}
}

// The images that a tool made come to the model as a user message, which is none of the user's.
func TestLastUserSkipsToolImages(t *testing.T) {
	up := upstreamtest.Start(t, upstreamtest.Say("ok"))
	body := `{"model":"m","messages":[{"role":"user","content":"plot"},{"role":"assistant","tool_calls":[{"id":"c","type":"function",` +
		`"function":{"name":"python","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"drawn"},{"role":"user","content":[` +
		`{"type":"text","text":"images"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}`
	resp, err := http.Post(up.BaseURL()+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := up.Last().LastUser(); got != "plot" {
		t.Errorf("the last user message is %q, want plot", got)
	}
	if got := up.Last().ToolResults(); len(got) != 1 || got[0] != "drawn" {
		t.Errorf("the results are %q, want that of the tool", got)
	}
}
