package upstream

import "testing"

func TestObjectArguments(t *testing.T) {
	for _, tc := range []struct{ name, args, want string }{
		{"none", "", "{}"},
		{"blank", " \n\u00a0", "{}"},
		{"an object as it is", ` {"a": "<b>"} `, ` {"a": "<b>"} `},
		{"code", `print("<a>")`, `{"input":"print(\"<a>\")"}`},
		{"an array", "[1]", `{"input":"[1]"}`},
		{"half an object", `{"a":`, `{"input":"{\"a\":"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ObjectArguments(tc.args); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
