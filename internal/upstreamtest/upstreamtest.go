// Package upstreamtest is the scripted model server that the tests of the whole project talk to. It speaks Chat Completions,
// Responses and Messages, JSON and SSE, over real HTTP; what it answers is a script: a queue of answers, or a function of the request. An
// answer is a list of steps (text, reasoning, calls in given pieces, pauses that a test ends through a channel), plus the misbehaviour that real servers show.
//
// Tests start it with Start; cmd/stub serves named scenarios of it to tests in other languages. Nothing outside of tests imports it.
//
// To add a protocol: a file beside chat.go with a type that implements dialect, and its path in dialects.
package upstreamtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lathe-gateway/lathe/internal/wire/anthropic"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
	"github.com/lathe-gateway/lathe/internal/wire/oairesponses"
)

var _ http.Handler = (*Upstream)(nil)

// Upstream is the server as an http.Handler. Its methods may be called from any goroutine. The zero value answers every request with
// status 400 that says that the script has ended.
type Upstream struct {
	mu       sync.Mutex
	queue    []Answer
	fallback func(*Request) Answer
	requests []*Request
}

// Server is an Upstream that listens.
type Server struct {
	*Upstream
	http        *httptest.Server
	connections atomic.Int64
}

// Start serves a new Upstream on a loopback port until the test ends. The answers are its queue.
func Start(t testing.TB, answers ...Answer) *Server {
	t.Helper()
	up := &Upstream{}
	up.Push(answers...)
	s := &Server{Upstream: up, http: httptest.NewUnstartedServer(up)}
	s.http.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.http.Start()
	t.Cleanup(func() {
		s.http.CloseClientConnections() // a test that left a stream open must not hang here
		s.http.Close()
	})
	return s
}

// BaseURL is what a client of the OpenAI dialect takes: with /v1.
func (s *Server) BaseURL() string { return s.http.URL + "/v1" }

// URL is what a client of Messages takes: without /v1.
func (s *Server) URL() string { return s.http.URL }

// Connections is how many connections clients have made.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// CloseConnections cuts every connection, as a server that dies does.
func (s *Server) CloseConnections() { s.http.CloseClientConnections() }

// Stop closes the port: later connections are refused.
func (s *Server) Stop() { s.http.Close() }

// Push adds answers to the queue. Each request takes one.
func (u *Upstream) Push(answers ...Answer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.queue = append(u.queue, answers...)
}

// Answer sets the function that answers when the queue is empty.
func (u *Upstream) Answer(f func(*Request) Answer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fallback = f
}

// Requests are the model requests so far, oldest first.
func (u *Upstream) Requests() []*Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*Request(nil), u.requests...)
}

// Last is the newest request, nil for none.
func (u *Upstream) Last() *Request {
	all := u.Requests()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// Request is a recorded request.
type Request struct {
	// Number counts from 0.
	Number int
	Method string
	Path   string
	Header http.Header
	Body   []byte
	gone   <-chan struct{}
	done   chan struct{}
}

// Gone is closed when the client has left or the answer has ended.
func (r *Request) Gone() <-chan struct{} { return r.gone }

// Done is closed when the stub has finished with the request.
func (r *Request) Done() <-chan struct{} { return r.done }

// Chat is the body as a request of Chat Completions. A body that is none fails the caller by a panic: the stub's user is a test.
func (r *Request) Chat() *oaichat.Request {
	req, err := oaichat.ParseRequest(r.Body)
	if err != nil {
		panic(fmt.Sprintf("upstreamtest: request %d is no chat request: %v\n%s", r.Number, err, r.Body))
	}
	return req
}

// Responses is the body as a request of Responses. A body that is none fails the caller by a panic, as with Chat.
func (r *Request) Responses() *oairesponses.Request {
	req, err := oairesponses.DecodeRequest(r.Body)
	if err != nil {
		panic(fmt.Sprintf("upstreamtest: request %d is no responses request: %v\n%s", r.Number, err, r.Body))
	}
	return req
}

// Messages is the body as a request of Messages. A body that is none fails the caller by a panic, as with Chat.
func (r *Request) Messages() *anthropic.Request {
	req := &anthropic.Request{}
	if err := json.Unmarshal(r.Body, req); err != nil {
		panic(fmt.Sprintf("upstreamtest: request %d is no messages request: %v\n%s", r.Number, err, r.Body))
	}
	return req
}

// speaksMessages and speaksResponses say which of the protocols the request is of.
func (r *Request) speaksMessages() bool { return strings.HasSuffix(r.Path, "/messages") }

func (r *Request) speaksResponses() bool { return strings.HasSuffix(r.Path, "/responses") }

// Model is the model that the request names.
func (r *Request) Model() string {
	if r.speaksMessages() {
		return r.Messages().Model
	}
	if r.speaksResponses() {
		return r.Responses().Model
	}
	return r.Chat().Model
}

// Function is a function that the request declares.
type Function struct {
	Name       string
	Parameters json.RawMessage
}

// Functions are the functions that the request declares.
func (r *Request) Functions() []Function {
	var out []Function
	if r.speaksMessages() {
		for _, t := range r.Messages().Tools {
			out = append(out, Function{t.Name, t.InputSchema})
		}
		return out
	}
	if r.speaksResponses() {
		for _, t := range r.Responses().Tools {
			if f, ok := t.(*oairesponses.FunctionTool); ok {
				out = append(out, Function{f.Name, f.Parameters})
			}
		}
		return out
	}
	for _, t := range r.Chat().Tools {
		if t.Function != nil {
			out = append(out, Function{t.Function.Name, t.Function.Parameters})
		}
	}
	return out
}

// LastUser is the text of the last message that a user wrote.
func (r *Request) LastUser() string {
	text, _ := r.sinceUser()
	return text
}

// ToolResults are the texts of the tool messages after the last message that a user wrote, oldest first. Their number tells a script
// which round it is.
func (r *Request) ToolResults() []string {
	_, results := r.sinceUser()
	return results
}

func (r *Request) sinceUser() (text string, results []string) {
	if r.speaksMessages() {
		return r.sinceUserMessage()
	}
	if r.speaksResponses() {
		return r.sinceUserInput()
	}
	afterTool := false
	for _, m := range r.Chat().Messages {
		switch {
		case m.Role == "tool":
			results = append(results, m.Content.String())
		case m.Role == "user" && afterTool && hasImage(m): // carries the images of a tool message, which cannot
		case m.Role == "user":
			text, results = m.Content.String(), nil
		}
		afterTool = m.Role == "tool"
	}
	return text, results
}

func (r *Request) sinceUserInput() (text string, results []string) {
	in := r.Responses().Input
	if in.Text != nil {
		return *in.Text, nil
	}
	for _, it := range in.Items {
		switch it := it.(type) {
		case *oairesponses.FunctionCallOutput:
			results = append(results, inputText(it.Output))
		case *oairesponses.Message:
			if it.Role == "user" {
				text, results = inputText(it.Content), nil
			}
		}
	}
	return text, results
}

func inputText(c oairesponses.Content) string {
	if c.Text != nil {
		return *c.Text
	}
	text := ""
	for _, p := range c.Parts {
		if t, ok := p.(*oairesponses.Text); ok {
			text += t.Text
		}
	}
	return text
}

func hasImage(m oaichat.Message) bool {
	for _, p := range m.Content.Parts {
		if p.Type == oaichat.PartImage {
			return true
		}
	}
	return false
}

// dialect is a protocol that the stub speaks.
type dialect interface {
	// serve writes the answer's steps. It returns early when ctx ends.
	serve(ctx context.Context, w http.ResponseWriter, req *Request, a Answer)
}

func dialects() map[string]dialect {
	return map[string]dialect{"/chat/completions": chat{}, "/responses": responses{}, "/messages": messages{}}
}

// ServeHTTP answers model requests by the script, and GET /models with one model called stub.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1")
	if r.Method == http.MethodGet && path == "/models" {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","data":[{"id":"stub","object":"model","created":1700000000,"owned_by":"upstreamtest"}]}`)
		return
	}
	d, ok := dialects()[path]
	if !ok || r.Method != http.MethodPost {
		writeError(w, http.StatusNotFound, "upstreamtest: no such path: "+r.Method+" "+r.URL.Path)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		writeError(w, http.StatusBadRequest, "upstreamtest: "+err.Error())
		return
	}
	req, answer := u.take(r, body)
	defer close(req.done)
	if begin(r.Context(), w, req, answer) {
		d.serve(r.Context(), w, req, answer)
	}
}

func (u *Upstream) take(r *http.Request, body []byte) (*Request, Answer) {
	u.mu.Lock()
	req := &Request{
		Number: len(u.requests), Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Body: bytes.Clone(body),
		gone: r.Context().Done(), done: make(chan struct{}),
	}
	u.requests = append(u.requests, req)
	fallback := u.fallback
	if len(u.queue) > 0 {
		a := u.queue[0]
		u.queue = u.queue[1:]
		u.mu.Unlock()
		return req, a
	}
	u.mu.Unlock()
	if fallback != nil {
		return req, fallback(req)
	}
	return req, Fail(http.StatusBadRequest, fmt.Sprintf("upstreamtest: the script has no answer for request %d", req.Number))
}

func writeError(w http.ResponseWriter, status int, message string) {
	body, err := oaichat.Marshal(oaichat.ErrorFrame[errorJSON]{Error: errorJSON{Message: message, Type: "invalid_request_error"}})
	if err != nil {
		panic(err) // a struct of strings always encodes
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body) // an error means that the client left
}

type errorJSON struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}
