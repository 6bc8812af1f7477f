package gvisor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

func TestTry(t *testing.T) {
	guest := t.TempDir() + "/guest"
	cmd := exec.Command("go", "build", "-o", guest, "github.com/lathe-gateway/lathe/cmd/lathe-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	g, _ := os.ReadFile(guest)
	for _, img := range []string{"", "/var/lib/lathe/images/python"} {
		b, err := New(Config{Runsc: "/work/wt-gvisor/bin/runsc", Image: img, StateDir: t.TempDir(), Guest: g, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Fatal(err)
		}
		data := t.TempDir()
		os.Chmod(data, 0o777)
		for i := range 5 {
			t0 := time.Now()
			sb, err := b.Start(context.Background(), sandbox.Spec{ID: fmt.Sprint("a", i), Limits: sandbox.Defaults(), Mounts: []sandbox.Mount{{Source: data, Target: "/mnt/data"}}})
			if err != nil {
				t.Fatal(err)
			}
			t1 := time.Now()
			sink := func(o sandbox.Output) {
				if i == 0 {
					fmt.Printf("%s: %s", o.Stream, o.Text)
				}
			}
			r, err := sb.Exec(context.Background(), sandbox.Call{Kind: sandbox.Python, Code: "import os; print(os.getuid(), os.listdir('/'), os.cpu_count(), open('/proc/self/status').read()); open('/mnt/data/x','w').write('1')"}, sink)
			t2 := time.Now()
			fmt.Println(r, err)
			for range 3 {
				t2 = time.Now()
				r, err = sb.Exec(context.Background(), sandbox.Call{Kind: sandbox.Python, Code: "1+1"}, sink)
			}
			t3 := time.Now()
			sb.Close()
			fmt.Println(i, "start", t1.Sub(t0), "first", t2.Sub(t1), "warm", t3.Sub(t2), "close", time.Since(t3))
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
