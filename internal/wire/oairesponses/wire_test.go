package oairesponses_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

// recordings are streams and bodies of the real service, kept beside the repository where the project is developed.
func recordings(t *testing.T, pattern string) []string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("../../../../shared/fixtures/openai", pattern))
	if len(files) == 0 {
		t.Skip("no ../shared/fixtures/openai beside the repository: the recordings are not read")
	}
	return files
}

// lost lists what a has and b has not. A null is the same as nothing.
func lost(path string, a, b any) []string {
	switch a := a.(type) {
	case nil:
		return nil
	case map[string]any:
		m, _ := b.(map[string]any)
		var out []string
		for k, v := range a {
			out = append(out, lost(path+"."+k, v, m[k])...)
		}
		return out
	case []any:
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return []string{fmt.Sprintf("%s: %d elements became %v", path, len(a), b)}
		}
		var out []string
		for i := range a {
			out = append(out, lost(fmt.Sprintf("%s[%d]", path, i), a[i], l[i])...)
		}
		return out
	}
	if !cmp.Equal(a, b) {
		return []string{fmt.Sprintf("%s: %v became %v", path, a, b)}
	}
	return nil
}

func checkNothingLost(t *testing.T, where string, data []byte, v any) {
	t.Helper()
	encoded, err := oairesponses.Marshal(v)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	var a, b any
	if err := json.Unmarshal(data, &a); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if err := json.Unmarshal(encoded, &b); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	for _, l := range lost("", a, b) {
		t.Errorf("%s: lost %s", where, l)
	}
}

func TestRecordedStreams(t *testing.T) {
	read := 0
	for _, file := range recordings(t, "*.chunks.txt") {
		if strings.HasPrefix(filepath.Base(file), "chat-") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 16<<20)
		for n := 0; lines.Scan(); n++ {
			if len(lines.Bytes()) == 0 {
				continue
			}
			where := fmt.Sprintf("%s:%d", filepath.Base(file), n+1)
			ev, err := oairesponses.DecodeEvent(lines.Bytes())
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			if raw, ok := ev.(*oairesponses.RawEvent); ok {
				t.Errorf("%s: %s has no struct", where, raw.Type)
			}
			checkNothingLost(t, where, lines.Bytes(), ev)
			read++
		}
	}
	if read == 0 {
		t.Error("no event in any recording")
	}
}

func TestRecordedResponses(t *testing.T) {
	for _, file := range recordings(t, "*.json") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var is struct{ Object string }
		if json.Unmarshal(data, &is); is.Object != "response" {
			continue
		}
		var resp oairesponses.Response
		if err := json.Unmarshal(data, &resp); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, it := range resp.Output {
			if raw, ok := it.(*oairesponses.Raw); ok {
				t.Errorf("%s: item %s has no struct", file, raw.Type)
			}
		}
		checkNothingLost(t, filepath.Base(file), data, &resp)
	}
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// Every item, part, tool and event that has a struct, and one of each union that has none.
func TestNothingIsLost(t *testing.T) {
	for _, line := range lines(t, "testdata/requests.jsonl") {
		req, err := oairesponses.DecodeRequest([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		checkNothingLost(t, line, []byte(line), req)
	}
	for _, line := range lines(t, "testdata/events.jsonl") {
		ev, err := oairesponses.DecodeEvent([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if _, raw := ev.(*oairesponses.RawEvent); raw != strings.Contains(line, "steer") {
			t.Errorf("%s: decoded as %T", line, ev)
		}
		checkNothingLost(t, line, []byte(line), ev)
	}
}

func TestFlatErrorEvent(t *testing.T) {
	ev, err := oairesponses.DecodeEvent([]byte(`{"type":"error","code":"server_error","message":"m","param":"p","sequence_number":3}`))
	if err != nil {
		t.Fatal(err)
	}
	code, param := "server_error", "p"
	want := &oairesponses.ErrorEvent{
		EventHead: oairesponses.EventHead{Type: "error", SequenceNumber: 3},
		Error:     oairesponses.ErrorBody{Code: &code, Message: "m", Param: &param},
	}
	if diff := cmp.Diff(want, ev); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMarshalDoesNotEscape(t *testing.T) {
	s := "if a < b && c > d: print('x')"
	got, err := oairesponses.Marshal(oairesponses.Content{Text: &s})
	if err != nil || string(got) != `"`+s+`"` {
		t.Errorf("%s, %v", got, err)
	}
}
