package container

import (
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is in bytes. File systems take 255; a suffix and a temporary name must still fit.
const maxName = 200

// CleanName makes a file name out of what a client sent: the last element of a path of any system, without control and format
// characters (which can make a name look like another one), at most 200 bytes with its extension kept. It is never empty, "." or "..".
func CleanName(name string) string {
	name = strings.ToValidUTF8(name, "")
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, name)
	name = strings.TrimSpace(name)
	if strings.Trim(name, ".") == "" {
		return "file"
	}
	stem, ext := splitExt(name)
	return cut(stem, maxName-len(ext)) + ext
}

// splitExt keeps the dot with the extension; one that is no usual extension belongs to the stem.
func splitExt(name string) (stem, ext string) {
	ext = path.Ext(name)
	if len(ext) > 20 || len(ext) == len(name) {
		return name, ""
	}
	return strings.TrimSuffix(name, ext), ext
}

// cut shortens s to n bytes at a rune's border.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// numbered is the n-th name to try where others have taken name: "a.csv", "a (2).csv", "a (3).csv".
func numbered(name string, n int) string {
	if n < 2 {
		return name
	}
	stem, ext := splitExt(name)
	return stem + " (" + strconv.Itoa(n) + ")" + ext
}
