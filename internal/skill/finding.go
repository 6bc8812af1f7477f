package skill

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// By is a set of those who refuse a package.
type By uint8

// Who may refuse.
const (
	// ByLoad: it cannot be loaded safely, or not at all. Uploads refuse it.
	ByLoad By = 1 << iota
	// BySpec: agentskills.io and its reference validator.
	BySpec
	// ByAnthropic: Anthropic's API in one of its two dialects, or its packager.
	ByAnthropic
	// ByOpenAI: OpenAI's API.
	ByOpenAI

	everyone = ByLoad | strict
	strict   = BySpec | ByAnthropic | ByOpenAI
)

// Names are those in b, in a fixed order.
func (b By) Names() []string {
	var out []string
	for i, name := range []string{"lathe", "agentskills.io", "anthropic", "openai"} {
		if b&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// Finding is one thing about a package.
type Finding struct {
	// Code is stable and tells kinds of findings apart.
	Code string
	// Path is the file that it is about, quoted where it is odd; "" for the package. Line counts from 1, 0 for none.
	Path string
	Line int
	// By are those who refuse the package for it; 0 is advice.
	By By
	// Message says what is, Mend what to do. Neither holds more of the package than a short quotation.
	Message, Mend string
}

// String is path:line: message (who refuses); mend.
func (f Finding) String() string {
	var b strings.Builder
	if f.Path != "" {
		b.WriteString(f.Path)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		b.WriteString(": ")
	}
	b.WriteString(f.Message)
	switch names := f.By.Names(); {
	case f.By&ByLoad != 0:
		b.WriteString(" [cannot be loaded]")
	case len(names) > 0:
		b.WriteString(" [refused by " + strings.Join(names, ", ") + "]")
	}
	if f.Mend != "" {
		b.WriteString("; " + f.Mend)
	}
	return b.String()
}

// Report is all that was found about a package, in the order of its files and lines.
type Report struct {
	Findings []Finding
	// More counts findings beyond the first hundred, which are not kept.
	More    int
	refused By
}

// maxFindings keeps a hostile archive from filling memory and logs with its faults.
const maxFindings = 100

func (r *Report) add(f Finding) {
	r.refused |= f.By
	if len(r.Findings) >= maxFindings {
		r.More++
		return
	}
	r.Findings = append(r.Findings, f)
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
}

// Loads is the lenient verdict: the package can be loaded safely.
func (r *Report) Loads() bool { return r.refused&ByLoad == 0 }

// RefusedBy is the strict verdict: who refuses the package. 0 is nobody.
func (r *Report) RefusedBy() By { return r.refused }

// Refusals are the findings for which the package cannot be loaded.
func (r *Report) Refusals() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.By&ByLoad == 0 })
}

// shown is a name as messages and logs may hold it.
func shown(name string) string {
	const most = 200
	cut := name
	if len(cut) > most {
		cut = strings.ToValidUTF8(cut[:most], "") + "..."
	}
	if q := strconv.Quote(cut); q != `"`+cut+`"` || cut == "" {
		return q
	}
	return cut
}

// excerpt is a short quotation of a value.
func excerpt(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return strconv.Quote(s)
}

func number[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }
