package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lathe-gateway/lathe/internal/guest/embedded"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lathe": main})
}

// TestScripts runs the program as a person does, on a machine without runsc and without an image. Besides testscript's own commands there
// are:
//
//	ready DATA_DIR           waits until a lathe serve in the background has noted its address there, and sets $URL
//	http METHOD PATH [NAME:VALUE...] [{JSON}]  asks it; status, headers and body are in stdout
//	take                     listens on a port, which is in $TAKEN, until the script ends
func TestScripts(t *testing.T) {
	t.Parallel()
	scripts(t, "testdata/script", "no/runsc", "no/images")
}

// TestScriptsOnGVisor needs what make build and make image leave, and runs code for real.
func TestScriptsOnGVisor(t *testing.T) {
	t.Parallel()
	runsc, err := filepath.Abs("../../bin/runsc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(runsc); err != nil {
		t.Skip("needs bin/runsc: make build")
	}
	if _, err := embedded.Guest(); err != nil {
		t.Skip("needs the guest: make build")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: these scripts look at what a stopped server leaves mounted")
	}
	scripts(t, "testdata/gvisor", runsc, os.Getenv("LATHE_IMAGE_DIR"))
}

// scripts runs those in dir. Relative paths are below each script's own folder.
func scripts(t *testing.T, dir, runsc, images string) {
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			for name, path := range map[string]string{"LATHE_RUNSC": runsc, "LATHE_IMAGE_DIR": images} {
				if path != "" && !filepath.IsAbs(path) {
					path = filepath.Join(env.WorkDir, path)
				}
				env.Setenv(name, path)
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"ready": cmdReady, "checked": cmdChecked, "http": cmdHTTP, "take": cmdTake,
		},
	})
}

func cmdReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready DATA_DIR")
	}
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		note, _ := os.ReadFile(ts.MkAbs(filepath.Join(args[0], "lathe.lock"))) // not there yet
		if _, url, ok := strings.Cut(strings.TrimSpace(string(note)), ", http://"); ok {
			ts.Setenv("URL", "http://"+url)
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("lathe serve did not get ready")
		case <-tick.C:
		}
	}
}

// cmdChecked waits until /readyz no longer says that something is still being checked.
func cmdChecked(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: checked")
	}
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.Get(ts.Getenv("URL") + "/readyz")
		ts.Check(err)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("/readyz still answers %s", resp.Status)
		case <-tick.C:
		}
	}
}

func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: http METHOD PATH [NAME:VALUE...] [{JSON}]")
	}
	headers, body := args[2:], io.Reader(nil)
	if n := len(headers); n > 0 && strings.HasPrefix(headers[n-1], "{") {
		headers, body = headers[:n-1], strings.NewReader(headers[n-1])
	}
	req, err := http.NewRequest(args[0], ts.Getenv("URL")+args[1], body)
	ts.Check(err)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ":")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	fmt.Fprintln(ts.Stdout(), resp.Status)
	ts.Check(resp.Header.Write(ts.Stdout()))
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

func cmdTake(ts *testscript.TestScript, _ bool, _ []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { ln.Close() })
	ts.Setenv("TAKEN", ln.Addr().String())
}
