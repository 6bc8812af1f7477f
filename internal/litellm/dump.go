package litellm

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// longestLine bounds one row of a dump: a zip of 50 MB in hexadecimal digits.
const longestLine = 256 << 20

// readDump reads the COPY block of the table in what pg_dump writes as text.
func readDump(r io.Reader, fn func(Row) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), longestLine)
	var names []string
	found := false
	for lines.Scan() {
		line := lines.Text()
		switch {
		case names == nil:
			if names = copied(line); names != nil {
				found = true
				if _, err := known(names); err != nil {
					return err
				}
			}
			continue
		case line == `\.`:
			names = nil
			continue
		}
		row, err := dumped(names, line)
		if err == nil {
			err = fn(row)
		}
		if err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the dump cannot be read: %w", err)
	}
	if !found {
		return errors.New("the file is no SQLite database, and no dump with a line COPY public." + table + ": write one with pg_dump -t '" + table + "'")
	}
	return nil
}

// copied are the columns of the line that begins the table's rows, nil for another line.
func copied(line string) []string {
	rest, ok := strings.CutPrefix(line, "COPY ")
	name, rest, opens := strings.Cut(rest, " (")
	list, end, closes := strings.Cut(rest, ")")
	if !ok || !opens || !closes || !strings.HasSuffix(name, table) || strings.TrimSpace(end) != "FROM stdin;" {
		return nil
	}
	names := strings.Split(list, ", ")
	for i := range names {
		names[i] = strings.Trim(names[i], `"`)
	}
	return names
}

// dumped reads one line of a COPY block: values between tabs, \N for NULL, escapes with a backslash, bytes as \\x and hexadecimal digits.
func dumped(names []string, line string) (Row, error) {
	var r Row
	values := strings.Split(line, "\t")
	if len(values) != len(names) {
		return r, fmt.Errorf("a row of the dump has %d values for %d columns", len(values), len(names))
	}
	for i, name := range names {
		if values[i] == `\N` {
			continue
		}
		text := unescape(values[i])
		var value any = text
		if name == "file_content" {
			digits, ok := strings.CutPrefix(text, `\x`)
			data, err := hex.DecodeString(digits)
			if !ok || err != nil {
				return r, errors.New("the bytes of a skill in the dump are not in hexadecimal form: dump with bytea_output = 'hex'")
			}
			value = data
		}
		if err := r.set(name, value); err != nil {
			return r, err
		}
	}
	return r, nil
}

var escapes = map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if c, ok := escapes[s[i]]; ok {
			b.WriteByte(c)
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
