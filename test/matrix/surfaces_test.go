package matrix

import (
	"encoding/json"
	"strings"
	"testing"
)

var schema = object{"type": "object", "properties": object{"city": object{"type": "string"}}, "required": []string{"city"}}

// chatSurface is Chat Completions.
var chatSurface = surface{
	name: "chat", path: "/v1/chat/completions", protocol: "openai-chat",
	ask: func(q question) object {
		content := any(q.text)
		if q.image {
			content = []any{object{"type": "text", "text": q.text}, object{"type": "image_url", "image_url": object{"url": "data:image/png;base64," + pixel}}}
		}
		body := object{"model": "m", "messages": []any{object{"role": "user", "content": content}}, "max_tokens": 1000}
		var tools []any
		if q.tool {
			tools = append(tools, object{"type": "function", "function": object{"name": "weather", "parameters": schema}})
		}
		if q.hosted {
			tools = append(tools, object{"type": "code_interpreter"})
		}
		if tools != nil {
			body["tools"] = tools
		}
		if q.reasoning {
			body["reasoning_effort"] = "low"
		}
		if q.stream {
			body["stream"], body["stream_options"] = true, object{"include_usage": true}
		}
		return body
	},
	read: func(t *testing.T, asked object, body []byte, stream bool) (heard, []any) {
		var h heard
		var message object
		var usage any
		if stream {
			message, usage = chatChunks(t, body, &h)
		} else {
			var v object
			must(t, json.Unmarshal(body, &v))
			message, _ = at(v, "choices", 0, "message").(object)
			h.Finish, usage = str(v, "choices", 0, "finish_reason"), v["usage"]
		}
		h.Text, h.Reasoning = str(message, "content"), str(message, "reasoning_content")
		for _, c := range list(message, "tool_calls") {
			h.Calls = append(h.Calls, called{str(c, "id"), str(c, "function", "name"), str(c, "function", "arguments")})
		}
		for _, c := range list(message, "code_interpreter_calls") {
			h.Code = append(h.Code, ran{str(c, "code"), logs(c)})
		}
		if h.Finish == "tool_calls" {
			h.Finish = "calls"
		}
		h.Input, h.Output = num(usage, "prompt_tokens"), num(usage, "completion_tokens")
		// What a client of the protocol sends back: it knows nothing of the extensions.
		back := object{"role": "assistant", "content": message["content"]}
		if calls := message["tool_calls"]; calls != nil {
			back["tool_calls"] = calls
		}
		return h, append(append([]any{}, asked["messages"].([]any)...), back)
	},
	answer: func(asked object, history []any, results map[string]string) object {
		last, _ := history[len(history)-1].(object)
		for _, c := range list(last, "tool_calls") {
			history = append(history, object{"role": "tool", "tool_call_id": str(c, "id"), "content": results[str(c, "id")]})
		}
		return replaced(asked, "messages", history)
	},
}

func replaced(asked object, key string, v any) object {
	next := object{}
	for k, old := range asked {
		next[k] = old
	}
	next[key] = v
	return next
}

// chatChunks joins the deltas of a stream.
func chatChunks(t *testing.T, body []byte, h *heard) (message object, usage any) {
	t.Helper()
	var text, reasoning strings.Builder
	var calls []any
	code := map[int]string{}
	message = object{"role": "assistant", "content": nil}
	for _, ev := range events(t, body) {
		if ev["error"] != nil || ev["malformed"] != nil {
			h.Error = "stream"
		}
		if u := ev["usage"]; u != nil {
			usage = u
		}
		delta := at(ev, "choices", 0, "delta")
		text.WriteString(str(delta, "content"))
		reasoning.WriteString(str(delta, "reasoning_content"))
		for _, c := range list(delta, "tool_calls") {
			i := num(c, "index")
			for len(calls) <= i {
				calls = append(calls, object{"type": "function", "function": object{"arguments": ""}})
			}
			call := calls[i].(object)
			f := call["function"].(object)
			if id := str(c, "id"); id != "" {
				call["id"] = id
			}
			if name := str(c, "function", "name"); name != "" {
				f["name"] = name
			}
			f["arguments"] = f["arguments"].(string) + str(c, "function", "arguments")
		}
		for _, c := range list(delta, "code_interpreter_calls") {
			code[num(c, "index")] += str(c, "code")
			if str(c, "status") == "completed" {
				done := object{"code": code[num(c, "index")], "outputs": at(c, "outputs")}
				message["code_interpreter_calls"] = append(list(message, "code_interpreter_calls"), done)
			}
		}
		if f := str(ev, "choices", 0, "finish_reason"); f != "" {
			h.Finish = f
		}
	}
	if text.Len() > 0 {
		message["content"] = text.String()
	}
	message["reasoning_content"] = reasoning.String()
	if calls != nil {
		message["tool_calls"] = calls
	}
	return message, usage
}

func logs(call any) string {
	var b strings.Builder
	for _, o := range list(call, "outputs") {
		b.WriteString(str(o, "logs"))
	}
	return b.String()
}

// responsesSurface is Responses.
var responsesSurface = surface{
	name: "responses", path: "/v1/responses", protocol: "openai-responses",
	ask: func(q question) object {
		content := []any{object{"type": "input_text", "text": q.text}}
		if q.image {
			content = append(content, object{"type": "input_image", "image_url": "data:image/png;base64," + pixel, "detail": "auto"})
		}
		body := object{"model": "m", "input": []any{object{"role": "user", "content": content}}, "max_output_tokens": 1000, "store": false}
		var tools []any
		if q.tool {
			tools = append(tools, object{"type": "function", "name": "weather", "parameters": schema, "strict": false})
		}
		if q.hosted {
			tools = append(tools, object{"type": "code_interpreter", "container": object{"type": "auto"}})
			body["include"] = []any{"code_interpreter_call.outputs"}
		}
		if tools != nil {
			body["tools"] = tools
		}
		if q.reasoning {
			body["reasoning"] = object{"effort": "low", "summary": "auto"}
		}
		if q.stream {
			body["stream"] = true
		}
		return body
	},
	read: func(t *testing.T, asked object, body []byte, stream bool) (heard, []any) {
		var h heard
		var v any
		if stream {
			var text strings.Builder
			for _, ev := range events(t, body) {
				switch str(ev, "type") {
				case "response.output_text.delta":
					text.WriteString(str(ev, "delta"))
				case "response.completed", "response.incomplete":
					v = ev["response"]
				case "response.failed", "error", "":
					h.Error = "stream"
				}
			}
			if v == nil {
				h.Text = text.String()
				if h.Error == "" {
					h.Error = "stream"
				}
				return h, nil
			}
		} else {
			must(t, json.Unmarshal(body, &v))
		}
		h.Finish = "stop"
		for _, it := range list(v, "output") {
			switch str(it, "type") {
			case "message":
				for _, p := range list(it, "content") {
					h.Text += str(p, "text")
				}
			case "reasoning":
				for _, p := range append(list(it, "summary"), list(it, "content")...) {
					h.Reasoning += str(p, "text")
				}
			case "function_call":
				h.Calls = append(h.Calls, called{str(it, "call_id"), str(it, "name"), str(it, "arguments")})
				h.Finish = "calls"
			case "code_interpreter_call":
				h.Code = append(h.Code, ran{str(it, "code"), logs(it)})
			}
		}
		h.Input, h.Output = num(v, "usage", "input_tokens"), num(v, "usage", "output_tokens")
		return h, append(append([]any{}, asked["input"].([]any)...), list(v, "output")...)
	},
	answer: func(asked object, history []any, results map[string]string) object {
		for _, it := range history {
			if str(it, "type") == "function_call" {
				history = append(history, object{"type": "function_call_output", "call_id": str(it, "call_id"), "output": results[str(it, "call_id")]})
			}
		}
		return replaced(asked, "input", history)
	},
}

// messagesSurface is Messages.
var messagesSurface = surface{
	name: "messages", path: "/v1/messages", protocol: "anthropic",
	ask: func(q question) object {
		content := []any{object{"type": "text", "text": q.text}}
		if q.image {
			content = append(content, object{"type": "image", "source": object{"type": "base64", "media_type": "image/png", "data": pixel}})
		}
		body := object{"model": "m", "max_tokens": 4000, "messages": []any{object{"role": "user", "content": content}}}
		var tools []any
		if q.tool {
			tools = append(tools, object{"name": "weather", "input_schema": schema})
		}
		if q.hosted {
			tools = append(tools, object{"type": "code_execution_20260120", "name": "code_execution"})
		}
		if tools != nil {
			body["tools"] = tools
		}
		if q.reasoning {
			body["thinking"] = object{"type": "enabled", "budget_tokens": 2000}
		}
		if q.stream {
			body["stream"] = true
		}
		return body
	},
	read: func(t *testing.T, asked object, body []byte, stream bool) (heard, []any) {
		var h heard
		var v object
		if stream {
			v = messageEvents(t, body, &h)
		} else {
			must(t, json.Unmarshal(body, &v))
		}
		inputs := map[string]string{}
		for _, b := range list(v, "content") {
			switch str(b, "type") {
			case "text":
				h.Text += str(b, "text")
			case "thinking":
				h.Reasoning += str(b, "thinking")
			case "tool_use":
				args, err := json.Marshal(at(b, "input"))
				must(t, err)
				h.Calls = append(h.Calls, called{str(b, "id"), str(b, "name"), string(args)})
			case "server_tool_use":
				inputs[str(b, "id")] = str(b, "input", "code")
			case "code_execution_tool_result":
				h.Code = append(h.Code, ran{inputs[str(b, "tool_use_id")], str(b, "content", "stdout")})
			}
		}
		if h.Error == "" {
			h.Finish = map[string]string{"end_turn": "stop", "tool_use": "calls", "max_tokens": "length"}[str(v, "stop_reason")]
			h.Input, h.Output = num(v, "usage", "input_tokens"), num(v, "usage", "output_tokens")
		}
		return h, append(append([]any{}, asked["messages"].([]any)...), object{"role": "assistant", "content": v["content"]})
	},
	answer: func(asked object, history []any, results map[string]string) object {
		last, _ := history[len(history)-1].(object)
		var blocks []any
		for _, b := range list(last, "content") {
			if str(b, "type") == "tool_use" {
				blocks = append(blocks, object{"type": "tool_result", "tool_use_id": str(b, "id"), "content": results[str(b, "id")]})
			}
		}
		return replaced(asked, "messages", append(history, object{"role": "user", "content": blocks}))
	},
}

// messageEvents puts a message together from its stream.
func messageEvents(t *testing.T, body []byte, h *heard) object {
	t.Helper()
	var v object
	var blocks []any
	var inputs []string
	ended := false
	for _, ev := range events(t, body) {
		i := num(ev, "index")
		var block object
		if i < len(blocks) {
			block = blocks[i].(object)
		}
		switch str(ev, "type") {
		case "message_start":
			v, _ = ev["message"].(object)
		case "content_block_start":
			b, _ := ev["content_block"].(object)
			blocks, inputs = append(blocks, b), append(inputs, "")
		case "content_block_delta":
			for _, field := range []string{"text", "thinking", "signature"} {
				if s := str(ev, "delta", field); s != "" {
					block[field] = str(block, field) + s
				}
			}
			inputs[i] += str(ev, "delta", "partial_json")
		case "content_block_stop":
			if inputs[i] != "" {
				var input any
				must(t, json.Unmarshal([]byte(inputs[i]), &input))
				block["input"] = input
			}
		case "message_delta":
			v["stop_reason"] = at(ev, "delta", "stop_reason")
			usage, _ := v["usage"].(object)
			more, _ := ev["usage"].(object)
			for k, n := range more {
				usage[k] = n
			}
		case "message_stop":
			ended = true
		case "error", "":
			h.Error = "stream"
		}
	}
	if v == nil {
		v = object{}
	}
	if !ended && h.Error == "" {
		h.Error = "stream"
	}
	v["content"] = blocks
	return v
}
