package proto

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFramesSurviveTheWire(t *testing.T) {
	frames := []Frame{
		{Type: Ping},
		{Type: Start, Call: 1, Payload: []byte(`{"kind":"python"}`)},
		{Type: Output, Call: 1 << 31, Payload: bytes.Repeat([]byte("x"), MaxChunk+1)},
		{Type: Display, Call: 2, Payload: bytes.Repeat([]byte{0xff}, 1<<20)},
		{Type: Result, Call: 2, Payload: []byte("{}")},
	}
	var wire bytes.Buffer
	w := NewWriter(&wire)
	for _, f := range frames {
		if err := w.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(iotest.OneByteReader(&wire), MaxPayload)
	for i, want := range frames {
		got, err := r.Next()
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if got.Type != want.Type || got.Call != want.Call || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("frame %d differs", i)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v, want EOF", err)
	}
}

func TestPrefixIsPartOfThePayload(t *testing.T) {
	var wire bytes.Buffer
	if err := NewWriter(&wire).Write(Frame{Type: Output, Call: 7, Payload: []byte("hi")}, byte(Stderr)); err != nil {
		t.Fatal(err)
	}
	f, err := NewReader(&wire, MaxPayload).Next()
	if err != nil {
		t.Fatal(err)
	}
	s, data, err := DecodeOutput(f.Payload)
	if err != nil || s != Stderr || string(data) != "hi" {
		t.Errorf("got %v %q %v", s, data, err)
	}
}

func TestReaderRefuses(t *testing.T) {
	tests := map[string]struct {
		in   string
		want error // nil: any
	}{
		"oversized":          {in: "\xff\xff\xff\xff\x01\x00\x00\x00\x00"},
		"just oversized":     {in: "\x00\x00\x01\x01\x01\x00\x00\x00\x00"},
		"type zero":          {in: "\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
		"unknown type":       {in: "\x00\x00\x00\x00\xee\x00\x00\x00\x00"},
		"cut in the header":  {in: "\x00\x00\x00", want: io.ErrUnexpectedEOF},
		"cut in the payload": {in: "\x00\x00\x00\x05\x01\x00\x00\x00\x00abc", want: io.ErrUnexpectedEOF},
		"no payload at all":  {in: "\x00\x00\x00\x05\x01\x00\x00\x00\x00", want: io.ErrUnexpectedEOF},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := NewReader(bytes.NewReader([]byte(tt.in)), 256).Next()
			if err == nil {
				t.Fatalf("got %+v", f)
			}
			if tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// A peer that announces 16 MiB and sends nothing must not make us allocate them.
func TestAnnouncedSizeIsNotAllocated(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 64 {
		_, _ = NewReader(bytes.NewReader([]byte("\x00\xff\xff\xff\x08\x00\x00\x00\x01abc")), MaxPayload).Next()
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 64*2*growth {
		t.Errorf("64 empty promises of 16 MiB allocated %d bytes", got)
	}
}

func TestWriterRefusesTooMuch(t *testing.T) {
	var wire bytes.Buffer
	if err := NewWriter(&wire).Write(Frame{Type: Output, Payload: make([]byte, MaxPayload)}, 1); err == nil || wire.Len() > 0 {
		t.Errorf("wrote %d bytes, error %v", wire.Len(), err)
	}
}

func TestDisplay(t *testing.T) {
	mime, data, err := DecodeDisplay([]byte("\x09image/png\x01\x02"))
	if diff := cmp.Diff([]any{"image/png", []byte{1, 2}, nil}, []any{mime, data, err}); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "\x00", "\x05abc", "\xffabc", "\x03a\nb", "\x02a\x00"} {
		if _, _, err := DecodeDisplay([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// FuzzReader: whatever comes, no panic, no frame beyond the cap, and what was read writes back to the same bytes.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x01\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x03\x08\x00\x00\x00\x01\x01hi\x00\x00\x00\x02\x0c\x00\x00\x00\x01{}"))
	f.Add([]byte("\x00\x00\x00\x06\x09\x00\x00\x00\x01\x03a/b\xff\xfe"))
	f.Add([]byte("\xff\xff\xff\xff\x01\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 1 << 10
		r := NewReader(bytes.NewReader(in), limit)
		var out bytes.Buffer
		w := NewWriter(&out)
		for {
			fr, err := r.Next()
			if err != nil {
				break
			}
			if len(fr.Payload) > limit {
				t.Fatalf("frame of %d bytes", len(fr.Payload))
			}
			decode(fr)
			if err := w.Write(fr); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(in, out.Bytes()) {
			t.Fatal("frames do not write back to what was read")
		}
	})
}

// decode runs every payload decoder; hostile payloads must only give errors.
func decode(f Frame) {
	_, _, _ = DecodeOutput(f.Payload)
	_, _, _ = DecodeDisplay(f.Payload)
	if n, err := DecodeRoom(f.Payload); err == nil && !bytes.Equal(EncodeRoom(uint32(n)), f.Payload) {
		panic("a room that does not write back")
	}
	for _, v := range []any{&HelloInfo{}, &StartCall{}, &WarmCall{}, &CallResult{}, &ConnectCall{}, &ConnectedInfo{}} {
		_ = DecodeJSON(f, v)
	}
}

// writes keeps each write by itself.
type writes struct {
	mu  sync.Mutex
	all [][]byte
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, bytes.Clone(p))
	return len(p), nil
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// TestQueue: frames that may wait go with the next one, in order, or soon by themselves.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out writes
		w := NewWriter(&out)
		put := func(write func(Frame, ...byte) error, call uint32, payload []byte) {
			t.Helper()
			if err := write(Frame{Type: Output, Call: call, Payload: payload}, byte(Stdout)); err != nil {
				t.Fatal(err)
			}
		}
		put(w.Queue, 1, []byte("a"))
		put(w.Queue, 2, []byte("b"))
		if out.count() != 0 {
			t.Error("they did not wait")
		}
		put(w.Write, 3, []byte("c"))
		if out.count() != 1 {
			t.Errorf("%d writes", out.count())
		}
		put(w.Queue, 4, []byte("d"))
		time.Sleep(time.Second)
		if out.count() != 2 {
			t.Errorf("%d writes: one that waits for nothing is never written", out.count())
		}
		time.Sleep(time.Second)
		put(w.Queue, 5, bytes.Repeat([]byte("e"), MaxChunk))
		put(w.Queue, 6, bytes.Repeat([]byte("f"), 2*MaxChunk))
		put(w.Queue, 7, nil)
		time.Sleep(time.Second)
		out.mu.Lock()
		defer out.mu.Unlock()
		r := NewReader(bytes.NewReader(bytes.Join(out.all, nil)), MaxPayload)
		for want := uint32(1); want <= 7; want++ {
			f, err := r.Next()
			if err != nil || f.Call != want {
				t.Fatalf("frame %d: %+v, %v", want, f.Call, err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("then %v", err)
		}
	})
}
