package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/sse"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// maxBody is the default of Config.MaxAnswer, and what is read of an error that is passed on; maxFrame bounds a frame of a stream.
const (
	maxBody  = 64 << 20
	maxFrame = 32 << 20
)

// done is the data of the frame with which streams of the OpenAI dialect may end.
const done = "[DONE]"

// errEndless says that an answer is longer than Config.MaxAnswer.
var errEndless = errors.New("upstream: endless answer")

// capped reads r and fails with errEndless where there is more than left bytes.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errEndless
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// errStopped says that the caller has stopped ranging.
var errStopped = errors.New("upstream: the caller stopped")

// Send hands an event on. Its error must be returned as it is.
type Send func(turn.Event) error

// Decoder turns one answer into events. It does no I/O.
type Decoder interface {
	// Push takes the data of the next frame, or an answer that is one JSON body. A *Said or a *turn.Error is the answer's failure; any
	// other error means that data is not of the protocol.
	Push(data []byte) ([]turn.Event, error)
	// Over says that nothing that may still come matters: reading ends at once.
	Over() bool
	// Finished says that the answer is whole: how the connection ends does not matter any more.
	Finished() bool
	// End closes the answer; its last event is turn.Finished. An answer that is not whole is a *turn.Error.
	End() ([]turn.Event, error)
}

// Stream is the stream of one turn. attempt makes a call and sends its events; it is made again, Config.Retries times, if it failed
// before its first event and that may help. model is for the log.
func (c *Client) Stream(ctx context.Context, model string, attempt func(Send) error) turn.Stream {
	return provider.Once(func(yield func(turn.Event, error) bool) {
		sent := false
		send := func(ev turn.Event) error {
			sent = true
			if !yield(ev, nil) {
				return errStopped
			}
			return nil
		}
		for tries := 0; ; tries++ {
			err := attempt(send)
			if err == nil || errors.Is(err, errStopped) {
				return
			}
			e := turn.AsError(err)
			if wait, ok := c.again(e, tries); !sent && ok {
				c.cfg.Logger.InfoContext(ctx, "model call is made again", "model", model, "status", e.Status, "wait_ms", wait.Milliseconds())
				if c.cfg.Sleep(ctx, wait) == nil {
					continue
				}
				e = c.transportError(ctx, err)
			}
			yield(nil, e)
			return
		}
	})
}

// maxWait is the longest Retry-After that is waited for here; a longer one is the client's to wait for.
const maxWait = 20 * time.Second

// again says whether and after what wait a call is made once more: what the server asks for, else 0.5 s doubling to 8 s, a quarter of it
// at random, as OpenAI's SDKs do.
func (c *Client) again(e *turn.Error, tries int) (time.Duration, bool) {
	if tries >= c.cfg.Retries || !retryable(e) || e.RetryAfter > maxWait {
		return 0, false
	}
	if e.RetryAfter > 0 {
		return e.RetryAfter, true
	}
	wait := min(500*time.Millisecond<<tries, 8*time.Second)
	return wait - time.Duration(rand.Int64N(int64(wait/4))), true
}

// Answer is an answer of status 200 that has not been read yet.
type Answer struct {
	client *Client
	model  string
	id     string // the server's own for the request
	watch  *watch
}

// Close frees the connection.
func (a *Answer) Close() { a.watch.close() }

// Post makes one call; more adds headers to it. An answer that is no success is a *turn.Error with its status. Close the Answer.
func (c *Client) Post(ctx context.Context, path, model string, body []byte, more ...func(http.Header)) (*Answer, error) {
	a := &Answer{client: c, model: model, watch: newWatch(ctx, c.cfg.FirstByteTimeout, c.cfg.IdleTimeout)}
	if err := a.post(path, body, more); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func (a *Answer) post(path string, body []byte, more []func(http.Header)) error {
	c, w := a.client, a.watch
	up, err := c.newRequest(w.ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	up.Header.Set("Content-Type", "application/json")
	up.Header.Set("Accept", "text/event-stream, application/json")
	up.Header.Set("User-Agent", "lathe")
	for _, add := range more {
		add(up.Header)
	}
	res, err := c.http.Do(up) //nolint:bodyclose // the watch closes it
	if err != nil {
		return c.transportError(w.ctx, err)
	}
	w.read(res.Body)
	if res.StatusCode != http.StatusOK {
		return c.statusError(a.model, &http.Response{StatusCode: res.StatusCode, Header: res.Header, Body: io.NopCloser(w)})
	}
	a.id = res.Header.Get(c.protocol.RequestID)
	return nil
}

// Read reads the answer to its end: a stream, or one JSON body, which some servers send whatever was asked for and whatever they call it.
func (a *Answer) Read(d Decoder, send Send) error {
	err := a.read(d, send)
	if e, ok := errors.AsType[*turn.Error](err); ok && e.UpstreamRequestID == "" {
		e.UpstreamRequestID = a.id
	}
	return err
}

func (a *Answer) read(d Decoder, send Send) error {
	body := bufio.NewReaderSize(&capped{r: a.watch, left: a.client.cfg.MaxAnswer}, 32<<10)
	first, err := firstByte(body)
	if err != nil {
		return a.readError(d, err)
	}
	if first == '{' {
		raw, err := io.ReadAll(body)
		if err != nil {
			return a.readError(d, err)
		}
		if err := a.push(raw, d, send); err != nil {
			return err
		}
		return finish(d, send)
	}
	for ev, err := range sse.Read(body, maxFrame) {
		if err != nil {
			if d.Finished() {
				break
			}
			return a.readError(d, err)
		}
		if string(bytes.TrimSpace(ev.Data)) == done {
			break
		}
		if err := a.push(ev.Data, d, send); err != nil {
			return err
		}
		if d.Over() {
			break
		}
	}
	if err := finish(d, send); err != nil {
		return err
	}
	a.watch.drain()
	return nil
}

// firstByte skips white space and shows the byte behind it.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		switch b {
		case ' ', '\t', '\r', '\n':
			continue
		}
		return b, r.UnreadByte()
	}
}

func (a *Answer) readError(d Decoder, err error) error {
	if errors.Is(err, io.EOF) { // before any byte
		_, err := d.End()
		return err
	}
	if errors.Is(err, sse.ErrFrameTooLarge) {
		return a.malformed(err)
	}
	if errors.Is(err, errEndless) {
		return &turn.Error{Kind: turn.KindUpstream, Code: "upstream_endless", Cause: err,
			Message: fmt.Sprintf("the model's server sent more than %d bytes in one answer, which was given up", a.client.cfg.MaxAnswer)}
	}
	e := a.client.transportError(a.watch.ctx, err)
	if e.Code == codeUnreachable {
		cut := Incomplete()
		e.Code, e.Message = cut.Code, cut.Message
	}
	return e
}

func (a *Answer) push(data []byte, d Decoder, send Send) error {
	events, err := d.Push(data)
	if said, ok := errors.AsType[*Said](err); ok {
		err = a.client.frameError(a.model, said)
	} else if _, known := errors.AsType[*turn.Error](err); err != nil && !known {
		if s, ok := errors.AsType[*json.SyntaxError](err); ok {
			err = s // its text holds no content
		}
		err = a.malformed(err)
	}
	if err != nil {
		return err
	}
	return sendAll(events, send)
}

func (a *Answer) malformed(cause error) *turn.Error {
	return Malformed("something that is no "+a.client.protocol.Title+" answer", cause)
}

// Count takes only what can be a number of tokens: sums and counters go wrong on others.
func Count(n int) int { return min(max(n, 0), 1<<40) }

func finish(d Decoder, send Send) error {
	events, err := d.End()
	if err != nil {
		return err
	}
	return sendAll(events, send)
}

func sendAll(events []turn.Event, send Send) error {
	for _, ev := range events {
		if err := send(ev); err != nil {
			return err
		}
	}
	return nil
}
