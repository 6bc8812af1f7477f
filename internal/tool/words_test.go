package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func utf16Units(s string) []uint16 { return utf16.Encode([]rune(s)) }

func TestWords(t *testing.T) {
	text := func(s string) []turn.Output { return []turn.Output{{Text: s}} }
	tests := []struct {
		name    string
		outcome Outcome
		notes   []string
		want    string
	}{
		{name: "nothing", outcome: Outcome{Status: "ok"}, want: "(no output)"},
		{name: "output", outcome: Outcome{Status: "ok", Outputs: text("42\n")}, want: "42"},
		{
			name:    "the last value on a line of its own",
			outcome: Outcome{Status: "ok", Outputs: []turn.Output{{Text: "printed"}, {Text: ""}, {Text: "42"}}}, want: "printed\n42",
		},
		{
			name: "failure keeps what was printed before",
			outcome: Outcome{Status: "error", Outputs: text("before\nTraceback ...\n"), ExitCode: 1,
				Error: "ZeroDivisionError: division by zero"},
			want: "before\nTraceback ...\n\n[the call failed: ZeroDivisionError: division by zero]",
		},
		{name: "exit status", outcome: Outcome{Status: "error", ExitCode: 3}, want: "(no output)\n\n[the call failed: exit status 3]"},
		{name: "timeout", outcome: Outcome{Status: "timeout", Outputs: text("tick")}, want: "tick\n\n[the call was stopped, its time was up]"},
		{name: "memory", outcome: Outcome{Status: "killed", Error: "out of memory"}, want: "(no output)\n\n[the call was killed: out of memory]"},
		{name: "a status from elsewhere", outcome: Outcome{Status: "odd"}, want: "(no output)\n\n[the call ended as odd]"},
		{
			name: "images and files",
			outcome: Outcome{
				Status:  "ok",
				Outputs: []turn.Output{{Text: "a"}, {MIME: "image/png", Data: []byte("x")}, {Text: "b\n"}},
				Files: []turn.File{
					{Path: "/mnt/data/a.csv", Name: "a.csv", Bytes: 7},
					{Path: "/mnt/data/sub/b (1).txt", Name: "b (1).txt", Bytes: 8},
					{Path: "/mnt/data/shown.png", Name: "shown.png", Shown: true},
					{Path: "/home/user/[x\n].txt", Name: "[x\n].txt"},
				},
			},
			want: "a\n[an image was displayed here; the user sees it]\nb\n\nFiles made or changed:\n" +
				"- [a.csv](sandbox:/mnt/data/a.csv) (7 bytes)\n" +
				"- [b (1).txt](sandbox:/mnt/data/sub/b%20%281%29.txt) (8 bytes)\n" +
				"- /home/user/%5Bx%0A%5D.txt (0 bytes)",
		},
		{
			name: "notes first", outcome: Outcome{Status: "ok", Outputs: text("1")}, notes: []string{"the interpreter was restarted"},
			want: "[the interpreter was restarted]\n1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Words(&tt.outcome, tt.notes)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Rule 9 of DESIGN section 5: head and tail, what was cut is said, and never more than the limit.
func TestWordsAreCut(t *testing.T) {
	long := "first line\n" + strings.Repeat("é", 200_000) + "\nlast line"
	got := Words(&Outcome{Status: "error", Error: "E: x", Outputs: []turn.Output{{Text: long}}}, []string{"a note"})
	if len(got) > MaxForModel || !utf8.ValidString(got) {
		t.Fatalf("%d bytes, valid %v", len(got), utf8.ValidString(got))
	}
	for _, want := range []string{"[a note]\nfirst line", "\nlast line\n\n[the call failed: E: x]", "bytes cut out here", fmt.Sprintf("of %d bytes", len(long))} {
		if !strings.Contains(got, want) {
			t.Errorf("nothing of %q", want)
		}
	}
}

func TestWordsStayWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Outcome
		o.Status = rapid.SampledFrom([]string{"ok", "error", "killed"}).Draw(t, "status")
		o.Error = strings.Repeat("e", rapid.IntRange(0, 100_000).Draw(t, "error"))
		for range rapid.IntRange(0, 3).Draw(t, "outputs") {
			o.Outputs = append(o.Outputs, turn.Output{Text: strings.Repeat("x€", rapid.IntRange(0, 50_000).Draw(t, "len"))})
		}
		for i := range rapid.IntRange(0, 500).Draw(t, "files") {
			o.Files = append(o.Files, turn.File{Path: fmt.Sprintf("/mnt/data/%d%s", i, strings.Repeat("(", rapid.IntRange(0, 250).Draw(t, "name")))})
		}
		var notes []string
		for range rapid.IntRange(0, 3).Draw(t, "notes") {
			notes = append(notes, strings.Repeat("n", rapid.IntRange(0, 20_000).Draw(t, "note")))
		}
		got := Words(&o, notes)
		if len(got) > MaxForModel || got == "" || !utf8.ValidString(got) {
			t.Fatalf("%d bytes", len(got))
		}
	})
}

func TestReplayWords(t *testing.T) {
	if got := ReplayWords(turn.HostedCall{ForModel: "as it was"}); got != "as it was" {
		t.Errorf("got %q", got)
	}
	if got := ReplayWords(turn.HostedCall{Outputs: []turn.Output{{Text: "1"}}}); got != "1" {
		t.Errorf("got %q", got)
	}
	if got := ReplayWords(turn.HostedCall{Outputs: []turn.Output{}}); got != NoOutput {
		t.Errorf("got %q", got)
	}
	if got := ReplayWords(turn.HostedCall{}); !strings.Contains(got, "no longer known") {
		t.Errorf("got %q", got)
	}
}

func TestImageParts(t *testing.T) {
	outputs := []turn.Output{{Text: "x"}, {MIME: "image/png", Data: make([]byte, maxImageBytes+1)}, {MIME: "image/png"}}
	for range 20 {
		outputs = append(outputs, turn.Output{MIME: "image/png", Data: []byte("png")})
	}
	got := ImageParts(outputs)
	if len(got) != maxImages {
		t.Fatalf("%d images, want %d", len(got), maxImages)
	}
	if diff := cmp.Diff(turn.Image{URL: "data:image/png;base64,cG5n"}, got[0]); diff != "" {
		t.Error(diff)
	}
}

// What a model is told of the network is what is true for the container.
func TestNetworkText(t *testing.T) {
	s, err := NewSet(&turn.Hosted{Tools: []string{Python, Bash}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	many := make([]string, maxReach+3)
	for i := range many {
		many[i] = fmt.Sprintf("d%d.example", i)
	}
	for _, tt := range []struct {
		reach     []string
		want, not string
	}{
		{nil, "There is no network access", "pip install"},
		{[]string{"pypi.org", "*.example.com"}, "to these domains only: pypi.org, *.example.com; programs", "no network"},
		{many, "d29.example and 3 others;", "d30.example"},
	} {
		for _, tl := range s.Reaching(tt.reach).Tools(func(string) bool { return true }) {
			if !strings.Contains(tl.Description, tt.want) || strings.Contains(tl.Description, tt.not) {
				t.Errorf("%s is told %q", tl.Name, tl.Description)
			}
		}
	}
}

func TestSetRenamesOnCollision(t *testing.T) {
	clients := []turn.Tool{{Name: "python"}, {Name: "lathe_python"}, {Name: "weather"}}
	s, err := NewSet(&turn.Hosted{Tools: []string{Python, Bash, Python}}, clients)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tl := range s.Tools(func(string) bool { return true }) {
		names = append(names, tl.Name)
		var schema map[string]any
		if err := json.Unmarshal(tl.Parameters, &schema); err != nil || schema["type"] != "object" || tl.Description == "" {
			t.Errorf("%s: schema %s, %v", tl.Name, tl.Parameters, err)
		}
	}
	if diff := cmp.Diff([]string{"lathe_python_2", "bash"}, names); diff != "" {
		t.Error(diff)
	}
	if h, ok := s.Hosted("lathe_python_2"); !ok || h != Python {
		t.Errorf("lathe_python_2 is %q, %v", h, ok)
	}
	if _, ok := s.Hosted("python"); ok {
		t.Error("the client's python was taken for the hosted one")
	}
	if got := s.Upstream(Python); got != "lathe_python_2" {
		t.Errorf("upstream name %q", got)
	}
	if _, err := NewSet(&turn.Hosted{Tools: []string{"java"}}, nil); err == nil || turn.AsError(err).Kind != turn.KindUnsupported {
		t.Errorf("unknown tool: %v", err)
	}
	if s, err := NewSet(&turn.Hosted{Tools: []string{Python}}, nil); err != nil || s.Upstream(Python) != "python" || s.Upstream(Bash) != "bash" || s.Len() != 1 {
		t.Errorf("without a collision: %v, %v", s, err)
	}
}
