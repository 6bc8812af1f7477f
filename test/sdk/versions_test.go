package sdk

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/lathe-gateway/lathe/internal/upstreamtest"
)

// version is a skill whose script says a word that only this version has.
func version(word string) []io.Reader {
	return []io.Reader{
		openai.File(strings.NewReader("---\nname: word\ndescription: Says the word.\n---\n```bash\npython3 say.py\n```\n"), "word/SKILL.md", "text/markdown"),
		openai.File(strings.NewReader("print('the word is "+word+"')\n"), "word/say.py", "text/x-python"),
	}
}

// meeting holds the models' answers of one round until it is let go.
type meeting struct {
	round int
	come  chan struct{} // a turn has come to the round
	let   chan struct{}
}

func (m *meeting) answer(r *upstreamtest.Request) upstreamtest.Answer {
	a := upstreamtest.ByName(r)
	if len(r.ToolResults()) == m.round {
		m.come <- struct{}{}
		a.BeforeHeaders = m.let
	}
	return a
}

// TestSkillVersions: two requests that run at once with different versions of one skill each see their own, and a version that is deleted while
// both are under way stays for the one that has it. Later requests do not find it.
func TestSkillVersions(t *testing.T) {
	g := start(t)
	client := openai.NewClient(option.WithBaseURL(g.url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
	ctx := t.Context()
	skill, err := client.Skills.New(ctx, openai.SkillNewParams{Files: openai.SkillNewParamsFilesUnion{OfFileArray: version("alder")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Skills.Versions.New(ctx, skill.ID, openai.SkillVersionNewParams{
		Files: openai.SkillVersionNewParamsFilesUnion{OfFileArray: version("birch")}, Default: openai.Bool(true),
	}); err != nil {
		t.Fatal(err)
	}
	ask := func(number string) (string, error) {
		r, err := client.Responses.New(ctx, responses.ResponseNewParams{
			Model: "skill-chat", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Say the word.\nanswer: {result}")},
		}, option.WithJSONSet("tools", []any{map[string]any{"type": "code_interpreter", "container": map[string]any{
			"type": "auto", "skills": []any{map[string]any{"type": "skill_reference", "skill_id": skill.ID, "version": number}},
		}}}))
		if err != nil {
			return "", err
		}
		return r.OutputText(), nil
	}
	// Round 0 has the skill named, round 1 has its SKILL.md read; no sandbox has shown it yet.
	m := &meeting{round: 1, come: make(chan struct{}, 2), let: make(chan struct{})}
	g.stub.Answer(m.answer)
	var turns sync.WaitGroup
	for number, word := range map[string]string{"1": "alder", "2": "birch"} {
		turns.Go(func() {
			text, err := ask(number)
			if err != nil || !strings.Contains(text, "the word is "+word) {
				t.Errorf("version %s: %q, %v", number, text, err)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		turns.Wait()
		close(ended)
	}()
	for range 2 {
		select {
		case <-m.come:
		case <-ended:
			t.Fatal("the turns ended before they had read the skill")
		}
	}
	if _, err := client.Skills.Versions.Delete(ctx, skill.ID, "1"); err != nil {
		t.Error(err)
	}
	var gone *openai.Error
	if _, err := ask("1"); !errors.As(err, &gone) || gone.StatusCode != 400 || !strings.Contains(gone.Message, skill.ID) {
		t.Errorf("a version that was deleted: %v, %+v", err, gone)
	}
	close(m.let)
	<-ended
}
