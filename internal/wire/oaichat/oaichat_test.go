package oaichat

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
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

func TestPeek(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		want       Peeked
	}{
		{"plain", `{"model":"m","stream":true}`, Peeked{Model: "m", Stream: true}},
		{"deep", `{"x":{"model":"no","stream":true,"tools":[{"type":"code_interpreter"}]},"model":"m"}`, Peeked{Model: "m"}},
		{"in a string", `{"x":"\"model\":\"no\", {\\","model":"m"}`, Peeked{Model: "m"}},
		{"escaped key and value", `{"\u006dodel":"\u006d\n"}`, Peeked{Model: "m\n"}},
		{"last one wins", `{"model":"a","model":"b","stream":true,"stream":false}`, Peeked{Model: "b"}},
		{"other case is another field", `{"Model":"a"}`, Peeked{}},
		{"hosted", `{"tools":[{"type":"function","function":{"type":"code_interpreter"}}, {"x":[1],"type" : "code_interpreter"}],"model":"m"}`, Peeked{Model: "m", Hosted: true}},
		{"not hosted", `{"tools":[{"type":"function","function":{"type":"code_interpreter"}},"code_interpreter",[{"type":"code_interpreter"}]]}`, Peeked{}},
		{"hosted, escaped", `{"tools":[{"t\u0079pe":"code\u005finterpreter"}]}`, Peeked{Hosted: true}},
		{"empty", ` { } `, Peeked{}},
		{"odd values", `{"model":7,"stream":"true","tools":{},"x":[ ],"y":-1.5e3,"z":null}`, Peeked{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Peek([]byte(tc.body))
			got.models = nil
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Peeked{})); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestPeekErrors(t *testing.T) {
	for body, want := range map[string]string{
		``:                          "the body must be a JSON object at byte 0",
		`[]`:                        "the body must be a JSON object at byte 0",
		`{"model"`:                  "expected ':' after an object key at byte 8",
		`{"model":"m`:               "unexpected end of a string at byte 11",
		`{"model":"\x"}`:            "invalid string at byte 9",
		`{"a":1 "b":2}`:             "expected ',' or '}' at byte 7",
		`{"a":[1,2`:                 "unexpected end of JSON at byte 9",
		`{"a":}`:                    "expected a value at byte 5",
		`{"tools":[{"type":"x"} 1]`: "expected ',' or ']' at byte 23",
		`{} x`:                      "data after the JSON object at byte 3",
		`{"a":1,}`:                  "expected a string at byte 7",
	} {
		_, err := Peek([]byte(body))
		if se, ok := errors.AsType[*SyntaxError](err); !ok || se.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

// checkSplice says what must hold for any body that Peek takes and that is JSON: the value of every top-level model is the new name, and
// all else is the same, byte for byte.
func checkSplice(t interface{ Fatalf(string, ...any) }, body []byte, name string) {
	p, err := Peek(body)
	if err != nil {
		if json.Valid(body) && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
			t.Fatalf("valid JSON is refused: %v: %q", err, body)
		}
		return
	}
	before := bytes.Clone(body)
	out := p.SpliceModel(body, name)
	if !bytes.Equal(before, body) {
		t.Fatalf("the body was changed: %q", body)
	}
	rest, value := out, string(mustJSON(name))
	at := 0
	for _, m := range p.models {
		if !bytes.Equal(rest[:m.start-at], body[at:m.start]) {
			t.Fatalf("bytes before a model changed: %q, was %q", out, body)
		}
		rest = rest[m.start-at:]
		replaced := bytes.HasPrefix(rest, []byte(value))
		switch {
		case replaced && len(p.models) == 1 && p.Model == name && bytes.Equal(out, body):
			rest = rest[m.end-m.start:]
		case replaced:
			rest = rest[len(value):]
		case p.Model == name && bytes.Equal(out, body):
			rest = rest[m.end-m.start:] // the same name, written with escapes
		default:
			t.Fatalf("a model was not replaced: %q", out)
		}
		at = m.end
	}
	if !bytes.Equal(rest, body[at:]) {
		t.Fatalf("bytes behind the last model changed: %q, was %q", out, body)
	}
	if !json.Valid(body) {
		return
	}
	var was, is map[string]json.RawMessage
	if json.Unmarshal(body, &was) != nil || json.Unmarshal(out, &is) != nil {
		t.Fatalf("no object any more: %q, was %q", out, body)
	}
	var model string
	if json.Unmarshal(was["model"], &model) == nil && !isNull(was["model"]) {
		if model != p.Model {
			t.Fatalf("peeked %q, decoded %q: %q", p.Model, model, body)
		}
		if json.Unmarshal(is["model"], &model); model != name {
			t.Fatalf("model is %q, want %q: %q", model, name, out)
		}
	}
	var stream bool
	if json.Unmarshal(was["stream"], &stream) == nil && stream != p.Stream {
		t.Fatalf("stream peeked %v, decoded %v: %q", p.Stream, stream, body)
	}
}

func mustJSON(v any) []byte {
	raw, err := Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func TestSpliceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := rapid.StringOfN(rapid.SampledFrom([]rune(" \n\t")), 0, 2, -1)
		text := rapid.SampledFrom([]string{`"m"`, `"\u006d"`, `"a\"b\\"`, `"\\"`, `"é"`, `"\ud83d\ude00"`, `""`, `"}],{"`})
		value := rapid.SampledFrom([]string{`1`, `null`, `true`, `{"model":"x"}`, `[{"type":"code_interpreter"}, "]"]`, `[]`, `{}`, `-1e5`, `"\\\""`})
		key := rapid.SampledFrom([]string{`"model"`, `"mod\u0065l"`, `"stream"`, `"tools"`, `"Model"`, `"a\"b"`, `""`})
		var b strings.Builder
		b.WriteString(space.Draw(t, "s") + "{")
		for i := range rapid.IntRange(0, 6).Draw(t, "members") {
			if i > 0 {
				b.WriteString(",")
			}
			v := value.Draw(t, "value")
			if rapid.Bool().Draw(t, "text") {
				v = text.Draw(t, "string")
			}
			b.WriteString(space.Draw(t, "s") + key.Draw(t, "key") + space.Draw(t, "s") + ":" + space.Draw(t, "s") + v + space.Draw(t, "s"))
		}
		b.WriteString("}" + space.Draw(t, "s"))
		checkSplice(t, []byte(b.String()), rapid.SampledFrom([]string{"m", "org/m", `a"b\`, ""}).Draw(t, "name"))
	})
}

func FuzzSplice(f *testing.F) {
	f.Add([]byte(`{"model":"m","x":[{"a":"\\"}],"model" : "n","tools":[{"type":"code_interpreter"}]}`), "org/m")
	f.Add([]byte(` {"mod\u0065l":"\ud83d","stream":true}`), "m")
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		checkSplice(t, body, strings.ToValidUTF8(name, ""))
	})
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
