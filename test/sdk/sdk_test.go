// Package sdk runs the official OpenAI and Anthropic SDKs for Python and JavaScript against `lathe serve`, as their users would: see
// python/scenarios.py and python/messages.py. It has tests only.
package sdk

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// scenarios are those that each program has to run.
var scenarios = []string{
	"models", "wrong_key", "responses_plain", "responses_streamed", "responses_failure_is_data", "chat_plain", "chat_streamed",
	"responses_mixed", "chat_mixed", "responses_two_turns", "chat_two_turns", "error_before", "error_after", "files",
	"early_code", "live_responses", "live_chat", "leave_responses", "leave_chat", "skills", "skill_container",
}

// ofMessages are those of the programs that use Anthropic's SDK.
var ofMessages = []string{
	"plain", "streamed", "code_two_turns", "bash_and_editor", "failure_is_data", "made_file", "uploads", "client_tool", "mixed", "tool_runner",
	"thinking", "count_and_models", "errors", "betas", "paused", "programmatic", "skills",
}

const key = "sk-lathe-sdk-test"

func TestPython(t *testing.T) {
	lathe := start(t)
	python := pythonWith(t, "python/requirements.txt")
	lathe.run(t, scenarios, python, "python/scenarios.py")
	lathe.checkMixed(t)
	lathe.checkSkills(t, 7)
}

func TestPythonMessages(t *testing.T) {
	lathe := start(t)
	lathe.run(t, ofMessages, pythonWith(t, "python/requirements.txt"), "python/messages.py")
	lathe.checkSkills(t, 9)
}

func TestJavaScript(t *testing.T) {
	lathe := start(t)
	lathe.runJavaScript(t, scenarios, "scenarios.mjs")
	lathe.checkMixed(t)
	lathe.checkSkills(t, 7)
}

func TestJavaScriptMessages(t *testing.T) {
	lathe := start(t)
	lathe.runJavaScript(t, ofMessages, "messages.mjs")
	lathe.checkSkills(t, 9)
}

func (g *gateway) runJavaScript(t *testing.T, names []string, file string) {
	t.Helper()
	folder := npmInstall(t, "javascript/package.json")
	script, err := os.ReadFile(filepath.Join("javascript", file))
	if err != nil {
		t.Fatal(err)
	}
	// Node looks for packages beside the script.
	if err := os.WriteFile(filepath.Join(folder, file), script, 0o600); err != nil {
		t.Fatal(err)
	}
	g.run(t, names, filepath.Join(folder, "node_modules/.bin/node"), filepath.Join(folder, file))
}

// gateway is a `lathe serve` whose models are all the stub, in one protocol each.
type gateway struct {
	url             string
	stub            *upstreamtest.Server
	bin, file, data string
	// skill is the folder of a skill; beside it is its archive.
	skill string
}

const config = `
listen: 127.0.0.1:0
data_dir: %s
keys:
  - {name: sdk, key: %s, project: sdk}
models:
  - {name: "*", provider: openai-chat, base_url: %[3]s/v1, images: true}
  - {name: skill-chat, model: stub-skill, provider: openai-chat, base_url: %[3]s/v1}
  - {name: skill-responses, model: stub-skill, provider: openai-responses, base_url: %[3]s/v1}
  - {name: skill-anthropic, model: stub-skill, provider: anthropic, base_url: %[3]s, api_key: upstream}
agent: {max_rounds: 8}
`

func start(t *testing.T) *gateway {
	t.Helper()
	g := prepare(t, "")
	g.serve(t)
	return g
}

// prepare writes the configuration of a gateway, with more lines at its end.
func prepare(t *testing.T, more string) *gateway {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("code runs on Linux only")
	}
	if os.Geteuid() != 0 {
		t.Skip("run as root: the scenarios hold for sandboxes that root starts")
	}
	bin, err := filepath.Abs("../../bin/lathe")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("no bin/lathe: run make build first (make test does)")
	}
	stub := upstreamtest.Start(t)
	stub.Answer(upstreamtest.ByName)
	dir := t.TempDir()
	file := filepath.Join(dir, "lathe.yaml")
	g := &gateway{stub: stub, bin: bin, file: file, data: filepath.Join(dir, "data"), skill: filepath.Join(dir, "stamp")}
	copySkill(t, g.skill)
	if err := os.WriteFile(file, fmt.Appendf(nil, config+more, g.data, key, stub.URL()), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

var address = regexp.MustCompile(`http://\S+`)

// serve starts the program, waits until it is ready, and stops it with the test, or before by a signal with stop.
func (g *gateway) serve(t *testing.T) (stop func(syscall.Signal)) {
	t.Helper()
	log := &strings.Builder{}
	cmd := exec.Command(g.bin, "serve", "-c", g.file)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	stop = func(sig syscall.Signal) {
		once.Do(func() {
			cmd.Process.Signal(sig)
			if err := cmd.Wait(); err != nil && sig != syscall.SIGKILL {
				t.Errorf("lathe serve ended with %v", err)
			}
			if t.Failed() {
				t.Logf("the gateway's log:\n%s", log)
			}
		})
	}
	t.Cleanup(func() { stop(syscall.SIGTERM) })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("lathe serve printed no address")
	}
	g.url = address.FindString(lines.Text())
	if g.url == "" {
		t.Fatalf("lathe serve printed %q, want a line with its address", lines.Text())
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		resp, err := http.Get(g.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return stop
		}
		if time.Now().After(end) {
			t.Fatalf("still not ready: /readyz says %s; bin/lathe doctor says why", resp.Status)
		}
	}
}

// run starts one program and makes a test of each line that it prints.
func (g *gateway) run(t *testing.T, names []string, program, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, script)
	cmd.Env = g.environ()
	trace := &strings.Builder{}
	cmd.Stderr = trace
	out, err := cmd.Output()
	verdicts := map[string]string{}
	for line := range strings.Lines(string(out)) {
		verdict, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, note, _ := strings.Cut(rest, ": ")
		verdicts[name] = verdict + " " + note
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if !strings.HasPrefix(verdicts[name], "PASS") {
				t.Fatalf("%s", verdicts[name])
			}
			t.Log(verdicts[name])
		})
	}
	if err != nil || len(verdicts) != len(names) {
		t.Errorf("%s ended with %v after %d of %d scenarios:\n%s", script, err, len(verdicts), len(names), trace)
	}
}

// environ is that of a client.
func (g *gateway) environ() []string {
	return append(os.Environ(), "OPENAI_BASE_URL="+g.url+"/v1", "OPENAI_API_KEY="+key,
		"ANTHROPIC_BASE_URL="+g.url, "ANTHROPIC_API_KEY="+key, "SKILL_FOLDER="+g.skill, "SKILL_ZIP="+g.skill+".zip", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
}

// checkMixed looks at what reached the model when a mixed turn went on: the hidden run and the client's answer, also from Chat Completions,
// whose clients cannot send the run back.
func (g *gateway) checkMixed(t *testing.T) {
	t.Helper()
	seen := 0
	for _, r := range g.stub.Requests() {
		results := r.ToolResults()
		if !strings.Contains(r.LastUser(), "This is a mixed turn.") || len(results) == 0 {
			continue
		}
		seen++
		if len(results) != 2 || !strings.Contains(results[0], "41") || results[1] != "sunny" {
			t.Errorf("a mixed turn went on with the results %q, want the run's and the client's", results)
		}
	}
	if seen < 2 {
		t.Errorf("%d mixed turns went on, want one of Responses and one of Chat Completions", seen)
	}
}
