package upstreamtest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

var callID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// refusal is what Anthropic's server would refuse a request with, "" for nothing: open models' servers take what this one does not.
func refusal(in *anthropic.Request) string {
	switch {
	case in.MaxTokens == nil:
		return "max_tokens: Field required"
	case len(in.Messages) == 0:
		return "messages: at least one message is required"
	case in.Messages[0].Role != anthropic.RoleUser:
		return "messages: first message must use the \"user\" role"
	}
	for i, t := range in.Tools {
		var schema struct{ Type string }
		if json.Unmarshal(t.InputSchema, &schema) != nil || schema.Type != "object" {
			return fmt.Sprintf("tools.%d.input_schema.type: Field required", i)
		}
	}
	used := map[string]bool{}
	var waiting []string // calls of the message before
	for i, m := range in.Messages {
		if m.Role == anthropic.RoleSystem && in.Messages[i-1].Role != anthropic.RoleUser {
			return fmt.Sprintf("messages.%d: role 'system' must follow a user turn", i)
		}
		if fault := contentFault(m); fault != "" {
			return fmt.Sprintf("messages.%d.%s", i, fault)
		}
		results, fault := leadingResults(m, i)
		if fault != "" {
			return fault
		}
		for _, id := range results {
			if !slices.Contains(waiting, id) {
				return fmt.Sprintf("messages.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s", i, id)
			}
		}
		for _, id := range waiting {
			if !slices.Contains(results, id) {
				return fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s", i, id)
			}
		}
		waiting = nil
		for _, b := range m.Content.Blocks {
			use, ok := b.(*anthropic.ToolUse)
			if !ok {
				continue
			}
			if !callID.MatchString(use.ID) || used[use.ID] {
				return fmt.Sprintf("messages.%d: `tool_use` ids must be unique and match %s: %q", i, callID, use.ID)
			}
			used[use.ID] = true
			waiting = append(waiting, use.ID)
		}
	}
	if len(used) > 0 && len(in.Tools) == 0 {
		return "Requests which have `tool_use` or `tool_result` blocks in their messages must define tools"
	}
	return ""
}

// leadingResults are the calls that a message answers; results may not stand behind anything else.
func leadingResults(m anthropic.Message, i int) (ids []string, fault string) {
	for n, b := range m.Content.Blocks {
		r, ok := b.(*anthropic.ToolResult)
		if !ok {
			continue
		}
		if n > len(ids) || m.Role != anthropic.RoleUser {
			return nil, fmt.Sprintf("messages.%d: `tool_result` blocks must come first", i)
		}
		ids = append(ids, r.ToolUseID)
	}
	return ids, ""
}

func contentFault(m anthropic.Message) string {
	if m.Content.Text == nil && len(m.Content.Blocks) == 0 {
		return "content: must not be empty"
	}
	for n, b := range m.Content.Blocks {
		switch b := b.(type) {
		case *anthropic.Text:
			if strings.TrimSpace(b.Text) == "" {
				return fmt.Sprintf("content.%d: text content blocks must contain non-whitespace text", n)
			}
		case *anthropic.Thinking:
			if !strings.HasPrefix(b.Signature, "sig_") {
				return fmt.Sprintf("content.%d: Invalid `signature` in `thinking` block", n)
			}
		case *anthropic.Document:
			if m.Role == anthropic.RoleAssistant {
				return fmt.Sprintf("content.%d: document blocks are not allowed here", n)
			}
		}
	}
	return ""
}
