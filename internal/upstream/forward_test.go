package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/turn"
	up "github.com/lathe-gateway/lathe/internal/upstreamtest"
)

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg, Protocol{Title: "Chat Completions"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

// gateway serves Forward as the surface does.
func gateway(t testing.TB, c *Client) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("X-Request-Id", "req_ours")
		err = c.Forward(r.Context(), w, provider.Forward{Path: "/chat/completions", Header: r.Header, Body: body})
		if err != nil {
			http.Error(w, turn.AsError(err).Message, http.StatusBadGateway)
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func send(t *testing.T, url, body string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	res, err := (&http.Transport{DisableCompression: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func TestForwardKeepsBytes(t *testing.T) {
	const answer = "{ \"odd\":\t1,\n \"choices\": [] , \"a\":\"\\u00e9\" }\n"
	for _, tc := range []struct{ name, model, body, want string }{
		{"untouched", "", `{ "model" : "m", "x":1 , "x":2}`, `{ "model" : "m", "x":1 , "x":2}`},
		{"same name", "m", `{ "model" : "m" }`, `{ "model" : "m" }`},
		{"renamed", "org/m \"2\"", `{ "stream":false, "mod\u0065l" : "m", "messages":[{"model":"m"}], "u":"\u00e9" }`,
			`{ "stream":false, "mod\u0065l" : "org/m \"2\"", "messages":[{"model":"m"}], "u":"\u00e9" }`},
		{"named twice", "n", `{"model":"a","model":"m"}`, `{"model":"n","model":"n"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t, up.Answer{Status: 200, Body: answer, Header: http.Header{
				"Content-Type": {"application/json"}, "X-Ratelimit-Remaining-Requests": {"9"}, "Connection": {"X-Hop"}, "X-Hop": {"1"}}})
			c := newClient(t, Config{BaseURL: s.BaseURL(), APIKey: "theirs", Model: tc.model})
			res := send(t, gateway(t, c).URL, tc.body, http.Header{
				"Authorization": {"Bearer ours"}, "X-Goog-Api-Key": {"ours"}, "Openai-Organization": {"org"}, "Cookie": {"a=b"}, "X-Stainless-Lang": {"go"}, "Te": {"trailers"},
				"Connection": {"X-Private"}, "X-Private": {"1"}, "X-Forwarded-For": {"1.2.3.4"}, "X-Lathe-Live": {"1"}, "User-Agent": {"sdk"},
			})
			got, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != answer {
				t.Errorf("answer %q", got)
			}
			if diff := cmp.Diff([]string{"9", "", "req_ours", "req_upstream_0", fmt.Sprint(len(answer))}, []string{
				res.Header.Get("X-Ratelimit-Remaining-Requests"), res.Header.Get("X-Hop"), res.Header.Get("X-Request-Id"),
				res.Header.Get("X-Upstream-Request-Id"), res.Header.Get("Content-Length"),
			}); diff != "" {
				t.Errorf("answer's headers:\n%s", diff)
			}
			r := s.Last()
			if string(r.Body) != tc.want {
				t.Errorf("upstream got\n%s\nwant\n%s", r.Body, tc.want)
			}
			r.Header.Del("Content-Length")
			want := http.Header{"Authorization": {"Bearer theirs"}, "X-Stainless-Lang": {"go"}, "User-Agent": {"sdk"}}
			if diff := cmp.Diff(want, r.Header); diff != "" {
				t.Errorf("upstream's headers:\n%s", diff)
			}
		})
	}
}

// What is about the gateway's account, or would be taken for the gateway's host, does not go to clients: success or not.
func TestForwardKeepsOwnHeaders(t *testing.T) {
	for _, status := range []int{200, 401} {
		s := up.Start(t, up.Answer{Status: status, Body: "{}", Header: http.Header{
			"Set-Cookie": {"__cf_bm=1"}, "Openai-Organization": {"org"}, "Openai-Project": {"p"}, "Www-Authenticate": {"Bearer"},
			"Strict-Transport-Security": {"max-age=1"}, "Alt-Svc": {"h3=\":443\""}, "X-Api-Key": {"theirs"}, "Openai-Version": {"1"},
		}})
		c := newClient(t, Config{BaseURL: s.BaseURL(), APIKey: "theirs"})
		res := send(t, gateway(t, c).URL, `{"model":"m"}`, nil)
		for name := range res.Header {
			switch name {
			case "Openai-Version", "X-Request-Id", "X-Upstream-Request-Id", "Date", "Content-Length", "Content-Type":
			default:
				t.Errorf("status %d: %s came back", status, name)
			}
		}
		if res.StatusCode != status || res.Header.Get("Openai-Version") != "1" {
			t.Errorf("status %d: %v", res.StatusCode, res.Header)
		}
	}
}

func TestForwardStreams(t *testing.T) {
	proceed := make(chan struct{})
	s := up.Start(t, up.Do(up.Text("one"), up.Wait(proceed), up.Text("two")))
	c := newClient(t, Config{BaseURL: s.BaseURL()})
	res := send(t, gateway(t, c).URL, `{"model":"m","stream":true,"messages":[]}`, nil)
	got, buf := "", make([]byte, 4096)
	for !strings.Contains(got, "one") {
		n, err := res.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	close(proceed) // only now can "two" come: "one" was not held back
	rest, err := io.ReadAll(res.Body)
	if got += string(rest); err != nil || !strings.Contains(got, "two") || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestForwardErrors(t *testing.T) {
	const key = "sk-very-secret"
	for _, tc := range []struct {
		name   string
		answer up.Answer
		status int
		want   string
	}{
		{"429 as it came", up.RateLimited(7), 429, `"rate_limit_exceeded"`},
		{"500 without JSON", up.Answer{Status: 500, Body: "oops"}, 500, "oops"},
		{"a redirect is not passed on", up.Answer{Status: 307, Header: http.Header{"Location": {"http://10.0.0.1/"}}}, 502, "base_url"},
		{"a key in it is taken out", up.Fail(401, "bad key "+key+"."), 401, "bad key [redacted]."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := up.Start(t, tc.answer)
			c := newClient(t, Config{BaseURL: s.BaseURL(), APIKey: key})
			res := send(t, gateway(t, c).URL, `{"model":"m"}`, nil)
			body, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != tc.status || !strings.Contains(string(body), tc.want) || strings.Contains(string(body), key) {
				t.Errorf("status %d, body %q, %v", res.StatusCode, body, err)
			}
			if location := res.Header.Get("Location"); location != "" {
				t.Errorf("the client is sent to %s", location)
			}
			if tc.status == 429 && res.Header.Get("Retry-After") != "7" {
				t.Error("Retry-After is lost")
			}
			if n := len(s.Requests()); n != 1 {
				t.Errorf("%d requests: what is passed on is the client's to retry", n)
			}
		})
	}
}

func TestForwardUnreachable(t *testing.T) {
	s := up.Start(t)
	s.Stop()
	c := newClient(t, Config{BaseURL: s.BaseURL()})
	w := httptest.NewRecorder()
	err := c.Forward(t.Context(), w, provider.Forward{Path: "/chat/completions", Body: []byte(`{"model":"m"}`)})
	if e, ok := errors.AsType[*turn.Error](err); !ok || e.Kind != turn.KindUpstream || w.Body.Len() > 0 {
		t.Errorf("got %v and %q", err, w.Body)
	}
}

// A stream that breaks off upstream must not look whole downstream.
func TestForwardCut(t *testing.T) {
	s := up.Start(t, up.Do(up.Text("one"), up.Cut{}))
	c := newClient(t, Config{BaseURL: s.BaseURL()})
	res := send(t, gateway(t, c).URL, `{"model":"m","stream":true,"messages":[]}`, nil)
	got, err := io.ReadAll(res.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(got), "one") {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestForwardClientLeaves(t *testing.T) {
	s := up.Start(t, up.Do(up.Text("one"), up.Wait(make(chan struct{}))))
	c := newClient(t, Config{BaseURL: s.BaseURL()})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", gateway(t, c).URL, strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	cancel()
	select {
	case <-s.Last().Gone():
	case <-time.After(10 * time.Second):
		t.Error("the upstream still has its client")
	}
}

// Encodings are between client and server: compressed bytes pass as they are.
func TestForwardEncoding(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, `{"choices":[]}`)
	z.Close()
	s := up.Start(t, up.Answer{Status: 200, Body: zipped.String(), Header: http.Header{"Content-Encoding": {"gzip"}}}, up.Say("a"))
	c := newClient(t, Config{BaseURL: s.BaseURL()})
	g := gateway(t, c)
	res := send(t, g.URL, `{"model":"m"}`, http.Header{"Accept-Encoding": {"gzip"}})
	got, err := io.ReadAll(res.Body)
	if err != nil || res.Header.Get("Content-Encoding") != "gzip" || !bytes.Equal(got, zipped.Bytes()) {
		t.Errorf("%v %q %v", res.Header, got, err)
	}
	if s.Last().Header.Get("Accept-Encoding") != "gzip" {
		t.Error("Accept-Encoding is lost")
	}
	send(t, g.URL, `{"model":"m"}`, nil)
	if v, ok := s.Last().Header["Accept-Encoding"]; ok {
		t.Errorf("Accept-Encoding %q was added", v)
	}
}

// BenchmarkForward compares Forward with httputil.ReverseProxy over the same server and client.
func BenchmarkForward(b *testing.B) {
	const plain = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`
	const streamed = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`
	body := strings.Repeat("x", 600)
	frames := make([]string, 20)
	for i := range frames {
		frames[i] = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word "}}]}` + "\n\n"
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if !bytes.Contains(raw, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, body)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for _, f := range frames {
			io.WriteString(w, f)
			rc.Flush()
		}
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		b.Fatal(err)
	}
	c, err := New(Config{BaseURL: upstream.URL + "/v1", APIKey: "k", Model: "org/model"}, Protocol{})
	if err != nil {
		b.Fatal(err)
	}
	reverse := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport(time.Second), FlushInterval: -1,
	})
	defer reverse.Close()
	forward := gateway(b, c)
	for _, bc := range []struct{ name, url, body string }{
		{"plain/direct", upstream.URL, plain}, {"plain/reverseproxy", reverse.URL, plain}, {"plain/forward", forward.URL, plain},
		{"stream/direct", upstream.URL, streamed}, {"stream/reverseproxy", reverse.URL, streamed}, {"stream/forward", forward.URL, streamed},
	} {
		b.Run(bc.name, func(b *testing.B) {
			client := &http.Client{Transport: transport(time.Second)}
			defer client.CloseIdleConnections()
			failed := 0
			for b.Loop() {
				res, err := client.Post(bc.url, "application/json", strings.NewReader(bc.body))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					failed++ // httputil.ReverseProxy breaks a stream off now and then ("use of closed network connection")
				}
				res.Body.Close()
			}
			if failed > 0 {
				b.ReportMetric(float64(failed), "failed")
			}
		})
	}
}
