package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// ErrFrameTooLarge is yielded for a frame, or a line of one, that is larger than the reader's limit.
var ErrFrameTooLarge = errors.New("sse: a frame is larger than the limit")

// defaultMaxFrame is what openai-go allows a line to be; a frame with plots as data URIs has megabytes.
const defaultMaxFrame = 32 << 20

var bom = []byte("\xef\xbb\xbf")

// Read yields the frames of r. It takes every line end (LF, CRLF, CR), a byte order mark, comments, unknown fields, and a last frame
// without its blank line. Frames without data, or with empty data, are skipped: servers use them as keep-alives.
//
// Data belongs to the receiver. maxFrame bounds a frame in bytes, 0 means 32 MiB. An error of r, or ErrFrameTooLarge, is yielded last;
// the end of r is no error, so that a receiver must know its protocol's own last frame. Read does not close r.
func Read(r io.Reader, maxFrame int) iter.Seq2[Event, error] {
	if maxFrame <= 0 {
		maxFrame = defaultMaxFrame
	}
	return func(yield func(Event, error) bool) {
		lines := lineReader{r: bufio.NewReader(r), max: maxFrame}
		f := frame{max: maxFrame}
		for {
			line, err := lines.next()
			ended := errors.Is(err, io.EOF)
			if err != nil && !ended {
				yield(Event{}, err)
				return
			}
			if !ended && len(line) > 0 {
				if err := f.add(line); err != nil {
					yield(Event{}, err)
					return
				}
				continue
			}
			if ev, ok := f.take(); ok && !yield(ev, nil) {
				return
			}
			if ended {
				return
			}
		}
	}
}

// frame collects the fields of one frame.
type frame struct {
	max  int
	name string
	data []byte // each line with its line feed
}

func (f *frame) add(line []byte) error {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "event":
		f.name = string(value)
	case "data":
		if len(f.name)+len(f.data)+len(value) > f.max {
			return ErrFrameTooLarge
		}
		f.data = append(append(f.data, value...), '\n')
	}
	return nil
}

func (f *frame) take() (Event, bool) {
	ev := Event{Name: f.name, Data: bytes.TrimSuffix(f.data, []byte("\n"))}
	f.name, f.data = "", nil
	return ev, len(ev.Data) > 0
}

// lineReader splits at LF, CRLF and CR without waiting for the byte after a CR, which may come only with the next frame.
type lineReader struct {
	r       *bufio.Reader
	max     int
	begun   bool
	afterCR bool
	long    []byte // a line that is longer than the buffer
}

// next returns a line without its end. It is valid until the next call.
func (l *lineReader) next() ([]byte, error) {
	l.long = l.long[:0]
	for {
		if _, err := l.r.Peek(1); err != nil {
			if errors.Is(err, io.EOF) && len(l.long) > 0 {
				return l.trimBOM(l.long), nil
			}
			return nil, err
		}
		chunk, _ := l.r.Peek(l.r.Buffered())
		if l.afterCR {
			l.afterCR = false
			if chunk[0] == '\n' {
				l.discard(1)
				continue
			}
		}
		i := lineEnd(chunk)
		if i >= 0 && len(l.long) == 0 {
			l.afterCR = chunk[i] == '\r'
			l.discard(i + 1) // keeps chunk as it is until the next read
			return l.trimBOM(chunk[:i]), nil
		}
		n := len(chunk)
		if i >= 0 {
			n = i
		}
		if len(l.long)+n > l.max+len("event: ") {
			return nil, ErrFrameTooLarge
		}
		l.long = append(l.long, chunk[:n]...)
		if i >= 0 {
			l.afterCR = chunk[i] == '\r'
			l.discard(i + 1)
			return l.trimBOM(l.long), nil
		}
		l.discard(n)
	}
}

// discard drops bytes that are in the buffer, so that it cannot fail.
func (l *lineReader) discard(n int) { _, _ = l.r.Discard(n) }

func (l *lineReader) trimBOM(line []byte) []byte {
	if l.begun {
		return line
	}
	l.begun = true
	return bytes.TrimPrefix(line, bom)
}

func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}
