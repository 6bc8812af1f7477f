package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/lathe-gateway/lathe/internal/tool"
	"github.com/lathe-gateway/lathe/internal/turn"
)

// maxPrinted is how much of an interrupted call's output is kept: its Outcome is lost, so it is gathered while it is printed.
const maxPrinted = tool.MaxForModel

// exec runs one call. The workspace prints from a goroutine of its own; only this one yields. It returns when both are done.
func (l *loop) exec(ctx context.Context, call tool.Call) (*tool.Outcome, error) {
	start := time.Now()
	run, cancel := context.WithDeadlineCause(ctx, l.start.Add(l.cfg.MaxTime), errTime)
	defer cancel()
	chunks := make(chan tool.Chunk, 64)
	var outcome *tool.Outcome
	var err error
	go func() {
		defer close(chunks)
		outcome, err = l.ws.Run(run, call, func(c tool.Chunk) {
			select {
			case chunks <- c:
			case <-run.Done():
			}
		})
	}()
	var printed []turn.Output
	kept := 0
	var stopped error
	for c := range chunks {
		if text := c.Text[:min(len(c.Text), maxPrinted-kept)]; text != "" {
			kept += len(text)
			if n := len(printed); n > 0 && printed[n-1].Stream == c.Stream {
				printed[n-1].Text += text
			} else {
				printed = append(printed, turn.Output{Stream: c.Stream, Text: text})
			}
		}
		if l.req.Live && stopped == nil && c.Text != "" {
			if stopped = l.emit(turn.HostedOutput{Stream: c.Stream, Text: c.Text}); stopped != nil {
				cancel()
			}
		}
	}
	switch {
	case stopped != nil:
		return nil, stopped
	case err == nil && outcome == nil:
		return nil, errors.New("agent: a workspace returned neither an outcome nor an error")
	case err == nil:
		return outcome, nil
	case ctx.Err() == nil && errors.Is(context.Cause(run), errTime):
		for i := range printed {
			printed[i].Text = strings.ToValidUTF8(printed[i].Text, "")
		}
		return &tool.Outcome{Outputs: printed, Status: tool.StatusInterrupted, Error: errTime.Error(), Duration: time.Since(start)}, nil
	}
	return nil, err
}

// imageDigest tells images apart for the repeat guard.
func imageDigest(outputs []turn.Output) string {
	h := sha256.New()
	for _, o := range outputs {
		h.Write(o.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}
