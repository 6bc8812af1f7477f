package anthropic

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// roundTrip decodes data into v, encodes it again and compares every field.
func roundTrip(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	same(t, data, v)
}

func same(t *testing.T, data []byte, v any) {
	t.Helper()
	out, err := Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoding and encoding changes (-want +got):\n%s", diff)
	}
}

const richBlocks = `[
	{"type":"text","text":"","citations":null,"cache_control":{"type":"ephemeral","ttl":"1h"}},
	{"type":"text","text":"<&>","citations":[
		{"type":"char_location","cited_text":"c","document_index":0,"document_title":null,"start_char_index":0,"end_char_index":1,"file_id":null},
		{"type":"page_location","cited_text":"c","document_index":0,"document_title":"T","start_page_number":1,"end_page_number":2},
		{"type":"content_block_location","cited_text":"c","document_index":0,"document_title":null,"start_block_index":0,"end_block_index":1},
		{"type":"search_result_location","cited_text":"c","search_result_index":0,"source":"s","title":null,"start_block_index":0,"end_block_index":1},
		{"type":"web_search_result_location","cited_text":"c","url":"https://x","title":"T","encrypted_index":"E"},
		{"type":"moon_location","cited_text":"c","crater":{"deep":[1,2]}}]},
	{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="},"transformations":[{"type":"crop"}]},
	{"type":"image","source":{"type":"url","url":"https://x"}},
	{"type":"document","source":{"type":"text","media_type":"text/plain","data":""},"title":"","context":null,"citations":{"enabled":false}},
	{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"}]}},
	{"type":"document","source":{"type":"content","content":"a"}},
	{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"a"}],"citations":{"enabled":true}},
	{"type":"thinking","thinking":"","signature":"S"},
	{"type":"redacted_thinking","data":"D"},
	{"type":"tool_use","id":"toolu_1","name":"f","input":{"n":12345678901234567890},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"},"toolset_name":"computer"},
	{"type":"tool_result","tool_use_id":"toolu_1"},
	{"type":"tool_result","tool_use_id":"toolu_1","content":"","is_error":false},
	{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"a"},{"type":"tool_reference","tool_name":"g"},{"type":"browser_state","tabs":[]}],"toolset_name":"browser"},
	{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"ls"}},
	{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"bash_code_execution_result","stdout":"a","stderr":"","return_code":1,"content":[{"type":"bash_code_execution_output","file_id":"file_1"}],"abort_reason":null}},
	{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"encrypted_code_execution_result","encrypted_stdout":"E","stderr":"","return_code":0,"content":[]}},
	{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"code_execution_tool_result_error","error_code":"unavailable"}},
	{"type":"text_editor_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"text_editor_code_execution_view_result","file_type":"text","content":"x","num_lines":1,"start_line":null,"total_lines":null}},
	{"type":"text_editor_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"text_editor_code_execution_create_result","is_file_update":false}},
	{"type":"text_editor_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"text_editor_code_execution_str_replace_result","old_start":1,"old_lines":0,"new_start":1,"new_lines":1,"lines":["-a","+b"]}},
	{"type":"text_editor_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"text_editor_code_execution_tool_result_error","error_code":"file_not_found","error_message":null}},
	{"type":"web_search_tool_result","tool_use_id":"srvtoolu_2","content":[{"type":"web_search_result","url":"u","encrypted_content":"E"}],"caller":{"type":"direct"}},
	{"type":"web_search_tool_result","tool_use_id":"srvtoolu_2","content":{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}},
	{"type":"web_fetch_tool_result","tool_use_id":"srvtoolu_3","content":{"type":"web_fetch_result","url":"u","content":{"type":"document"}}},
	{"type":"tool_search_tool_result","tool_use_id":"srvtoolu_4","content":{"type":"tool_search_tool_search_result","tool_references":[]}},
	{"type":"container_upload","file_id":"file_1","cache_control":null},
	{"type":"compaction","content":"of a beta"},
	{"of":"no type"}]`

func TestBlocksSurvive(t *testing.T) {
	var blocks Blocks
	roundTrip(t, []byte(richBlocks), &blocks)
	raw := 0
	for _, b := range blocks {
		if _, ok := b.(*Raw); ok {
			raw++
		}
	}
	if raw != 2 {
		t.Errorf("%d blocks without a struct, want those two that no document knows", raw)
	}
}

func TestRequestsSurvive(t *testing.T) {
	for name, body := range map[string]string{
		"small": `{"model":"m","max_tokens":0,"messages":[{"role":"user","content":"hi"},{"role":"system","content":[]}]}`,
		"everything": `{"model":"m","max_tokens":10,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":` + richBlocks + `,"id":7}],
			"tools":[{"name":"f","description":"","input_schema":{"type":"object"},"strict":false,"allowed_callers":["direct"],"defer_loading":true,"eager_input_streaming":true,"input_examples":[{"a":1}],"type":"custom","cache_control":{"type":"ephemeral"}},
				{"type":"code_execution_20260521","name":"code_execution"},{"type":"computer_toolset_20260801","configs":{"zoom":{"enabled":false}}}],
			"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},"stream":false,"stop_sequences":[],"thinking":{"type":"adaptive","display":"omitted"},
			"output_config":{"effort":"max","format":{"type":"json_schema","schema":{"type":"object"}},"task_budget":{}},"metadata":{"user_id":null},"service_tier":"auto","speed":"fast","inference_geo":"us",
			"cache_control":{"type":"ephemeral"},"container":{"id":null,"skills":[{"type":"anthropic","skill_id":"pptx","version":"latest"}]},"diagnostics":{"previous_message_id":"msg_1"},
			"temperature":0,"top_p":0.5,"top_k":0,"mcp_servers":[],"Model":"another field"}`,
		"strings": `{"model":"m","system":"","messages":[],"container":"container_1","thinking":{"type":"enabled","budget_tokens":1024}}`,
		"nulls":   `{"model":"m","messages":[],"system":null,"container":null,"tool_choice":null,"stop_sequences":null}`,
	} {
		t.Run(name, func(t *testing.T) { roundTrip(t, []byte(body), &Request{}) })
	}
}

func TestErrorsSurvive(t *testing.T) {
	roundTrip(t, []byte(`{"type":"error","error":{"type":"overloaded_error","message":"m","details":{"error_code":"x"}},"request_id":"req_1"}`), &ErrorBody{})
}

func TestNewFieldsWinOverOldOnes(t *testing.T) {
	var r Response
	if err := json.Unmarshal([]byte(`{"id":"m","stop_reason":null,"container":null,"usage":{"service_tier":null}}`), &r); err != nil {
		t.Fatal(err)
	}
	r.StopReason, r.Container = new(StopEndTurn), &Container{ID: new("c")}
	out, err := Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"m","type":"","role":"","model":"","content":null,"stop_reason":"end_turn","stop_sequence":null,"container":{"id":"c"},"usage":{"service_tier":null}}`
	if string(out) != want {
		t.Errorf("got  %s\nwant %s", out, want)
	}
}

func TestEventsAreTyped(t *testing.T) {
	for data, want := range map[string]any{
		`{"type":"ping"      }`:                        &Mark{Type: "ping"},
		`{"type":"content_block_stop","index":3     }`: &BlockStop{Type: "content_block_stop", Index: 3},
		` {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}   } `: &BlockDelta{
			Type: "content_block_delta", Delta: AnyDelta{Delta: &TextDelta{Type: "text_delta", Text: "a"}}},
		`{"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"a"}}`: &BlockDelta{
			Type: "content_block_delta", Delta: AnyDelta{Delta: &Raw{Type: "compaction_delta", JSON: json.RawMessage(`{"type":"compaction_delta","content":"a"}`)}}},
		`{"type":"hum","x":1}`: &Raw{Type: "hum", JSON: json.RawMessage(`{"type":"hum","x":1}`)},
	} {
		got, err := DecodeEvent([]byte(data))
		if err != nil {
			t.Errorf("%s: %v", data, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", data, diff)
		}
		same(t, []byte(data), got)
	}
	for _, data := range []string{``, `[]`, `"x"`, `{"type":1}`, `{"type":"message_start","message":3}`, `{"type":"content_block_start","content_block":[]}`} {
		if ev, err := DecodeEvent([]byte(data)); err == nil {
			t.Errorf("%q gives %#v", data, ev)
		}
	}
}

// TestRecordings holds every recorded stream and body against these structs: nothing in them is lost. They are not part of the project.
func TestRecordings(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "shared", "fixtures", "anthropic", "anthropic-*"))
	if err != nil || len(files) == 0 {
		t.Skip("the recordings are not here; they are kept beside the repository:", err)
	}
	more, err := filepath.Glob(filepath.Join(filepath.Dir(files[0]), "duplicate-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, more...) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, ".json") {
				if strings.Contains(path, "-skill-") {
					t.Skip("a skill, which is no message")
				}
				r := &Response{}
				roundTrip(t, raw, r)
				noRaw(t, r.Content)
				return
			}
			for line := range strings.Lines(string(raw)) {
				if strings.TrimSpace(line) == "" {
					continue
				}
				ev, err := DecodeEvent([]byte(line))
				if err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				same(t, []byte(line), ev)
				switch ev := ev.(type) {
				case *Raw:
					t.Errorf("an event without a struct: %s", line)
				case *BlockStart:
					noRaw(t, Blocks{ev.ContentBlock.Block})
				case *BlockDelta:
					if _, ok := ev.Delta.Delta.(*Raw); ok {
						t.Errorf("a delta without a struct: %s", line)
					}
				}
			}
		})
	}
}

func noRaw(t *testing.T, blocks Blocks) {
	t.Helper()
	for _, b := range blocks {
		if r, ok := b.(*Raw); ok {
			t.Errorf("a block without a struct: %s", r.JSON)
		}
	}
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add([]byte(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`))
	f.Add([]byte(`{"type":"message_start","message":{"content":` + richBlocks + `}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := DecodeEvent(data)
		if err != nil {
			return
		}
		out, err := Marshal(ev)
		if err != nil {
			t.Fatalf("%v for %s", err, data)
		}
		again, err := DecodeEvent(out)
		if err != nil {
			t.Fatalf("%v for %s", err, out)
		}
		twice, err := Marshal(again)
		if err != nil || string(twice) != string(out) {
			t.Fatalf("%s then %s, %v", out, twice, err)
		}
	})
}
