package tool

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestEditArguments(t *testing.T) {
	const view = `{"command":"view","path":"a"}`
	tests := []struct{ name, in, want, err string }{
		{"declared form", view, view, ""},
		{"white space stays", " { \"command\" : \"view\",\n\"path\":\"a\"} ", "{ \"command\" : \"view\",\n\"path\":\"a\"}", ""},
		{"raw line breaks and tabs", "{\"command\":\"create\",\"path\":\"a\",\"file_text\":\"x\n\ty\r\"}", `{"command":"create","path":"a","file_text":"x\n\ty\r"}`, ""},
		{"escapes that JSON does not know", `{"command":"create","path":"a","file_text":"\d\'\x"}`, `{"command":"create","path":"a","file_text":"\\d'\\x"}`, ""},
		{"braces in strings", `{"command":"view","path":"}]{\"}"}`, `{"command":"view","path":"}]{\"}"}`, ""},
		{"brackets missing at the end", `{"command":"view","path":"a","view_range":[1,2`, `{"command":"view","path":"a","view_range":[1,2]}`, ""},
		{"end of a chat template behind", view + "</tool_call>\n```", view, ""},
		{"a fence before", "```json\n" + view + "\n```", view, ""},
		{"encoded twice", `"{\"command\":\"view\",\"path\":\"a\"}"`, view, ""},
		{"no UTF-8", "{\"command\":\"view\",\"path\":\"\xff\"}", "{\"command\":\"view\",\"path\":\"\uFFFD\"}", ""},
		{"numbers in quotes", `{"command":"view","path":"a","view_range":"[1, -1]"}`, `{"command":"view","path":"a","view_range":"[1, -1]"}`, ""},
		{"nulls", `{"command":"view","path":"a","view_range":null,"file_text":null}`, `{"command":"view","path":"a","view_range":null,"file_text":null}`, ""},

		{"empty", "", "", "not a JSON object"},
		{"prose", "view a", "", "not a JSON object"},
		{"a string", `"view a"`, "", "not an object"},
		{"ends in a string", `{"command":"view","path":"a`, `{"command":"view","path":"a`, "in the middle of a string"},
		{"wrong brackets", `{"command":["view"},`, `{"command":["view"`, "do not match"},
		{"Python's words", `{"command":"view","path":None}`, `{"command":"view","path":None}`, "not valid JSON"},
		{"two objects", view + view, view, "several JSON objects"},
		{"no command", `{"path":"a"}`, `{"path":"a"}`, `no "command"`},
		{"unknown command", `{"command":"undo_edit","path":"a"}`, `{"command":"undo_edit","path":"a"}`, `no command "undo_edit"`},
		{"no path", `{"command":"view"}`, `{"command":"view"}`, `no "path"`},
		{"NUL in the path", `{"command":"view","path":"a\u0000"}`, `{"command":"view","path":"a\u0000"}`, "NUL"},
		{"create without text", `{"command":"create","path":"a"}`, `{"command":"create","path":"a"}`, `"create" needs "file_text"`},
		{"replace without old text", `{"command":"str_replace","path":"a"}`, `{"command":"str_replace","path":"a"}`, `needs "old_str"`},
		{"insert without line", `{"command":"insert","path":"a","insert_text":"x"}`, `{"command":"insert","path":"a","insert_text":"x"}`, `needs "insert_line"`},
		{"text is a list", `{"command":"create","path":"a","file_text":["x"]}`, `{"command":"create","path":"a","file_text":["x"]}`, `"file_text" must not be a array`},
		{"range of one text", `{"command":"view","path":"a","view_range":"all"}`, `{"command":"view","path":"a","view_range":"all"}`, "view_range"},
		{"range of three", `{"command":"view","path":"a","view_range":[1,2,3]}`, `{"command":"view","path":"a","view_range":[1,2,3]}`, "view_range"},
		{"line that is none", `{"command":"insert","path":"a","insert_line":1.5,"insert_text":"x"}`, `{"command":"insert","path":"a","insert_line":1.5,"insert_text":"x"}`, "whole number"},
		{"nested too deeply", `{"a":` + strings.Repeat("[", maxNesting), `{"a":` + strings.Repeat("[", maxNesting-1), "nested too deeply"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{1, 3, 1 << 20} {
				a := NewArgs(Edit)
				pieces := ""
				for in := test.in; in != ""; {
					n := min(size, len(in))
					pieces += a.Push(in[:n])
					in = in[n:]
				}
				got, err := a.Finish()
				if got != test.want || !strings.HasPrefix(got, pieces) {
					t.Errorf("pieces of %d: %q, want %q; sent before the end: %q", size, got, test.want, pieces)
				}
				if (err == nil) != (test.err == "") || err != nil && (!strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "Nothing was done")) {
					t.Errorf("error %v, want %q", err, test.err)
				}
			}
		})
	}
}

// TestEditArgumentsSurvive: whatever JSON says arrives, however it is cut.
func TestEditArgumentsSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, path := rapid.String().Draw(t, "text"), "p"+strings.ReplaceAll(rapid.String().Draw(t, "path"), "\x00", "")
		in, err := json.Marshal(map[string]any{"command": "create", "path": path, "file_text": text, "other": []any{1, map[string]any{"a": text}}})
		if err != nil {
			t.Fatal(err)
		}
		a := NewArgs(Edit)
		pieces := ""
		for len(in) > 0 {
			n := rapid.IntRange(1, len(in)).Draw(t, "n")
			pieces += a.Push(string(in[:n]))
			in = in[n:]
		}
		code, err := a.Finish()
		if err != nil || !strings.HasPrefix(code, pieces) {
			t.Fatalf("%v, %q", err, code)
		}
		args, err := ParseEdit(code)
		if err != nil || args.Path != path || *args.FileText != text {
			t.Fatalf("%+v, %v", args, err)
		}
		if Arguments(Edit, code) != code {
			t.Fatalf("the arguments in the history differ: %q", Arguments(Edit, code))
		}
	})
}

func FuzzEditArguments(f *testing.F) {
	f.Add(`{"command":"view","path":"a","view_range":[1,"2"]}`)
	f.Add("\"{\\\"command\\\":1")
	f.Fuzz(func(t *testing.T, in string) {
		a := NewArgs(Edit)
		pieces := a.Push(in)
		code, err := a.Finish()
		if !strings.HasPrefix(code, pieces) || err == nil && !json.Valid([]byte(code)) {
			t.Errorf("%q gives %q, then %q, %v", in, pieces, code, err)
		}
	})
}

func TestEditArgumentsTakeQuotedNumbers(t *testing.T) {
	args, err := ParseEdit(`{"command":"insert","path":"a","insert_line":"2","insert_text":"x","view_range":["1",2.0]}`)
	if err != nil || *args.InsertLine != 2 || len(args.ViewRange) != 2 || args.ViewRange[0] != 1 {
		t.Errorf("%+v, %v", args, err)
	}
}

func TestEditWords(t *testing.T) {
	tests := []struct {
		name string
		edit turn.Edit
		want string
	}{
		{"view", turn.Edit{Command: View, FileType: "text", Content: "a\nb\n", StartLine: 1, NumLines: 2, TotalLines: 2}, "     1\ta\n     2\tb"},
		{
			"part", turn.Edit{Command: View, FileType: "text", Content: "b\n", StartLine: 2, NumLines: 1, TotalLines: 9},
			"     2\tb\n\n[lines 2 to 2 of 9; view others with view_range]",
		},
		{"empty", turn.Edit{Command: View, FileType: "text", StartLine: 1}, "[/x is empty]"},
		{"picture", turn.Edit{Command: View, FileType: "image"}, "[/x is an image; the user can see it]"},
		{"created", turn.Edit{Command: Create}, "Created /x."},
		{"replaced", turn.Edit{Command: Create, Updated: true}, "Replaced /x, which existed."},
		{
			"changed", turn.Edit{Command: StrReplace, NewStart: 7, NewLines: 2, Hunk: []string{" a", "-b", "+c"}},
			"Changed /x. It now has there:\n     7\ta\n     8\tc",
		},
		{"changed very much", turn.Edit{Command: StrReplace, NewStart: 7}, "Changed /x."},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, Words(&Outcome{Edit: &test.edit, Path: "/x", Status: StatusOK}, nil)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
	long := turn.Edit{Command: View, FileType: "text", Content: strings.Repeat(strings.Repeat("x", 999)+"\n", 200), StartLine: 1, NumLines: 200, TotalLines: 300}
	got := Words(&Outcome{Edit: &long, Path: "/x", Status: StatusOK}, nil)
	if len(got) > MaxForModel || !strings.HasSuffix(got, "[lines 1 to 61 of 300; view others with view_range]") {
		t.Errorf("%d bytes that end in %q", len(got), got[len(got)-80:])
	}
	replayed := turn.HostedCall{Tool: Edit, Code: `{"command":"create","path":"/y"}`, Outputs: []turn.Output{}, Edit: &turn.Edit{Command: Create}}
	replayed.Code = `{"command":"create","path":"/y","file_text":""}`
	if got := ReplayWords(replayed); got != "Created /y." {
		t.Errorf("replayed: %q", got)
	}
}

func TestDescriptions(t *testing.T) {
	clients := []turn.Tool{
		{Name: "get-data", Description: "Rows.", Parameters: json.RawMessage(`{"type":"object"}`), Programmatic: true, NotDirect: true},
		{Name: "list", Programmatic: true}, {Name: "get_data", Programmatic: true}, {Name: "9", Programmatic: true}, {Name: "plain"},
	}
	s, err := NewSet(&turn.Hosted{Tools: []string{Python, Bash, Edit}, OutputDir: true, CellTime: 90e9}, clients)
	if err != nil {
		t.Fatal(err)
	}
	tools := s.Tools(func(string) bool { return true })
	for _, tl := range tools {
		var schema map[string]any
		if err := json.Unmarshal(tl.Parameters, &schema); err != nil || schema["type"] != "object" {
			t.Errorf("%s: %s: %v", tl.Name, tl.Parameters, err)
		}
		if !strings.Contains(tl.Description, "$OUTPUT_DIR") || strings.Contains(tl.Description, "sandbox:") {
			t.Errorf("%s: %s", tl.Name, tl.Description)
		}
	}
	for _, part := range []string{"90 seconds", "async def get_data(args: dict) -> str\nRows.\nJSON schema of args: {\"type\":\"object\"}", "async def list_(", "async def get_data_2(", "async def _9("} {
		if !strings.Contains(tools[0].Description, part) {
			t.Errorf("no %q in %s", part, tools[0].Description)
		}
	}
	if strings.Contains(tools[0].Description, "plain(") {
		t.Error("a tool that is not programmatic is offered to programs")
	}
	want := []Function{{"get_data", "get-data"}, {"list_", "list"}, {"get_data_2", "get_data"}, {"_9", "9"}}
	if diff := cmp.Diff(want, s.Functions()); diff != "" {
		t.Error(diff)
	}
	if s, _ := NewSet(&turn.Hosted{Tools: []string{Bash}}, clients); s.Functions() != nil {
		t.Error("functions without Python")
	}
}
