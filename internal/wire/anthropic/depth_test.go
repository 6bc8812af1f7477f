package anthropic

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestNestedBlocksAreRefused(t *testing.T) {
	nest := func(before, after string, n int) string {
		return strings.Repeat(before, n) + `"x"` + strings.Repeat(after, n)
	}
	for name, c := range map[string]struct {
		body string
		deep bool
	}{
		"results":   {`{"messages":[{"role":"user","content":` + nest(`[{"type":"tool_result","content":`, `}]`, 3000) + `}]}`, true},
		"escaped":   {`{"messages":[{"role":"user","content":` + nest(`[{"type":"tool_result","conten\u0074":`, `}]`, 3000) + `}]}`, true},
		"key last":  {`{"messages":[{"content":` + nest(`[{"content":`, `,"type":"tool_result"}]`, 3000) + `,"role":"user"}]}`, true},
		"images":    {`{"messages":[{"role":"user","content":` + nest(`[{"type":"image","source":{"type":"content","content":`, `}}]`, 2000) + `}]}`, true},
		"system":    {`{"system":` + nest(`[{"type":"tool_result","content":`, `}]`, 3000) + `}`, true},
		"input":     {`{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"content":` + nest(`[`, `]`, 3000) + `}}]}]}`, false},
		"schema":    {`{"tools":[{"name":"f","input_schema":{"content":` + nest(`{"content":`, `}`, 3000) + `}}]}`, false},
		"documents": {`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"content","content":[{"type":"text","text":"[[[[{{{{\""}]}}]}]}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var r Request
			if err := json.Unmarshal([]byte(c.body), &r); errors.Is(err, ErrTooDeep) != c.deep || !c.deep && err != nil {
				t.Errorf("error %v, too deep: want %v", err, c.deep)
			}
		})
	}
}
