package e2e

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// TestMessagesOlderSDK: the line before, which sends the older version of the API, its key as x-api-key, and beta paths with ?beta=true.
func TestMessagesOlderSDK(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	c := anthropic.NewClient(option.WithBaseURL(l.url), option.WithAPIKey(project), option.WithMaxRetries(0), option.WithoutEnvironmentDefaults())
	user := func(text string) anthropic.MessageParam {
		return anthropic.NewUserMessage(anthropic.NewTextBlock(text))
	}
	p := anthropic.MessageNewParams{
		Model: "stub", MaxTokens: 100, Temperature: anthropic.Float(0.5),
		Messages: []anthropic.MessageParam{user(code("x = 41\nprint(x)", "It is {result}"))},
		Tools:    []anthropic.ToolUnionParam{{OfCodeExecutionTool20250522: &anthropic.CodeExecutionTool20250522Param{}}},
	}
	m, err := c.Messages.New(t.Context(), p)
	must(t, err)
	if n := len(m.Content); n != 4 || m.Content[n-1].Text != "It is 41" || m.Content[2].AsCodeExecutionToolResult().Content.Stdout != "41\n" {
		t.Errorf("%s", m.RawJSON())
	}
	var streamed anthropic.Message
	p.Messages = append(p.Messages, m.ToParam(), user(code("print(x + 1)", "Now {result}")))
	stream := c.Messages.NewStreaming(t.Context(), p)
	for stream.Next() {
		must(t, streamed.Accumulate(stream.Current()))
	}
	must(t, stream.Err())
	if n := len(streamed.Content); n != 4 || streamed.Content[n-1].Text != "Now 42" {
		t.Errorf("%+v", streamed.Content)
	}
}

func TestMessagesOlderSDKBeta(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	c := anthropic.NewClient(option.WithBaseURL(l.url), option.WithAPIKey(project), option.WithMaxRetries(0), option.WithoutEnvironmentDefaults())
	up, err := c.Beta.Files.Upload(t.Context(), anthropic.BetaFileUploadParams{
		File: anthropic.File(strings.NewReader("a,b\n1,2\n"), "data.csv", "text/csv"), Betas: []anthropic.AnthropicBeta{"files-api-2025-04-14"},
	})
	must(t, err)
	m, err := c.Beta.Messages.New(t.Context(), anthropic.BetaMessageNewParams{
		Model: "stub", MaxTokens: 100, Betas: []anthropic.AnthropicBeta{"code-execution-2025-05-22", "files-api-2025-04-14", "novel-2030-01-01"},
		Tools: []anthropic.BetaToolUnionParam{{OfCodeExecutionTool20250522: &anthropic.BetaCodeExecutionTool20250522Param{}}},
		Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(
			anthropic.BetaContentBlockParamUnion{OfContainerUpload: &anthropic.BetaContainerUploadBlockParam{FileID: up.ID}},
			anthropic.NewBetaTextBlock(code("import os\nd = os.environ.get('OUTPUT_DIR', '/mnt/data')\nopen(d + '/made.txt', 'w').write('é')\nprint('ok')", "{result}")),
		)},
	})
	must(t, err)
	i := slices.IndexFunc(m.Content, func(b anthropic.BetaContentBlockUnion) bool { return b.Type == "code_execution_tool_result" })
	if i < 0 || len(m.Content[i].AsCodeExecutionToolResult().Content.Content) != 1 || m.Container.ID == "" {
		t.Fatalf("%s", m.RawJSON())
	}
	resp, err := c.Beta.Files.Download(t.Context(), m.Content[i].AsCodeExecutionToolResult().Content.Content[0].FileID, anthropic.BetaFileDownloadParams{})
	must(t, err)
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); err != nil || string(data) != "é" {
		t.Errorf("downloaded %q, %v", data, err)
	}
}
