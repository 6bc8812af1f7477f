package bench

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The models of the benchmark's upstream.
const (
	modelNow  = "bench-now"  // answers at once
	modelSlow = "bench-slow" // after 20 ms
	modelCall = "bench-call" // calls python first
)

// upstream is an OpenAI-compatible server that thinks for no time at all.
type upstream struct {
	mu     sync.Mutex
	called time.Time     // when the last call of python was sent
	took   time.Duration // from there to the request with its result
}

// between is how long the last hosted call took, seen from the model.
func (u *upstream) between() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.took
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	raw, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil {
		return // the client left
	}
	body := string(raw)
	stream := strings.Contains(body, `"stream":true`)
	switch {
	case strings.Contains(body, modelSlow):
		wait(r, 20*time.Millisecond)
	case !strings.Contains(body, modelCall):
	case strings.Contains(body, `"role":"tool"`):
		u.mu.Lock()
		u.took = arrived.Sub(u.called)
		u.mu.Unlock()
	default:
		u.mu.Lock()
		u.called = time.Now() // before it is sent: what is counted too much is the sending
		u.mu.Unlock()
		chunks(w, `{"role":"assistant","tool_calls":[{"index":0,"id":"call_1","type":"function",`+
			`"function":{"name":"python","arguments":"{\"code\":\"print(1)\"}"}}]}`, "tool_calls")
		return
	}
	if stream {
		chunks(w, `{"role":"assistant","content":"A machine that turns."}`, "stop")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,`+
		`"message":{"role":"assistant","content":"A machine that turns."},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}`)
}

func wait(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// chunks streams one delta and the end.
func chunks(w http.ResponseWriter, delta, finish string) {
	w.Header().Set("Content-Type", "text/event-stream")
	const frame = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}` + "\n\n"
	fmt.Fprintf(w, frame, delta, "null")
	_ = http.NewResponseController(w).Flush() // a client that left shows in the next write
	fmt.Fprintf(w, frame, "{}", fmt.Sprintf("%q", finish))
	io.WriteString(w, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",\"choices\":[],"+
		"\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5,\"total_tokens\":14}}\n\ndata: [DONE]\n\n")
	_ = http.NewResponseController(w).Flush() // a client that left shows in the next write
}
