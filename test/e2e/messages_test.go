package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
)

// claudeClient is what programs make with Anthropic's SDK, whose newest line sends the key as Bearer.
func (l *lathe) claudeClient(opts ...option.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]option.RequestOption{
		option.WithBaseURL(l.url), option.WithAPIKey(project), option.WithMaxRetries(0), option.WithoutEnvironmentDefaults(),
	}, opts...)...)
}

// code is a prompt that makes the stub run one block of Python and say the answer.
func code(block, answer string) string {
	return "Please compute.\n```python\n" + block + "\n```\nanswer: " + answer
}

var pythonTool = anthropic.ToolUnionParam{OfCodeExecutionTool20250522: &anthropic.CodeExecutionTool20250522Param{}}

func user(text string) anthropic.MessageParam {
	return anthropic.NewUserMessage(anthropic.NewTextBlock(text))
}

// create asks plain or streamed; both must come to the same message.
func create(t *testing.T, c anthropic.Client, streamed bool, p anthropic.MessageNewParams) anthropic.Message {
	t.Helper()
	if !streamed {
		m, err := c.Messages.New(t.Context(), p)
		must(t, err)
		return *m
	}
	var m anthropic.Message
	stream := c.Messages.NewStreaming(t.Context(), p)
	for stream.Next() {
		must(t, m.Accumulate(stream.Current()))
	}
	must(t, stream.Err())
	return m
}

func texts(m anthropic.Message) string {
	var out strings.Builder
	for _, b := range m.Content {
		if b.Type == "text" {
			out.WriteString(b.Text)
		}
	}
	return out.String()
}

// kinds are the types of a message's blocks.
func kinds(m anthropic.Message) string {
	var out []string
	for _, b := range m.Content {
		out = append(out, b.Type)
	}
	return strings.Join(out, " ")
}

// both runs a test plain and streamed.
func both(t *testing.T, test func(t *testing.T, streamed bool)) {
	t.Helper()
	for name, streamed := range map[string]bool{"plain": false, "streamed": true} {
		t.Run(name, func(t *testing.T) { test(t, streamed) })
	}
}

func TestMessagesText(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	both(t, func(t *testing.T, streamed bool) {
		m := create(t, l.claudeClient(), streamed, anthropic.MessageNewParams{Model: "stub-text", MaxTokens: 100, Messages: []anthropic.MessageParam{user("hi")}})
		if texts(m) != "Hello from the stub." || m.StopReason != "end_turn" || m.Model != "stub-text" || m.Usage.OutputTokens == 0 || m.Usage.InputTokens == 0 {
			t.Errorf("%s", m.RawJSON())
		}
	})
}

// A variable that one turn sets is there in the next, in the container that the first answer named; what a program leaves is downloaded
// byte for byte.
func TestMessagesCode(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	both(t, func(t *testing.T, streamed bool) {
		c := l.claudeClient()
		first := user(code("import os\nx = 41\nopen(os.path.join(os.environ.get('OUTPUT_DIR', '/mnt/data'), 'made.bin'), 'wb').write(bytes(range(256)))\nprint(x)", "It is {result}"))
		p := anthropic.MessageNewParams{Model: "stub", MaxTokens: 100, Messages: []anthropic.MessageParam{first}, Tools: []anthropic.ToolUnionParam{pythonTool}}
		m := create(t, c, streamed, p)
		if kinds(m) != "text server_tool_use code_execution_tool_result text" || !strings.HasPrefix(texts(m), "Let me compute.It is 41") || m.StopReason != "end_turn" {
			t.Fatalf("%s", m.RawJSON())
		}
		if !strings.HasPrefix(m.Content[1].ID, "srvtoolu_") || m.Content[2].ToolUseID != m.Content[1].ID || !strings.Contains(string(m.Content[1].Input), "x = 41") {
			t.Errorf("%s", m.RawJSON())
		}
		result := m.Content[2].AsCodeExecutionToolResult().Content
		if result.Stdout != "41\n" || result.ReturnCode != 0 || len(result.Content) != 1 {
			t.Fatalf("%s", result.RawJSON())
		}
		l.checkMade(t, c, result.Content[0].FileID)

		if !strings.HasPrefix(m.Container.ID, "cntr_") || m.Container.ExpiresAt.IsZero() {
			t.Fatalf("container %+v", m.Container)
		}
		p.Messages = append(p.Messages, m.ToParam(), user(code("x += 1\nprint(x)", "Now {result}")))
		p.Container = anthropic.MessageCreateParamsContainerUnion{OfString: anthropic.String(m.Container.ID)}
		again := create(t, c, streamed, p)
		if texts(again) != "Let me compute.Now 42" || again.Container.ID != m.Container.ID {
			t.Errorf("%s", again.RawJSON())
		}
		p.Container = anthropic.MessageCreateParamsContainerUnion{OfContainers: &anthropic.ContainerParams{ID: anthropic.String(m.Container.ID)}}
		if again = create(t, c, streamed, p); again.Container.ID != m.Container.ID {
			t.Errorf("%s", again.RawJSON())
		}
		made := result.Content[0].FileID
		_, err := c.Files.Delete(t.Context(), made, anthropic.FileDeleteParams{})
		must(t, err)
		if _, err := c.Files.GetMetadata(t.Context(), made, anthropic.FileGetMetadataParams{}); status(err) != http.StatusNotFound {
			t.Errorf("a deleted file: %v", err)
		}
	})
}

// The tools of the newer versions, all in one container: the editor's results, bash and Python over the same files.
func TestMessagesTools(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	prompt := "Please work.\n```edit\n{\"command\": \"create\", \"path\": \"/mnt/data/a.txt\", \"file_text\": \"one\\ntwo\\n\"}\n```\n" +
		"```edit\n{\"command\": \"str_replace\", \"path\": \"/mnt/data/a.txt\", \"old_str\": \"two\", \"new_str\": \"drei\"}\n```\n" +
		"```edit\n{\"command\": \"view\", \"path\": \"/mnt/data/a.txt\", \"view_range\": [2, 2]}\n```\n" +
		"```edit\n{\"command\": \"view\", \"path\": \"/mnt/data/none\"}\n```\n" +
		"```bash\ncat a.txt; echo oops >&2; cp a.txt $OUTPUT_DIR/; exit 3\n```\n" +
		"```python\nprint(len(open('a.txt').read()))\n```\nanswer: {result}"
	both(t, func(t *testing.T, streamed bool) {
		c := l.claudeClient()
		m := create(t, c, streamed, anthropic.MessageNewParams{
			Model: "stub", MaxTokens: 1000, Messages: []anthropic.MessageParam{user(prompt)},
			Tools: []anthropic.ToolUnionParam{{OfCodeExecutionTool20260521: &anthropic.CodeExecutionTool20260521Param{}}},
		})
		var editor []anthropic.TextEditorCodeExecutionToolResultBlockContentUnion
		var bash anthropic.BashCodeExecutionToolResultBlockContentUnion
		var python anthropic.CodeExecutionToolResultBlockContentUnion
		for _, b := range m.Content {
			switch b := b.AsAny().(type) {
			case anthropic.TextEditorCodeExecutionToolResultBlock:
				editor = append(editor, b.Content)
			case anthropic.BashCodeExecutionToolResultBlock:
				bash = b.Content
			case anthropic.CodeExecutionToolResultBlock:
				python = b.Content
			}
		}
		if len(editor) != 4 {
			t.Fatalf("%s", m.RawJSON())
		}
		if e := editor[0]; e.Type != "text_editor_code_execution_create_result" || e.IsFileUpdate {
			t.Errorf("create: %s", e.RawJSON())
		}
		if e := editor[1]; e.OldStart != 1 || !slices.Equal(e.Lines, []string{" one", "-two", "+drei"}) {
			t.Errorf("str_replace: %s", e.RawJSON())
		}
		if e := editor[2]; e.Content != "drei\n" && e.Content != "drei" || e.StartLine != 2 || e.NumLines != 1 || e.FileType != "text" {
			t.Errorf("view: %s", e.RawJSON())
		}
		if e := editor[3]; e.Type != "text_editor_code_execution_tool_result_error" || e.ErrorCode != "file_not_found" {
			t.Errorf("view of nothing: %s", e.RawJSON())
		}
		if bash.Stdout != "one\ndrei\n" || bash.Stderr != "oops\n" || bash.ReturnCode != 3 || len(bash.Content) != 1 {
			t.Errorf("bash: %s", bash.RawJSON())
		}
		if python.Stdout != "9\n" || python.ReturnCode != 0 || len(python.Content) != 0 {
			t.Errorf("python: %s", python.RawJSON())
		}
		if m.StopReason != "end_turn" || m.Container.ID == "" {
			t.Errorf("%s", m.RawJSON())
		}
	})
}

// checkMade looks at the file that TestMessagesCode makes.
func (l *lathe) checkMade(t *testing.T, c anthropic.Client, id string) {
	t.Helper()
	meta, err := c.Files.GetMetadata(t.Context(), id, anthropic.FileGetMetadataParams{})
	must(t, err)
	if meta.Filename != "made.bin" || meta.SizeBytes != 256 || !meta.Downloadable || meta.Type != "file" || meta.CreatedAt.IsZero() {
		t.Errorf("%s", meta.RawJSON())
	}
	resp, err := c.Files.Download(t.Context(), id, anthropic.FileDownloadParams{})
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	want := make([]byte, 256)
	for i := range want {
		want[i] = byte(i)
	}
	if !bytes.Equal(data, want) {
		t.Errorf("downloaded %d other bytes", len(data))
	}
	other := l.claudeClient(option.WithAPIKey("another-project"))
	if _, err := other.Files.GetMetadata(t.Context(), id, anthropic.FileGetMetadataParams{}); status(err) != http.StatusNotFound {
		t.Errorf("another project gets %v", err)
	}
}

func status(err error) int {
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		return e.StatusCode
	}
	return 0
}

// A mixed turn: the code runs, the client's call comes back, and the conversation goes on with both.
func TestMessagesMixed(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	weather := anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{Name: "weather", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}}}}
	both(t, func(t *testing.T, streamed bool) {
		c := l.claudeClient()
		p := anthropic.MessageNewParams{
			Model: "stub-mixed", MaxTokens: 100, Tools: []anthropic.ToolUnionParam{pythonTool, weather},
			Messages: []anthropic.MessageParam{user(code("print(41)", "code and weather: {result}") + "\nargs: {\"city\": \"Paris\"}")},
		}
		m := create(t, c, streamed, p)
		if kinds(m) != "server_tool_use code_execution_tool_result tool_use" || m.StopReason != "tool_use" || m.Container.ID == "" {
			t.Fatalf("%s", m.RawJSON())
		}
		call := m.Content[2]
		if call.Name != "weather" || !strings.HasPrefix(call.ID, "toolu_") || strings.ReplaceAll(string(call.Input), " ", "") != `{"city":"Paris"}` {
			t.Errorf("%s", call.RawJSON())
		}
		p.Messages = append(p.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(call.ID, "sunny", false)))
		if m = create(t, c, streamed, p); texts(m) != "code and weather: sunny" {
			t.Errorf("%s", m.RawJSON())
		}
		requests := l.up.Requests()
		if got := requests[len(requests)-1].ToolResults(); len(got) != 2 || !strings.Contains(got[0], "41") || got[1] != "sunny" {
			t.Errorf("the model got the results %q", got)
		}
	})
}

type weatherInput struct {
	City string `json:"city" jsonschema:"required"`
}

// The SDK's own loop, in the beta namespace: it begins with a message thread, is told that there is none here, and sends all.
func TestMessagesToolRunner(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	c := l.claudeClient()
	asked := ""
	weather, err := toolrunner.NewBetaToolFromJSONSchema("weather", "the weather", func(_ context.Context, in weatherInput) (anthropic.BetaToolResultBlockParamContentUnion, error) {
		asked = in.City
		return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: "sunny"}}, nil
	})
	must(t, err)
	params := anthropic.BetaToolRunnerParams{BetaMessageNewParams: anthropic.BetaMessageNewParams{
		Model: "stub-client_tool", MaxTokens: 100,
		Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("weather?\nargs: {\"city\": \"Paris\"}\nanswer: It is {result}"))},
	}}
	m, err := c.Beta.Messages.NewToolRunner([]anthropic.BetaTool{weather}, params).RunToCompletion(t.Context())
	must(t, err)
	if asked != "Paris" || m.Content[0].Text != "It is sunny" {
		t.Errorf("asked for %q: %s", asked, m.RawJSON())
	}
	asked = ""
	runner := c.Beta.Messages.NewToolRunnerStreaming([]anthropic.BetaTool{weather}, params)
	for events, err := range runner.AllStreaming(t.Context()) {
		must(t, err)
		for _, err := range events {
			must(t, err)
		}
	}
	if last := runner.LastMessage(); asked != "Paris" || last.Content[0].Text != "It is sunny" {
		t.Errorf("streamed: asked for %q: %s", asked, last.RawJSON())
	}
}

func TestMessagesThinking(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	both(t, func(t *testing.T, streamed bool) {
		c := l.claudeClient()
		p := anthropic.MessageNewParams{
			Model: "stub-reasoning", MaxTokens: 100, Messages: []anthropic.MessageParam{user(code("print(6 * 7)", "It is {result}"))}, Tools: []anthropic.ToolUnionParam{pythonTool},
			Thinking: anthropic.ThinkingConfigParamUnion{OfAdaptive: &anthropic.ThinkingConfigAdaptiveParam{}},
		}
		m := create(t, c, streamed, p)
		if kinds(m) != "thinking text server_tool_use code_execution_tool_result thinking text" || m.Content[0].Thinking != "The user wants an answer." || m.Content[0].Signature == "" {
			t.Fatalf("%s", m.RawJSON())
		}
		p.Messages = append(p.Messages, m.ToParam(), user("Thanks."))
		if m = create(t, c, streamed, p); !strings.Contains(texts(m), "Thanks.") {
			t.Errorf("%s", m.RawJSON())
		}
		p.Messages, p.Thinking = p.Messages[:1], anthropic.ThinkingConfigParamUnion{}
		if m = create(t, c, streamed, p); strings.Contains(kinds(m), "thinking") {
			t.Errorf("nobody asked for thinking: %s", m.RawJSON())
		}
	})
}

func TestMessagesErrors(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	c := l.claudeClient()
	ask := func(model string, opts ...option.RequestOption) error {
		_, err := c.Messages.New(t.Context(), anthropic.MessageNewParams{Model: model, MaxTokens: 100, Messages: []anthropic.MessageParam{user("hi")}}, opts...)
		return err
	}
	for name, want := range map[string]struct {
		err    error
		status int
		text   string
	}{
		"refused by the model's server": {ask("stub-error_before"), 400, `"type":"invalid_request_error"`},
		"rate limit":                    {ask("stub-rate_limit"), 429, `"type":"rate_limit_error"`},
		"server error":                  {ask("stub-server_error"), 502, `"type":"api_error"`},
		"a field":                       {ask("stub", option.WithJSONSet("bogus", 1)), 400, "bogus: Extra inputs are not permitted"},
		"no version":                    {ask("stub", option.WithHeaderDel("anthropic-version")), 400, "anthropic-version: header is required"},
	} {
		e, ok := errors.AsType[*anthropic.Error](want.err)
		if !ok || e.StatusCode != want.status || !strings.Contains(e.RawJSON(), want.text) {
			t.Errorf("%s: %v", name, want.err)
		}
	}
	stream := c.Messages.NewStreaming(t.Context(), anthropic.MessageNewParams{Model: "stub-error_after", MaxTokens: 100, Messages: []anthropic.MessageParam{user("hi")}})
	var m anthropic.Message
	for stream.Next() {
		must(t, m.Accumulate(stream.Current()))
	}
	if stream.Err() == nil || texts(m) != "Hello from " {
		t.Errorf("a broken answer gives %v after %q", stream.Err(), texts(m))
	}
}

func TestMessagesCountAndModels(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	c := l.claudeClient()
	n, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "stub", Messages: []anthropic.MessageParam{user("hello there")}})
	must(t, err)
	if n.InputTokens < 3 || n.InputTokens > 30 {
		t.Errorf("%d tokens", n.InputTokens)
	}
	page, err := c.Models.List(t.Context(), anthropic.ModelListParams{Limit: anthropic.Int(2)})
	must(t, err)
	if len(page.Data) != 2 || page.Data[0].ID != "demo" || page.Data[0].Lifecycle != "active" || page.Data[0].CreatedAt.IsZero() || !page.Data[0].Capabilities.ServerTools.CodeExecution.Supported {
		t.Errorf("%s", page.RawJSON())
	}
	var names []string
	for all := c.Models.ListAutoPaging(t.Context(), anthropic.ModelListParams{Limit: anthropic.Int(2)}); all.Next(); {
		names = append(names, all.Current().ID)
	}
	if !slices.Equal(names, []string{"demo", "claude", "responses", "translated", "native"}) {
		t.Errorf("models %q", names)
	}
	page, err = c.Models.List(t.Context(), anthropic.ModelListParams{Limit: anthropic.Int(2), BeforeID: anthropic.String("native")})
	must(t, err)
	if len(page.Data) != 2 || page.Data[0].ID != "responses" || !page.HasMore {
		t.Errorf("%s", page.RawJSON())
	}
	m, err := c.Models.Get(t.Context(), "any/model", anthropic.ModelGetParams{})
	must(t, err)
	if m.ID != "any/model" || m.Type != "model" {
		t.Errorf("%s", m.RawJSON())
	}
}

// Files of both dialects are the same: each vendor's client sees what the other's uploaded.
func TestMessagesFiles(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	c := l.claudeClient()
	up, err := c.Files.Upload(t.Context(), anthropic.FileUploadParams{
		File: anthropic.File(strings.NewReader("a,b\n1,2\n"), "dir/data.csv", "text/csv"), ExpiresInSeconds: anthropic.Int(3600),
	})
	must(t, err)
	if up.Filename != "data.csv" || up.MimeType != "text/csv" || up.SizeBytes != 8 || up.Downloadable || up.ExpiresAt.IsZero() {
		t.Errorf("%s", up.RawJSON())
	}
	if _, err := c.Files.Download(t.Context(), up.ID, anthropic.FileDownloadParams{}); status(err) != 400 || !strings.Contains(err.Error(), "file_not_downloadable") {
		t.Errorf("download of an upload: %v", err)
	}
	// The program finds it under its own name, in the folder for input or where uploads lie.
	p := anthropic.MessageNewParams{
		Model: "stub", MaxTokens: 100, Tools: []anthropic.ToolUnionParam{pythonTool},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(
			anthropic.ContentBlockParamUnion{OfContainerUpload: &anthropic.ContainerUploadBlockParam{FileID: up.ID}},
			anthropic.NewTextBlock(code("import os\nprint(open(os.path.join(os.environ.get('INPUT_DIR', '/mnt/data'), 'data.csv')).read().split()[1])", "row {result}")),
		)},
	}
	if m := create(t, c, false, p); !strings.HasSuffix(texts(m), "row 1,2") {
		t.Errorf("%s", m.RawJSON())
	}
	var ids []string
	for range 3 {
		f, err := c.Files.Upload(t.Context(), anthropic.FileUploadParams{File: anthropic.File(strings.NewReader("x"), "", "")})
		must(t, err)
		if f.Filename == "" {
			t.Errorf("%s", f.RawJSON())
		}
		ids = append(ids, f.ID)
	}
	l.checkFileLists(t, c, append([]string{up.ID}, ids...))

	gone, err := c.Files.Delete(t.Context(), ids[0], anthropic.FileDeleteParams{})
	must(t, err)
	if gone.ID != ids[0] || gone.Type != "file_deleted" {
		t.Errorf("%s", gone.RawJSON())
	}
	if _, err := c.Files.GetMetadata(t.Context(), ids[0], anthropic.FileGetMetadataParams{}); status(err) != 404 || !strings.Contains(err.Error(), "not found") {
		t.Errorf("%v", err)
	}
	for name, bad := range map[string]anthropic.FileUploadParams{
		"a name":     {File: anthropic.File(strings.NewReader("x"), "a|b", "")},
		"a lifetime": {File: anthropic.File(strings.NewReader("x"), "a", ""), ExpiresInSeconds: anthropic.Int(60)},
	} {
		if _, err := c.Files.Upload(t.Context(), bad); status(err) != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// checkFileLists pages in both forms, and asks for some by id. made is in the order of upload.
func (l *lathe) checkFileLists(t *testing.T, c anthropic.Client, made []string) {
	t.Helper()
	newest := slices.Clone(made)
	slices.Reverse(newest)
	var got []string
	all := c.Files.ListAutoPaging(t.Context(), anthropic.FileListParams{Limit: anthropic.Int(2)})
	for all.Next() {
		got = append(got, all.Current().ID)
	}
	must(t, all.Err())
	if !slices.Equal(got, newest) {
		t.Errorf("files %q, want %q", got, newest)
	}
	some, err := c.Files.List(t.Context(), anthropic.FileListParams{IDs: []string{made[1], "file_none", made[0]}})
	must(t, err)
	if len(some.Data) != 2 || some.Data[0].ID != made[1] {
		t.Errorf("%s", some.RawJSON())
	}
	older := func(query string) (ids []string, more bool) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+"/v1/files?"+query, nil)
		must(t, err)
		req.Header.Set("X-Api-Key", project)
		req.Header.Set("Anthropic-Version", "2023-06-01")
		req.Header.Set("Anthropic-Beta", "files-api-2025-04-14")
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		var page struct {
			Data    []map[string]any
			FirstID string `json:"first_id"`
			LastID  string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		must(t, json.NewDecoder(resp.Body).Decode(&page))
		for _, f := range page.Data {
			if _, ok := f["expires_at"]; ok {
				t.Errorf("the older form has expires_at: %v", f)
			}
			id, _ := f["id"].(string)
			ids = append(ids, id)
		}
		if len(ids) > 0 && (page.FirstID != ids[0] || page.LastID != ids[len(ids)-1]) {
			t.Errorf("%+v", page)
		}
		return ids, page.HasMore
	}
	for query, want := range map[string]struct {
		ids  []string
		more bool
	}{
		"limit=2":                         {newest[:2], true},
		"limit=2&after_id=" + newest[1]:   {newest[2:], false},
		"limit=1&before_id=" + newest[2]:  {newest[1:2], true},
		"limit=10&before_id=" + newest[2]: {newest[:2], false},
	} {
		if ids, more := older(query); !slices.Equal(ids, want.ids) || more != want.more {
			t.Errorf("%s: %q %v, want %q %v", query, ids, more, want.ids, want.more)
		}
	}
}
