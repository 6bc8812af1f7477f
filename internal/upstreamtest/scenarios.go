package upstreamtest

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// Scenario is a named function of the request.
type Scenario struct {
	Name, Doc string
	Answer    func(*Request) Answer
}

// Scenarios are what cmd/stub serves. A request chooses one by its model (stub-<name>) or by #stub:<name> in its last user message, the
// message first; without either it is run.
//
// The user's message feeds them: each fenced block of python, bash or edit (a JSON object) is one hosted call, a line "args: {...}" the arguments of the client's
// function, a line "answer: ..." the final text, in which {result} stands for the last tool result.
func Scenarios() []Scenario {
	return []Scenario{
		{"run", "one hosted call a fenced Python block, one block a round, then the answer; without a block just the answer", run},
		{"text", "a short text", func(*Request) Answer { return Say("Hello ", "from ", "the ", "stub.") }},
		{"reasoning", "like run, with reasoning before each round", func(r *Request) Answer { return thinking(run(r)) }},
		{"client_tool", "calls the client's first function, then answers with its result", clientTool},
		{"mixed", "the first fenced Python block and the client's first function in one turn, then the answer", mixed},
		{"parallel", "all fenced Python blocks as parallel calls of one round, then the answer", parallel},
		{"slow_args", "like run, but each call's arguments come in three pieces, one a second", slowArgs},
		{"slow_text", "twenty pieces of text, four a second", slowText},
		{"odd", "like run, in the form of the oddest servers: first index 1, no ids, finish_reason stop, no [DONE]", odd},
		{"error_before", "400 context_length_exceeded before anything", errorBefore},
		{"error_after", "two pieces of text, then the connection breaks", errorAfter},
		{"error_frame", "two pieces of text, then an error frame", errorFrame},
		{"rate_limit", "429 with Retry-After: 1, always", func(*Request) Answer { return RateLimited(1) }},
		{"server_error", "500, always", func(*Request) Answer { return Fail(http.StatusInternalServerError, "the stub was told to fail") }},
		{"malformed", "a frame that is no JSON", func(*Request) Answer { return Do(Text("Hello"), Frame(`{"choices":[{`)) }},
		{"length", "a text that ends at the token limit", func(*Request) Answer { return Do(Text("Once upon a"), Finish("length")) }},
		{"skill", "reads the first skill of its system text (with the tool of a line \"read: ...\"), runs its first fenced bash block, then the answer", useSkill},
		{"repeat", "the same hosted call in every round, for ever", repeat},
	}
}

// ByName answers a request by its scenario. It is a function for Upstream.Answer.
func ByName(r *Request) Answer {
	name := "run"
	if m, ok := strings.CutPrefix(r.Model(), "stub-"); ok {
		name = m
	}
	if m := marker.FindStringSubmatch(r.LastUser()); m != nil {
		name = m[1]
	}
	scenarios := Scenarios()
	i := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return FailCode(http.StatusNotFound, "upstreamtest: no scenario "+name, "model_not_found")
	}
	return scenarios[i].Answer(r)
}

var (
	marker     = regexp.MustCompile(`#stub:([a-z_]+)`)
	fenced     = regexp.MustCompile("(?s)```(python|py|bash|edit)\n(.*?)```")
	argsLine   = regexp.MustCompile(`(?m)^args: (.*)$`)
	answerLine = regexp.MustCompile(`(?m)^answer: (.*)$`)
)

// block is a fenced block of the user's message.
type block struct{ tool, code string }

func blocks(r *Request) []block {
	var out []block
	for _, m := range fenced.FindAllStringSubmatch(r.LastUser(), -1) {
		if m[1] == "py" {
			m[1] = "python"
		}
		out = append(out, block{m[1], m[2]})
	}
	return out
}

// call is a call of the hosted tool that a block is for; its name is "" where the request has no such tool.
func (b block) call(r *Request) Call {
	switch b.tool {
	case "bash":
		raw, err := oaichat.Marshal(map[string]string{"command": b.code})
		if err != nil {
			panic(err) // a string always encodes
		}
		return Call{Name: hostedNamed(r, "bash"), Pieces: Pieces(string(raw), 7)}
	case "edit":
		return Call{Name: hostedNamed(r, "edit"), Pieces: Pieces(strings.TrimSpace(b.code), 7)}
	}
	return Call{Name: hostedTool(r), Pieces: CodeArguments(b.code, 7)}
}

// hostedNamed is the hosted tool of a name, which the gateway changes where a client has one of that name.
func hostedNamed(r *Request, name string) string {
	found := ""
	for _, f := range r.Functions() {
		if f.Name == name && found == "" || f.Name == "lathe_"+name {
			found = f.Name
		}
	}
	return found
}

// hostedTool is the name of the tool that takes code: the gateway may have renamed it. It is "" where there is none.
func hostedTool(r *Request) string {
	for _, f := range r.Functions() {
		if strings.Contains(string(f.Parameters), `"code"`) {
			return f.Name
		}
	}
	return ""
}

// clientFunction is the first tool that is none of the gateway's.
func clientFunction(r *Request) string {
	for _, f := range r.Functions() {
		if f.Name != hostedTool(r) && !slices.Contains([]string{"bash", "edit", "read_skill"}, f.Name) {
			return f.Name
		}
	}
	return ""
}

func final(r *Request) Answer {
	results := r.ToolResults()
	result := ""
	if len(results) > 0 {
		result = results[len(results)-1]
	}
	answer := "The result is {result}"
	if m := answerLine.FindStringSubmatch(r.LastUser()); m != nil {
		answer = m[1]
	} else if len(results) == 0 {
		answer = "You said: " + r.LastUser()
	}
	return Say(Pieces(strings.ReplaceAll(answer, "{result}", strings.TrimSpace(result)), 5)...)
}

func run(r *Request) Answer {
	code, round := blocks(r), len(r.ToolResults())
	if round >= len(code) || code[round].call(r).Name == "" {
		return final(r)
	}
	steps := []Step{code[round].call(r)}
	if round == 0 {
		steps = append([]Step{Text("Let me "), Text("compute.")}, steps...)
	}
	return Do(steps...)
}

func thinking(a Answer) Answer {
	a.Steps = append([]Step{Reasoning("The user wants "), Reasoning("an answer.")}, a.Steps...)
	return a
}

func clientCall(r *Request) Call {
	args := "{}"
	if m := argsLine.FindStringSubmatch(r.LastUser()); m != nil {
		args = m[1]
	}
	return Call{Name: clientFunction(r), Pieces: Pieces(args, 6)}
}

func clientTool(r *Request) Answer {
	if len(r.ToolResults()) > 0 || clientFunction(r) == "" {
		return final(r)
	}
	return Do(clientCall(r))
}

func mixed(r *Request) Answer {
	code := blocks(r)
	if len(r.ToolResults()) > 0 || len(code) == 0 || code[0].call(r).Name == "" || clientFunction(r) == "" {
		return final(r)
	}
	return Do(code[0].call(r), clientCall(r))
}

func parallel(r *Request) Answer {
	if len(r.ToolResults()) > 0 || hostedTool(r) == "" {
		return final(r)
	}
	var a Answer
	for _, b := range blocks(r) {
		a.Steps = append(a.Steps, b.call(r))
	}
	return a.With(Quirks{Interleave: true})
}

func slowArgs(r *Request) Answer {
	a := run(r)
	for i, s := range a.Steps {
		if c, ok := s.(Call); ok {
			whole := join(c.Pieces)
			c.Pieces, c.Delay = Pieces(whole, len([]rune(whole))/3+1), time.Second
			a.Steps[i] = c
		}
	}
	return a
}

func slowText(*Request) Answer {
	var a Answer
	for i := range 20 {
		a.Steps = append(a.Steps, Text(fmt.Sprintf("piece %d ", i)), Pause(250*time.Millisecond))
	}
	return a
}

func odd(r *Request) Answer {
	return run(r).With(Quirks{FirstIndex: 1, NoIDs: true, FinishStop: true, NoDone: true, NullContent: true, Usage: UsageOnFinish, Comments: true})
}

func errorBefore(*Request) Answer {
	return FailCode(http.StatusBadRequest, "This model's maximum context length is 10 tokens.", "context_length_exceeded")
}

func errorAfter(*Request) Answer { return Do(Text("Hello "), Text("from "), Cut{}) }

func errorFrame(*Request) Answer {
	e := FailCode(http.StatusServiceUnavailable, "the stub was told to break", "server_is_overloaded")
	return Do(Text("Hello "), Text("from "), Frame(e.Body))
}

func repeat(r *Request) Answer {
	b := block{"python", "print('again')"}
	if all := blocks(r); len(all) > 0 {
		b = all[0]
	}
	if b.call(r).Name == "" {
		return final(r)
	}
	return Do(b.call(r))
}

// Describe lists the scenarios for people.
func Describe() string {
	var b strings.Builder
	for _, s := range Scenarios() {
		fmt.Fprintf(&b, "  %-13s %s\n", s.Name, s.Doc)
	}
	return b.String()
}
