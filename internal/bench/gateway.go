package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// GatewayConfig is what Gateway measures. Start is required.
type GatewayConfig struct {
	// Start starts a gateway that sends every model to the OpenAI-compatible server at upstream (a base URL with /v1), on loopback and
	// without keys, and returns its own base URL with /v1.
	Start func(ctx context.Context, upstream string) (base string, stop func(), err error)
	// Sandbox says that hosted calls can be measured.
	Sandbox bool
	// Idle starts a gateway as a process of its own and returns its id; nil leaves idle_mib out.
	Idle func(ctx context.Context) (pid int, stop func(), err error)
	// Progress is told what comes next; nil says nothing.
	Progress func(what string)
	// Quick takes few samples, for tests: the figures mean nothing then.
	Quick bool
}

// Gateway measures what the gateway adds to a request, beside Go's own reverse proxy in the same process and before the same upstream.
func Gateway(ctx context.Context, cfg GatewayConfig) (*Result, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(string) {}
	}
	up := &upstream{}
	server := httptest.NewServer(up)
	defer server.Close()
	target, err := url.Parse(server.URL)
	if err != nil {
		return nil, err
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport(), FlushInterval: -1,
	})
	defer proxy.Close()
	gateway, stop, err := cfg.Start(ctx, server.URL+"/v1")
	if err != nil {
		return nil, err
	}
	defer stop()
	b := &gatewayBench{
		GatewayConfig: cfg, result: &Result{}, upstream: up, client: &http.Client{Transport: transport()},
		direct: server.URL + "/v1", proxied: proxy.URL + "/v1", gateway: gateway,
	}
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"passing requests through", b.passthrough}, {"requests a second", b.perSecond}, {"streamed first token", b.firstToken},
		{"hosted calls", b.hosted}, {"idle memory", b.idle},
	} {
		cfg.Progress(step.what)
		if err := step.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return b.result, nil
}

// transport keeps as many connections as the benchmark has clients.
func transport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
}

// clients is how many ask at once where requests a second are counted: enough to keep two cores busy before an upstream of 20 ms.
const clients = 256

type gatewayBench struct {
	GatewayConfig
	result                   *Result
	upstream                 *upstream
	client                   *http.Client
	direct, proxied, gateway string
}

func (b *gatewayBench) count(n int) int { return few(n, b.Quick) }

// post sends one chat request and returns the time to the first byte of the body and to its end.
func (b *gatewayBench) post(ctx context.Context, base, path, body string) (first, whole time.Duration, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(body))
	if err != nil {
		return 0, 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	begin := time.Now()
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, 0, nil, err
	}
	defer resp.Body.Close()
	var head [1]byte
	if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
		return 0, 0, nil, err
	}
	first = time.Since(begin)
	rest, err := io.ReadAll(resp.Body)
	whole = time.Since(begin)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s%.300s", resp.Status, head, rest)
	}
	return first, whole, append(head[:], rest...), err
}

func chatBody(model string, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"system","content":"You are brief."},{"role":"user","content":%q}]}`,
		model, stream, strings.Repeat("What is a lathe? ", 40))
}

// passthrough asks directly, through the reverse proxy and through the gateway in turn, so that whatever else the machine does hits all
// three alike.
func (b *gatewayBench) passthrough(ctx context.Context) error {
	samples, err := b.inTurn(ctx, b.count(3000), chatBody(modelNow, false), func(_, whole time.Duration) time.Duration { return whole })
	if err != nil {
		return err
	}
	b.result.added("passthrough_added", samples[b.gateway], samples[b.direct], "what the gateway adds to a request, one client")
	b.result.added("reverseproxy_added", samples[b.proxied], samples[b.direct], "for comparison: what httputil.ReverseProxy adds")
	return nil
}

func (b *gatewayBench) firstToken(ctx context.Context) error {
	samples, err := b.inTurn(ctx, b.count(500), chatBody(modelNow, true), func(first, _ time.Duration) time.Duration { return first })
	if err != nil {
		return err
	}
	b.result.added("first_token_added", samples[b.gateway], samples[b.direct], "what the gateway adds to the first token of a stream")
	return nil
}

func (b *gatewayBench) inTurn(ctx context.Context, n int, body string, pick func(first, whole time.Duration) time.Duration) (
	map[string][]time.Duration, error,
) {
	samples := map[string][]time.Duration{}
	for i := range warmUps + n {
		for _, base := range []string{b.direct, b.proxied, b.gateway} {
			first, whole, _, err := b.post(ctx, base, "/chat/completions", body)
			if err != nil {
				return nil, err
			}
			if i >= warmUps {
				samples[base] = append(samples[base], pick(first, whole))
			}
		}
	}
	return samples, nil
}

// perSecond counts answers of an upstream that takes 20 ms, gateway and reverse proxy by turns.
func (b *gatewayBench) perSecond(ctx context.Context) error {
	length := 2 * time.Second
	if b.Quick {
		length = 100 * time.Millisecond
	}
	counts := map[string]int64{}
	for range 2 {
		for _, base := range []string{b.gateway, b.proxied} {
			n, err := b.load(ctx, base, length)
			if err != nil {
				return err
			}
			counts[base] += n
		}
	}
	for key, base := range map[string]string{"passthrough_rps": b.gateway, "reverseproxy_rps": b.proxied} {
		b.result.add(key, float64(counts[base])/(2*length).Seconds(), "/s", "requests a second, 256 clients, 20 ms upstream")
	}
	return nil
}

func (b *gatewayBench) load(ctx context.Context, base string, length time.Duration) (int64, error) {
	var n atomic.Int64
	var once sync.Once
	var failed error
	var workers sync.WaitGroup
	end := time.Now().Add(length)
	body := chatBody(modelSlow, false)
	for range clients {
		workers.Go(func() {
			for time.Now().Before(end) {
				if _, _, _, err := b.post(ctx, base, "/chat/completions", body); err != nil {
					once.Do(func() { failed = err })
					return
				}
				n.Add(1)
			}
		})
	}
	workers.Wait()
	return n.Load(), failed
}

// hosted measures from the end of the model's call to the request that brings it the result: the gateway and a warm kernel, no model.
func (b *gatewayBench) hosted(ctx context.Context) error {
	if !b.Sandbox {
		return nil
	}
	container := `{"type":"auto"}`
	var samples []time.Duration
	n := b.count(300)
	for i := range warmUps + n {
		body := fmt.Sprintf(`{"model":%q,"input":"go","tools":[{"type":"code_interpreter","container":%s}]}`, modelCall, container)
		_, _, answer, err := b.post(ctx, b.gateway, "/responses", body)
		if err != nil {
			return err
		}
		if container, err = containerOf(answer); err != nil {
			return err
		}
		if took := b.upstream.between(); i >= warmUps {
			samples = append(samples, took)
		}
	}
	b.result.times("hosted_call", samples, "a hosted call in a warm kernel, model excluded")
	return nil
}

// containerOf returns, as JSON, the id of the container that an answer's code ran in.
func containerOf(answer []byte) (string, error) {
	var resp struct {
		Output []struct {
			Type      string `json:"type"`
			Status    string `json:"status"`
			Container string `json:"container_id"`
		} `json:"output"`
	}
	if err := json.Unmarshal(answer, &resp); err != nil {
		return "", err
	}
	for _, item := range resp.Output {
		if item.Type == "code_interpreter_call" && item.Status == "completed" {
			return fmt.Sprintf("%q", item.Container), nil
		}
	}
	return "", fmt.Errorf("the answer holds no completed code_interpreter_call: %.500s", answer)
}

func (b *gatewayBench) idle(ctx context.Context) error {
	if b.Idle == nil {
		return nil
	}
	pid, stop, err := b.Idle(ctx)
	if err != nil {
		return err
	}
	defer stop()
	resident, err := pss(pid)
	if err != nil {
		return err
	}
	if resident == 0 {
		return errors.New("the process has no memory")
	}
	b.result.add("idle_mib", float64(resident)/mib, "MiB", "memory of an idle gateway, no sandbox (PSS)")
	return nil
}
