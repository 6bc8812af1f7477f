package matrix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

func indent(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	must(t, err)
	return append(data, '\n')
}

// pretty is a stream with one frame a line, or a body indented.
func pretty(t *testing.T, answer []byte, streamed bool) []byte {
	t.Helper()
	if !streamed {
		var v any
		if json.Unmarshal(answer, &v) != nil {
			return append(answer, '\n')
		}
		return indent(t, v)
	}
	var out bytes.Buffer
	for line := range strings.Lines(string(answer)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "event:") {
			out.WriteString(line + "\n")
		}
	}
	return out.Bytes()
}

var (
	ids   = regexp.MustCompile(`\b(chatcmpl-|[a-z]+_h?)([0-9a-f]{32}|[0-9a-zA-Z]{24,40})\b`)
	times = regexp.MustCompile(`"(created|created_at|completed_at|expires_at|last_active_at)": ?("[^"]*"|[0-9.]+)`)
	// sealed is encrypted content of ours, which differs each time.
	sealed = regexp.MustCompile(`"(encrypted_content|signature)": ?"[A-Za-z0-9+/=_-]{60,}"`)
	// prompts are our own words to models; they have their place in package tool.
	prompts = regexp.MustCompile(`"description": ?"([^"\\]|\\.){60,}"`)
)

// settle replaces what differs each time: ids by their number in order of appearance, times by 0.
func settle(a *txtar.Archive) {
	seen := map[string]string{}
	for i, f := range a.Files {
		data := ids.ReplaceAllStringFunc(string(f.Data), func(id string) string {
			if seen[id] == "" {
				m := ids.FindStringSubmatch(id)
				seen[id] = fmt.Sprintf("%s<%d>", m[1], len(seen)+1)
			}
			return seen[id]
		})
		data = times.ReplaceAllString(data, `"$1":0`)
		data = prompts.ReplaceAllString(data, `"description": "<prompt>"`)
		a.Files[i].Data = []byte(sealed.ReplaceAllString(data, `"$1":"<sealed>"`))
	}
}

// events decodes the data of each frame, in order.
func events(t *testing.T, stream []byte) []object {
	t.Helper()
	var out []object
	for line := range strings.Lines(string(stream)) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data:")
		if data = strings.TrimSpace(data); !ok || data == "[DONE]" {
			continue
		}
		var v object
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			// What a server sent malformed passes as it is where nothing is translated.
			out = append(out, object{"malformed": data})
			continue
		}
		out = append(out, v)
	}
	return out
}

// at follows a path of names and indexes; nil where there is nothing.
func at(v any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := v.(object)
			v = m[s]
		case int:
			l, _ := v.([]any)
			if s >= len(l) {
				return nil
			}
			v = l[s]
		}
	}
	return v
}

func str(v any, path ...any) string {
	s, _ := at(v, path...).(string)
	return s
}

func num(v any, path ...any) int {
	f, _ := at(v, path...).(float64)
	return int(f)
}

func list(v any, path ...any) []any {
	l, _ := at(v, path...).([]any)
	return l
}
