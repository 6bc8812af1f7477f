package container

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/blob"
	"github.com/lathe-gateway/lathe/internal/sandbox"
	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// clientText is how much text of one call a client gets: half of it from the start, half from the end.
const clientText = 1 << 20

// maxRuns caps how often the stream may change: a run costs more than the few bytes that it may have. What is beyond is one run of no
// stream.
const maxRuns = 4096

// collector joins what a program puts out into runs of text of one stream, and images, in order.
type collector struct {
	mu   sync.Mutex
	sink func(tool.Chunk)

	runs []segment
	// head bytes are kept for good; of what follows, the last tail bytes. runs[tailAt:] is the tail; those before tailFrom have no text
	// any more.
	head, tail, tailAt, tailFrom int
	texts                        int // runs of text that were begun
	cut                          int64
}

type segment struct {
	stream string
	text   []byte
	mime   string
	data   []byte
}

func newCollector(sink func(tool.Chunk)) *collector { return &collector{sink: sink, tailAt: -1} }

// push is the sink of a sandbox.
func (c *collector) push(o sandbox.Output) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.HasPrefix(o.MIME, "image/") && len(o.Data) > 0 {
		c.runs = append(c.runs, segment{mime: o.MIME, data: bytes.Clone(o.Data)})
		return
	}
	if o.Text == "" {
		return
	}
	if c.sink != nil {
		stream := sandbox.Stdout
		if o.Stream == sandbox.Stderr {
			stream = sandbox.Stderr
		}
		c.sink(tool.Chunk{Stream: stream, Text: o.Text})
	}
	c.text(o.Text, o.Stream)
}

func (c *collector) text(s, stream string) {
	if room := clientText/2 - c.head; room > 0 && c.tailAt < 0 {
		part := cut(s, room)
		c.head += len(part)
		c.add(part, stream)
		s = s[len(part):]
		if s == "" {
			return
		}
	}
	if c.tailAt < 0 {
		c.tailAt, c.tailFrom = len(c.runs), len(c.runs)
	}
	c.tail += len(s)
	c.add(s, stream)
	for c.tail > clientText/2 && c.tailFrom < len(c.runs) {
		run := &c.runs[c.tailFrom]
		n := min(c.tail-clientText/2, len(run.text))
		run.text = run.text[n:]
		c.tail -= n
		c.cut += int64(n)
		if len(run.text) == 0 && c.tailFrom < len(c.runs)-1 {
			c.tailFrom++
		} else if c.tail > clientText/2 {
			break // nothing is left to cut
		}
	}
}

// add appends to the last run if it is of the same stream and on the same side of the cut.
func (c *collector) add(s, stream string) {
	if s == "" {
		return
	}
	if n := len(c.runs); n > 0 && n != c.tailAt && c.runs[n-1].mime == "" {
		last := &c.runs[n-1]
		if last.stream != stream && c.texts >= maxRuns {
			last.stream = ""
			stream = ""
		}
		if last.stream == stream {
			last.text = append(last.text, s...)
			return
		}
	}
	c.texts++
	c.runs = append(c.runs, segment{stream: stream, text: []byte(s)})
}

// outputs is what was collected. dropped is what the sandbox itself did not pass on.
func (c *collector) outputs(dropped int64) []turn.Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []turn.Output
	for i, r := range c.runs {
		if i == c.tailAt && c.cut > 0 {
			out = append(out, turn.Output{Text: fmt.Sprintf("\n[... %d bytes of output were cut here ...]\n", c.cut)})
			r.text = wholeRunes(r.text)
		}
		switch {
		case r.mime != "":
			out = append(out, turn.Output{MIME: r.mime, Data: r.data})
		case len(r.text) > 0:
			out = append(out, turn.Output{Text: strings.ToValidUTF8(string(r.text), "\uFFFD"), Stream: r.stream})
		}
	}
	if dropped > 0 {
		out = append(out, turn.Output{
			Text: fmt.Sprintf("\n[... %d more bytes were printed beyond the limit of a call and dropped ...]\n", dropped),
		})
	}
	return out
}

// wholeRunes drops the rest of a rune that was cut at its start.
func wholeRunes(b []byte) []byte {
	for i := range min(utf8.UTFMax, len(b)) {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// extensions of displayed images.
var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg", "image/bmp": ".bmp",
}

// keepImages makes files of the images that a program displayed and puts their ids into outputs.
func (e *entry) keepImages(ctx context.Context, outputs []turn.Output) ([]turn.File, error) {
	var staged []*blob.Staged
	var rows []store.File
	var made []turn.File
	defer func() {
		for _, st := range staged {
			st.Discard()
		}
	}()
	now := time.Now().UTC().Truncate(time.Microsecond)
	var at []int
	for i, o := range outputs {
		if !o.IsImage() {
			continue
		}
		st, err := e.m.Blobs.Stage(ctx, bytes.NewReader(o.Data), int64(len(o.Data)))
		if err != nil {
			return nil, err
		}
		id := turn.NewID("cfile_")
		name := id + extensions[o.MIME]
		staged, at = append(staged, st), append(at, i)
		rows = append(rows, store.File{
			ID: id, Project: e.key.project, Container: e.key.id, Path: dataMount + "/" + name, Name: name, Source: "assistant",
			Bytes: st.Size, SHA256: st.SHA256, CreatedAt: now, Shown: true,
		})
		made = append(made, turn.File{ID: id, Container: e.key.id, Path: dataMount + "/" + name, Name: name, Bytes: st.Size, Shown: true})
	}
	if len(rows) == 0 {
		return nil, nil
	}
	if err := e.m.checkSpace(); err != nil {
		return nil, err
	}
	if err := e.fits(0, len(rows)); err != nil {
		return nil, err
	}
	if err := e.m.uploads.keep(ctx, staged, rows); err != nil {
		return nil, err
	}
	for i, f := range made {
		outputs[at[i]].FileID = f.ID
		e.files.mu.Lock()
		e.files.history += f.Bytes
		e.files.versions++
		e.files.mu.Unlock()
	}
	return made, nil
}
