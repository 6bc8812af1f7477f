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

// statusInterrupted is the Outcome.Status of a program that we stopped.
const statusInterrupted = "interrupted"

// maxPrinted is how much of an interrupted call's output is kept: its Outcome is lost, so it is gathered while it is printed.
const maxPrinted = tool.MaxForModel

// exec runs one call. The workspace prints from a goroutine of its own; only this one yields. It returns when both are done.
func (r *round) exec(ctx context.Context, call tool.Call) (*tool.Outcome, error) {
	start := time.Now()
	run, cancel := context.WithDeadlineCause(ctx, r.start.Add(r.cfg.MaxTime), errTime)
	defer cancel()
	chunks := make(chan tool.Chunk, 64)
	var outcome *tool.Outcome
	var err error
	go func() {
		defer close(chunks)
		outcome, err = r.ws.Run(run, call, func(c tool.Chunk) {
			select {
			case chunks <- c:
			case <-run.Done():
			}
		})
	}()
	var printed []byte
	var stopped error
	for c := range chunks {
		if len(printed) < maxPrinted {
			printed = append(printed, c.Text[:min(len(c.Text), maxPrinted-len(printed))]...)
		}
		if r.req.Live && stopped == nil && c.Text != "" {
			if stopped = r.emit(turn.HostedOutput{Stream: c.Stream, Text: c.Text}); stopped != nil {
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
		return &tool.Outcome{
			Outputs: []turn.Output{{Text: strings.ToValidUTF8(string(printed), "")}}, Status: statusInterrupted, Error: errTime.Error(), Duration: time.Since(start),
		}, nil
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
