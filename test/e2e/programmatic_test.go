package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/lathe-gateway/lathe/internal/agent"
)

// programTools are a code tool and a tool that only programs may call.
func programTools() []anthropic.ToolUnionParam {
	return []anthropic.ToolUnionParam{
		{OfCodeExecutionTool20260120: &anthropic.CodeExecutionTool20260120Param{}},
		{OfTool: &anthropic.ToolParam{
			Name: "roll", Description: anthropic.String("Rolls a die."), AllowedCallers: []string{"code_execution_20260120"},
			InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"player": map[string]any{"type": "string"}}},
		}},
	}
}

// answerAll is what a client sends for a message's tool calls: each gets its input back.
func answerAll(t *testing.T, m anthropic.Message) anthropic.MessageParam {
	t.Helper()
	var results []anthropic.ContentBlockParamUnion
	for _, b := range m.Content {
		if b.Type == "tool_use" {
			results = append(results, anthropic.NewToolResultBlock(b.ID, "got "+string(b.Input), false))
		}
	}
	return anthropic.NewUserMessage(results...)
}

// A program that the model wrote stops at two calls at once, goes on with their results, makes one more, and ends.
func TestMessagesProgrammatic(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	for _, model := range []string{"stub", "claude", "translated"} {
		t.Run(model, func(t *testing.T) {
			both(t, func(t *testing.T, streamed bool) { testProgrammatic(t, l, model, streamed) })
		})
	}
}

func testProgrammatic(t *testing.T, l *lathe, model string, streamed bool) {
	c := l.claudeClient()
	prompt := "import asyncio\nprint('start')\na, b = await asyncio.gather(roll({'player': 'one'}), roll({'player': 'two'}))\nprint(a)\nprint(b)\nprint(await roll())"
	p := anthropic.MessageNewParams{
		Model: model, MaxTokens: 1000, Messages: []anthropic.MessageParam{user(code(prompt, "done"))}, Tools: programTools(),
	}
	if model != "stub" {
		p.Messages[0] = user("#stub:run " + code(prompt, "done"))
	}
	m := create(t, c, streamed, p)
	if got := kinds(m); !strings.HasSuffix(got, "server_tool_use tool_use tool_use") || m.StopReason != "tool_use" || m.Container.ID == "" {
		t.Fatalf("%s, %s: %s", got, m.StopReason, m.RawJSON())
	}
	program := m.Content[len(m.Content)-3]
	for _, b := range m.Content[len(m.Content)-2:] {
		var raw struct {
			Caller struct {
				Type   string `json:"type"`
				ToolID string `json:"tool_id"`
			} `json:"caller"`
		}
		must(t, json.Unmarshal([]byte(b.RawJSON()), &raw))
		caller := raw.Caller
		if b.Name != "roll" || caller.Type != "code_execution_20260120" || caller.ToolID != program.ID || program.Name != "code_execution" {
			t.Errorf("%s", b.RawJSON())
		}
	}
	p.Container = anthropic.MessageCreateParamsContainerUnion{OfString: anthropic.String(m.Container.ID)}
	p.Messages = append(p.Messages, m.ToParam(), answerAll(t, m))
	second := create(t, c, streamed, p)
	if kinds(second) != "tool_use" || second.StopReason != "tool_use" || second.Container.ID != m.Container.ID {
		t.Fatalf("%s", second.RawJSON())
	}
	p.Messages = append(p.Messages, second.ToParam(), answerAll(t, second))
	third := create(t, c, streamed, p)
	if kinds(third) != "code_execution_tool_result text" || third.StopReason != "end_turn" || texts(third) != "done" || third.Content[0].ToolUseID != program.ID {
		t.Fatalf("%s", third.RawJSON())
	}
	result := third.Content[0].AsCodeExecutionToolResult().Content
	if want := "start\ngot {\"player\": \"one\"}\ngot {\"player\": \"two\"}\ngot {}\n"; strings.ReplaceAll(result.Stdout, `":"`, `": "`) != want || result.ReturnCode != 0 {
		t.Errorf("%q, want %q", result.Stdout, want)
	}
	// The conversation goes on, with all of that in its history.
	p.Messages = append(p.Messages, third.ToParam(), user(code("print('again', a)", "more")))
	if fourth := create(t, c, streamed, p); fourth.StopReason != "end_turn" || !strings.HasSuffix(texts(fourth), "more") {
		t.Errorf("%s", fourth.RawJSON())
	}
}

// A turn that is paused at the cap of rounds goes on when it is sent again.
func TestMessagesPause(t *testing.T) {
	t.Parallel()
	l := newLathe(t, func(c *agent.Config) { c.MaxRounds = 1 })
	both(t, func(t *testing.T, streamed bool) {
		c := l.claudeClient()
		p := anthropic.MessageNewParams{
			Model: "stub", MaxTokens: 1000, Messages: []anthropic.MessageParam{user("```python\nx = 20\n```\n```python\nprint(x + 1)\n```\nanswer: It is {result}")}, Tools: programTools()[:1],
		}
		var all string
		for range 5 {
			m := create(t, c, streamed, p)
			all += kinds(m) + "; "
			if m.StopReason == "end_turn" {
				if !strings.HasPrefix(texts(m), "It is 21") || all != "text server_tool_use code_execution_tool_result; server_tool_use code_execution_tool_result; text; " {
					t.Errorf("%s: %s", all, m.RawJSON())
				}
				return
			}
			if m.StopReason != "pause_turn" {
				t.Fatalf("%s", m.RawJSON())
			}
			p.Container = anthropic.MessageCreateParamsContainerUnion{OfString: anthropic.String(m.Container.ID)}
			p.Messages = append(p.Messages, m.ToParam())
		}
		t.Errorf("it does not end: %s", all)
	})
}
