package oaichat

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRequestRoundTrip(t *testing.T) {
	for name, body := range map[string]string{
		"small": `{"model":"m","messages":[{"role":"user","content":"hi <b>"}]}`,
		"parts": `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":""},{"type":"image_url","image_url":{"url":"data:,"}},` +
			`{"type":"input_audio","input_audio":{"data":"AA"}},{"type":"file","file":{"file_id":"file-1"}}]},{"role":"assistant","content":null,` +
			`"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"r","tool_call_id":"c"}]}`,
		"tools": `{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},` +
			`{"type":"code_interpreter","container":"cntr_1"},{"type":"code_interpreter","container":{"type":"auto","file_ids":["file_1"],"memory_limit":"1g"}}],` +
			`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}},{"type":"code_interpreter"}]}}}`,
		"choice": `{"model":"m","messages":[],"tool_choice":{"type":"custom","custom":{"name":"c"}},"temperature":0,"stop":["a"]}`,
		"extra":  `{"model":"m","messages":[],"n":2,"a_first":{"x": [1, 2]},"top_k":40}`,
		"ours": `{"model":"m","messages":[{"role":"assistant","content":"x","code_interpreter_calls":[{"id":"ci_1","type":"code_interpreter_call",` +
			`"status":"completed","code":"1","container_id":"cntr_1","outputs":null}],"container":{"id":"cntr_1","expires_at":5}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			r, err := ParseRequest([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			out, err := Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, []byte(body)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), string(out)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRequestLenient(t *testing.T) {
	r, err := ParseRequest([]byte(`{"model":"m","stop":"x","tool_choice":{"type":"function","name":"f"},"seed":null,
		"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:,"},"bare"]},
		{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":{"a":1}}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Stop{"x"}, r.Stop); diff != "" {
		t.Error(diff)
	}
	if r.ToolChoice.Tool == nil || r.ToolChoice.Tool.Name != "f" {
		t.Errorf("tool_choice %+v", r.ToolChoice)
	}
	parts := r.Messages[0].Content.Parts
	if parts[0].ImageURL.URL != "data:," || parts[1].Text != "bare" || r.Messages[1].ToolCalls[0].Function.Arguments != `{"a":1}` {
		t.Errorf("messages %+v", r.Messages)
	}
}

func TestParseRequestErrors(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":5}`:     "model: must be a string, got number",
		`{"messages":{}}`: "messages: must be an array",
		`{"messages":[{"role":"user"},{"role":7}]}`:    "messages[1].role: must be a string, got number",
		`{"messages":[{"content":7}]}`:                 "messages[0].content: must be a string, an array of parts or null",
		`{"messages":[{"content":[{"text":"x"}]}]}`:    "messages[0].content[0]: a content part needs a type",
		`{"messages":["x"]}`:                           "messages[0]: must be an object, got string",
		`{"tools":[{"type":"function","function":1}]}`: "tools[0].function: must be an object, got number",
		`{"stop":7}`:            "stop: must be a string or an array of strings",
		`{"temperature":"hot"}`: "temperature: must be a number, got string",
		`{"max_tokens":1.5}`:    "max_tokens: must be an integer, got number 1.5",
		`{"metadata":{"a":1}}`:  "metadata: must be a string, got number",
		`{"tool_choice":7}`:     "tool_choice: must be a string or an object",
		`{"stream_options":{"include_usage":"please"}}`: "stream_options.include_usage: must be a boolean, got string",
		`[]`:           "the body must be a JSON object at byte 0",
		`{"model":"m"`: "unexpected end of JSON input at byte 12",
		`{"model":x}`:  "invalid character 'x' looking for beginning of value at byte 10",
	} {
		if _, err := ParseRequest([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

// FuzzParse: whatever a server or a client sends, reading it does not panic, and a request that is read is written again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"choices":[{"index":"0","delta":{"content":[{"type":"thinking","thinking":[{"text":"x"}]}],"tool_calls":[{"index":1.5,"id":[]}]}}]}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"x"}]}],"tool_choice":{"type":"allowed_tools"},"extra":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ParseReceived(body) // only that it returns
		r, err := ParseRequest(body)
		if err != nil {
			return
		}
		out, err := Marshal(r)
		if err != nil {
			t.Fatalf("%v: %q", err, body)
		}
		if _, err := ParseRequest(out); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
	})
}

func mustJSON(v any) []byte {
	raw, err := Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func TestUsageField(t *testing.T) {
	for want, c := range map[string]Chunk{
		`"choices":[]}`:              {Choices: []ChunkChoice{}},
		`"choices":[],"usage":null}`: {Choices: []ChunkChoice{}, Usage: UsageField{Present: true}},
		`"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":0}}`: {Choices: []ChunkChoice{}, Usage: UsageField{Usage: &Usage{PromptTokens: 1}}},
	} {
		raw, err := Marshal(c)
		if err != nil || !strings.HasSuffix(string(raw), want) {
			t.Errorf("%s, %v; want %s", raw, err, want)
		}
		var back Chunk
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		if again := mustJSON(back); !bytes.Equal(again, raw) {
			t.Errorf("%s became %s", raw, again)
		}
	}
}

func TestAnnotation(t *testing.T) {
	file := Annotation{Type: TypeFileCitation, FileCitation: &FileCitation{ContainerID: "cntr_1", FileID: "cfile_1", Filename: "a.png"}}
	url := Annotation{Type: TypeURLCitation, URLCitation: &URLCitation{URL: "https://a"}}
	for want, a := range map[string]Annotation{
		`{"type":"container_file_citation","container_id":"cntr_1","file_id":"cfile_1","filename":"a.png","start_index":0,"end_index":0}`: file,
		`{"type":"url_citation","url_citation":{"start_index":0,"end_index":0,"url":"https://a","title":""}}`:                             url,
	} {
		if got := string(mustJSON(a)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
