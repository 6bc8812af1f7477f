package messages

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/surface/anthropic"
	"github.com/lathe-gateway/lathe/internal/turn"
)

const simple = `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`

// said answers with one word.
func said() *script {
	return &script{events: []turn.Event{
		turn.Started{}, turn.MessageStarted{}, turn.TextDelta{Text: "ok"},
		turn.MessageDone{Message: turn.Message{Parts: []turn.Part{turn.Text{Text: "ok"}}}}, turn.Finished{Reason: turn.ReasonStop},
	}}
}

// failure is the error of an answer, and its status.
func failure(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var body struct {
		Type  string
		Error struct{ Type, Message string }
	}
	mustJSON(t, w.Body.String(), &body)
	if body.Type != "error" {
		t.Errorf("no error: %s", w.Body)
	}
	return fmt.Sprintf("%d %s: %s", w.Code, body.Error.Type, body.Error.Message)
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]string{
		version2023:  "",
		version2026:  "",
		"":           "400 invalid_request_error: anthropic-version: header is required: send 2026-10-21 or 2023-06-01",
		"2023-01-01": "400 invalid_request_error: anthropic-version: 2023-01-01 streams in another form, which is not served here: send 2023-06-01",
		"2030-01-01": `400 invalid_request_error: anthropic-version: "2030-01-01" is not a valid version: send 2026-10-21 or 2023-06-01`,
	} {
		for _, path := range []string{"/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens"} {
			body := simple
			if strings.HasSuffix(path, "count_tokens") {
				body = strings.Replace(simple, `"max_tokens":10,`, "", 1)
			}
			w := post(t, testHandler(said(), nil), path, body, "Anthropic-Version", version)
			if want == "" && w.Code != http.StatusOK || want != "" && failure(t, w) != want {
				t.Errorf("%q on %s: %d %s", version, path, w.Code, w.Body)
			}
		}
	}
}

// A server that speaks the protocol says itself which versions it knows; without a version nobody can tell what the client means.
func TestVersionsOfForwarded(t *testing.T) {
	body := strings.Replace(simple, `"m"`, `"claude"`, 1)
	if w := post(t, testHandler(said(), &forwarder{}), "/v1/messages", body, "Anthropic-Version", "2030-01-01"); w.Body.String() != "forwarded" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := post(t, testHandler(said(), &forwarder{}), "/v1/messages", body, "Anthropic-Version", ""); w.Code != http.StatusBadRequest {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestForward(t *testing.T) {
	hex := strings.Repeat("0a", 16)
	const code = `"tools":[{"type":"code_execution_20250522","name":"code_execution"}],`
	for _, tt := range []struct {
		name, model, more string
		want              bool
	}{
		{"untouched", "claude", "", true},
		{"another protocol", "m", "", false},
		{"fields and tools that only it knows", "claude", `"novel": 1, "tools":[{"type":"web_search_20260318","name":"web_search"},{"type":"mcp_toolset"}],`, true},
		{"code is run here", "claude", code, false},
		{"code is left to it", "native", code, true},
		{"an upload of ours", "claude", `"x":"file_` + hex + `",`, false},
		{"a container of ours", "claude", `"container":"cntr_` + hex + `",`, false},
		{"a call that ran here", "claude", `"x":"srvtoolu_` + hex + `",`, false},
		{"a call of the client's that was minted here", "claude", `"x":"toolu_` + hex + `",`, true},
		{"reasoning that was sealed here", "claude", `"x":"lathe.1.e30",`, false},
		{"its own ids", "claude", `"x":["file_011CNha8iCJcU1wXNR6q4V8w","srvtoolu_01X"],`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, s := &forwarder{}, said()
			body := `{` + tt.more + ` "model":"` + tt.model + `" , "max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`
			w := post(t, testHandler(s, f), "/v1/messages?beta=true", body, "Anthropic-Beta", "x-1")
			if got := len(f.got) == 1; got != tt.want {
				t.Fatalf("forwarded %v: %d %s", got, w.Code, w.Body)
			}
			if !tt.want {
				return
			}
			if f.got[0].Path != "/v1/messages" || string(f.got[0].Body) != body || f.got[0].Header.Get("Anthropic-Beta") != "x-1" {
				t.Errorf("forwarded %s %s", f.got[0].Path, f.got[0].Body)
			}
			if len(s.got) != 0 || w.Header().Get("X-Lathe-Ignored-Betas") != "" {
				t.Errorf("%d turns, header %v", len(s.got), w.Header())
			}
		})
	}
}

func TestBetas(t *testing.T) {
	w := post(t, testHandler(said(), nil), "/v1/messages", simple, "Anthropic-Beta", "oauth-2025-04-20, skills-2025-10-02,claude-code-20250219")
	if got := w.Header().Get("X-Lathe-Ignored-Betas"); w.Code != http.StatusOK || got != "oauth-2025-04-20,claude-code-20250219" {
		t.Errorf("status %d, ignored %q", w.Code, got)
	}
	w = post(t, testHandler(said(), nil), "/v1/messages", simple, "Anthropic-Beta", "skills-2025-10-02")
	if got, ok := w.Header()["X-Lathe-Ignored-Betas"]; ok {
		t.Errorf("ignored %q", got)
	}
	// What runs here is not asked for at a server, which would refuse it without its tool (wire/anthropic.md 8.10, 8.11).
	s := said()
	body := `{"model":"claude","max_tokens":10,"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`
	post(t, testHandler(s, &forwarder{}), "/v1/messages", body, "Anthropic-Beta", "skills-2025-10-02,code-execution-2025-08-25,novel-1")
	if got := string(s.got[0].Extra.Fields["betas"]); got != `["novel-1"]` {
		t.Errorf("betas that go up: %s", got)
	}
}

func TestRefusedBeforeReading(t *testing.T) {
	h := testHandler(said(), &forwarder{})
	if got := failure(t, post(t, h, "/v1/messages", `{"model":`)); !strings.HasPrefix(got, "400 invalid_request_error: The request body is not valid JSON") {
		t.Error(got)
	}
	if got := failure(t, post(t, h, "/v1/messages", simple, "Content-Encoding", "gzip")); !strings.Contains(got, "content-encoding") {
		t.Error(got)
	}
	big := post(t, h, "/v1/messages", simple+strings.Repeat(" ", maxBody))
	if got := failure(t, big); !strings.HasPrefix(got, "413 request_too_large: Request exceeds the maximum size") {
		t.Error(got)
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(strings.Repeat(" ", maxBody+1)))
	r.Header.Set("Anthropic-Version", version2026)
	r.ContentLength = -1 // as in chunks
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := failure(t, w); !strings.HasPrefix(got, "413 request_too_large") {
		t.Error(got)
	}
}

// A failure before the first event has its status, in both forms of the answer; the request's id is in the body.
func TestFailsEarly(t *testing.T) {
	for _, stream := range []string{"", `"stream":true,`} {
		s := &script{err: &turn.Error{Kind: turn.KindOverloaded, Message: "later", RetryAfter: time.Second, CodeRan: true}}
		r := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader("{"+stream+simple[1:]))
		r.Header.Set("Anthropic-Version", version2026)
		r = r.WithContext(anthropic.WithRequestID(r.Context(), "req_1"))
		w := httptest.NewRecorder()
		testHandler(s, nil).ServeHTTP(w, r)
		want := `{"type":"error","error":{"type":"overloaded_error","message":"later"},"request_id":"req_1"}`
		if w.Code != 529 || w.Body.String() != want || w.Header().Get("Retry-After") != "1" || w.Header().Get("X-Should-Retry") != "false" {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	}
}

func TestUnfinishedTurnsAreErrors(t *testing.T) {
	s := &script{events: []turn.Event{turn.Started{}}}
	if got := failure(t, post(t, testHandler(s, nil), "/v1/messages", simple)); !strings.HasPrefix(got, "500 api_error") {
		t.Error(got)
	}
	w := post(t, testHandler(s, nil), "/v1/messages", `{"stream":true,`+simple[1:])
	if !strings.Contains(w.Body.String(), "event: error\n") || strings.Contains(w.Body.String(), "message_stop") {
		t.Errorf("%s", w.Body)
	}
}

// A silence of 10 s is broken by the protocol's own event, which clients skip.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		Register(mux, Config{Turns: slow{}, Models: models{}})
		w := post(t, mux, "/v1/messages", `{"stream":true,`+simple[1:])
		if n := strings.Count(w.Body.String(), "event: ping\ndata: {\"type\":\"ping\"}\n\n"); n != 2 || strings.Contains(w.Body.String(), ": keep-alive") {
			t.Errorf("%d pings in 25 s:\n%s", n, w.Body)
		}
	})
}

// slow thinks for 25 s between its first and its last event.
type slow struct{ turn.Streamer }

func (slow) Stream(_ context.Context, _ *turn.Request) turn.Stream {
	return func(yield func(turn.Event, error) bool) {
		if yield(turn.Started{}, nil) {
			time.Sleep(25 * time.Second)
			yield(turn.Finished{Reason: turn.ReasonStop}, nil)
		}
	}
}

func TestCountTokens(t *testing.T) {
	f := &forwarder{}
	h := testHandler(said(), f)
	body := `{"model":"claude","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`
	if w := post(t, h, "/v1/messages/count_tokens", body); w.Body.String() != "forwarded" || f.got[0].Path != "/v1/messages/count_tokens" || string(f.got[0].Body) != body {
		t.Errorf("%s %+v", w.Body, f.got)
	}
	count := func(body string) int {
		var out struct {
			Tokens int `json:"input_tokens"`
		}
		mustJSON(t, post(t, h, "/v1/messages/count_tokens", body).Body.String(), &out)
		return out.Tokens
	}
	short := count(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	long := count(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 1000) + `"}]}`)
	if short < 1 || short > 20 || long-short < 1000 || long-short > 1500 {
		t.Errorf("a word counts %d, a thousand of them %d", short, long)
	}
	image := count(`{"model":"m","thinking":{"type":"enabled","budget_tokens":5000},"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}]}`)
	if image < 1000 {
		t.Errorf("an image counts %d", image)
	}
	for body, want := range map[string]string{
		simple: "400 invalid_request_error: max_tokens: Extra inputs are not permitted",
		`{"model":"nobody","messages":[{"role":"user","content":"hi"}]}`: `404 not_found_error: the model "nobody" does not exist here`,
		`{"model":"m","messages":[{"role":"tool","content":"hi"}]}`:      "400 invalid_request_error: messages.0.role: Input should be 'user', 'assistant' or 'system'",
	} {
		if got := failure(t, post(t, h, "/v1/messages/count_tokens", body)); got != want {
			t.Error(got)
		}
	}
}

// As many messages as the protocol takes, and one more.
func TestManyMessages(t *testing.T) {
	one := `{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"}]},`
	many := `{"model":"m","max_tokens":10,"messages":[` + strings.Repeat(one, mostMessages/2-1) + one[:len(`{"role":"user","content":"a"}`)]
	s := said()
	if w := post(t, testHandler(s, nil), "/v1/messages", many+"]}"); w.Code != http.StatusOK || len(s.got[0].Items) != mostMessages-1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	w := post(t, testHandler(s, nil), "/v1/messages", many+strings.Repeat(`,{"role":"user","content":"a"}`, 2)+"]}")
	if got := failure(t, w); got != "400 invalid_request_error: messages: List should have at most 100000 items, got 100001" {
		t.Error(got)
	}
}

func TestIDs(t *testing.T) {
	hex := strings.Repeat("0f", 16)
	for ours, theirs := range map[string]string{
		"call_" + hex: "toolu_" + hex, "call_h" + hex: "toolu_h" + hex, "call_0": "call_0", "toolu_01AbC": "toolu_01AbC",
	} {
		if got := clientCallID(ours); got != theirs || ownCallID(got) != ours {
			t.Errorf("%s -> %s -> %s", ours, got, ownCallID(got))
		}
	}
	if got := clientHostedID("ci_" + hex); got != "srvtoolu_"+hex || ownHostedID(got) != "ci_"+hex {
		t.Error(got)
	}
}

func TestSealedReasoningComesBack(t *testing.T) {
	for _, r := range []turn.Reasoning{
		{Text: "t", Signature: "sig"},
		{Text: "t", Field: "reasoning_content"},
		{ID: "rs_1", Summary: []string{"a", "b\nc"}, Encrypted: "x"},
		{ID: "rs_1", Summary: []string{"a"}, Text: "t", Encrypted: "x"},
		{Text: "t"},
		{Encrypted: "x"},
	} {
		for _, omitted := range []bool{false, true} {
			if omitted && r.Signature != "" {
				continue // the server has left the text out itself
			}
			shown := r.Text
			if r.Text == "" {
				shown = strings.Join(r.Summary, summaryBreak)
			}
			if omitted {
				shown = ""
			}
			if diff := cmp.Diff(r, unseal(shown, seal(r, omitted))); diff != "" {
				t.Errorf("omitted %v (-want +got):\n%s", omitted, diff)
			}
		}
	}
}

// A set's members are what the SDK knows of it.
func TestToolsetsHaveTheirMembers(t *testing.T) {
	for _, set := range [][]member{computerMembers, browserMembers} {
		var names []string
		for _, m := range set {
			if slices.Contains(names, m.name) {
				t.Errorf("%s is there twice", m.name)
			}
			names = append(names, m.name)
			if raw, err := json.Marshal(m.schema); err != nil || m.text == "" || m.schema.Type != "object" || m.schema.Properties == nil {
				t.Errorf("%s: %s %v", m.name, raw, err)
			}
			for _, r := range m.schema.Required {
				if _, ok := m.schema.Properties[r]; !ok {
					t.Errorf("%s requires %s, which it does not have", m.name, r)
				}
			}
		}
	}
}

var _ provider.Forwarder = (*forwarder)(nil)

// What a client can make large costs no more than its size: results behind 20,000 calls, and a schema whose references branch without end.
func TestHostileSizes(t *testing.T) {
	var calls, results []string
	for i := range 20_000 {
		calls = append(calls, fmt.Sprintf(`{"type":"server_tool_use","id":"srvtoolu_%d","name":"bash_code_execution","input":{"command":"x"}}`, i))
		results = append(results, fmt.Sprintf(`{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_%d","content":{"type":"bash_code_execution_result","stdout":"","stderr":"","return_code":0,"content":[]}}`, i))
	}
	body := `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
		strings.Join(append(calls, results...), ",") + `]},{"role":"user","content":"b"}]}`
	req, err := decode(&call{version: version2026, body: []byte(body)})
	if err != nil || len(req.turn.Items) != 20_002 {
		t.Errorf("%v", err)
	}
	defs := []string{`"d0":{"type":"object"}`}
	for i := range 64 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i))
	}
	if isCircular(json.RawMessage(`{"$ref":"#/$defs/d64","$defs":{` + strings.Join(defs, ",") + `}}`)) {
		t.Error("a schema that branches is no circle")
	}
	wide := strings.Repeat(`{"type":"string"},`, 2000)
	var refs []string
	for i := range 2000 {
		refs = append(refs, fmt.Sprintf(`{"$ref":"#/a/%d/b"}`, i)) // none is known twice
	}
	if isCircular(json.RawMessage(`{"x":[` + wide + strings.Join(refs, ",") + `],"a":{}}`)) {
		t.Error("references to nothing are no circle")
	}
}
