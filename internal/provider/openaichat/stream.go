package openaichat

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
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/provider"
	"github.com/lathe-gateway/lathe/internal/sse"
	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/wire/oaichat"
)

// maxBody bounds an answer, streamed or one JSON body: no honest one comes near it, and it is held in memory until it is finished. maxFrame
// bounds a frame of a stream.
const (
	maxBody  = 64 << 20
	maxFrame = 32 << 20
)

// errEndless says that an answer is longer than maxBody.
var errEndless = errors.New("openaichat: endless answer")

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
var errStopped = errors.New("openaichat: the caller stopped")

// Stream answers req. A call that fails before its first event is made again, Config.Retries times, if that may help.
func (p *Provider) Stream(ctx context.Context, req *turn.Request) turn.Stream {
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
			err := p.attempt(ctx, req, send)
			if err == nil || errors.Is(err, errStopped) {
				return
			}
			e := turn.AsError(err)
			if wait, ok := p.again(e, tries); !sent && ok {
				p.cfg.Logger.InfoContext(ctx, "model call is made again", "model", req.Model, "status", e.Status, "wait_ms", wait.Milliseconds())
				if p.sleep(ctx, wait) == nil {
					continue
				}
				e = p.transportError(ctx, err)
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
func (p *Provider) again(e *turn.Error, tries int) (time.Duration, bool) {
	if tries >= p.cfg.Retries || !retryable(e) || e.RetryAfter > maxWait {
		return 0, false
	}
	if e.RetryAfter > 0 {
		return e.RetryAfter, true
	}
	wait := min(500*time.Millisecond<<tries, 8*time.Second)
	return wait - time.Duration(rand.Int64N(int64(wait/4))), true
}

// attempt makes one call and sends its events. A server that refuses a field that it does not know is asked again without it.
func (p *Provider) attempt(ctx context.Context, req *turn.Request, send func(turn.Event) error) error {
	w := newWatch(ctx, p.cfg.FirstByteTimeout, p.cfg.IdleTimeout)
	defer w.close()
	res, err := p.post(w, req) //nolint:bodyclose // the watch closes it
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		w.read(res.Body)
		e := p.statusError(req.Model, &http.Response{StatusCode: res.StatusCode, Header: res.Header, Body: io.NopCloser(w)})
		if p.adapt(e, req) {
			w.close()
			return p.attempt(ctx, req, send)
		}
		return e
	}
	w.read(res.Body)
	d := &decoder{newID: func() string { return turn.NewID("call_") }}
	err = p.receive(w, req.Model, d, send)
	if e, ok := errors.AsType[*turn.Error](err); ok && e.UpstreamRequestID == "" {
		e.UpstreamRequestID = res.Header.Get("X-Request-Id")
	}
	return err
}

func (p *Provider) post(w *watch, req *turn.Request) (*http.Response, error) {
	enc := encoder{images: p.cfg.Images, noStreamOptions: p.noStreamOptions.Load(), completionTokens: p.completionTokens.Load()}
	out, err := enc.request(req)
	if err != nil {
		return nil, err
	}
	body, err := oaichat.Marshal(out)
	if err != nil {
		return nil, turn.Internal(err)
	}
	up, err := p.newRequest(w.ctx, http.MethodPost, "/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	up.Header.Set("Content-Type", "application/json")
	up.Header.Set("Accept", "text/event-stream, application/json")
	up.Header.Set("User-Agent", "lathe")
	res, err := p.client.Do(up)
	if err != nil {
		return nil, p.transportError(w.ctx, err)
	}
	return res, nil
}

// adapt remembers a field that this server refuses, and says whether that is new. The field is named in param or in the message; the
// status alone does not tell.
func (p *Provider) adapt(e *turn.Error, req *turn.Request) bool {
	if e.Status != http.StatusBadRequest && e.Status != http.StatusUnprocessableEntity {
		return false
	}
	names := func(field string) bool { return e.Param == field || strings.Contains(e.Error(), field) }
	switch {
	case names("stream_options"):
		return !p.noStreamOptions.Swap(true)
	case names("max_completion_tokens") && req.MaxOutputTokens != nil:
		return !p.completionTokens.Swap(true)
	}
	return false
}

// receive reads the answer: a stream, or one JSON body, which some servers send whatever was asked for and whatever they call it.
func (p *Provider) receive(w *watch, model string, d *decoder, send func(turn.Event) error) error {
	body := bufio.NewReaderSize(&capped{r: w, left: p.maxAnswer}, 32<<10)
	first, err := firstByte(body)
	if err != nil {
		return p.readError(w, d, err)
	}
	if first == '{' {
		raw, err := io.ReadAll(body)
		if err != nil {
			return p.readError(w, d, err)
		}
		if err := p.chunk(raw, model, d, send); err != nil {
			return err
		}
		return p.finish(d, send)
	}
	for ev, err := range sse.Read(body, maxFrame) {
		if err != nil {
			if d.finished() {
				break // the answer is whole: how the connection ends does not matter
			}
			return p.readError(w, d, err)
		}
		if string(bytes.TrimSpace(ev.Data)) == oaichat.Done {
			break
		}
		if err := p.chunk(ev.Data, model, d, send); err != nil {
			return err
		}
	}
	if err := p.finish(d, send); err != nil {
		return err
	}
	w.drain()
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

func (p *Provider) readError(w *watch, d *decoder, err error) error {
	if errors.Is(err, io.EOF) { // before any byte
		_, err := d.end()
		return err
	}
	if errors.Is(err, sse.ErrFrameTooLarge) {
		return malformed(err)
	}
	if errors.Is(err, errEndless) {
		return &turn.Error{Kind: turn.KindUpstream, Code: "upstream_endless", Cause: err,
			Message: fmt.Sprintf("the model's server sent more than %d bytes in one answer, which was given up", p.maxAnswer)}
	}
	e := p.transportError(w.ctx, err)
	if e.Code == codeUnreachable {
		e.Code, e.Message = codeIncomplete, brokeOff
	}
	return e
}

func (p *Provider) chunk(data []byte, model string, d *decoder, send func(turn.Event) error) error {
	c, err := oaichat.ParseReceived(data)
	if err != nil {
		if s, ok := errors.AsType[*json.SyntaxError](err); ok {
			err = s // its text holds no content
		}
		return malformed(err)
	}
	if c.Error != nil {
		return p.frameError(model, c.Error)
	}
	return sendAll(d.push(c), send)
}

func (p *Provider) finish(d *decoder, send func(turn.Event) error) error {
	events, err := d.end()
	if err != nil {
		return err
	}
	return sendAll(events, send)
}

func sendAll(events []turn.Event, send func(turn.Event) error) error {
	for _, ev := range events {
		if err := send(ev); err != nil {
			return err
		}
	}
	return nil
}
