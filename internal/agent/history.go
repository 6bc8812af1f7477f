package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// history is the request's conversation as the model gets it: replayed hosted calls become calls with results, attached documents that
// lie in the container become a word on where, and the files there are told once.
func (l *loop) history(uploads []turn.File) []turn.Item {
	byID := make(map[string]turn.File, len(uploads))
	for _, f := range uploads {
		byID[f.ID] = f
	}
	var out []turn.Item
	used := map[string]bool{}
	for _, it := range visible(l.req.Items) {
		switch v := it.(type) {
		case turn.HostedCall:
			if done, ok := l.resumed[v.ID]; ok && v.Pending {
				v = done
			}
			out = append(out, l.replayed(v, used)...)
		case turn.Message:
			v.Parts = placeDocuments(v.Parts, byID)
			out = append(out, v)
		case turn.Result:
			v.Parts = placeDocuments(v.Parts, byID)
			out = append(out, v)
		default:
			out = append(out, it)
		}
	}
	if l.req.Hosted != nil && l.req.Hosted.Pause {
		out = textLast(out, used)
	}
	if text := l.skillsPrompt(); text != "" {
		out = turn.InsertNote(out, text)
	}
	if note := filesNote(uploads); note != "" {
		return turn.InsertNote(out, note)
	}
	return out
}

// replayed is what a hosted call of an earlier turn looks like to the model. The call's id depends on nothing but the item, so that the
// history is the same in every request and the model's server can reuse what it knows of it.
func (l *loop) replayed(c turn.HostedCall, used map[string]bool) []turn.Item {
	sum := sha256.Sum256([]byte(c.ID))
	id := "call_" + hex.EncodeToString(sum[:16])
	for n := 2; used[id]; n++ {
		id = fmt.Sprintf("call_%s_%d", hex.EncodeToString(sum[:16]), n)
	}
	used[id] = true
	for _, f := range c.Files {
		if !f.Shown {
			l.known[f.Path] = f
		}
	}
	parts := []turn.Part{turn.Text{Text: tool.ReplayWords(c)}}
	if l.images {
		parts = append(parts, tool.ImageParts(c.Outputs)...)
	}
	return []turn.Item{
		turn.Call{CallID: id, Name: l.set.Upstream(c.Tool), Arguments: tool.Arguments(c.Tool, c.Code)},
		turn.Result{CallID: id, Parts: parts, Error: c.Failed},
	}
}

func placeDocuments(parts []turn.Part, byID map[string]turn.File) []turn.Part {
	var out []turn.Part
	for i, p := range parts {
		d, ok := p.(turn.Document)
		f, placed := byID[d.FileID]
		if !ok || !placed {
			if out != nil {
				out = append(out, p)
			}
			continue
		}
		if out == nil {
			out = append(make([]turn.Part, 0, len(parts)), parts[:i]...)
		}
		out = append(out, turn.Text{Text: fmt.Sprintf("[attached file %s: it is at %s]", oneLine(f.Name), oneLine(f.Path))})
	}
	if out == nil {
		return parts
	}
	return out
}

// maxFilesTold bounds the note; the model can list the folder.
const maxFilesTold = 50

func filesNote(uploads []turn.File) string {
	if len(uploads) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Files that the user gave are in " + tool.Root + ":")
	for i, f := range uploads {
		if i == maxFilesTold {
			fmt.Fprintf(&b, "\n- and %d more", len(uploads)-i)
			break
		}
		fmt.Fprintf(&b, "\n- %s (%d bytes)", oneLine(f.Path), f.Bytes)
	}
	return b.String()
}

// oneLine keeps a file's name from writing system text of its own.
func oneLine(name string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\u2028' || c == '\u2029' || c == '\u0085' {
			return '_'
		}
		return c
	}, name)
}
