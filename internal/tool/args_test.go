package tool

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestArgs(t *testing.T) {
	const want = "print(1)"
	tests := []struct {
		name, in, want string
		err            string // part of the error; "" for none
	}{
		{name: "declared form", in: `{"code":"print(1)"}`, want: want},
		{name: "white space everywhere", in: " \n{ \"code\"\t: \"print(1)\" } \n", want: want},
		{name: "escapes", in: `{"code":"a\n\t\"\\\/\b\f\r"}`, want: "a\n\t\"\\/\b\f\r"},
		{name: "unicode escapes", in: `{"code":"\u00e9\u4F60\ud83d\ude00"}`, want: "é你😀"},
		{name: "lone surrogates", in: `{"code":"\ud83dx\ude00\ud83d"}`, want: "\uFFFDx\uFFFD\uFFFD"},
		{name: "half a pair, then a pair", in: `{"code":"\ud83d\ud83d\ude00"}`, want: "\uFFFD😀"},
		{name: "half a pair, then an escape", in: `{"code":"\ud83d\n"}`, want: "\uFFFD\n"},
		{name: "escaped key", in: `{"c\u006fde":"print(1)"}`, want: want},
		{name: "other members before", in: `{"language":"py\"thon","n":-1.5e3,"t":true,"z":null,"code":"print(1)"}`, want: want},
		{name: "nested members before", in: `{"a":{"code":"x","b":[1,"]}",{"c":[]}]},"code":"print(1)"}`, want: want},
		{name: "members after", in: `{"code":"print(1)","x":{"code":"y"},"code":"z"}`, want: want},
		{name: "raw line break in the string", in: "{\"code\":\"a\nb\"}", want: "a\nb"},
		{name: "escape that JSON does not know", in: `{"code":"re.match('\d+\'')"}`, want: `re.match('\d+'')`},
		{name: "not a unicode escape", in: `{"code":"C:\user \u12\n"}`, want: "C:\\user \\u12\n"},
		{name: "last brace missing", in: `{"code":"print(1)"`, want: want},
		{name: "end of a chat template behind", in: `{"code":"print(1)"}</tool_call>`, want: want},
		{name: "fence inside the object", in: `{"code":"` + "```python\\nprint(1)\\n```" + `"}`, want: want},
		{name: "bare string", in: `"print(1)"`, want: want},
		{name: "bare string with escapes", in: ` "a\nb\u00e9" `, want: "a\nbé"},
		{name: "object encoded twice", in: `"{\"code\": \"print(1)\"}"`, want: want},
		{name: "fenced block", in: "```python\nprint(1)\n```", want: want},
		{name: "fenced block without language, open", in: "\n```\nprint(1)", want: want},
		{name: "fenced block, CRLF, prose behind", in: "```py\r\na\r\nb\r\n```\r\nThat prints.", want: "a\r\nb"},
		{name: "backquotes inside a line", in: "```\na = '```'\n``\n```", want: "a = '```'\n``"},
		{name: "raw Python", in: "import math\nprint(math.pi)", want: "import math\nprint(math.pi)"},
		{name: "raw Python that starts like a literal", in: "from math import pi", want: "from math import pi"},
		{name: "raw Python, a name", in: "nu", want: "nu"},
		{name: "raw Python, a sum", in: "4 + 4", want: "4 + 4"},
		{name: "raw Python, a docstring", in: `"""doc"""` + "\nprint(1)", want: `"""doc"""` + "\nprint(1)"},
		{name: "raw Python, a list comprehension", in: "[i for i in range(3)]", want: "[i for i in range(3)]"},
		{name: "raw Python, a set", in: "{1, 2}", want: "{1, 2}"},
		{name: "raw Python, indentation kept", in: "  # x\n  y", want: "  # x\n  y"},
		{name: "invalid UTF-8", in: "{\"code\":\"a\xffb\"}", want: "a\uFFFDb"},
		{name: "empty code", in: `{"code":""}`, want: ""},

		{name: "empty", in: "", err: "empty"},
		{name: "blank", in: " \n", err: "empty"},
		{name: "empty object", in: "{}", err: `has no "code"`},
		{name: "object without the key", in: `{"input":"print(1)"}`, err: `has no "code"`},
		{name: "code is a number", in: `{"code":1}`, err: "must be a string"},
		{name: "code is a list", in: `{"code":["a"]}`, err: "must be a string"},
		{name: "code is null", in: `{"code":null}`, err: "must be a string"},
		{name: "number", in: "42", err: "not an object"},
		{name: "array", in: `["print(1)"]`, err: "not an object"},
		{name: "null", in: "null", err: "literal null"},
		{name: "cut in the code", in: `{"code":"print(`, err: "ends early"},
		{name: "cut before the code", in: `{"a":1,"co`, err: "ends early"},
		{name: "cut string", in: `"print(1)`, err: "ends early"},
		{name: "a brace alone", in: `{`, err: "ends early"},
		{name: "single quotes", in: `{'code': 'print(1)'}`, err: "double quotes"},
		{name: "quote not escaped", in: `{"code":"print("a")"}`, err: "not escaped"},
		{name: "two objects", in: `{"code":"a"}{"code":"b"}`, err: "several JSON objects"},
		{name: "two fenced blocks", in: "```\na\n```\n```\nb\n```", err: "several fenced"},
		{name: "fence without lines", in: "```python", err: "no lines"},
		{name: "brackets crossed", in: `{"a":[}],"code":"x"}`, err: "do not match"},
		{name: "bracket too many", in: `{"a":1],"code":"x"}`, err: "too many"},
		{name: "nested without end", in: `{"a":` + strings.Repeat("[", 2000), err: "too deeply"},
		{name: "overlong name", in: `{"` + strings.Repeat("a", 2000), err: "overlong"},
		{name: "encoded twice without the key", in: `"{\"x\": \"print(1)\"}"`, err: `has no "code"`},
		{name: "code without end", in: `{"code":"` + strings.Repeat("x", MaxCode+1), err: "longer than"},
		{name: "blanks without end", in: strings.Repeat(" ", MaxCode), err: "blanks"},
		{name: "blanks without end in the brace", in: "{" + strings.Repeat(" ", MaxCode), err: "blanks"},
		{name: "raw without end", in: strings.Repeat("x", MaxCode+1), err: "longer than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 7, len(tt.in) + 1} {
				if len(tt.in) > 10000 && size < 7 {
					continue
				}
				sum, code, err := read(Python, pieces(tt.in, size))
				if tt.err != "" {
					if err == nil || !strings.Contains(err.Error(), tt.err) {
						t.Fatalf("pieces of %d: error %v, want one with %q", size, err, tt.err)
					}
					if !strings.Contains(err.Error(), `{"code": "..."}`) {
						t.Errorf("the error does not say what to send: %v", err)
					}
					continue
				}
				if err != nil || code != tt.want {
					t.Fatalf("pieces of %d: %q, %v, want %q", size, code, err, tt.want)
				}
				if !strings.HasPrefix(code, sum) {
					t.Errorf("pieces of %d: deltas %q are no prefix of %q", size, sum, code)
				}
			}
		})
	}
}

func TestArgsOfBash(t *testing.T) {
	_, code, err := read(Bash, []string{`{"code":"no","command":"ls -l"}`})
	if err != nil || code != "ls -l" {
		t.Fatalf("got %q, %v", code, err)
	}
	if _, _, err = read(Bash, []string{`{"code":"no"}`}); err == nil || !strings.Contains(err.Error(), `{"command": "..."}`) {
		t.Fatalf("error %v does not name the argument", err)
	}
	if _, _, err = read(Bash, []string{`{"command":"a\u0000b"}`}); err == nil || !strings.Contains(err.Error(), "NUL") {
		t.Fatalf("error %v does not name the NUL character", err)
	}
}

// The code must come while the arguments are still being written, or nothing is live.
func TestArgsStream(t *testing.T) {
	a := NewArgs(Python)
	var got []string
	for _, p := range []string{`{"co`, `de":`, ` "pri`, `nt(1)\`, `n`, `\ud8`, `3d`, `\ude00`, "\xc3", "\xa9", `x"`, `}`} {
		got = append(got, a.Push(p))
	}
	want := []string{"", "", "pri", "nt(1)", "\n", "", "", "😀", "", "é", "x", ""}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("pieces %q, want %q", got, want)
	}
	a = NewArgs(Python)
	if got := a.Push("print(1)\npri"); got != "print(1)\npri" {
		t.Errorf("raw Python did not stream: %q", got)
	}
}

func TestArgumentsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		code := rapid.String().Draw(t, "code")
		if strings.HasPrefix(strings.TrimLeft(code, " \t\r\n"), ticks) {
			t.Skip("a fence is taken off")
		}
		_, got, err := read(Python, split(t, Arguments(Python, code)))
		if err != nil || got != code {
			t.Fatalf("%q became %q, %v", code, got, err)
		}
	})
}

// Against encoding/json: any object with any members around the code, written with any escapes and cut anywhere.
func TestArgsAgreeWithJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		code := rapid.String().Draw(t, "code")
		if strings.HasPrefix(strings.TrimLeft(code, " \t\r\n"), ticks) {
			t.Skip("a fence is taken off")
		}
		var b strings.Builder
		b.WriteString("{")
		for i := range rapid.IntRange(0, 3).Draw(t, "before") {
			b.WriteString(encode(t, string(rune('a'+i))) + ":" + value(t, 2) + ",")
		}
		b.WriteString(encode(t, "code") + " : " + encode(t, code))
		for i := range rapid.IntRange(0, 2).Draw(t, "after") {
			b.WriteString("," + encode(t, string(rune('p'+i))) + ": " + value(t, 2))
		}
		b.WriteString("}")
		var want struct{ Code string }
		if err := json.Unmarshal([]byte(b.String()), &want); err != nil {
			t.Fatalf("the test made bad JSON: %v: %s", err, b.String())
		}
		sum, got, err := read(Python, split(t, b.String()))
		if err != nil || got != want.Code {
			t.Fatalf("%s gave %q, %v, want %q", b.String(), got, err, want.Code)
		}
		if sum != got && (strings.Trim(got, " \t\r\n`") != "" || !strings.HasPrefix(got, sum)) {
			t.Fatalf("deltas %q, code %q", sum, got) // only what may become a fence can wait for the end
		}
	})
}

func FuzzArgs(f *testing.F) {
	for _, s := range []string{
		`{"code":"print(1)"}`, `"a\ud83d\ude00"`, "```py\nx\n```", `{"a":[{"b":"}"}],"code":"\u00e9`, "[1,2", "4+4", "{1}", `"{\"code\":\"x\"}"`, "tru", "\xef\xbb",
	} {
		f.Add(s, uint8(3))
	}
	f.Fuzz(func(t *testing.T, in string, size uint8) {
		sum, code, err := read(Python, pieces(in, int(size)%9+1))
		sumWhole, codeWhole, errWhole := read(Python, []string{in})
		if code != codeWhole || sum != sumWhole || (err == nil) != (errWhole == nil) {
			t.Fatalf("cut: %q %q %v\nwhole: %q %q %v", sum, code, err, sumWhole, codeWhole, errWhole)
		}
		if !utf8.ValidString(sum) || !utf8.ValidString(code) {
			t.Fatalf("invalid UTF-8: %q %q", sum, code)
		}
		if !strings.HasPrefix(code, sum) {
			t.Fatalf("deltas %q are no prefix of %q", sum, code)
		}
		var obj map[string]json.RawMessage
		if json.Unmarshal([]byte(in), &obj) == nil && obj != nil && err != nil {
			var s string
			if json.Unmarshal(obj["code"], &s) == nil && s != "" && !strings.Contains(s, ticks) && strings.Count(in, `"code"`) == 1 {
				t.Fatalf("refused the declared form: %v", err)
			}
		}
	})
}

func read(name string, in []string) (sum, code string, err error) {
	a := NewArgs(name)
	var b strings.Builder
	for _, p := range in {
		b.WriteString(a.Push(p))
	}
	code, err = a.Finish()
	return b.String(), code, err
}

func pieces(s string, size int) []string {
	var out []string
	for len(s) > size {
		out, s = append(out, s[:size]), s[size:]
	}
	return append(out, s)
}

func split(t *rapid.T, s string) []string {
	var out []string
	for len(s) > 0 {
		n := rapid.IntRange(1, len(s)).Draw(t, "cut")
		out, s = append(out, s[:n]), s[n:]
	}
	return out
}

// encode writes s as a JSON string with escapes where a writer may choose.
func encode(t *rapid.T, s string) string {
	plain, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if !rapid.Bool().Draw(t, "escape all") {
		return string(plain)
	}
	const hex = "0123456789abcdef"
	var b strings.Builder
	b.WriteByte('"')
	for _, u := range utf16Units(s) {
		b.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			b.WriteByte(hex[u>>shift&15])
		}
	}
	b.WriteByte('"')
	return b.String()
}

func value(t *rapid.T, depth int) string {
	kinds := 3
	if depth > 0 {
		kinds = 5
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return encode(t, rapid.String().Draw(t, "string"))
	case 1:
		return rapid.SampledFrom([]string{"0", "-1.5e+3", "true", "false", "null"}).Draw(t, "scalar")
	case 2:
		return rapid.SampledFrom([]string{"{}", "[]", " [ ] "}).Draw(t, "empty")
	case 3:
		return "[" + value(t, depth-1) + ", " + value(t, depth-1) + "]"
	default:
		return "{" + encode(t, "code") + ":" + value(t, depth-1) + "," + encode(t, "x") + ":" + value(t, depth-1) + "}"
	}
}
