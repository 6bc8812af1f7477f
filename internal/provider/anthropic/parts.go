package anthropic

import (
	"bytes"
	"encoding/base64"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// contents are the blocks of a user's message or of a result. Blank texts are left out.
func contents(parts []turn.Part) ([]wire.Block, error) {
	var out []wire.Block
	for _, p := range parts {
		b, err := content(p)
		if err != nil {
			return nil, err
		}
		if b != nil {
			out = append(out, b)
		}
	}
	return out, nil
}

// content is nil for a blank text.
func content(p turn.Part) (wire.Block, error) {
	var t *wire.Text
	switch p := p.(type) {
	case turn.Text:
		t = text(p)
	case turn.Refusal:
		t = text(turn.Text{Text: p.Text})
	case turn.Image:
		return image(p)
	case turn.Document:
		return document(p)
	case turn.Foreign:
		if p.Protocol != Protocol {
			return nil, turn.Unsupported("messages", "this model's server takes no %s", p.Kind)
		}
		return &wire.Raw{Type: p.Kind, JSON: p.JSON}, nil
	}
	if t == nil {
		return nil, nil //nolint:nilnil // as documented
	}
	return t, nil
}

// imageTypes are those that the server takes.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

func image(i turn.Image) (wire.Block, error) {
	out, ok := own[*wire.Image](i.Raw)
	if ok && out.Source.Type != sourceFile {
		return out, nil
	}
	if !ok {
		out = &wire.Image{Type: wire.TypeImage}
	}
	switch {
	case strings.HasPrefix(i.URL, "data:"):
		kind, data, err := dataURI(i.URL)
		if err != nil {
			return nil, err
		}
		if kind == "image/jpg" {
			kind = "image/jpeg"
		}
		if !slices.Contains(imageTypes, kind) {
			return nil, turn.Unsupported("messages", "Anthropic's models take images of type %s, not %s",
				strings.Join(imageTypes, ", "), clip(kind))
		}
		out.Source = wire.Source{Type: "base64", MediaType: kind, Data: data}
	case i.URL != "":
		out.Source = wire.Source{Type: "url", URL: i.URL}
	default:
		return nil, turn.Unsupported("messages", "this model's server takes images by URL or data URI only, not the file %q",
			clip(i.FileID))
	}
	return out, nil
}

// dataURI splits a data URI into its media type and its data in base64.
func dataURI(uri string) (kind, data string, err error) {
	head, data, ok := strings.Cut(strings.TrimPrefix(uri, "data:"), ",")
	if !ok {
		return "", "", turn.Invalid("messages", "an image's data URI has no comma: write data:image/png;base64,...")
	}
	head, encoded := strings.CutSuffix(head, ";base64")
	kind, _, _ = strings.Cut(head, ";")
	kind = strings.ToLower(kind)
	if encoded {
		return kind, data, nil
	}
	plain, err := url.PathUnescape(data)
	if err != nil {
		return "", "", turn.Invalid("messages", "an image's data URI is neither base64 nor escaped as a URL")
	}
	return kind, base64.StdEncoding.EncodeToString([]byte(plain)), nil
}

// sourceFile is the type of a source that is an uploaded file. Uploads are kept here, so that the server gets what is in it.
const sourceFile = "file"

func document(d turn.Document) (wire.Block, error) {
	out, ok := own[*wire.Document](d.Raw)
	if ok && out.Source.Type != sourceFile {
		return out, nil
	}
	if !ok {
		out = &wire.Document{Type: wire.TypeDocument, Title: d.Name}
	}
	switch {
	case d.Data != nil && isPDF(d):
		out.Source = wire.Source{Type: "base64", MediaType: "application/pdf", Data: base64.StdEncoding.EncodeToString(d.Data)}
	case d.Data != nil && isText(d):
		out.Source = wire.Source{Type: "text", MediaType: "text/plain", Data: string(d.Data)}
	case d.Data != nil:
		return nil, turn.Unsupported("messages", "Anthropic's models read PDF and text, not the file %q: let code read it in a container",
			clip(d.Name))
	case d.URL != "":
		out.Source = wire.Source{Type: "url", URL: d.URL}
	default:
		return nil, turn.Unsupported("messages",
			"this model's server does not have the file %q: send its data, or use it with the code interpreter", clip(d.FileID))
	}
	return out, nil
}

func isPDF(d turn.Document) bool {
	return d.MIME == "application/pdf" || bytes.HasPrefix(d.Data, []byte("%PDF-"))
}

// textTypes are text though their names do not begin so.
var textTypes = []string{
	"application/json", "application/xml", "application/yaml", "application/x-yaml", "application/javascript", "application/x-ndjson",
}

func isText(d turn.Document) bool {
	kind := d.MIME
	if kind == "" || kind == "application/octet-stream" {
		kind = mime.TypeByExtension(path.Ext(d.Name))
	}
	kind, _, _ = strings.Cut(kind, ";")
	known := kind == "" || strings.HasPrefix(kind, "text/") || slices.Contains(textTypes, kind)
	return known && utf8.Valid(d.Data) && !bytes.ContainsRune(d.Data, 0)
}

// clip bounds what is repeated of a request.
func clip(s string) string {
	return s[:min(len(s), 100)]
}
