package skill

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Limits of paths: what ext4 and a sandbox's mount take without surprise.
const (
	maxPath    = 1024
	maxElement = 255
	maxDepth   = 32
)

// checkPath says what is wrong with the path of an entry, "" for nothing.
func checkPath(name string) string {
	switch {
	case name == "":
		return "has no name"
	case !utf8.ValidString(name):
		return "has a name that is not UTF-8"
	case strings.ContainsRune(name, 0):
		return "has a NUL character in its name"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character in its name"
	case strings.Contains(name, `\`):
		return "has a backslash in its name"
	case strings.HasPrefix(name, "/"):
		return "has an absolute path"
	case len(name) > 1 && name[1] == ':' && unicode.IsLetter(rune(name[0])):
		return "has an absolute path of Windows"
	case len(name) > maxPath:
		return "has a path of more than 1024 bytes"
	}
	elements := strings.Split(name, "/")
	if len(elements) > maxDepth {
		return "lies more than 32 folders deep"
	}
	for _, e := range elements {
		switch {
		case e == "..":
			return "has '..' in its path"
		case e == "." || e == "":
			return "has an empty part in its path"
		case len(e) > maxElement:
			return "has a part of more than 255 bytes in its path"
		}
	}
	return ""
}

// fold is the same for names that some file system takes for one.
func fold(name string) string { return strings.ToLower(strings.ToUpper(norm.NFC.String(name))) }

// junk are files that operating systems leave in archives.
func junk(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(name, "__MACOSX/") || base == ".DS_Store" || base == "Thumbs.db" || base == "desktop.ini"
}
