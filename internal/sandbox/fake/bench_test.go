package fake

import (
	"slices"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// BenchmarkCell is one cell in a warm kernel over the link, without gVisor: what the guest, the kernel and the wire cost.
func BenchmarkCell(b *testing.B) {
	for name, bm := range map[string]struct {
		plain bool
		call  sandbox.Call
	}{
		"plain":   {true, sandbox.Call{Kind: sandbox.Python, Code: "1 + 1"}},
		"ipython": {false, sandbox.Call{Kind: sandbox.Python, Code: "1 + 1"}},
		"print":   {false, sandbox.Call{Kind: sandbox.Python, Code: "print('hello')"}},
		"streams": {false, sandbox.Call{Kind: sandbox.Python, Code: "import sys\nfor _ in range(10): print(1); print(2, file=sys.stderr)"}},
		"bash":    {false, sandbox.Call{Kind: sandbox.Bash, Code: "echo hello"}},
	} {
		b.Run(name, func(b *testing.B) {
			backend := New(Config{Dir: b.TempDir(), Plain: bm.plain})
			defer backend.Close()
			s, err := backend.Start(b.Context(), sandbox.Spec{Limits: sandbox.Defaults()})
			if err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			run := func() {
				begin := time.Now()
				r, err := s.Exec(b.Context(), bm.call, func(sandbox.Output) {})
				if err != nil || r.Status != sandbox.StatusOK {
					b.Fatal(r, err)
				}
				took = append(took, time.Since(begin))
			}
			run() // the kernel starts
			took = nil
			for b.Loop() {
				run()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
