package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// The commands of the edit tool.
const (
	View       = "view"
	Create     = "create"
	StrReplace = "str_replace"
	Insert     = "insert"
)

// EditArgs are the arguments of the edit tool. The members that Command needs are set.
type EditArgs struct {
	Command    string
	Path       string
	ViewRange  []int // nothing, or first and last line; -1 is the end
	FileText   *string
	OldStr     *string
	NewStr     *string
	InsertLine *int
	InsertText *string
}

// ParseEdit reads the arguments of the edit tool. It takes numbers in quotes and null for what is not given, as open models write them;
// other members are ignored. Its error is for the model.
func ParseEdit(code string) (EditArgs, error) {
	var in struct {
		Command    *string  `json:"command"`
		Path       *string  `json:"path"`
		ViewRange  intRange `json:"view_range"`
		FileText   *string  `json:"file_text"`
		OldStr     *string  `json:"old_str"`
		NewStr     *string  `json:"new_str"`
		InsertLine *line    `json:"insert_line"`
		InsertText *string  `json:"insert_text"`
	}
	if err := json.Unmarshal([]byte(code), &in); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
			return EditArgs{}, fmt.Errorf("%q must not be a %s", e.Field, e.Value)
		}
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return EditArgs{}, errors.New("the arguments are not a JSON object")
		}
		return EditArgs{}, err
	}
	a := EditArgs{ViewRange: in.ViewRange, FileText: in.FileText, OldStr: in.OldStr, NewStr: in.NewStr, InsertLine: (*int)(in.InsertLine), InsertText: in.InsertText}
	if in.Command != nil {
		a.Command = *in.Command
	}
	if in.Path != nil {
		a.Path = *in.Path
	}
	return a, a.check()
}

func (a EditArgs) check() error {
	missing := func(what string, given bool) error {
		if given {
			return nil
		}
		return fmt.Errorf("%q needs %q", a.Command, what)
	}
	var err error
	switch a.Command {
	case View:
		if len(a.ViewRange) > 2 {
			err = errors.New(`"view_range" must be [first line, last line]`)
		}
	case Create:
		err = missing("file_text", a.FileText != nil)
	case StrReplace:
		err = missing("old_str", a.OldStr != nil)
	case Insert:
		err = errors.Join(missing("insert_line", a.InsertLine != nil), missing("insert_text", a.InsertText != nil))
	case "":
		return errors.New(`there is no "command"; it must be view, create, str_replace or insert`)
	default:
		return fmt.Errorf("there is no command %.40q; it must be view, create, str_replace or insert", a.Command)
	}
	switch {
	case err != nil:
		return err
	case a.Path == "":
		return errors.New(`there is no "path"`)
	case strings.ContainsRune(a.Path, 0):
		return errors.New(`the "path" has a NUL character`)
	}
	return nil
}

// line is a number that may stand in quotes.
type line int

func (l *line) UnmarshalJSON(data []byte) error {
	s := strings.Trim(string(data), `" `)
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1e9 {
		return errors.New("a line number must be a whole number")
	}
	*l = line(f)
	return nil
}

// intRange is a list of lines that may stand in quotes.
type intRange []int

func (r *intRange) UnmarshalJSON(data []byte) error {
	var quoted string
	if json.Unmarshal(data, &quoted) == nil {
		data = []byte(quoted)
	}
	if s := strings.TrimSpace(string(data)); s == "" || s == "null" {
		return nil
	}
	var lines []line
	if err := json.Unmarshal(data, &lines); err != nil {
		return errors.New(`"view_range" must be [first line, last line]`)
	}
	for _, l := range lines {
		*r = append(*r, int(l))
	}
	return nil
}

// maxViewed is how much of a file a model is shown at once, in bytes with line numbers.
const maxViewed = MaxForModel - 4<<10

// editWords says what a call of the edit tool did. Lines that are shown have numbers, as in cat -n: models that count badly need them for
// view_range and insert_line, and the tool's description says that they are not part of the file.
func editWords(e *turn.Edit, path string) string {
	path = clip(path, 1<<10)
	switch e.Command {
	case View:
		return viewWords(e, path)
	case Create:
		if e.Updated {
			return "Replaced " + path + ", which existed."
		}
		return "Created " + path + "."
	}
	if len(e.Hunk) == 0 {
		return "Changed " + path + "."
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Changed %s. It now has there:\n", path)
	n := e.NewStart
	for _, l := range e.Hunk {
		if strings.HasPrefix(l, "-") {
			continue
		}
		numbered := fmt.Sprintf("%6d\t%s\n", n, strings.TrimPrefix(strings.TrimPrefix(l, "+"), " "))
		if b.Len()+len(numbered) > maxViewed/4 {
			b.WriteString("...\n")
			break
		}
		b.WriteString(numbered)
		n++
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func viewWords(e *turn.Edit, path string) string {
	switch {
	case e.FileType == "image":
		return "[" + path + " is an image; the user can see it]"
	case e.FileType == "pdf":
		return "[" + path + " is a PDF; read it with a program]"
	case e.TotalLines == 0:
		return "[" + path + " is empty]"
	}
	var b strings.Builder
	shown := 0
	for _, l := range strings.SplitAfter(e.Content, "\n") {
		if l == "" {
			break
		}
		numbered := fmt.Sprintf("%6d\t%s", e.StartLine+shown, l)
		if b.Len()+len(numbered) > maxViewed {
			if shown == 0 {
				b.WriteString(clip(numbered, maxViewed) + "\n[... the line is longer ...]\n")
				shown++
			}
			break
		}
		b.WriteString(numbered)
		shown++
	}
	out := strings.TrimSuffix(b.String(), "\n")
	if last := e.StartLine + shown - 1; shown < e.NumLines || last < e.TotalLines && shown == e.NumLines || e.StartLine > 1 {
		out += fmt.Sprintf("\n\n[lines %d to %d of %d; view others with view_range]", e.StartLine, last, e.TotalLines)
	}
	return out
}
