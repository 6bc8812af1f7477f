package sse_test

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/lathe-gateway/lathe/internal/sse"
)

func readAll(r io.Reader, maxFrame int) (events []sse.Event, err error) {
	for ev, err := range sse.Read(r, maxFrame) {
		if err != nil {
			return events, err
		}
		events = append(events, ev)
	}
	return events, nil
}

// asText spares cmp from comparing byte by byte.
var asText = cmp.Transformer("text", func(b []byte) string { return string(b) })

func TestRead(t *testing.T) {
	data := func(lines ...string) []sse.Event {
		var out []sse.Event
		for _, l := range lines {
			out = append(out, sse.Event{Data: []byte(l)})
		}
		return out
	}
	for _, tc := range []struct {
		name, in string
		want     []sse.Event
	}{
		{"empty", "", nil},
		{"one", "data: x\n\n", data("x")},
		{"named", "event: a\ndata: x\n\n", []sse.Event{{Name: "a", Data: []byte("x")}}},
		{"a name does not outlive its frame", "event: a\ndata: x\n\ndata: y\n\n",
			[]sse.Event{{Name: "a", Data: []byte("x")}, {Data: []byte("y")}}},
		{"a name without data is dropped", "event: a\n\ndata: y\n\n", data("y")},
		{"CRLF", "data: x\r\n\r\ndata: y\r\n\r\n", data("x", "y")},
		{"CR", "data: x\r\rdata: y\r\r", data("x", "y")},
		{"mixed ends", "data: x\r\n\ndata: y\n\r\n", data("x", "y")},
		{"no space", "data:x\n\n", data("x")},
		{"only one space is cut", "data:  x\n\n", data(" x")},
		{"several data lines", "data: x\ndata:\ndata: y\n\n", data("x\n\ny")},
		{"comments", ": hi\n\n:\ndata: x\n: in between\ndata: y\n\n", data("x\ny")},
		{"keep-alives and empty data", "data:\n\n: keep-alive\n\ndata\n\n", nil},
		{"id, retry and unknown fields", "id: 7\nretry: 10\nfoo: bar\ndata: x\n\n", data("x")},
		{"byte order mark", "\xef\xbb\xbfdata: x\n\n", data("x")},
		{"no last blank line", "data: x\n\ndata: y\n", data("x", "y")},
		{"no last line end", "data: x\n\ndata: y", data("x", "y")},
		{"longer than a buffer", "data: " + strings.Repeat("z", 10_000) + "\n\n", data(strings.Repeat("z", 10_000))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for kind, r := range map[string]io.Reader{
				"at once":     strings.NewReader(tc.in),
				"byte a time": iotest.OneByteReader(strings.NewReader(tc.in)),
				"with EOF":    iotest.DataErrReader(strings.NewReader(tc.in)),
			} {
				got, err := readAll(r, 0)
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				if diff := cmp.Diff(tc.want, got, asText); diff != "" {
					t.Errorf("%s (-want +got):\n%s", kind, diff)
				}
			}
		})
	}
}

func TestReadLimit(t *testing.T) {
	for name, in := range map[string]string{
		"one short line":  "data: " + strings.Repeat("x", 101) + "\n\n",
		"several lines":   strings.Repeat("data: "+strings.Repeat("x", 30)+"\n", 4) + "\n",
		"one long line":   "data: " + strings.Repeat("x", 50_000) + "\n\n",
		"an endless line": strings.Repeat("x", 50_000),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readAll(strings.NewReader("data: fine\n\n"+in), 100)
			if !errors.Is(err, sse.ErrFrameTooLarge) || len(got) != 1 {
				t.Errorf("got %d frames and %v, want 1 and ErrFrameTooLarge", len(got), err)
			}
		})
	}
	if got, err := readAll(strings.NewReader("data: "+strings.Repeat("x", 100)+"\n\n"), 100); err != nil || len(got) != 1 {
		t.Errorf("a frame of exactly the limit: %d frames, %v", len(got), err)
	}
}

func TestReadError(t *testing.T) {
	broken := errors.New("connection reset")
	got, err := readAll(io.MultiReader(strings.NewReader("data: x\n\ndata: y"), iotest.ErrReader(broken)), 0)
	if !errors.Is(err, broken) || len(got) != 1 {
		t.Errorf("got %d frames and %v, want 1 and the reader's error", len(got), err)
	}
}

// A frame that ends in CR must be handed over although the LF of a CRLF might still come.
func TestReadDoesNotWaitAfterCR(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go io.WriteString(w, "data: x\r\n\r")
	for ev, err := range sse.Read(r, 0) {
		if err != nil || string(ev.Data) != "x" {
			t.Errorf("got %q, %v", ev.Data, err)
		}
		break
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("event: a\ndata: x\r\n\r\n: c\n\ndata: y"))
	f.Add([]byte("\xef\xbb\xbfdata:x\rdata\r\r"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err := readAll(bytes.NewReader(in), 1000)
		bytewise, err2 := readAll(iotest.OneByteReader(bytes.NewReader(in)), 1000)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("at once %v, byte by byte %v", err, err2)
		}
		if diff := cmp.Diff(whole, bytewise, asText); diff != "" {
			t.Fatalf("chunking changes the frames:\n%s", diff)
		}
		rec := httptest.NewRecorder()
		w := sse.NewWriter(rec, sse.Options{KeepAlive: -1})
		defer w.Close()
		for _, ev := range whole {
			if err := w.Send(ev); err != nil {
				t.Fatal(err)
			}
		}
		again, err := readAll(rec.Body, 0)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, again, asText); diff != "" {
			t.Fatalf("writing and reading again (-want +got):\n%s", diff)
		}
	})
}
