// Package bench measures the sandbox and the gateway on this machine, each beside what it is compared with and in the same run. It knows
// the parts only by their contracts; the wiring hands them over. Runs are bounded in count and time, and send traffic to loopback only.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is what a run measured.
type Result struct {
	figures []figure
	earlier map[string]float64
}

// Compare adds to each figure its ratio to the same figure of an earlier run: what WriteJSON wrote then.
func (r *Result) Compare(earlier io.Reader) error {
	if err := json.NewDecoder(earlier).Decode(&r.earlier); err != nil {
		return fmt.Errorf("not what --json printed: %w", err)
	}
	return nil
}

// ratio is now over then.
func (r *Result) ratio(f figure) (float64, bool) {
	then, ok := r.earlier[f.key]
	if !ok || then == 0 || math.IsNaN(f.value) {
		return 0, false
	}
	return math.Round(f.value/then*1000) / 1000, true
}

type figure struct {
	key   string
	value float64
	unit  string
	words string
}

func (r *Result) add(key string, value float64, unit, words string) {
	r.figures = append(r.figures, figure{key, math.Round(value*1000) / 1000, unit, words})
}

// times adds <name>_p50 and <name>_p99 in milliseconds.
func (r *Result) times(name string, samples []time.Duration, words string) {
	r.add(name+"_p50", quantile(samples, 0.50), "ms", words)
	r.add(name+"_p99", quantile(samples, 0.99), "ms", "")
}

// added adds by how much the quantiles of with are above those of without.
func (r *Result) added(name string, with, without []time.Duration, words string) {
	r.add(name+"_p50", quantile(with, 0.50)-quantile(without, 0.50), "ms", words)
	r.add(name+"_p99", quantile(with, 0.99)-quantile(without, 0.99), "ms", "")
}

// few is how many samples are taken.
func few(n int, quick bool) int {
	if quick {
		return min(n, 2)
	}
	return n
}

// quantile is in milliseconds; of few samples the largest stands for the high quantiles.
func quantile(samples []time.Duration, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := min(int(math.Ceil(q*float64(len(sorted)))), len(sorted)) - 1
	return float64(sorted[max(at, 0)].Nanoseconds()) / 1e6
}

// WriteJSON writes one flat object, key to number. With Compare the ratios are there as <key>_ratio.
func (r *Result) WriteJSON(w io.Writer) error {
	flat := map[string]float64{}
	for _, f := range r.figures {
		if !math.IsNaN(f.value) {
			flat[f.key] = f.value
		}
		if ratio, ok := r.ratio(f); ok {
			flat[f.key+"_ratio"] = ratio
		}
	}
	text, err := json.MarshalIndent(flat, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// shown is a figure of three digits, or a whole number where it has more: 4030 and not 4.03e+03.
func shown(value float64) string {
	if value >= 999.5 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

// WriteTable writes a table for people, with Compare's ratios.
func (r *Result) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i := 0; i < len(r.figures); i++ {
		f := r.figures[i]
		value := fmt.Sprintf("%s %s%s\t", shown(f.value), f.unit, r.shownRatio(f))
		if name, timed := strings.CutSuffix(f.key, "_p50"); timed && i+1 < len(r.figures) && r.figures[i+1].key == name+"_p99" {
			p99 := r.figures[i+1]
			value = fmt.Sprintf("%s ms%s\tp99 %s ms%s", shown(f.value), r.shownRatio(f), shown(p99.value), r.shownRatio(p99))
			f.key = name
			i++
		}
		fmt.Fprintf(table, "%s\t%s\t  %s\n", f.key, value, f.words)
	}
	return table.Flush()
}

func (r *Result) shownRatio(f figure) string {
	if ratio, ok := r.ratio(f); ok {
		return fmt.Sprintf(" (x %.2f)", ratio)
	}
	return ""
}

// Figures returns the measured values by key, for tests.
func (r *Result) Figures() map[string]float64 {
	out := map[string]float64{}
	for _, f := range r.figures {
		out[f.key] = f.value
	}
	return out
}
