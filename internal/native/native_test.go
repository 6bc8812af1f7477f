package native

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/auth"
	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/store/sqlite"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// vendor is a provider that answers with what it is told to, and writes down what it was asked.
type vendor struct {
	protocol, kind, answer string
	asked                  []string
}

func (*vendor) Stream(context.Context, *turn.Request) turn.Stream { return nil }
func (*vendor) Check(context.Context) error                       { return nil }
func (v *vendor) Protocol() string                                { return v.protocol }

func (v *vendor) Forward(_ context.Context, w http.ResponseWriter, in provider.Forward) error {
	body := string(in.Body)
	if in.Stream != nil {
		data, err := io.ReadAll(in.Stream)
		if err != nil {
			return err
		}
		body = string(data)
	}
	v.asked = append(v.asked, fmt.Sprintf("%s %s?%s %s%s", in.Method, in.Path, in.Query, body, in.Header.Get("Accept-Encoding")))
	w.Header().Set("Content-Type", v.kind)
	for len(v.answer) > 0 { // in pieces that end anywhere
		n := min(7, len(v.answer))
		if _, err := w.Write([]byte(v.answer[:n])); err != nil {
			return err
		}
		v.answer = v.answer[n:]
	}
	return nil
}

type bench struct {
	t *testing.T
	*Keeper
	forward provider.Forwarder
}

func newBench(t *testing.T, v *vendor) *bench {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "l.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	k := New(db.Steps(), slog.New(slog.DiscardHandler))
	f, ok := k.Provider("m", v, true).(provider.Forwarder)
	if !ok {
		t.Fatal("the provider passes nothing on any more")
	}
	return &bench{t, k, f}
}

func as(ctx context.Context, project string) context.Context {
	return auth.WithPrincipal(ctx, auth.Principal{Project: project})
}

func (b *bench) send(project, body string) (string, error) {
	w := httptest.NewRecorder()
	header := http.Header{"Accept-Encoding": {"gzip"}}
	err := b.forward.Forward(as(b.t.Context(), project), w, provider.Forward{Path: "/x", Header: header, Body: []byte(body)})
	return w.Body.String(), err
}

func (b *bench) call(project, method, target, body string) (bool, error) {
	b.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	return b.Serve(httptest.NewRecorder(), r.WithContext(as(b.t.Context(), project)))
}

const messagesStream = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","content":[]}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"bash_code_execution_result","stdout":"{\"file_id\":\"file_told\"}","content":[{"type":"bash_code_execution_output","file_id":"file_made"}]}}}

data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{"file_id":"file_wished","container":{"id":"container_wished"}}}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"file_written"}}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn","container":{"id":"container_1","expires_at":"x"}},"usage":{}}
`

const response = `{"id":"resp_1","object":"response","metadata":{"file_id":"file_meta"},"tools":[{"type":"code_interpreter","container":"cntr_asked"}],
"output":[{"type":"code_interpreter_call","id":"ci_1","container_id":"cntr_1"},{"type":"message","content":[{"type":"output_text","text":"x",
"annotations":[{"type":"container_file_citation","container_id":"cntr_1","file_id":"cfile_1"}]}]}]}`

// What the vendor made is remembered for the project, and nothing that the model or the client wrote.
func TestWhatIsMade(t *testing.T) {
	for name, test := range map[string]struct {
		kind, answer string
		made, not    []string
	}{
		"messages stream": {"text/event-stream; charset=utf-8", messagesStream, []string{"file_made", "container_1"},
			[]string{"file_told", "file_wished", "container_wished", "file_written", "msg_1"}},
		"whole response":  {"application/json", response, []string{"resp_1", "cntr_1", "cfile_1"}, []string{"file_meta", "cntr_asked", "ci_1"}},
		"response stream": {"text/event-stream", "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_2\"}}\r\n\r\ndata: [DONE]", []string{"resp_2"}, nil},
		"no json":         {"text/event-stream", "data: {\"file_id\"", nil, []string{"file_id"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &vendor{protocol: "anthropic", kind: test.kind, answer: test.answer}
			b := newBench(t, v)
			got, err := b.send("a", `{"model":"m"}`)
			if err != nil || got != test.answer {
				t.Fatalf("%v; the answer changed: %q", err, got)
			}
			if strings.Contains(v.asked[0], "gzip") {
				t.Error("the vendor may encode an answer that is to be read")
			}
			for _, id := range test.made {
				if m, err := b.Maker(as(t.Context(), "a"), id); m == nil || err != nil {
					t.Errorf("%s is not known: %v", id, err)
				}
				if m, err := b.Maker(as(t.Context(), "b"), id); m != nil || err != nil {
					t.Errorf("%s is known to another project: %v", id, err)
				}
			}
			for _, id := range test.not {
				if m, _ := b.Maker(as(t.Context(), "a"), id); m != nil {
					t.Errorf("%s counts as made", id)
				}
			}
		})
	}
}

func TestCallsGoToTheMaker(t *testing.T) {
	v := &vendor{protocol: "openai-responses", kind: "application/json", answer: response}
	b := newBench(t, v)
	if _, err := b.send("a", `{}`); err != nil {
		t.Fatal(err)
	}
	v.asked = nil
	for _, c := range []struct {
		project, method, target string
		want                    bool
	}{
		{"a", "GET", "/v1/containers/cntr_1/files/cfile_1/content?x=1", true},
		{"a", "DELETE", "/v1/responses/resp_1", true},
		{"a", "POST", "/v1/containers/cntr_1/files", true},
		{"b", "GET", "/v1/containers/cntr_1", false},
		{"a", "GET", "/v1/containers/cntr_2", false},
		{"a", "GET", "/v1/containers", false},
		{"a", "GET", "/v1/containers/" + strings.Repeat("x", 300), false},
		{"a", "POST", "/v1/responses", false},
	} {
		if got, err := b.call(c.project, c.method, c.target, "body"); got != c.want || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	want := []string{"GET /containers/cntr_1/files/cfile_1/content?x=1 body", "DELETE /responses/resp_1? body", "POST /containers/cntr_1/files? body"}
	if diff := cmp.Diff(want, v.asked); diff != "" {
		t.Error(diff)
	}
}

// The vendor would let every project have it, since all share the gateway's account.
func TestAnotherProjectsIsUnknown(t *testing.T) {
	v := &vendor{protocol: "anthropic", kind: "text/event-stream", answer: messagesStream}
	b := newBench(t, v)
	if _, err := b.send("a", `{}`); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"container":"container_1"}`, `{"container":{"id":"container_1"}}`, `{"messages":[{"content":[{"type":"container_upload","file_id":"file_made"}]}]}`,
		`{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file_made"]}}]}`,
	} {
		if _, err := b.send("a", body); err != nil {
			t.Errorf("%s of its own project: %v", body, err)
		}
		if _, err := b.send("b", body); err == nil || turn.AsError(err).Kind != turn.KindNotFound {
			t.Errorf("%s of another project: %v", body, err)
		}
	}
	if _, err := b.send("b", `{"container":"container_put_there_by_the_operator"}`); err != nil {
		t.Error(err)
	}
}
