package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/guest/proto"
	"github.com/lathe-gateway/lathe/internal/sandbox"
)

// edit runs a call of kind Edit. What the editor prints is its result.
func (l *Link) edit(ctx context.Context, req request) (*sandbox.Result, error) {
	var out, errOut strings.Builder
	r, err := l.run(ctx, req, func(o sandbox.Output) {
		if o.Stream == sandbox.Stdout {
			out.WriteString(o.Text) // bounded like all output
		} else if errOut.Len() < maxMessage {
			errOut.WriteString(o.Text)
		}
	})
	if err != nil || r.Status != sandbox.StatusOK {
		if r != nil && r.Status == sandbox.StatusError && errOut.Len() > 0 {
			r.Error += ": " + clip(clean(errOut.String()), 1<<10)
		}
		return r, err
	}
	var garbled error
	if r.Edit, garbled = decodeEdit(out.String()); garbled != nil {
		// A program of the same user can have done that to the editor: no failure of the sandbox.
		r.Status, r.ExitCode, r.Error = sandbox.StatusError, 1, garbled.Error()
	}
	return r, nil
}

func decodeEdit(out string) (*sandbox.EditResult, error) {
	var e proto.EditResult
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		return nil, fmt.Errorf("the editor's result cannot be read: %w", err)
	}
	bad := !slices.Contains([]string{"", proto.EditNotFound, proto.EditInvalid, proto.EditUnavailable}, e.Error) ||
		!slices.Contains([]string{"", "text", "image", "pdf"}, e.FileType) ||
		!slices.Contains([]string{"", "image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"}, e.MIME)
	for _, n := range []int{e.StartLine, e.NumLines, e.TotalLines, e.OldStart, e.OldLines, e.NewStart, e.NewLines} {
		bad = bad || n < 0
	}
	if bad {
		return nil, errors.New("the editor's result cannot be")
	}
	return &sandbox.EditResult{
		Error: e.Error, Message: clip(e.Message, 4<<10), FileType: e.FileType, Content: e.Content, MIME: e.MIME, Data: e.Data,
		StartLine: e.StartLine, NumLines: e.NumLines, TotalLines: e.TotalLines, Updated: e.Updated,
		OldStart: e.OldStart, OldLines: e.OldLines, NewStart: e.NewStart, NewLines: e.NewLines, Hunk: e.Hunk,
	}, nil
}
