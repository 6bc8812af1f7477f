package responses

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestDecodeRefuses(t *testing.T) {
	input := func(item string) string { return `{"model":"m","input":[` + item + `]}` }
	tool := func(tool string) string { return `{"model":"m","input":"x","tools":[` + tool + `]}` }
	auto := func(field string) string {
		return tool(`{"type":"code_interpreter","container":{"type":"auto",` + field + `}}`)
	}
	field := func(field string) string { return `{"model":"m","input":"x",` + field + `}` }
	const (
		unsupported = "unsupported_value"
		invalid     = "invalid_value"
		required    = "missing_required_parameter"
		long        = "string_above_max_length"
		unknown     = "unknown_parameter"
	)
	for _, tc := range []struct{ body, param, code string }{
		{`{`, "", ""},
		{`[]`, "", "invalid_type"},
		{`{"input":"x"}`, "model", required},
		{`{"model":"m"}`, "input", required},
		{`{"model":"m","input":[]}`, "input", required},
		{field(`"max_tokens":5`), "max_tokens", unknown},
		{auto(`"skills":[{"type":"own","skill_id":"s"}]`), "tools[0].container.skills[0].type", "invalid_value"},

		{field(`"previous_response_id":"resp_1"`), "previous_response_id", unsupported},
		{field(`"conversation":"conv_1"`), "conversation", unsupported},
		{field(`"background":true`), "background", unsupported},
		{field(`"prompt":{"id":"p"}`), "prompt", unsupported},
		{field(`"context_management":[]`), "context_management", unsupported},
		{field(`"truncation":"auto"`), "truncation", unsupported},
		{field(`"truncation":"never"`), "truncation", invalid},
		{field(`"moderation":{}`), "moderation", unsupported},
		{field(`"access_programs":{}`), "access_programs", unsupported},
		{field(`"image":{}`), "image", unsupported},

		{field(`"max_output_tokens":15`), "max_output_tokens", invalid},
		{field(`"max_tool_calls":-1`), "max_tool_calls", invalid},
		{field(`"temperature":2.1`), "temperature", invalid},
		{field(`"top_p":-0.1`), "top_p", invalid},
		{field(`"presence_penalty":3`), "presence_penalty", invalid},
		{field(`"top_logprobs":21`), "top_logprobs", invalid},
		{field(`"include":["code_interpreter_call.outputs","everything"]`), "include[1]", invalid},
		{field(`"safety_identifier":"` + strings.Repeat("x", 129) + `"`), "safety_identifier", long},
		{field(`"metadata":{` + pairs(17) + `}`), "metadata", invalid},
		{field(`"metadata":{"` + strings.Repeat("k", 65) + `":"v"}`), "metadata", long},
		{field(`"metadata":{"k":"` + strings.Repeat("v", 513) + `"}`), "metadata.k", long},
		{field(`"metadata":{"session_id":""}`), "metadata.session_id", invalid},
		{field(`"reasoning":{"effort":"huge"}`), "reasoning.effort", invalid},
		{field(`"reasoning":{"summary":"novel"}`), "reasoning.summary", invalid},
		{field(`"reasoning":{"context":"all_turns"}`), "reasoning.context", unsupported},
		{field(`"reasoning":{"mode":"pro"}`), "reasoning.mode", unsupported},
		{field(`"text":{"verbosity":"loud"}`), "text.verbosity", invalid},
		{field(`"text":{"format":{"type":"xml"}}`), "text.format.type", invalid},
		{field(`"text":{"format":{"type":"json_schema","name":"a b","schema":{}}}`), "text.format.name", invalid},
		{field(`"text":{"format":{"type":"json_schema","name":"a"}}`), "text.format.schema", required},

		{tool(`{"type":"function","name":"f"},{"type":"web_search"}`), "tools[1].type", unsupported},
		{tool(`{"type":"shell"}`), "tools[0].type", unsupported},
		{tool(`{}`), "tools[0].type", required},
		{tool(`{"type":"code_interpreter","container":""}`), "tools[0].container", invalid},
		{tool(`{"type":"code_interpreter"},{"type":"code_interpreter"}`), "tools[1]", invalid},
		{tool(`{"type":"code_interpreter","allowed_callers":["programmatic"]}`), "tools[0].allowed_callers[0]", unsupported},
		{tool(`{"type":"code_interpreter","container":{"type":"manual"}}`), "tools[0].container.type", invalid},
		{auto(`"memory_limit":"2g"`), "tools[0].container.memory_limit", invalid},
		{auto(`"file_ids":[` + strings.Repeat(`"f",`, 50) + `"f"]`), "tools[0].container.file_ids", invalid},
		{auto(`"network_policy":{"type":"open"}`), "tools[0].container.network_policy.type", invalid},
		{auto(`"network_policy":{"allowed_domains":["a.b"]}`), "tools[0].container.network_policy.type", required},
		{auto(`"network_policy":{"type":"allowlist"}`), "tools[0].container.network_policy.allowed_domains", required},
		{auto(`"network_policy":{"type":"disabled","allowed_domains":["a.b"]}`), "tools[0].container.network_policy.type", invalid},
		{auto(`"network_policy":{"type":"allowlist","allowed_domains":["a.b"],"domain_secrets":[{"domain":"a.b","name":"n"}]}`),
			"tools[0].container.network_policy.domain_secrets[0].value", required},
		{auto(`"network_policy":{"type":"allowlist","allowed_domains":["a.b"],"domain_secrets":[{"domain":"a.b","name":"n","value":"v","x":1}]}`),
			"tools[0].container.network_policy.domain_secrets[0].x", "unknown_parameter"},
		{tool(`{"type":"function","name":"a b"}`), "tools[0].name", invalid},
		{tool(`{"type":"function","name":"f"},{"type":"function","name":"f"}`), "tools[1].name", invalid},
		{tool(`{"type":"function","name":"f","parameters":[]}`), "tools[0].parameters", invalid},
		{tool(`{"type":"function","name":"f","defer_loading":true}`), "tools[0].defer_loading", unsupported},
		{tool(`{"type":"function","name":"f","async":true}`), "tools[0].async", unsupported},

		{field(`"tool_choice":"maybe"`), "tool_choice", invalid},
		{field(`"tool_choice":"required"`), "tool_choice", invalid},
		{field(`"tool_choice":{"type":"code_interpreter"}`), "tool_choice", invalid},
		{field(`"tool_choice":{"type":"function","name":"f"}`), "tool_choice", invalid},
		{field(`"tool_choice":{"type":"shell"}`), "tool_choice.type", unsupported},
		{field(`"tool_choice":{}`), "tool_choice.type", required},
		{field(`"tool_choice":{"type":"allowed_tools","mode":"none"}`), "tool_choice.mode", invalid},
		{field(`"tool_choice":{"type":"allowed_tools","mode":"auto"}`), "tool_choice.tools", invalid},
		{field(`"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"s"}]}`),
			"tool_choice.tools[0].type", unsupported},

		{input(`{"role":"user","content":"a"},{"type":"web_search_call","id":"w"}`), "input[1].type", unsupported},
		{input(`{"type":"shell_call","call_id":"c","action":{"commands":[]}}`), "input[0].type", unsupported},
		{input(`{"content":"a"}`), "input[0].type", required},
		{input(`{"type":"item_reference","id":"msg_1"}`), "input[0].id", unsupported},
		{input(`{"role":"tool","content":"a"}`), "input[0].role", invalid},
		{input(`{"role":"user"}`), "input[0].content", required},
		{input(`{"role":"user","content":[{"type":"input_audio"}]}`), "input[0].content[0].type", unsupported},
		{input(`{"role":"user","content":[{"text":"a"}]}`), "input[0].content[0].type", required},
		{input(`{"role":"user","content":[{"type":"summary_text","text":"a"}]}`), "input[0].content[0].type", invalid},
		{input(`{"role":"user","content":[{"type":"input_image"}]}`), "input[0].content[0]", invalid},
		{input(`{"role":"user","content":[{"type":"input_image","file_id":"f","detail":"tiny"}]}`), "input[0].content[0].detail", invalid},
		{input(`{"role":"user","content":[{"type":"input_image","image_url":"file:///etc/passwd"}]}`), "input[0].content[0].image_url", invalid},
		{input(`{"role":"user","content":[{"type":"input_file","filename":"a"}]}`), "input[0].content[0]", invalid},
		{input(`{"role":"user","content":[{"type":"input_file","file_data":"%%"}]}`), "input[0].content[0].file_data", invalid},

		{input(`{"type":"function_call","name":"f","arguments":""}`), "input[0].call_id", required},
		{input(`{"type":"function_call","call_id":"c","arguments":""}`), "input[0].name", required},
		{input(`{"type":"function_call_output","output":"x"}`), "input[0].call_id", required},
		{input(`{"type":"function_call_output","call_id":"c"}`), "input[0].output", required},
		{input(`{"type":"function_call_output","call_id":"c","output":"x"}`), "input[0].call_id", invalid},
		{input(`{"type":"function_call","call_id":"c","name":"f","arguments":""}`), "input", invalid},
		{input(call + `,` + call), "input[1].call_id", invalid},
		{input(call + `,` + answer + `,` + answer), "input[2].call_id", invalid},
		{input(`{"id":"ci","type":"code_interpreter_call","status":"done"}`), "input[0].status", invalid},
		{input(`{"id":"ci","type":"code_interpreter_call","status":"completed","outputs":[{"type":"logs","logs":"x"},{"type":"video"}]}`),
			"input[0].outputs[1].type", invalid},
		{input(`{"id":"ci","type":"code_interpreter_call","status":"completed","outputs":[{"type":"image","url":"https://a.b/c.png"}]}`),
			"input[0].outputs[0].url", unsupported},
	} {
		_, err := decode([]byte(tc.body))
		if err == nil {
			t.Errorf("%s was accepted", tc.body)
			continue
		}
		e := turn.AsError(err)
		if e.Param != tc.param || e.Code != tc.code || (e.Kind != turn.KindInvalid && e.Kind != turn.KindUnsupported) {
			t.Errorf("%.200s:\n got param %q code %q (%v)\nwant param %q code %q", tc.body, e.Param, e.Code, e, tc.param, tc.code)
		}
	}
}

const (
	call   = `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`
	answer = `{"type":"function_call_output","call_id":"c","output":"x"}`
)

func pairs(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return strings.Join(out, ",")
}

func TestDecodeHints(t *testing.T) {
	_, err := decode([]byte(`{"model":"m","messages":[]}`))
	if err == nil || !strings.Contains(err.Error(), "input") {
		t.Errorf("got %v, want an error that names input", err)
	}
}

// Whatever a client sends, the answer is a request or an error that it may see; never a panic, never an internal error.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"model":"m","input":[` + call + `,` + answer + `],"tools":[{"type":"code_interpreter"}]}`))
	f.Add([]byte(`{"model":"m","input":[{"id":"ci","type":"code_interpreter_call","status":"completed",
		"outputs":[{"type":"image","url":"data:,"}]}]}`))
	f.Add([]byte(`{"model":"m","input":[{"role":"user","content":[
		{"type":"input_file","file_data":"data:a;base64,AA=="},{"type":"input_image"}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := decode(body)
		if err != nil {
			if turn.AsError(err).Kind == turn.KindInternal {
				t.Errorf("%s: internal error %v", body, err)
			}
			return
		}
		if _, err := turn.MarshalItems(req.turn.Items); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	})
}
