package containers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

type checkpoint struct {
	ID, Object, Name string
	ContainerID      string `json:"container_id"`
	Bytes, CreatedAt int64
	Memory           bool
}

func (s *site) json(method, path, body string, want int, dst any) {
	s.t.Helper()
	status, text := s.do(method, "p", path, body, http.Header{"Content-Type": {"application/json"}})
	if status != want {
		s.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	if dst != nil {
		must(s.t, json.Unmarshal([]byte(text), dst))
	}
}

func (s *site) prints(id, code, want string) {
	s.t.Helper()
	var got strings.Builder
	for _, o := range s.run(id, code).Outputs {
		got.WriteString(o.Text)
	}
	if got.String() != want {
		s.t.Errorf("%s printed %q, want %q", id, got.String(), want)
	}
}

func TestForksAndCheckpoints(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sdk := s.client("p")
	c, err := sdk.Containers.New(t.Context(), openai.ContainerNewParams{Name: "source"})
	must(t, err)
	at := "/v1/containers/" + c.ID
	s.prints(c.ID, "x = 1\nopen('f', 'w').write('one')\nprint(x)", "1\n")

	var one, again checkpoint
	s.json("POST", at+"/checkpoints", `{"name": "one"}`, 200, &one)
	if one.Object != "container.checkpoint" || !strings.HasPrefix(one.ID, "ckpt_") || one.Name != "one" || one.ContainerID != c.ID || !one.Memory || one.Bytes == 0 {
		t.Errorf("checkpoint %+v", one)
	}
	s.prints(c.ID, "x += 1\nopen('f', 'w').write('two')\nprint(x)", "2\n")
	var fork openai.ContainerNewResponse
	s.json("POST", at+"/fork", ``, 200, &fork)
	if fork.ID == c.ID || fork.Name != "source" || fork.Status != "running" || fork.ExpiresAfter.Minutes != c.ExpiresAfter.Minutes {
		t.Errorf("fork %+v", fork)
	}
	s.json("POST", at+"/fork", `{"name": "named", "expires_after": {"anchor": "last_active_at", "minutes": 7}}`, 200, &fork)
	if fork.Name != "named" || fork.ExpiresAfter.Minutes != 7 {
		t.Errorf("fork %+v", fork)
	}
	s.prints(fork.ID, "x += 10\nprint(x, open('f').read())", "12 two\n")
	var restored openai.ContainerGetResponse
	s.json("POST", at+"/checkpoints/"+one.ID+"/restore", ``, 200, &restored)
	if restored.ID != c.ID {
		t.Errorf("restored %+v", restored)
	}
	s.prints(c.ID, "print(x, open('f').read())", "1 one\n")

	s.json("POST", at+"/checkpoints", `{"name": "two"}`, 200, &again)
	var list struct {
		Object  string
		Data    []checkpoint
		HasMore bool   `json:"has_more"`
		FirstID string `json:"first_id"`
	}
	s.json("GET", at+"/checkpoints?order=asc&limit=1", "", 200, &list)
	if list.Object != "list" || !list.HasMore || len(list.Data) != 1 || list.FirstID != one.ID {
		t.Errorf("list %+v", list)
	}
	s.json("DELETE", at+"/checkpoints/"+one.ID, "", 200, &again)
	if again.Object != "container.checkpoint.deleted" || again.ID != one.ID {
		t.Errorf("deleted %+v", again)
	}

	for _, tt := range []struct {
		project, method, path, body string
		status                      int
		want                        string
	}{
		{"p", "POST", at + "/checkpoints", `{"name": "two"}`, 409, "already"},
		{"p", "POST", at + "/checkpoints", `{}`, 400, "name"},
		{"p", "POST", at + "/checkpoints", `{"name": "` + strings.Repeat("x", 257) + `"}`, 400, "name"},
		{"p", "POST", at + "/checkpoints", `{"name": "x", "y": 1}`, 400, "y"},
		{"p", "POST", at + "/fork", `{"expires_after": {"anchor": "last_active_at", "minutes": 99999999}}`, 400, "minutes"},
		{"p", "POST", at + "/fork", `{"skills": []}`, 400, "skills"},
		{"p", "POST", at + "/checkpoints/" + one.ID + "/restore", "", 404, one.ID},
		{"p", "DELETE", at + "/checkpoints/" + one.ID, "", 404, one.ID},
		{"q", "POST", at + "/fork", "", 404, fmt.Sprintf("Container with id '%s' not found.", c.ID)},
		{"q", "GET", at + "/checkpoints", "", 404, "not found"},
		{"q", "POST", at + "/checkpoints", `{"name": "x"}`, 404, "not found"},
		{"q", "POST", at + "/checkpoints/" + again.ID + "/restore", "", 404, "not found"},
	} {
		status, text := s.do(tt.method, tt.project, tt.path, tt.body, nil)
		if status != tt.status || !strings.Contains(text, tt.want) || !strings.Contains(text, `"error"`) {
			t.Errorf("%s %s of %s: %d %s, want %d and %q", tt.method, tt.path, tt.project, status, text, tt.status, tt.want)
		}
	}
}
