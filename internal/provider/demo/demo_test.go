package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	_ "image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/provider/demo"
	"github.com/lathe-gateway/lathe/internal/provider/providertest"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

func user(text string) turn.Message {
	return turn.Message{Role: turn.User, Parts: []turn.Part{turn.Text{Text: text}}}
}

func ask(text string, tools ...turn.Tool) *turn.Request {
	return &turn.Request{Model: "demo", Items: []turn.Item{user(text)}, Tools: tools}
}

// python is the hosted tool as the agent offers it, under a name that only a collision gives it.
func python(t *testing.T) turn.Tool {
	t.Helper()
	set, err := tool.NewSet(&turn.Hosted{Tools: []string{tool.Python}}, []turn.Tool{{Name: "python"}})
	if err != nil {
		t.Fatal(err)
	}
	return set.Tools(func(string) bool { return true })[0]
}

var weather = turn.Tool{Name: "weather", Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)}

// said is one round.
type said struct {
	text, thought string
	calls         []turn.Call
	end           turn.Finished
	events        int
}

func round(t *testing.T, req *turn.Request) said {
	t.Helper()
	events, err := providertest.Collect(t, demo.New().Stream(t.Context(), req))
	if err != nil {
		t.Fatal(err)
	}
	s := said{events: len(events)}
	for _, ev := range events {
		switch e := ev.(type) {
		case turn.TextDelta:
			s.text += e.Text
		case turn.ReasoningDelta:
			s.thought += e.Text
		case turn.CallDone:
			s.calls = append(s.calls, e.Call)
		case turn.Finished:
			s.end = e
		}
	}
	return s
}

func code(t *testing.T, c turn.Call) string {
	t.Helper()
	var args struct{ Code string }
	if err := json.Unmarshal([]byte(c.Arguments), &args); err != nil || args.Code == "" {
		t.Fatalf("arguments %s: %v", c.Arguments, err)
	}
	return args.Code
}

// after is the conversation once the calls of s have been answered.
func after(req *turn.Request, s said, results ...turn.Result) *turn.Request {
	next := req.Clone()
	next.Items = append(next.Items, turn.Message{Role: turn.Assistant, Parts: []turn.Part{turn.Text{Text: s.text}}})
	for _, c := range s.calls {
		next.Items = append(next.Items, c)
	}
	for i, r := range results {
		r.CallID = s.calls[i].CallID
		next.Items = append(next.Items, r)
	}
	return next
}

func words(o tool.Outcome) turn.Result {
	return turn.Result{Parts: []turn.Part{turn.Text{Text: tool.Words(&o, nil)}}, Error: o.Failed()}
}

func TestSuite(t *testing.T) {
	providertest.Run(t, providertest.Suite{
		Requests: map[string]*turn.Request{
			"hello": ask("hello"), "plot": ask("plot something", python(t)), "code": ask("```python\nprint(1)\n```", python(t)),
		},
		New: func(*testing.T) provider.Provider { return demo.New() },
	})
}

func TestItSaysWhatItIs(t *testing.T) {
	s := round(t, ask("Who are you?", python(t)))
	if !strings.HasPrefix(s.text, "I am Lathe's demo model: a script, not an AI.") || !strings.Contains(s.text, "call NAME") || len(s.calls) != 0 {
		t.Errorf("%q, %v", s.text, s.calls)
	}
	if s.end.Reason != turn.ReasonStop || s.end.Usage.Input != 3 || s.end.Usage.Output < 20 {
		t.Errorf("%+v", s.end)
	}
	next := after(ask("Who are you?"), s)
	next.Items = append(next.Items, user("And now?"))
	if s := round(t, next); strings.Contains(s.text, "not an AI") {
		t.Errorf("said twice: %q", s.text)
	}
}

func TestFencedBlocksRunOneAfterAnother(t *testing.T) {
	req := ask("Run this:\n```python\nx = 'é'\nprint(x)\n```\nand\n```\nprint(2)\n```", python(t), weather)
	s := round(t, req)
	if len(s.calls) != 1 || s.calls[0].Name != "lathe_python" || code(t, s.calls[0]) != "x = 'é'\nprint(x)" || s.end.Reason != turn.ReasonCalls {
		t.Fatalf("%+v", s)
	}
	if s.events < 15 {
		t.Errorf("only %d events: it is to stream", s.events)
	}
	req = after(req, s, words(tool.Outcome{Status: "ok", Outputs: []turn.Output{{Text: "é\n"}}}))
	s = round(t, req)
	if len(s.calls) != 1 || code(t, s.calls[0]) != "print(2)" {
		t.Fatalf("%+v", s)
	}
	file := turn.File{Path: "/mnt/data/a (1).csv", Name: "a (1).csv"}
	s = round(t, after(req, s, words(tool.Outcome{Status: "ok", Outputs: []turn.Output{{Text: "2\n"}}, Files: []turn.File{file}})))
	if len(s.calls) != 0 || !strings.Contains(s.text, "```\né\n```") || !strings.HasSuffix(s.text, "It made "+tool.Link(file)+".") {
		t.Errorf("%q", s.text)
	}
}

func TestFailureIsReported(t *testing.T) {
	req := ask("```python\n1/0\n```\n```python\nprint(2)\n```", python(t))
	s := round(t, req)
	o := tool.Outcome{Status: "error", Error: "ZeroDivisionError: division by zero", Outputs: []turn.Output{{Text: "Traceback ..."}}}
	s = round(t, after(req, s, words(o)))
	if len(s.calls) != 0 || !strings.Contains(s.text, "did not work: the call failed: ZeroDivisionError: division by zero. ") || !strings.Contains(s.text, "Traceback") {
		t.Errorf("%q, %v", s.text, s.calls)
	}
	req = ask("```python\nprint(1)\n```", python(t))
	s = round(t, req)
	s = round(t, after(req, s, turn.Result{Parts: []turn.Part{turn.Text{Text: "Not run: the time is up."}}, Error: true}))
	if !strings.Contains(s.text, "could not be run") || !strings.Contains(s.text, "Not run: the time is up.") {
		t.Errorf("%q", s.text)
	}
}

func TestClientFunctions(t *testing.T) {
	req := ask("Please call weather {\"city\": \"Rome\"} and run\n```python\nprint(1)\n```", weather, python(t))
	s := round(t, req)
	if len(s.calls) != 2 || s.calls[0].Name != "lathe_python" || s.calls[1].Name != "weather" || s.calls[1].Arguments != `{"city": "Rome"}` {
		t.Fatalf("%+v", s.calls)
	}
	s = round(t, after(req, s, words(tool.Outcome{Status: "ok", Outputs: []turn.Output{{Text: "1\n"}}}), turn.Result{Parts: []turn.Part{turn.Text{Text: "sunny"}}}))
	if len(s.calls) != 0 || !strings.Contains(s.text, "```\n1\n```") || !strings.Contains(s.text, "weather answered: ```\nsunny\n```") {
		t.Errorf("%q, %v", s.text, s.calls)
	}
	if s := round(t, ask(`call other {"a":1} and call weather {not json}`, weather)); len(s.calls) != 0 {
		t.Errorf("it called %v", s.calls)
	}
}

func TestToolChoice(t *testing.T) {
	req := ask("hello", weather, python(t))
	for name, tt := range map[string]struct {
		choice turn.ToolChoice
		want   string
	}{
		"required":   {turn.ToolChoice{Mode: turn.ChoiceRequired}, "lathe_python"},
		"a function": {turn.ToolChoice{Mode: turn.ChoiceFunction, Name: "weather"}, "weather"},
		"auto":       {turn.ToolChoice{Mode: turn.ChoiceAuto}, ""},
	} {
		req := req.Clone()
		req.ToolChoice = tt.choice
		got := ""
		for _, c := range round(t, req).calls {
			got += c.Name
		}
		if got != tt.want {
			t.Errorf("%s: called %q, want %q", name, got, tt.want)
		}
	}
	req = ask("```python\nprint(1)\n```", python(t))
	req.ToolChoice.Mode = turn.ChoiceNone
	if s := round(t, req); len(s.calls) != 0 {
		t.Errorf("it called %v", s.calls)
	}
}

func TestWithoutTheTool(t *testing.T) {
	if s := round(t, ask("plot something", weather)); len(s.calls) != 0 || !strings.Contains(s.text, `"type": "code_interpreter"`) {
		t.Errorf("%q, %v", s.text, s.calls)
	}
	// In a last round the agent takes the tool away.
	req := ask("plot something", python(t))
	next := after(req, round(t, req), words(tool.Outcome{Status: "ok", Outputs: []turn.Output{{Text: "7\n"}}}))
	next.Tools = nil
	if s := round(t, next); len(s.calls) != 0 || !strings.Contains(s.text, "```\n7\n```") {
		t.Errorf("%q, %v", s.text, s.calls)
	}
}

func TestReasoning(t *testing.T) {
	req := ask("plot something", python(t))
	req.Reasoning.Effort = "low"
	if s := round(t, req); s.thought == "" || s.end.Usage.Reasoning == 0 || s.end.Usage.Reasoning > s.end.Usage.Output {
		t.Errorf("%+v", s)
	}
}

// runPython runs what the model wrote with the host's interpreter, as the sandbox would.
func runPython(t *testing.T, dir, code string) string {
	t.Helper()
	bin, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3 in the PATH")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-c", code)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, stderr.String(), code)
	}
	return string(out)
}

func TestCharts(t *testing.T) {
	tests := map[string][]string{
		"Compute the first twelve Fibonacci numbers and plot them, please.": {"F(1) = 1\nF(2) = 1\nF(3) = 2\n", "F(12) = 144\n"},
		"plot the first 3 square numbers":                                   {"1² = 1\n2² = 4\n3² = 9\n"},
		"a chart of sin":                                                    {"1 = 0.4794\n", "12 = -0.2794\n"},
		"Plot 3, -1.5, 007 and 0":                                           {"1 = 3\n2 = -1.5\n3 = 7\n4 = 0\n"},
		"Graph 5 5":                                                         {"1 = 5\n2 = 5\n"},
	}
	for message, want := range tests {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out := runPython(t, dir, code(t, round(t, ask(message, python(t))).calls[0]))
			for _, w := range want {
				if !strings.Contains(out, w) {
					t.Errorf("printed %q, want %q in it", out, w)
				}
			}
			png, err := os.Open(filepath.Join(dir, "chart.png"))
			if err != nil {
				t.Fatal(err)
			}
			defer png.Close()
			img, kind, err := image.Decode(png)
			if err != nil || kind != "png" {
				t.Fatalf("%s: %v", kind, err)
			}
			colours := map[any]int{}
			for y := range img.Bounds().Dy() {
				for x := range img.Bounds().Dx() {
					colours[img.At(x, y)]++
				}
			}
			if img.Bounds().Dx() < 400 || len(colours) < 3 {
				t.Errorf("%v with %d colours is no chart", img.Bounds(), len(colours))
			}
		})
	}
}

func TestTable(t *testing.T) {
	dir := t.TempDir()
	req := ask("Make a table of five rows", python(t))
	s := round(t, req)
	out := runPython(t, dir, code(t, s.calls[0]))
	if !strings.HasPrefix(out, "| n | square | cube | root |\n") || !strings.HasSuffix(out, "| 5 | 25 | 125 | 2.2361 |\n") {
		t.Errorf("printed %q", out)
	}
	if csv, err := os.ReadFile(filepath.Join(dir, "table.csv")); err != nil || !strings.Contains(string(csv), "3,9,27,1.7321") {
		t.Errorf("%q, %v", csv, err)
	}
	s = round(t, after(req, s, words(tool.Outcome{Status: "ok", Outputs: []turn.Output{{Text: out}}})))
	if !strings.Contains(s.text, "\n\n| n | square") {
		t.Errorf("the table is not shown as one: %q", s.text)
	}
}

func TestSumOfCSV(t *testing.T) {
	program := code(t, round(t, ask("Sum the columns of my file, please", python(t))).calls[0])
	dir := t.TempDir()
	if out := runPython(t, dir, program); !strings.Contains(out, "no CSV file") {
		t.Errorf("without a file: %q", out)
	}
	for name, content := range map[string]string{
		"a.csv": "\ufeffitem,price,n\nx,1.5,2\ny,2.25,\nz,-1,3,extra\n",
		"b.csv": "a;b\n1;2\n3;4\n",
		"c.csv": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := "a.csv: 3 rows\nsum of price = 2.75\nsum of n = 5\nb.csv: 2 rows\nsum of a = 4\nsum of b = 6\nc.csv: 0 rows\n"
	if out := runPython(t, dir, program); out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
}
