package proto

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"
)

// headerSize: payload length (4 bytes, big endian), type (1), call id (4, big endian).
const headerSize = 9

// growth is how much a Reader allocates ahead of the bytes that have arrived.
const growth = 64 << 10

// Reader reads frames. It is for one goroutine.
type Reader struct {
	r   io.Reader
	max int
	buf []byte
	hdr [headerSize]byte
}

// NewReader reads frames of at most maxPayload bytes from r, which should be buffered.
func NewReader(r io.Reader, maxPayload int) *Reader {
	return &Reader{r: r, max: maxPayload}
}

// Next returns the next frame; its Payload is valid until the next call. The error is io.EOF at the end between two frames, and
// io.ErrUnexpectedEOF inside one. After an error the Reader is of no more use.
func (r *Reader) Next() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.hdr[:]); err != nil {
		return Frame{}, err
	}
	size := int64(binary.BigEndian.Uint32(r.hdr[0:4]))
	f := Frame{Type: Type(r.hdr[4]), Call: binary.BigEndian.Uint32(r.hdr[5:9])}
	if size > int64(r.max) {
		return Frame{}, fmt.Errorf("proto: frame of %d bytes, more than %d", size, r.max)
	}
	if f.Type == 0 || f.Type > lastType {
		return Frame{}, fmt.Errorf("proto: unknown frame type %d", f.Type)
	}
	if err := r.fill(int(size)); err != nil {
		return Frame{}, err
	}
	f.Payload = r.buf
	return f, nil
}

// fill reads size bytes into buf, which grows with what has come and not with what was announced.
func (r *Reader) fill(size int) error {
	if cap(r.buf) > 4*growth && size <= growth {
		r.buf = nil // a large frame has passed: do not hold its memory for ever
	}
	r.buf = r.buf[:0]
	for len(r.buf) < size {
		have := len(r.buf)
		want := min(size, have+max(have, growth))
		if cap(r.buf) < want {
			grown := make([]byte, want)
			copy(grown, r.buf)
			r.buf = grown
		}
		r.buf = r.buf[:want]
		if _, err := io.ReadFull(r.r, r.buf[have:want]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// Writer writes frames, with as few writes as possible. It is safe for concurrent use.
type Writer struct {
	mu    sync.Mutex
	w     io.Writer
	buf   []byte // frames that are not written yet
	timer *time.Timer
	armed bool // the timer will write buf
}

// queueTime is how long a frame may wait for the next one.
const queueTime = time.Millisecond

// NewWriter writes frames to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes f, after what is queued. The payload is f.Payload, preceded by prefix, which spares a copy to callers that put one byte
// before output. After an error, or a partial write, the stream is of no more use.
func (w *Writer) Write(f Frame, prefix ...byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest, err := w.add(f, prefix)
	if err != nil {
		return err
	}
	return w.flush(rest)
}

// Queue is Write for a frame that may wait a moment: with the next one it takes one write. An error shows at the next call at the latest.
func (w *Writer) Queue(f Frame, prefix ...byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest, err := w.add(f, prefix)
	if err != nil {
		return err
	}
	if rest != nil || len(w.buf) > MaxChunk {
		return w.flush(rest)
	}
	if !w.armed {
		w.armed = true
		if w.timer == nil {
			w.timer = time.AfterFunc(queueTime, w.late)
		} else {
			w.timer.Reset(queueTime)
		}
	}
	return nil
}

// late writes what has waited.
func (w *Writer) late() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed {
		_ = w.flush(nil)
	}
}

// add puts a frame behind those in buf, but for a large payload, which it returns.
func (w *Writer) add(f Frame, prefix []byte) (rest []byte, err error) {
	size := len(prefix) + len(f.Payload)
	if size > MaxPayload {
		return nil, fmt.Errorf("proto: frame of %d bytes, more than %d", size, MaxPayload)
	}
	b := binary.BigEndian.AppendUint32(w.buf, uint32(size))
	b = append(b, byte(f.Type))
	b = binary.BigEndian.AppendUint32(b, f.Call)
	b = append(b, prefix...)
	if len(f.Payload) <= MaxChunk {
		w.buf = append(b, f.Payload...)
		return nil, nil
	}
	w.buf = b
	return f.Payload, nil
}

// flush writes buf and rest.
func (w *Writer) flush(rest []byte) error {
	if w.armed {
		w.timer.Stop()
		w.armed = false
	}
	b := w.buf
	w.buf = b[:0]
	if _, err := w.w.Write(b); err != nil || len(rest) == 0 {
		return err
	}
	_, err := w.w.Write(rest)
	return err
}
