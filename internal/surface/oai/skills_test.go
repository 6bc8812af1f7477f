package oai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/turn"
)

func TestSkills(t *testing.T) {
	t.Parallel()
	got, err := Skills("container.skills", json.RawMessage(`[{"type":"skill_reference","skill_id":"skill_1","version":2},{"type":"custom","skill_id":"litellm_skill_1","version":"latest"},
		{"type":"anthropic","skill_id":"pptx","version":null},{"type":"inline","name":"n","description":"d","source":{"type":"base64","media_type":"application/zip","data":"UEs="}}]`))
	want := []turn.SkillRef{
		{ID: "skill_1", Version: "2", Param: "container.skills[0]"}, {ID: "litellm_skill_1", Version: "latest", Param: "container.skills[1]"},
		{Type: "anthropic", ID: "pptx", Param: "container.skills[2]"}, {Archive: []byte("PK"), Param: "container.skills[3]"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for raw, param := range map[string]string{
		`{}`: "s", `[1]`: "s", `[{"type":"x"}]`: "s[0].type", `[{"type":"custom"}]`: "s[0].skill_id", `[{"type":"custom","skill_id":"a","version":{}}]`: "s[0].version",
		`[{"type":"inline"}]`: "s[0].source", `[{"type":"inline","source":{"type":"url"}}]`: "s[0].source",
		`[{"type":"inline","source":{"type":"base64","media_type":"application/zip","data":"?"}}]`: "s[0].source.data",
	} {
		if _, err := Skills("s", json.RawMessage(raw)); err == nil || turn.AsError(err).Param != param {
			t.Errorf("%s: %v", raw, err)
		}
	}
	many := func(n int) json.RawMessage {
		return json.RawMessage("[" + strings.Repeat(`{"type":"custom","skill_id":"a"},`, n-1) + `{"type":"custom","skill_id":"a"}]`)
	}
	if got, err := Skills("s", many(200)); len(got) != 200 || err != nil {
		t.Errorf("%d of 200 skills, %v", len(got), err)
	}
	if _, err := Skills("s", many(201)); err == nil || turn.AsError(err).Param != "s" {
		t.Errorf("201 skills: %v", err)
	}
	if got, err := Skills("s", json.RawMessage("null")); got != nil || err != nil {
		t.Error(got, err)
	}
}

func TestTakePreload(t *testing.T) {
	t.Parallel()
	m := map[string]string{"preload_skills": "true", "a": "b"}
	if !TakePreload(m) || len(m) != 1 || TakePreload(m) || TakePreload(nil) {
		t.Error(m)
	}
}
