package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	var samples []time.Duration
	for i := range 100 {
		samples = append(samples, time.Duration(100-i)*time.Millisecond)
	}
	for q, want := range map[float64]float64{0.5: 50, 0.99: 99, 1: 100, 0: 1} {
		if got := quantile(samples, q); got != want {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	}
	if got := quantile(samples[:3], 0.99); got != 100 {
		t.Errorf("p99 of three samples is %g, want the largest", got)
	}
}

// TestGatewayKeys runs the whole benchmark against a gateway that is a reverse proxy: keys and form, not figures.
func TestGatewayKeys(t *testing.T) {
	t.Parallel()
	cfg := GatewayConfig{
		Quick: true,
		Start: func(_ context.Context, upstream string) (string, func(), error) {
			target, err := url.Parse(strings.TrimSuffix(upstream, "/v1"))
			if err != nil {
				return "", nil, err
			}
			srv := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1})
			return srv.URL + "/v1", srv.Close, nil
		},
	}
	want := []string{
		"passthrough_added_p50", "passthrough_added_p99", "reverseproxy_added_p50", "reverseproxy_added_p99",
		"passthrough_rps", "reverseproxy_rps", "first_token_added_p50", "first_token_added_p99",
	}
	if runtime.GOOS == "linux" {
		cfg.Idle = func(context.Context) (int, func(), error) { return os.Getpid(), func() {}, nil }
		want = append(want, "idle_mib")
	}
	result, err := Gateway(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := result.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var flat map[string]float64
	if err := json.Unmarshal(text.Bytes(), &flat); err != nil {
		t.Fatalf("%v: %s", err, text.String())
	}
	for _, key := range want {
		if _, ok := flat[key]; !ok {
			t.Errorf("%s is missing in %v", key, flat)
		}
	}
	if len(flat) != len(want) || flat["passthrough_rps"] <= 0 {
		t.Errorf("got %v, want the keys %v", flat, want)
	}
	text.Reset()
	if err := result.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	if table := text.String(); strings.Count(table, "\n") != 5+len(want)%2 || !strings.Contains(table, "p99") {
		t.Errorf("table:\n%s", table)
	}
}
