package oairesponses_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

func TestDecodeRequestRefuses(t *testing.T) {
	unknown := func(path string) oairesponses.FieldError { return oairesponses.FieldError{Path: path, Unknown: true} }
	wants := func(path, want string) oairesponses.FieldError {
		return oairesponses.FieldError{Path: path, Want: want}
	}
	for _, tc := range []struct {
		name, in string
		want     oairesponses.FieldError
	}{
		{"unknown field", `{"model":"m","max_tokens":5}`, unknown("max_tokens")},
		{"case matters", `{"Model":"m"}`, unknown("Model")},
		// The guide once said files, the API wants file_ids (complaint 17).
		{"unknown in a container", `{"tools":[{"type":"code_interpreter","container":{"type":"auto","files":[]}}]}`,
			unknown("tools[0].container.files")},
		{"unknown in an item", `{"input":["x"]}`, wants("input[0]", "an object")},
		{"unknown in a part", `{"input":[{"role":"user","content":[{"type":"input_text","text":"a","foo":1}]}]}`,
			unknown("input[0].content[0].foo")},
		{"unknown in text.format", `{"text":{"format":{"type":"text","x":1}}}`, unknown("text.format.x")},
		{"null element", `{"input":[null]}`, wants("input[0]", "a value")},
		{"not an object", `[]`, wants("", "an object")},
		{"input of a wrong kind", `{"input":5}`, wants("input", "a string or an array of items")},
		{"content of a wrong kind", `{"input":[{"role":"user","content":{}}]}`, wants("input[0].content", "a string or an array of parts")},
		{"type of a wrong kind", `{"tools":[{"type":5}]}`, wants("tools[0].type", "a string")},
		{"role of a wrong kind", `{"input":[{"role":["user"]}]}`, wants("input[0].role", "a string")},
		{"tool_choice", `{"tool_choice":7}`, wants("tool_choice", "a string or an object")},
		{"container", `{"tools":[{"type":"code_interpreter","container":[]}]}`, wants("tools[0].container", "a container's id or an object")},
		{"metadata", `{"metadata":{"a":1}}`, wants("metadata.a", "a string")},
		{"integer", `{"max_output_tokens":1.5}`, wants("max_output_tokens", "an integer")},
		{"number", `{"temperature":"hot"}`, wants("temperature", "a number")},
		{"boolean", `{"stream":"yes"}`, wants("stream", "a boolean")},
		{"array", `{"include":"all"}`, wants("include", "an array")},
		{"object", `{"reasoning":"high"}`, wants("reasoning", "an object")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := oairesponses.DecodeRequest([]byte(tc.in))
			got, ok := errors.AsType[*oairesponses.FieldError](err)
			if !ok {
				t.Fatalf("got %v, want a FieldError", err)
			}
			if diff := cmp.Diff(tc.want, *got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, in := range []string{``, `{`, `{} x`, "\xff"} {
		_, err := oairesponses.DecodeRequest([]byte(in))
		if _, ok := errors.AsType[*oairesponses.FieldError](err); err == nil || ok {
			t.Errorf("%q: %v, want an error that is not about a field", in, err)
		}
	}
}

func TestDecodeRequestAccepts(t *testing.T) {
	for name, in := range map[string]string{
		"nulls are absence": `{"model":null,"input":null,"tools":null,"tool_choice":null,"text":null,"conversation":null,"metadata":null}`,
		// What openai-python's model_dump and openai-node's parsed items send back.
		"SDK leftovers": `{"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}","async_":null,"parsed_arguments":{"a":1}},
			{"role":"assistant","content":[{"type":"output_text","text":"1","parsed":1}]}]}`,
		"free JSON": `{"tools":[{"type":"function","name":"f","parameters":{"anything":[1,{"goes":null}]}}],"prompt":{"id":"p"}}`,
		"types without a struct are kept": `{"input":[{"type":"web_search_call","what":{"ever":1}}],
			"tools":[{"type":"web_search","filters":{}}]}`,
	} {
		if _, err := oairesponses.DecodeRequest([]byte(in)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}],
		"tool_choice":{"type":"function","name":"f"}}`))
	f.Add([]byte(`{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["a"]}}],"input":"x"}`))
	f.Add([]byte(`{"input":[{"type":"code_interpreter_call","outputs":[{"type":"logs","logs":""}]},{"type":"x"},{"id":"y"}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		req, err := oairesponses.DecodeRequest(in)
		if err != nil {
			return
		}
		out, err := oairesponses.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		again, err := oairesponses.DecodeRequest(out)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		twice, err := oairesponses.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		if string(out) != string(twice) {
			t.Errorf("encoding is not stable:\n%s\n%s", out, twice)
		}
	})
}
