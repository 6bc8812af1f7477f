package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// folder is an unpacked skill; released counts how often it was given back.
func folder(t *testing.T, name string, released *int) tool.Skill {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"SKILL.md": "# " + name + "\nRun scripts/x.py.\n", "scripts/x.py": "print(1)\n", "logo.bin": "\xff\xfe"} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tool.Skill{
		ID: "skill_" + name, Version: "skver_" + name, Type: "custom", Shown: "2", Name: name, Description: "Does <" + name + ">.", Dir: dir,
		Release: func() { *released++ },
	}
}

func skillsRequest(tools ...string) *turn.Request {
	req := request("make charts")
	req.Hosted = &turn.Hosted{Tools: tools, Skills: []turn.SkillRef{{ID: "skill_charts"}}}
	return req
}

// The prompt has name, description and place, not the text; the model reads that by a tool that the client never sees, and its files come
// into the container with the first call.
func TestSkills(t *testing.T) {
	released := 0
	b := newBench(t, []any{calls("read_skill", `{"name":"charts"}`)}, []any{python("print 1")}, []any{"done"})
	b.ws.skills = []tool.Skill{folder(t, "charts", &released)}
	r := b.ok(skillsRequest())
	first := b.model.requests[0]
	if diff := cmp.Diff([]string{"python", "read_skill"}, toolNames(first)); diff != "" {
		t.Error(diff)
	}
	prompt := sketch(first.Items)[0]
	for _, want := range []string{"system: ", "charts", "Does &lt;charts&gt;.", "/skills/charts/SKILL.md"} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt lacks %q: %s", want, prompt)
		}
	}
	if strings.Contains(prompt, "scripts/x.py") {
		t.Errorf("the prompt has the text: %s", prompt)
	}
	if got := sketch(b.model.requests[1].Items); !strings.Contains(strings.Join(got, "\n"), "Run scripts/x.py.") {
		t.Errorf("the model did not get the text: %q", got)
	}
	if len(r.hosted()) != 1 || len(all[turn.CallStarted](r)) != 0 || r.text() != "done" {
		t.Errorf("the client saw %+v", r.events)
	}
	if len(b.ws.mounted) != 1 || released != 1 {
		t.Errorf("%d mounted, released %d times", len(b.ws.mounted), released)
	}
	if diff := cmp.Diff([]turn.SkillRef{{Type: "custom", ID: "skill_charts", Version: "2"}}, r.finished().Container.Skills); diff != "" {
		t.Error(diff)
	}
}

func TestSkillsWithTools(t *testing.T) {
	released := 0
	for tools, want := range map[string]string{"python": "python,read_skill", "bash,edit": "bash,edit", "edit,python": "edit,python"} {
		b := newBench(t, []any{"done"})
		b.ws.skills = []tool.Skill{folder(t, "charts", &released)}
		req := skillsRequest(strings.Split(tools, ",")...)
		req.ToolChoice.Allowed = strings.Split(tools, ",")
		req.ToolChoice.Mode = turn.ChoiceAuto
		b.ok(req)
		if got := strings.Join(toolNames(b.model.requests[0]), ","); got != want {
			t.Errorf("%s: the model has %s, want %s", tools, got, want)
		}
	}
	b := newBench(t, []any{"done"})
	if b.ok(request("hi")); len(toolNames(b.model.requests[0])) != 1 {
		t.Error("read_skill without skills")
	}
}

func TestSkillsPreloaded(t *testing.T) {
	released := 0
	for _, config := range []bool{true, false} {
		b := newBench(t, []any{"done"})
		b.ws.skills = []tool.Skill{folder(t, "charts", &released)}
		b.cfg.PreloadSkills = config
		req := skillsRequest()
		req.Hosted.Preload = !config
		b.ok(req)
		if prompt := sketch(b.model.requests[0].Items)[0]; !strings.Contains(prompt, "Run scripts/x.py.") {
			t.Errorf("the text is not in the prompt: %s", prompt)
		}
	}
}

func TestReadSkill(t *testing.T) {
	released := 0
	skills := []tool.Skill{folder(t, "charts", &released), folder(t, "data", &released)}
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(skills[0].Dir, "link")); err != nil {
		t.Fatal(err)
	}
	for arguments, want := range map[string]string{
		`{"name":"data","path":"scripts/x.py"}`:                 "print(1)",
		`{"name":"data","path":"/skills/data/scripts/x.py"}`:    "print(1)",
		`{"name":"charts","path":"/"}`:                          "SKILL.md\n",
		`{"name":"charts","path":"scripts"}`:                    "scripts/x.py\n",
		`{"name":"charts","path":"../../../../etc/passwd"}`:     "Error: the skill charts has no file",
		`{"name":"charts","path":"link"}`:                       "Error: \"link\" cannot be read",
		`{"name":"charts","path":"no.md"}`:                      "Error: the skill charts has no file",
		`{"name":"charts","path":"logo.bin"}`:                   "use it from code at /skills/charts/logo.bin",
		`{"name":"other"}`:                                      "there are: charts, data",
		`read it`:                                               "Error: the arguments must be a JSON object",
		`{"name":"charts","path":"SKILL.md","and":"something"}`: "# charts",
	} {
		text, failed := tool.ReadSkill(skills, arguments)
		if !strings.Contains(text, want) || strings.Contains(text, "secret") || failed != strings.HasPrefix(text, "Error") {
			t.Errorf("%s: %q, failed %v", arguments, text, failed)
		}
	}
}
