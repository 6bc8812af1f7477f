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
			held := pss(b, state)
			var cells []time.Duration
			for b.Loop() {
				began := time.Now()
				benchCell(b, sb)
				cells = append(cells, time.Since(began))
			}
			b.ReportMetric(median(cells), "cell-p50-ms")
			b.ReportMetric(held, "PSS-MiB")
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
	_, err := sb.Exec(b.Context(), sandbox.Call{Kind: sandbox.Python, Code: "1 + 1", Dir: "/tmp"}, func(o sandbox.Output) {
		out.WriteString(o.Text)
	})
	if err != nil || out.String() != "2" {
		b.Fatalf("%q, %v", out.String(), err)
	}
}

func median(ds []time.Duration) float64 {
	slices.Sort(ds)
	return float64(ds[len(ds)/2].Microseconds()) / 1000
}

// pss is the proportional set size of all processes of a state directory, in MiB.
func pss(b *testing.B, state string) float64 {
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.Fatal(err)
	}
	total := 0
	for _, p := range procs {
		cmdline, err := os.ReadFile(p)
		if err != nil || !strings.Contains(string(cmdline), "--root="+state+"/") {
			continue
		}
		rollup, err := os.ReadFile(filepath.Join(filepath.Dir(p), "smaps_rollup"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(rollup)) {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				kb, err := strconv.Atoi(strings.Fields(rest)[0])
				if err != nil {
					b.Fatal(err)
				}
				total += kb
			}
		}
	}
	return float64(total) / 1024
}
