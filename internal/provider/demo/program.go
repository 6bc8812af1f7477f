package demo

import (
	_ "embed" // the programs
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// program is code to run and what to call it in the answer.
type program struct{ about, code string }

//go:embed programs/chart.py
var chartProgram string

//go:embed programs/table.py
var tableProgram string

//go:embed programs/sum.py
var sumProgram string

var (
	wantsChart = regexp.MustCompile(`(?i)\b(plot|chart|graph|diagram)`)
	wantsTable = regexp.MustCompile(`(?i)\btable\b`)
	wantsSum   = regexp.MustCompile(`(?i)\b(sum|total|add up)`)
	namesFile  = regexp.MustCompile(`(?i)\b(csv|file|column|upload)|\.csv\b`)
	number     = regexp.MustCompile(`-?\d+(\.\d+)?`)
)

// byKeyword knows a few requests.
func byKeyword(message string) (program, bool) {
	switch {
	case wantsSum.MatchString(message) && namesFile.MatchString(message):
		return program{"a sum over every CSV file in the working folder", sumProgram}, true
	case wantsChart.MatchString(message):
		return chart(message), true
	case wantsTable.MatchString(message):
		return program{"a table of squares, cubes and roots", fmt.Sprintf("count = %d\n\n%s", count(message, 10), tableProgram)}, true
	}
	return program{}, false
}

// chart plots the numbers of the message if it has several, else a series that it names.
func chart(message string) program {
	given := number.FindAllString(message, 40)
	if len(given) > 1 {
		var names []string
		for i := range given {
			names = append(names, strconv.Itoa(i+1))
		}
		return chartOf("a chart of your numbers", names, "["+strings.Join(clean(given), ", ")+"]")
	}
	n := count(message, 12)
	names := func(format string) []string {
		var out []string
		for i := 1; i <= n; i++ {
			out = append(out, fmt.Sprintf(format, i))
		}
		return out
	}
	switch lower := strings.ToLower(message); {
	case strings.Contains(lower, "square"):
		return chartOf("a chart of square numbers", names("%d²"), fmt.Sprintf("[n * n for n in range(1, %d)]", n+1))
	case strings.Contains(lower, "sin"):
		return chartOf("a chart of the sine", names("%d"), fmt.Sprintf("[round(__import__('math').sin(n / 2), 4) for n in range(1, %d)]", n+1))
	}
	return chartOf("a chart of the Fibonacci numbers", names("F(%d)"), fmt.Sprintf("[1, 1]\nwhile len(values) < %d:\n    values.append(values[-1] + values[-2])\nvalues = values[:%d]", n, n))
}

func chartOf(about string, names []string, values string) program {
	list, _ := json.Marshal(names) // strings always encode, and JSON strings are Python's
	title, _ := json.Marshal(strings.TrimPrefix(about, "a chart of "))
	return program{about, fmt.Sprintf("title = %s\nnames = %s\nvalues = %s\n\n%s", title, list, values, chartProgram)}
}

// clean takes leading zeros off, which Python refuses.
func clean(numbers []string) []string {
	var out []string
	for _, s := range numbers {
		sign := ""
		if strings.HasPrefix(s, "-") {
			sign, s = "-", s[1:]
		}
		if s = strings.TrimLeft(s, "0"); s == "" || s[0] == '.' {
			s = "0" + s
		}
		out = append(out, sign+s)
	}
	return out
}

// count is how many things the message asks for, 1 to 40.
func count(message string, otherwise int) int {
	words := map[string]int{
		"three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15,
		"sixteen": 16, "twenty": 20, "thirty": 30,
	}
	for _, w := range strings.FieldsFunc(strings.ToLower(message), func(r rune) bool { return r < '0' || r > 'z' }) {
		if n, ok := words[w]; ok {
			return n
		}
		if n, err := strconv.Atoi(w); err == nil && n >= 1 && n <= 40 {
			return n
		}
	}
	return otherwise
}
