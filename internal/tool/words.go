package tool

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/turn"
)

const (
	// MaxForModel is how much of a call's output the model sees, in bytes, with everything that is said around it.
	MaxForModel = 64 << 10
	// maxAround is the part of it that notes, files and the failure may take.
	maxAround = 16 << 10
	maxFiles  = 50
	// maxImages and maxImageBytes keep a result within what vendors take (5 MB an image).
	maxImages     = 8
	maxImageBytes = 5 << 20
)

// NoOutput is what the model reads where there is nothing to say.
const NoOutput = "(no output)"

// Root is the folder whose files can be downloaded.
const Root = "/mnt/data"

// Words puts what a call did into text for the model: notes, the output with the middle cut out if it is long, how it failed, and the
// files it made with the links that an answer can use.
func Words(o *Outcome, notes []string) string {
	var around []string
	if f := failure(o); f != "" {
		around = append(around, f)
	}
	around = append(around, fileLines(o.Files)...)
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "[%s]\n", clip(n, maxAround/4))
	}
	head, tail := clip(b.String(), maxAround/2), clip(strings.Join(around, "\n"), maxAround/2)
	body := strings.TrimRight(outputText(o.Outputs), "\n")
	if o.Edit != nil {
		body = editWords(o.Edit, o.Path)
	}
	body = cutMiddle(body, MaxForModel-len(head)-len(tail)-2)
	if strings.TrimSpace(body) == "" {
		body = NoOutput
	}
	if tail != "" {
		body += "\n\n" + tail
	}
	return head + body
}

// ReplayWords is the text for a call of which only the client's view is left.
func ReplayWords(c turn.HostedCall) string {
	switch {
	case c.ForModel != "":
		return clip(c.ForModel, MaxForModel)
	case c.Outputs == nil && c.Edit == nil:
		return "(what this call put out is no longer known)"
	}
	o := &Outcome{Outputs: c.Outputs, Files: c.Files, ExitCode: c.ExitCode, Error: c.Failure, Edit: c.Edit}
	if args, err := ParseEdit(c.Code); c.Edit != nil && err == nil {
		o.Path = args.Path
	}
	if c.Failed {
		o.Status = StatusError
	}
	return Words(o, nil)
}

// ImageParts are the images among outputs for a model that takes them, at most a few and none that vendors refuse for its size.
func ImageParts(outputs []turn.Output) []turn.Part {
	var parts []turn.Part
	for _, o := range outputs {
		if o.IsImage() && len(o.Data) > 0 && len(o.Data) <= maxImageBytes && len(parts) < maxImages {
			parts = append(parts, turn.Image{URL: "data:" + o.MIME + ";base64," + base64.StdEncoding.EncodeToString(o.Data)})
		}
	}
	return parts
}

// Failed says that the program failed, for whatever reason.
func (o *Outcome) Failed() bool { return o.Status != StatusOK && o.Status != "" }

// Exit is the exit code for clients: never 0 for a program that failed.
func (o *Outcome) Exit() int {
	if o.ExitCode != 0 || !o.Failed() {
		return o.ExitCode
	}
	switch o.Status { // as timeout(1) and shells have it
	case StatusTimeout:
		return 124
	case StatusKilled:
		return 137
	case StatusInterrupted:
		return 130
	}
	return 1
}

// Stopped says in a sentence how a program was stopped whose own output cannot tell, "" for one that ended by itself.
func (o *Outcome) Stopped() string {
	switch o.Status {
	case StatusTimeout, StatusKilled, StatusInterrupted:
		return strings.Trim(failure(o), "[]")
	}
	return ""
}

func outputText(outputs []turn.Output) string {
	var b strings.Builder
	open := false // a line that has no end yet
	for _, o := range turn.Runs(outputs) {
		text := o.Text
		if o.IsImage() {
			text = "[an image was displayed here; the user sees it]\n"
		}
		if text == "" {
			continue
		}
		if open {
			b.WriteByte('\n') // what follows is of another kind: the value of the last expression, an image
		}
		b.WriteString(text)
		open = !strings.HasSuffix(text, "\n")
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func failure(o *Outcome) string {
	what := clip(o.Error, 2<<10)
	if what == "" && o.ExitCode != 0 {
		what = fmt.Sprintf("exit status %d", o.ExitCode)
	}
	word := map[string]string{
		StatusError:       "failed",
		StatusTimeout:     "was stopped, its time was up",
		StatusKilled:      "was killed",
		StatusInterrupted: "was interrupted",
	}[o.Status]
	switch {
	case !o.Failed():
		return ""
	case word == "":
		word = "ended as " + o.Status
	}
	if what == "" {
		return "[the call " + word + "]"
	}
	return "[the call " + word + ": " + what + "]"
}

func fileLines(files []turn.File) []string {
	var lines []string
	size, seen := 0, map[string]bool{}
	for _, f := range files {
		if f.Shown || seen[f.Path] {
			continue
		}
		seen[f.Path] = true
		line := fmt.Sprintf("- %s (%d bytes)", Link(f), f.Bytes)
		if size += len(line); len(lines) < maxFiles && size < maxAround/3 {
			lines = append(lines, line)
		}
	}
	if len(seen) == 0 {
		return nil
	}
	if more := len(seen) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("- and %d more", more))
	}
	return append([]string{"Files made or changed:"}, lines...)
}

// Link is the Markdown by which an answer gives a file to the user. A file outside Root has none: its path is returned.
func Link(f turn.File) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '[' || r == ']' || r == utf8.RuneError {
			return '_'
		}
		return r
	}, f.Name)
	if !strings.HasPrefix(f.Path, Root+"/") {
		return clip(escapePath(f.Path), 1<<10)
	}
	return "[" + name + "](sandbox:" + escapePath(f.Path) + ")"
}

// escapePath escapes only what would end a link, so that names stay readable.
func escapePath(p string) string {
	var b strings.Builder
	for i := range len(p) {
		if c := p[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`%()<>[]"\`+"`", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// cutMiddle keeps head and tail of s and says between them what is missing.
func cutMiddle(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const room = 160 // for the note
	keep := (limit - room) / 2
	head, tail := clip(s, keep), clipLeft(s, keep)
	note := fmt.Sprintf("\n[... %d of %d bytes cut out here; print less, or write it to a file and read parts of that ...]\n",
		len(s)-len(head)-len(tail), len(s))
	return head + note + tail
}

// clip is the longest head of s within n bytes that ends with a whole character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func clipLeft(s string, n int) string {
	if len(s) <= n {
		return s
	}
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}
