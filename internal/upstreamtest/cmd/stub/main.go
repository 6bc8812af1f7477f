// Command stub is the scripted model server for tests in other languages. It prints its base URL on one line and serves until its
// standard input ends or it is interrupted, so that it dies with the test that started it.
//
// A request chooses a scenario by its model (stub-<name>) or by #stub:<name> in its last user message; see -h for the names. GET /requests
// answers with the requests so far, as a JSON array of {path, header, body}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"

	"github.com/lathe-gateway/lathe/internal/upstreamtest"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: stub [-listen ADDR]\n\nscenarios:\n%s", upstreamtest.Describe())
	}
	flag.Parse()
	if err := serve(*listen); err != nil {
		fmt.Fprintln(os.Stderr, "stub:", err)
		os.Exit(1)
	}
}

func serve(listen string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the process that started us
		stop()
	}()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	up := &upstreamtest.Upstream{}
	up.Answer(upstreamtest.ByName)
	mux := http.NewServeMux()
	mux.Handle("/", up)
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, _ *http.Request) { writeRequests(w, up) })
	server := &http.Server{Handler: mux}
	go func() {
		<-ctx.Done()
		_ = server.Close() // the end of the process closes what it could not
	}()
	fmt.Printf("http://%s/v1\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type recorded struct {
	Path   string          `json:"path"`
	Header http.Header     `json:"header"`
	Body   json.RawMessage `json:"body"`
}

func writeRequests(w http.ResponseWriter, up *upstreamtest.Upstream) {
	list := []recorded{}
	for _, r := range up.Requests() {
		body := json.RawMessage(r.Body)
		if !json.Valid(body) {
			body = json.RawMessage("null")
		}
		list = append(list, recorded{Path: r.Path, Header: r.Header, Body: body})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // an error means that the client left
}
