package oairesponses_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// recordings are streams and bodies of the real service, kept beside the repository where the project is developed.
func recordings(t *testing.T, pattern string) []string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("../../../../shared/fixtures/openai", pattern))
	if len(files) == 0 {
		t.Skip("no ../shared/fixtures/openai beside the repository: the recordings are not read")
	}
	return files
}

// lost lists what a has and b has not. A null is the same as nothing.
func lost(path string, a, b any) []string {
	switch a := a.(type) {
	case nil:
		return nil
	case map[string]any:
		m, _ := b.(map[string]any)
		var out []string
		for k, v := range a {
			out = append(out, lost(path+"."+k, v, m[k])...)
		}
		return out
	case []any:
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return []string{fmt.Sprintf("%s: %d elements became %v", path, len(a), b)}
		}
		var out []string
		for i := range a {
			out = append(out, lost(fmt.Sprintf("%s[%d]", path, i), a[i], l[i])...)
		}
		return out
	}
	if !cmp.Equal(a, b) {
		return []string{fmt.Sprintf("%s: %v became %v", path, a, b)}
	}
	return nil
}

func checkNothingLost(t *testing.T, where string, data []byte, v any) {
	t.Helper()
	encoded, err := oairesponses.Marshal(v)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	var a, b any
	if err := json.Unmarshal(data, &a); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if err := json.Unmarshal(encoded, &b); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	for _, l := range lost("", a, b) {
		t.Errorf("%s: lost %s", where, l)
	}
}

func TestRecordedStreams(t *testing.T) {
	read := 0
	for _, file := range recordings(t, "*.chunks.txt") {
		if strings.HasPrefix(filepath.Base(file), "chat-") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 16<<20)
		for n := 0; lines.Scan(); n++ {
			if len(lines.Bytes()) == 0 {
				continue
			}
			where := fmt.Sprintf("%s:%d", filepath.Base(file), n+1)
			ev, err := oairesponses.DecodeEvent(lines.Bytes())
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			if raw, ok := ev.(*oairesponses.RawEvent); ok {
				t.Errorf("%s: %s has no struct", where, raw.Type)
			}
			checkNothingLost(t, where, lines.Bytes(), ev)
			read++
		}
	}
	if read == 0 {
		t.Error("no event in any recording")
	}
}

func TestRecordedResponses(t *testing.T) {
	for _, file := range recordings(t, "*.json") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var is struct{ Object string }
		if json.Unmarshal(data, &is); is.Object != "response" {
			continue
		}
		var resp oairesponses.Response
		if err := json.Unmarshal(data, &resp); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, it := range resp.Output {
			if raw, ok := it.(*oairesponses.Raw); ok {
				t.Errorf("%s: item %s has no struct", file, raw.Type)
			}
		}
		checkNothingLost(t, filepath.Base(file), data, &resp)
	}
}

// Every item, part, tool and event that has a struct, and one of each union that has none.
func TestNothingIsLost(t *testing.T) {
	for _, line := range strings.Split(strings.TrimSpace(requestLines), "\n") {
		req, err := oairesponses.DecodeRequest([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		checkNothingLost(t, line, []byte(line), req)
	}
	for _, line := range strings.Split(strings.TrimSpace(eventLines), "\n") {
		ev, err := oairesponses.DecodeEvent([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if _, raw := ev.(*oairesponses.RawEvent); raw != strings.Contains(line, "steer") {
			t.Errorf("%s: decoded as %T", line, ev)
		}
		checkNothingLost(t, line, []byte(line), ev)
	}
}

func TestFlatErrorEvent(t *testing.T) {
	ev, err := oairesponses.DecodeEvent([]byte(`{"type":"error","code":"server_error","message":"m","param":"p","sequence_number":3}`))
	if err != nil {
		t.Fatal(err)
	}
	code, param := "server_error", "p"
	want := &oairesponses.ErrorEvent{
		EventHead: oairesponses.EventHead{Type: "error", SequenceNumber: 3},
		Error:     oairesponses.ErrorBody{Code: &code, Message: "m", Param: &param},
	}
	if diff := cmp.Diff(want, ev); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMarshalDoesNotEscape(t *testing.T) {
	s := "if a < b && c > d: print('x')"
	got, err := oairesponses.Marshal(oairesponses.Content{Text: &s})
	if err != nil || string(got) != `"`+s+`"` {
		t.Errorf("%s, %v", got, err)
	}
}

const requestLines = `
{"model":"m","input":"hi","instructions":"be brief","stream":true,"stream_options":{"include_obfuscation":false},"include":["reasoning.encrypted_content"],"store":false,"background":false,"truncation":"auto"}
{"previous_response_id":"resp_1","conversation":{"id":"conv_1"},"prompt":{"id":"pmpt_1","variables":{"a":"b"}},"user":"u","safety_identifier":"s","prompt_cache_key":"k","service_tier":"flex"}
{"prompt_cache_retention":"24h","prompt_cache_options":{"mode":"implicit"},"context_management":[{"type":"compaction","compact_threshold":5}],"moderation":{"model":"x"},"access_programs":{"cyber":true},"image":{"context_compression":"auto"}}
{"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true,"description":"d"},"verbosity":"low"},"reasoning":{"effort":"high","summary":"auto","generate_summary":"concise","context":"auto","mode":"pro"}}
{"temperature":0.5,"top_p":0.9,"top_logprobs":3,"presence_penalty":0.1,"frequency_penalty":0.2,"metadata":{"a":"b"},"max_output_tokens":16,"max_tool_calls":2,"parallel_tool_calls":false}
{"tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true,"description":"d","defer_loading":true,"async":true,"allowed_callers":["direct"],"output_schema":{"type":"string"}}]}
{"tools":[{"type":"code_interpreter","container":"cntr_1","allowed_callers":["direct"]},{"type":"code_interpreter","container":{"type":"auto","file_ids":["file_1"],"memory_limit":"4g","network_policy":{"type":"allowlist","allowed_domains":["a.b"],"domain_secrets":[{"domain":"a.b","name":"n","value":"v"}]}}}]}
{"tools":[{"type":"shell","environment":{"type":"container_auto","file_ids":["f"],"memory_limit":"1g","network_policy":{"type":"disabled"},"skills":[{"type":"skill_reference","skill_id":"s","version":"latest"},{"type":"inline","name":"n","description":"d","source":{"type":"base64","media_type":"application/zip","data":"AA=="}}]},"allowed_callers":["direct"]}]}
{"tools":[{"type":"shell","environment":{"type":"local","skills":[{"name":"n","description":"d","path":"/p"}]}},{"type":"custom","name":"c","description":"d","format":{"type":"text"},"defer_loading":true,"async":true,"allowed_callers":["direct"]},{"type":"mcp","server_label":"s"}]}
{"tool_choice":"required"}
{"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"},{"type":"mcp","server_label":"s"}]}}
{"tool_choice":{"type":"mcp","server_label":"s","name":"n"}}
{"input":[{"role":"user","content":"easy"},{"type":"message","role":"developer","content":[{"type":"input_text","text":"t","prompt_cache_breakpoint":{"ttl":"5m"}}],"status":"completed","phase":"commentary"}]}
{"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://a/b.png","detail":"low"},{"type":"input_image","file_id":"file_1"},{"type":"input_file","file_id":"f","file_url":"u","file_data":"d","filename":"n","detail":"high"},{"type":"input_audio","x":1}]}]}
{"input":[{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"t","logprobs":[{"token":"t"}],"annotations":[{"type":"container_file_citation","container_id":"c","file_id":"f","filename":"n","start_index":0,"end_index":0},{"type":"url_citation","url":"u","title":"t","start_index":1,"end_index":2},{"type":"file_path","file_id":"f","index":0}]},{"type":"refusal","refusal":"no"}]}]}
{"input":[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"r"}],"encrypted_content":"e","status":"completed"},{"type":"reasoning","summary":[],"content":[]}]}
{"input":[{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":"{}","status":"completed","namespace":"n","async":true,"caller":{"type":"direct"}},{"id":"fco_1","type":"function_call_output","call_id":"call_1","output":"x","status":"completed","name":"f","namespace":"n","caller":{"type":"direct"}},{"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"t"}]}]}
{"input":[{"id":"ci_1","type":"code_interpreter_call","status":"completed","code":"1","container_id":"c","outputs":[{"type":"logs","logs":""},{"type":"image","url":"data:image/png;base64,AA=="}]},{"id":"ci_2","type":"code_interpreter_call","status":"incomplete","code":null,"container_id":"c","outputs":null}]}
{"input":[{"type":"item_reference","id":"msg_1"},{"id":"msg_2"},{"type":"web_search_call","id":"ws_1","action":{"type":"search"}}]}
{"input":[{"id":"sh_1","type":"shell_call","call_id":"c","status":"completed","action":{"commands":["ls"],"timeout_ms":5,"max_output_length":6},"environment":{"type":"container_reference","container_id":"c"},"caller":{"type":"direct"},"created_by":"x"},{"id":"sho_1","type":"shell_call_output","call_id":"c","status":"completed","max_output_length":6,"output":[{"stdout":"o","stderr":"e","outcome":{"type":"exit","exit_code":0}},{"stdout":"","stderr":"","outcome":{"type":"timeout"}}],"caller":{"type":"direct"}}]}
{"input":[{"id":"lsh_1","type":"local_shell_call","call_id":"c","status":"completed","action":{"type":"exec","command":["ls"],"env":{"A":"b"},"timeout_ms":5,"user":"u","working_directory":"/"}},{"id":"lsho_1","type":"local_shell_call_output","status":"completed","output":"{}"}]}
{"input":[{"id":"apc_1","type":"apply_patch_call","call_id":"c","status":"completed","operation":{"type":"update_file","path":"p","diff":"d"},"caller":{"type":"direct"}},{"id":"apco_1","type":"apply_patch_call_output","call_id":"c","status":"failed","output":"o","caller":{"type":"direct"}}]}
{"input":[{"id":"ctc_1","type":"custom_tool_call","call_id":"c","name":"n","input":"i","status":"completed","namespace":"n","async":true,"caller":{"type":"direct"}},{"id":"ctco_1","type":"custom_tool_call_output","call_id":"c","status":"completed","output":"o","caller":{"type":"direct"}}]}
`

const eventLines = `
{"type":"response.refusal.delta","sequence_number":1,"item_id":"i","output_index":0,"content_index":0,"delta":"d","obfuscation":"x"}
{"type":"response.refusal.done","sequence_number":1,"item_id":"i","output_index":0,"content_index":0,"refusal":"d"}
{"type":"response.output_text.annotation.added","sequence_number":1,"item_id":"i","output_index":0,"content_index":0,"annotation_index":0,"annotation":{"type":"url_citation","url":"u","title":"t","start_index":0,"end_index":1}}
{"type":"response.reasoning_summary_part.added","sequence_number":1,"item_id":"i","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}
{"type":"response.reasoning_summary_part.done","sequence_number":1,"item_id":"i","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":"s"},"status":"incomplete"}
{"type":"response.reasoning_summary_text.delta","sequence_number":1,"item_id":"i","output_index":0,"summary_index":0,"delta":"s","obfuscation":"x"}
{"type":"response.reasoning_summary_text.done","sequence_number":1,"item_id":"i","output_index":0,"summary_index":0,"text":"s"}
{"type":"response.function_call_arguments.delta","sequence_number":1,"item_id":"i","output_index":0,"delta":"{","obfuscation":"x"}
{"type":"response.function_call_arguments.done","sequence_number":1,"item_id":"i","output_index":0,"name":"f","arguments":"{}"}
{"type":"response.custom_tool_call_input.delta","sequence_number":1,"item_id":"i","output_index":0,"delta":"d"}
{"type":"response.custom_tool_call_input.done","sequence_number":1,"item_id":"i","output_index":0,"input":"d"}
{"type":"response.incomplete","sequence_number":1,"response":{"id":"resp_1","object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[],"conversation":{"id":"conv_1"},"prompt":{"id":"p"},"moderation":{"x":1},"tool_usage":{"web_search":{"num_requests":0}},"instructions":"i","usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":1,"cache_write_tokens":2,"cache_write_tokens_details":{"ttl_30m_tokens":2}},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":4}}}
{"type":"lathe.output.delta","sequence_number":1,"item_id":"i","output_index":0,"call_id":"i","stream":"stderr","text":"t"}
{"type":"response.steer.accepted","sequence_number":1,"anything":{"else":1}}
`
