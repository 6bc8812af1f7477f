package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/sandbox/gvisor"
)

// BenchmarkStart is from nothing to a guest that answers, and to the first result of Python. The median says more than the mean.
func BenchmarkStart(b *testing.B) {
	for name, dir := range roots(b) {
		for _, cpus := range []float64{0, 1} {
			b.Run(fmt.Sprintf("%s/cpus=%g", name, cpus), func(b *testing.B) {
				be := benchBackend(b, dir)
				var starts, firsts, closes []time.Duration
				for i := 0; b.Loop(); i++ {
					began := time.Now()
					sb := benchStart(b, be, strconv.Itoa(i), cpus)
					starts = append(starts, time.Since(began))
					benchCell(b, sb)
					firsts = append(firsts, time.Since(began))
					began = time.Now()
					if err := sb.Close(); err != nil {
						b.Fatal(err)
					}
					closes = append(closes, time.Since(began))
				}
				b.ReportMetric(median(starts), "start-p50-ms")
				b.ReportMetric(median(firsts), "first-p50-ms")
				b.ReportMetric(median(closes), "close-p50-ms")
			})
		}
	}
}

// BenchmarkCell is one cell in a warm kernel, and what such a sandbox holds of the machine's memory.
func BenchmarkCell(b *testing.B) {
	for name, dir := range roots(b) {
		b.Run(name, func(b *testing.B) {
			state := b.TempDir()
			be, err := gvisor.New(gvisor.Config{Runsc: findRunsc(b), Image: dir, StateDir: state, Guest: buildGuest(b)})
			if err != nil {
				b.Fatal(err)
			}
			defer be.Close()
			sb := benchStart(b, be, "a", 1)
			benchCell(b, sb)
			memory := held(b, state, "a")
			var cells []time.Duration
			for b.Loop() {
				began := time.Now()
				benchCell(b, sb)
				cells = append(cells, time.Since(began))
			}
			b.ReportMetric(median(cells), "cell-p50-ms")
			b.ReportMetric(memory, "MiB")
		})
	}
}

func benchBackend(b *testing.B, dir string) *gvisor.Backend {
	be, err := gvisor.New(gvisor.Config{Runsc: findRunsc(b), Image: dir, StateDir: b.TempDir(), Guest: buildGuest(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { be.Close() })
	return be
}

func benchStart(b *testing.B, be *gvisor.Backend, id string, cpus float64) sandbox.Sandbox {
	limits := sandbox.Defaults()
	limits.CPUs = cpus
	sb, err := be.Start(b.Context(), sandbox.Spec{ID: id, Limits: limits})
	if err != nil {
		b.Fatal(err)
	}
	return sb
}

func benchCell(b *testing.B, sb sandbox.Sandbox) {
	var out strings.Builder
	// Not a bare expression: IPython warns once it has kept 1000 of their values.
	_, err := sb.Exec(b.Context(), sandbox.Call{Kind: sandbox.Python, Code: "print(2)", Dir: "/tmp"}, func(o sandbox.Output) {
		out.WriteString(o.Text)
	})
	if err != nil || out.String() != "2\n" {
		b.Fatalf("%q, %v", out.String(), err)
	}
}

func median(ds []time.Duration) float64 {
	slices.Sort(ds)
	return float64(ds[len(ds)/2].Microseconds()) / 1000
}

// held is what the sandbox with that id is charged for, in MiB: its own memory, and the first use of files that others share. The sum of
// its processes' PSS says less: several of them are one address space.
func held(b *testing.B, state, id string) float64 {
	for _, dir := range gvisor.CgroupDirs(state) {
		for _, file := range []string{"memory.usage_in_bytes", "memory.current"} {
			if data, err := os.ReadFile(filepath.Join(dir, id, file)); err == nil {
				n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
				if err != nil {
					b.Fatal(err)
				}
				return float64(n) / (1 << 20)
			}
		}
	}
	return 0
}
