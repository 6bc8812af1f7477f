package upstream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
)

// ObjectArguments makes the arguments of an earlier call a JSON object: chat templates and servers decode what the history holds and answer
// 400, or 500, to anything else, though it was the model itself that wrote it. An object is returned as it is.
func ObjectArguments(args string) string {
	trimmed := strings.TrimSpace(args)
	switch {
	case trimmed == "":
		return "{}"
	case strings.HasPrefix(trimmed, "{") && json.Valid([]byte(trimmed)):
		return args
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(struct {
		Input string `json:"input"`
	}{args}); err != nil {
		return "{}" // a string always encodes
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// DataURI is the document's data as a data URI.
func DataURI(d turn.Document) string {
	mime := d.MIME
	if mime == "" {
		mime = "application/octet-stream"
	}
	return "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(d.Data)
}

// PartKind is what a refusal calls the part.
func PartKind(p turn.Part) string {
	switch p := p.(type) {
	case turn.Text:
		return "text"
	case turn.Refusal:
		return "refusal"
	case turn.Image:
		return "image"
	case turn.Document:
		return "file"
	case turn.Foreign:
		return p.Kind
	}
	return "such part"
}
