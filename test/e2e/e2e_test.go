package e2e

import (
	"context"
	"encoding/json"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/agent"
	"github.com/lathe-gateway/lathe/internal/container"
)

func TestDemoPlots(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	r := post[response](l, "/v1/responses", object{
		"model": "demo", "input": "Compute the first twelve Fibonacci numbers and plot them, please.", "tools": interpreter(auto),
		"include": []string{withOutputs},
	})
	calls := r.calls(t)
	text, cited := r.text(t)
	if r.Status != "completed" || len(calls) != 1 || !strings.Contains(logs(calls[0]), "F(12) = 144\n") {
		t.Fatalf("%s, %+v", r.Status, calls)
	}
	if !strings.HasPrefix(text, "I am Lathe's demo model") || !strings.Contains(text, "[chart.png](sandbox:/mnt/data/chart.png)") {
		t.Errorf("%q", text)
	}
	if len(cited) != 1 || cited[0].Type != "container_file_citation" || cited[0].Filename != "chart.png" || cited[0].ContainerID != calls[0].ContainerID {
		t.Fatalf("%+v", cited)
	}
	_, content, err := l.containers.OpenFile(l.as(), cited[0].ContainerID, cited[0].FileID)
	must(t, err)
	defer content.Close()
	if img, err := png.Decode(content); err != nil || img.Bounds().Dx() < 400 {
		t.Errorf("the chart: %v, %v", img, err)
	}
}

func TestDemoSumsAnUpload(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	up := l.containers.Uploads()
	staged, err := up.Stage(l.as(), strings.NewReader("item,price\na,1.5\nb,2.25\n"))
	must(t, err)
	file, err := up.Create(l.as(), container.NewUpload{Name: "sales.csv", Purpose: "user_data"}, staged)
	must(t, err)
	want := "sum of price = 3.75"
	t.Run("file_ids", func(t *testing.T) {
		r := post[response](l, "/v1/responses", object{
			"model": "demo", "input": "Sum the columns of my file", "tools": interpreter(object{"type": "auto", "file_ids": []string{file.ID}}),
		})
		if text, _ := r.text(t); !strings.Contains(text, want) {
			t.Errorf("%q", text)
		}
	})
	t.Run("input_file", func(t *testing.T) {
		input := []object{{"role": "user", "content": []object{
			{"type": "input_text", "text": "Sum the columns of my file"}, {"type": "input_file", "file_id": file.ID},
		}}}
		r := post[response](l, "/v1/responses", object{"model": "demo", "input": input, "tools": interpreter(auto)})
		if text, _ := r.text(t); !strings.Contains(text, want) {
			t.Errorf("%q", text)
		}
	})
	t.Run("the model is told", func(t *testing.T) {
		l.up.Answer(nil)
		input := []object{{"role": "user", "content": []object{{"type": "input_text", "text": "hi"}, {"type": "input_file", "file_id": file.ID}}}}
		resp := l.open(t.Context(), "/v1/responses", object{"model": "stub", "input": input, "tools": interpreter(auto)})
		resp.Body.Close()
		messages := l.up.Last().Chat().Messages
		if len(messages) != 2 || messages[0].Role != "system" || !strings.Contains(messages[0].Content.String(), "/mnt/data/") ||
			!strings.Contains(messages[0].Content.String(), "sales.csv") || !strings.Contains(messages[1].Content.String(), "attached file") {
			t.Errorf("%+v", messages)
		}
	})
	t.Run("unknown id", func(t *testing.T) {
		resp := l.open(t.Context(), "/v1/responses", object{
			"model": "demo", "input": "hi", "tools": interpreter(object{"type": "auto", "file_ids": []string{"file_none"}}),
		})
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusBadRequest ||
			!strings.Contains(string(body), "file_none") {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	})
}

// The second turn replays the first one's items: it gets the same container, and what the model sees is what it saw before.
func TestTwoTurnsOverOneContainer(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	ask := block("x = 6\nprint('set')")
	first := post[response](l, "/v1/responses", object{"model": "stub", "input": ask, "tools": interpreter(auto)})
	input := []any{object{"role": "user", "content": ask}}
	for _, raw := range first.Raw {
		input = append(input, raw)
	}
	input = append(input, object{"role": "user", "content": block("print(x * 7)") + "answer: it is {result}"})
	second := post[response](l, "/v1/responses", object{"model": "stub", "input": input, "tools": interpreter(auto), "include": []string{withOutputs}})
	a, b := first.calls(t), second.calls(t)
	if len(a) != 1 || len(b) != 1 || a[0].ContainerID != b[0].ContainerID || logs(b[0]) != "42\n" {
		t.Errorf("%+v\n%+v", a, b)
	}
	if text, _ := second.text(t); !strings.HasSuffix(text, "it is 42") {
		t.Errorf("%q", text)
	}
	tools := 0
	for _, m := range l.up.Last().Chat().Messages {
		if m.Role == "tool" && m.Content.String() == "set" {
			tools++
		}
	}
	if tools != 1 {
		t.Errorf("the first turn's result reached the model %d times", tools)
	}
	if second.Usage.Input != 20 || second.Usage.Output != 10 {
		t.Errorf("usage %+v of two rounds", second.Usage)
	}
}

// answer is an answer of Chat Completions, with our extension.
type answer struct {
	Choices []struct {
		FinishReason string          `json:"finish_reason"`
		Message      json.RawMessage // as a client sends it back
	}
}

type message struct {
	Content   string
	ToolCalls []struct {
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
	Calls       []output `json:"code_interpreter_calls"`
	Annotations []citation
	Container   struct{ ID string }
}

func (a answer) message(t *testing.T) message {
	t.Helper()
	var m message
	must(t, json.Unmarshal(a.Choices[0].Message, &m))
	return m
}

var weather = object{"type": "function", "function": object{"name": "weather", "parameters": object{"type": "object"}}}

// A turn that mixes hosted and client calls, over a protocol that cannot carry the hosted ones: what the model sees of it afterwards is
// complete, and the container is the same, whether or not the client keeps our extension fields.
func TestMixedTurnOverChat(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"fields kept": true, "fields dropped": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLathe(t, nil)
			tools := append(interpreter(auto), weather)
			ask := object{"role": "user", "content": "#stub:mixed\n" + block("y = 20\nprint('hidden')") + `args: {"city":"Rome"}`}
			first := post[answer](l, "/v1/chat/completions", object{"model": "stub", "messages": []any{ask}, "tools": tools})
			m := first.message(t)
			if first.Choices[0].FinishReason != "tool_calls" || len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "weather" ||
				len(m.Calls) != 1 || logs(m.Calls[0]) != "hidden\n" {
				t.Fatalf("%s", first.Choices[0].Message)
			}
			var back any = first.Choices[0].Message
			if !keep {
				back = object{"role": "assistant", "content": m.Content, "tool_calls": []object{{
					"id": m.ToolCalls[0].ID, "type": "function",
					"function": object{"name": "weather", "arguments": m.ToolCalls[0].Function.Arguments},
				}}}
			}
			messages := []any{ask, back, object{"role": "tool", "tool_call_id": m.ToolCalls[0].ID, "content": "sunny"},
				object{"role": "user", "content": block("print(y + 1)") + "answer: {result}"}}
			second := post[answer](l, "/v1/chat/completions", object{"model": "stub", "messages": messages, "tools": tools}).message(t)
			if !strings.HasSuffix(second.Content, "21") || len(second.Calls) != 1 {
				t.Errorf("%+v", second)
			}
			if second.Container.ID == "" || second.Container.ID != m.Calls[0].ContainerID {
				t.Errorf("container %q, before %q", second.Container.ID, m.Calls[0].ContainerID)
			}
			var seen []string
			for _, m := range l.up.Last().Chat().Messages {
				line := m.Role
				for _, c := range m.ToolCalls {
					line += " " + c.Function.Name
				}
				if m.Role == "tool" {
					line += " " + m.Content.String()
				}
				seen = append(seen, line)
			}
			want := "user|assistant python weather|tool hidden|tool sunny|user|assistant python|tool 21"
			if got := strings.Join(seen, "|"); got != want {
				t.Errorf("the model saw %s, want %s", got, want)
			}
		})
	}
}

func TestSessionOverChat(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	ask := func(code string) message {
		return post[answer](l, "/v1/chat/completions", object{
			"model": "stub", "messages": []object{{"role": "user", "content": block(code)}}, "tools": interpreter(auto),
			"metadata": object{"session_id": "s1"},
		}).message(t)
	}
	a, b := ask("z = 5"), ask("print(z)")
	if a.Container.ID == "" || a.Container.ID != b.Container.ID || logs(b.Calls[0]) != "5\n" {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// A session goes on with its variables after the gateway was stopped and started, and so does a fork that was made over HTTP.
func TestSessionOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(l *lathe, code, session, container string) message {
		request := object{"model": "stub", "messages": []object{{"role": "user", "content": block(code)}}, "tools": interpreter(auto)}
		if session != "" {
			request["metadata"] = object{"session_id": session}
		} else {
			request["tools"] = interpreter(container)
		}
		return post[answer](l, "/v1/chat/completions", request).message(t)
	}
	l := newLatheIn(t, dir, nil)
	a := run(l, "z = [5]\nopen('f', 'w').write('kept')", "s1", "")
	fork := post[struct{ ID string }](l, "/v1/containers/"+a.Container.ID+"/fork", object{})
	l.stop()

	l = newLatheIn(t, dir, nil)
	b := run(l, "z.append(6)\nprint(z, open('f').read())", "s1", "")
	if b.Container.ID != a.Container.ID || logs(b.Calls[0]) != "[5, 6] kept\n" {
		t.Errorf("%+v\n%+v", a, b)
	}
	l.stop()
	l = newLatheIn(t, dir, nil)
	c := run(l, "print(z, open('f').read())", "", fork.ID)
	if c.Container.ID != fork.ID || logs(c.Calls[0]) != "[5] kept\n" {
		t.Errorf("the fork: %+v", c)
	}
	if d := run(l, "print(z)", "s1", ""); logs(d.Calls[0]) != "[5, 6]\n" {
		t.Errorf("%+v", d)
	}
}

// What a program prints comes while it runs, and the code before the model has finished writing the call.
func TestLiveOutput(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	gate := filepath.Join(t.TempDir(), "gate")
	code := "import os, time\nprint('before', flush=True)\nwhile not os.path.exists(" + quote(gate) + "):\n    time.sleep(0.01)\nprint('after')"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp := l.open(ctx, "/v1/responses", object{"model": "stub", "input": block(code), "tools": interpreter(auto), "stream": true})
	live, done, deltas := "", false, 0
	frames(t, resp.Body, func(event string, data []byte) bool {
		var d struct {
			Text, Delta string
			Item        output
		}
		must(t, json.Unmarshal(data, &d))
		switch event {
		case "response.code_interpreter_call_code.delta":
			deltas++
		case "lathe.output.delta":
			live += d.Text + d.Delta
			if strings.Contains(live, "before") && !strings.Contains(live, "after") {
				must(t, os.WriteFile(gate, nil, 0o600)) // the program waits for what only its own output causes
			}
		case "response.completed":
			done = true
		}
		return true
	})
	if !done || live != "before\nafter\n" || deltas < 5 {
		t.Errorf("done %v, live %q, %d pieces of code", done, live, deltas)
	}
}

func quote(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw)
}

// A client that leaves stops its program: a heartbeat file stops growing. The container can be used again.
func TestLeavingStopsTheProgram(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	beat := filepath.Join(t.TempDir(), "beat")
	code := "import time\nv = 1\nwhile True:\n    with open(" + quote(beat) + ", 'a') as f:\n        f.write('x')\n    time.sleep(0.01)"
	body := object{"model": "stub", "input": block(code), "tools": interpreter(auto), "stream": true, "metadata": object{"session_id": "s"}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := l.open(ctx, "/v1/responses", body)
	frames(t, resp.Body, func(event string, _ []byte) bool { return event != "response.code_interpreter_call.interpreting" })
	size := func() int64 {
		info, err := os.Stat(beat)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	await(t, "the first heartbeat", func() bool { return size() > 0 })
	cancel()
	last, since := size(), time.Now()
	await(t, "the heartbeat to stop", func() bool {
		if n := size(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > time.Second
	})
	body["stream"], body["input"], body["include"] = false, block("print('alive', v)"), []string{withOutputs}
	r := post[response](l, "/v1/responses", body)
	if c := r.calls(t); len(c) != 1 || logs(c[0]) != "alive 1\n" {
		t.Errorf("%+v", c)
	}
}

// await polls, at most for patience; only a failure waits that long.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestFailureOfTheProgramIsShown(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	r := post[response](l, "/v1/responses", object{
		"model": "stub", "input": block("print('before')\n1/0") + "answer: {result}", "tools": interpreter(auto), "include": []string{withOutputs},
	})
	c := r.calls(t)
	if len(c) != 1 || c[0].Status != "completed" || !strings.HasPrefix(logs(c[0]), "before\n") || !strings.Contains(logs(c[0]), "ZeroDivisionError") {
		t.Errorf("%+v", c)
	}
	if text, _ := r.text(t); !strings.Contains(text, "[the call failed: ZeroDivisionError: division by zero]") {
		t.Errorf("the model saw %q", text)
	}
}

func TestLimitOfRounds(t *testing.T) {
	t.Parallel()
	l := newLathe(t, func(c *agent.Config) { c.MaxRounds = 2 })
	r := post[response](l, "/v1/responses", object{
		"model": "stub", "input": block("print(1)") + block("print(2)") + block("print(3)") + "answer: {result}", "tools": interpreter(auto),
	})
	text, _ := r.text(t)
	if len(r.calls(t)) != 2 || r.Status != "completed" || !strings.Contains(text, "2") {
		t.Errorf("%s, %d calls, %q", r.Status, len(r.calls(t)), text)
	}
	if last := l.up.Last().Chat(); len(last.Tools) != 0 || last.ToolChoice != nil {
		t.Errorf("the last round has tools: %+v", last.Tools)
	}
}

// Once code has run, the SDKs must not send the request again by themselves.
func TestLateFailureIsNotRetried(t *testing.T) {
	t.Parallel()
	l := newLathe(t, nil)
	l.up.Answer(nil) // 400 when the queue is empty
	l.up.Push(runCode("print(1)"))
	resp := l.open(t.Context(), "/v1/chat/completions", object{
		"model": "stub", "messages": []object{{"role": "user", "content": "hi"}}, "tools": interpreter(auto),
	})
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode < 400 || resp.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d, x-should-retry %q: %s", resp.StatusCode, resp.Header.Get("X-Should-Retry"), body)
	}
	if len(l.up.Requests()) != 2 {
		t.Errorf("%d requests", len(l.up.Requests()))
	}
}
