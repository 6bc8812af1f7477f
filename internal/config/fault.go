package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	File string
	// Line counts from 1; 0 means that the fault has no place in the file.
	Line, Column int
	// Key is the path of the value: models[0].base_url.
	Key string
	// Message says what is wrong and what is allowed. It never holds the value of a variable.
	Message string
}

func (f Fault) String() string {
	place := f.File
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	switch {
	case place == "":
		return f.Key + ": " + f.Message
	case f.Key == "":
		return place + ": " + f.Message
	}
	return place + ": " + f.Key + ": " + f.Message
}

// Faults is all that is wrong, in the order of the file. Load returns it as its error.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

func (fs Faults) sorted() Faults {
	slices.SortStableFunc(fs, func(a, b Fault) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return fs
}

// suggest returns `, did you mean "x"?` for the nearest of known, or "".
func suggest(word string, known []string) string {
	best, distance := "", len(word)/2+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" || distance > 3 {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// editDistance is Levenshtein's, over bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(diagonal+cost, row[j]+1, row[j+1]+1)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
