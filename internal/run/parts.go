package run

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/store"
	"github.com/lathe-gateway/lathe/internal/turn"
)

const (
	maxImage    = 20 << 20
	maxDocument = 50 << 20
)

// resolve turns file ids in the input into content. With hosted tools on, the files also go into the container, and documents stay as
// they are: the agent tells the model where they lie.
func (r *Runner) resolve(ctx context.Context, req *turn.Request) error {
	hosted := req.Hosted != nil && len(req.Hosted.Tools) > 0
	for i, it := range req.Items {
		var err error
		switch v := it.(type) {
		case turn.Message:
			v.Parts, err = r.resolveParts(ctx, req, hosted, v.Parts)
			req.Items[i] = v
		case turn.Result:
			v.Parts, err = r.resolveParts(ctx, req, hosted, v.Parts)
			req.Items[i] = v
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) resolveParts(ctx context.Context, req *turn.Request, hosted bool, parts []turn.Part) ([]turn.Part, error) {
	var out []turn.Part // nil while nothing has changed: parts are shared with the client's request
	set := func(i int, p turn.Part) {
		if out == nil {
			out = slices.Clone(parts)
		}
		out[i] = p
	}
	for i, p := range parts {
		switch v := p.(type) {
		case turn.Image:
			if v.FileID == "" {
				continue
			}
			_, mime, data, err := r.content(ctx, v.FileID, maxImage)
			if err != nil {
				return nil, err
			}
			if !strings.HasPrefix(mime, "image/") {
				return nil, turn.Invalid("input", "file %s is %s, not an image", v.FileID, mime)
			}
			place(req, hosted, v.FileID)
			v.URL, v.FileID = "data:"+mime+";base64,"+base64.StdEncoding.EncodeToString(data), ""
			set(i, v)
		case turn.Document:
			switch {
			case v.FileID == "":
			case hosted && !v.Inline:
				place(req, hosted, v.FileID)
			default:
				name, mime, data, err := r.content(ctx, v.FileID, maxDocument)
				if err != nil {
					return nil, err
				}
				v.FileID, v.Name, v.MIME, v.Data = "", name, mime, data
				set(i, v)
			}
		}
	}
	if out == nil {
		return parts, nil
	}
	return out, nil
}

// place has a file put into the container of the turn.
func place(req *turn.Request, hosted bool, id string) {
	if hosted && !slices.Contains(req.Hosted.FileIDs, id) {
		req.Hosted.FileIDs = append(req.Hosted.FileIDs, id)
	}
}

func (r *Runner) content(ctx context.Context, id string, limit int) (name, mime string, data []byte, err error) {
	if r.cfg.Files == nil {
		return "", "", nil, turn.Unsupported("input", "this server keeps no files: send the content itself, or a URL")
	}
	name, mime, data, err = r.cfg.Files.Content(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "", "", nil, turn.NotFound("no file %q; upload it to /v1/files first", id)
	case err != nil:
		return "", "", nil, err
	case len(data) > limit:
		return "", "", nil, &turn.Error{Kind: turn.KindTooLarge, Param: "input",
			Message: "file " + id + " is too large to be part of the input; let hosted code read it from a container"}
	}
	if mime == "" {
		mime = http.DetectContentType(data)
	}
	return name, mime, data, nil
}
