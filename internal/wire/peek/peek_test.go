package peek

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRequest(t *testing.T) {
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
		{"hosted", `{"tools":[{"type":"function","function":{"type":"code_interpreter"}}, {"x":[1],"type" : "code_interpreter"}],"model":"m"}`, Peeked{Model: "m", Tools: []string{"function", "code_interpreter"}}},
		{"not hosted", `{"tools":[{"type":"function","function":{"type":"code_interpreter"}},"code_interpreter",[{"type":"code_interpreter"}]]}`, Peeked{Tools: []string{"function", ""}}},
		{"hosted, escaped", `{"tools":[{"t\u0079pe":"code\u005finterpreter"}]}`, Peeked{Tools: []string{"code_interpreter"}}},
		{"empty", ` { } `, Peeked{}},
		{"odd values", `{"model":7,"stream":"true","tools":{},"x":[ ],"y":-1.5e3,"z":null}`, Peeked{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Request([]byte(tc.body))
			got.models = nil
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Peeked{})); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestRequestErrors(t *testing.T) {
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
		_, err := Request([]byte(body))
		if se, ok := errors.AsType[*SyntaxError](err); !ok || se.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

// checkSplice says what must hold for any body that Request takes and that is JSON: the value of every top-level model is the new name, and
// all else is the same, byte for byte.
func checkSplice(t interface{ Fatalf(string, ...any) }, body []byte, name string) {
	p, err := Request(body)
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
	if json.Unmarshal(was["model"], &model) == nil && string(was["model"]) != "null" {
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
	raw, err := json.Marshal(v)
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
