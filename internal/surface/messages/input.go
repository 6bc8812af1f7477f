package messages

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// input decodes system and messages. Consecutive turns of one role are one turn, as in the protocol.
func (d *decoder) input() error {
	h := newHistory(d)
	parts, err := d.systemText("system", d.in.System)
	if err != nil {
		return err
	}
	h.add(turn.System, parts)
	for i, m := range d.in.Messages {
		path := at("messages", i)
		if err := h.message(path, m); err != nil {
			return err
		}
	}
	if err := h.end(); err != nil {
		return err
	}
	d.out.turn.Items = h.items
	return nil
}

// message decodes one message.
func (h *history) message(path string, m wire.Message) error {
	switch m.Role {
	case wire.RoleSystem:
		parts, err := h.d.systemText(path+".content", m.Content)
		h.add(turn.System, parts)
		return err
	case wire.RoleUser, wire.RoleAssistant:
	default:
		return invalid(path+".role", "Input should be 'user', 'assistant' or 'system'")
	}
	if m.Content.IsZero() {
		return missing(path + ".content")
	}
	blocks := m.Content.Blocks
	if m.Content.Text != nil {
		blocks = wire.Blocks{&wire.Text{Type: wire.TypeText, Text: *m.Content.Text}}
	}
	if m.Role == wire.RoleUser {
		return h.user(path, blocks)
	}
	return h.assistant(path, blocks)
}

// systemText is system text: a string or text blocks.
func (d *decoder) systemText(path string, c wire.Content) ([]turn.Part, error) {
	if c.Text != nil {
		return []turn.Part{turn.Text{Text: *c.Text}}, nil
	}
	var parts []turn.Part
	for i, b := range c.Blocks {
		t, ok := b.(*wire.Text)
		if !ok {
			return nil, invalid(at(path, i)+".type", "Input should be 'text'")
		}
		parts = append(parts, textPart(t))
	}
	return parts, nil
}

// raw is what the client wrote, nil where that says no more than the canonical form.
func raw(b any, more bool) *turn.Raw {
	if !more {
		return nil
	}
	data, err := wire.Marshal(b)
	if err != nil {
		return nil // what was decoded always encodes
	}
	return &turn.Raw{Protocol: protocol, JSON: data}
}

// anySet is false for fields that are all null.
func anySet(extra wire.Extra) bool {
	for _, v := range extra {
		if s := string(v); s != "null" && s != `""` && s != "[]" {
			return true
		}
	}
	return false
}

func textPart(t *wire.Text) turn.Text {
	return turn.Text{Text: t.Text, Raw: raw(t, t.CacheControl != nil || len(t.Citations) > 0 || anySet(t.Extra))}
}

// user decodes what stands in a user's turn. Results come first, whatever their place: no other protocol has them behind text.
func (h *history) user(path string, blocks wire.Blocks) error {
	h.beginUser()
	var parts []turn.Part
	for i, b := range blocks {
		at := at(path+".content", i)
		switch b := b.(type) {
		case *wire.ToolResult:
			if err := h.result(at, b); err != nil {
				return err
			}
			continue
		case *wire.ContainerUpload:
			if err := h.d.upload(at, b.FileID); err != nil {
				return err
			}
			h.spoke = true
			continue
		}
		if isServerResult(b.BlockType()) || b.BlockType() == wire.TypeToolUse || b.BlockType() == wire.TypeServerToolUse {
			return invalid(at+".type", "`%s` blocks can only be in `assistant` messages", b.BlockType())
		}
		more, err := h.d.content(at, b)
		if err != nil {
			return err
		}
		h.spoke = h.spoke || len(more) > 0
		parts = append(parts, more...)
	}
	h.add(turn.User, parts)
	return nil
}

// mostFiles is how many a container takes at once.
const mostFiles = 50

// upload puts a file into the container of the turn.
func (d *decoder) upload(path, id string) error {
	hosted := d.out.turn.Hosted
	switch {
	case id == "":
		return missing(path + ".file_id")
	case hosted == nil:
		return invalid(path, "`container_upload` blocks require the code_execution tool to be included in the request")
	case slices.Contains(hosted.FileIDs, id):
		return nil
	case len(hosted.FileIDs) == mostFiles:
		return invalid(path, "a request may put at most %d files into its container", mostFiles)
	}
	hosted.FileIDs = append(hosted.FileIDs, id)
	return nil
}

// typeBrowserState is what the browser's tools answer besides text: tabs and what changed in them. Any model can read it.
const typeBrowserState = "browser_state"

// content decodes a block of a user's turn, or of a result. Blank texts say nothing.
func (d *decoder) content(path string, b wire.Block) ([]turn.Part, error) {
	switch b := b.(type) {
	case *wire.Text:
		if d.call.version == version2026 && len(b.Citations) > 0 {
			return nil, invalid(path+".citations", "citations are not permitted in a user's message under version %s", version2026)
		}
		if strings.TrimSpace(b.Text) == "" {
			return nil, nil
		}
		return []turn.Part{textPart(b)}, nil
	case *wire.Image:
		return d.image(path, b)
	case *wire.Document:
		return d.document(path, b)
	case *wire.SearchResult:
		return d.searchResult(path, b)
	case *wire.Raw:
		if b.Type == "" {
			return nil, missing(path + ".type")
		}
		if b.Type == typeBrowserState && !d.call.native {
			return []turn.Part{turn.Text{Text: "[" + string(b.JSON) + "]"}}, nil
		}
		return []turn.Part{turn.Foreign{Protocol: protocol, Kind: b.Type, JSON: b.JSON}}, nil
	}
	return nil, invalid(path+".type", "`%s` blocks do not belong here", b.BlockType())
}

func (d *decoder) image(path string, b *wire.Image) ([]turn.Part, error) {
	src := b.Source
	out := turn.Image{Raw: raw(b, b.CacheControl != nil || anySet(b.Extra) || anySet(src.Extra))}
	path += ".source"
	switch src.Type {
	case "base64":
		if err := checkBase64(path, src); err != nil {
			return nil, err
		}
		out.URL = "data:" + src.MediaType + ";base64," + src.Data
	case "url":
		if !isHTTP(src.URL) {
			return nil, invalid(path+".url", "Only HTTP and HTTPS URLs are supported")
		}
		out.URL = src.URL
	case "file":
		if src.FileID == "" {
			return nil, missing(path + ".file_id")
		}
		out.FileID = src.FileID
	default:
		return nil, invalid(path+".type", "Input should be 'base64', 'url' or 'file'")
	}
	return []turn.Part{out}, nil
}

func checkBase64(path string, src wire.Source) error {
	if src.MediaType == "" {
		return missing(path + ".media_type")
	}
	if src.Data == "" {
		return missing(path + ".data")
	}
	if _, err := base64.StdEncoding.DecodeString(src.Data); err != nil {
		return invalid(path+".data", "Input should be valid base64")
	}
	return nil
}

func isHTTP(url string) bool {
	u := strings.ToLower(url[:min(len(url), 8)])
	return strings.HasPrefix(u, "https://") || strings.HasPrefix(u, "http://")
}

// document decodes a document. Its context, and content that is not text alone, have no counterpart: for a model elsewhere they stand as
// texts and images around it.
func (d *decoder) document(path string, b *wire.Document) ([]turn.Part, error) {
	src := b.Source
	out := turn.Document{
		Name: b.Title, Inline: true,
		Raw: raw(b, b.Context != "" || b.Citations != nil || b.CacheControl != nil || src.Type == "content" || anySet(b.Extra) || anySet(src.Extra)),
	}
	path += ".source"
	var around []turn.Part
	switch src.Type {
	case "base64":
		if err := checkBase64(path, src); err != nil {
			return nil, err
		}
		out.MIME = src.MediaType
		out.Data, _ = base64.StdEncoding.DecodeString(src.Data) // checked
	case "text":
		out.MIME, out.Data = "text/plain", []byte(src.Data)
	case "content":
		said, images, err := d.documentContent(path+".content", src.Content)
		if err != nil {
			return nil, err
		}
		out.MIME, out.Data, around = "text/plain", []byte(said), images
	case "url":
		if !isHTTP(src.URL) {
			return nil, invalid(path+".url", "Only HTTP and HTTPS URLs are supported")
		}
		out.URL = src.URL
	case "file":
		if src.FileID == "" {
			return nil, missing(path + ".file_id")
		}
		out.FileID = src.FileID
	default:
		return nil, invalid(path+".type", "Input should be 'base64', 'text', 'content', 'url' or 'file'")
	}
	if d.call.native {
		return []turn.Part{out}, nil
	}
	parts := []turn.Part{out}
	if b.Context != "" {
		parts = append(parts, turn.Text{Text: fmt.Sprintf("[context of the document %q: %s]", b.Title, b.Context)})
	}
	return append(parts, around...), nil
}

func (d *decoder) documentContent(path string, c wire.Content) (said string, images []turn.Part, err error) {
	if c.Text != nil {
		return *c.Text, nil, nil
	}
	var texts []string
	for i, b := range c.Blocks {
		switch b := b.(type) {
		case *wire.Text:
			texts = append(texts, b.Text)
		case *wire.Image:
			parts, err := d.image(at(path, i), b)
			if err != nil {
				return "", nil, err
			}
			images = append(images, parts...)
		default:
			return "", nil, invalid(at(path, i)+".type", "Input should be 'text' or 'image'")
		}
	}
	return strings.Join(texts, "\n"), images, nil
}

// searchResult is text for models elsewhere; what they say of it cites nothing.
func (d *decoder) searchResult(path string, b *wire.SearchResult) ([]turn.Part, error) {
	var said strings.Builder
	fmt.Fprintf(&said, "[search result: %s, %s]", b.Title, b.Source)
	for i, inner := range b.Content {
		t, ok := inner.(*wire.Text)
		if !ok {
			return nil, invalid(at(path+".content", i)+".type", "Input should be 'text'")
		}
		if d.call.version == version2026 && len(t.Citations) > 0 {
			return nil, invalid(at(path+".content", i)+".citations", "citations are not permitted in a search_result under version %s", version2026)
		}
		said.WriteString("\n" + t.Text)
	}
	own := raw(b, d.call.native)
	if own != nil {
		return []turn.Part{turn.Foreign{Protocol: protocol, Kind: b.Type, JSON: own.JSON}}, nil
	}
	return []turn.Part{turn.Text{Text: said.String()}}, nil
}

// result decodes a client's answer to a call.
func (h *history) result(path string, b *wire.ToolResult) error {
	if b.ToolUseID == "" {
		return missing(path + ".tool_use_id")
	}
	programmatic, err := h.answer(path, b.ToolUseID)
	if err != nil {
		return err
	}
	out := turn.Result{CallID: ownCallID(b.ToolUseID), Error: b.IsError != nil && *b.IsError}
	blocks := b.Content.Blocks
	if b.Content.Text != nil {
		blocks = wire.Blocks{&wire.Text{Type: wire.TypeText, Text: *b.Content.Text}}
	}
	for i, inner := range blocks {
		at := at(path+".content", i)
		if _, ok := inner.(*wire.Text); programmatic && !ok {
			return invalid(at+".type", "Input should be 'text': a program takes only text for an answer")
		}
		parts, err := h.d.content(at, inner)
		if err != nil {
			return err
		}
		out.Parts = append(out.Parts, parts...)
	}
	out.Raw = raw(b, b.ToolsetName != "" || b.CacheControl != nil || anySet(b.Extra))
	h.items = append(h.items, out)
	return nil
}

// assistant decodes what stands in an assistant's turn.
func (h *history) assistant(path string, blocks wire.Blocks) error {
	if err := h.beginAssistant(); err != nil {
		return err
	}
	h.last = path
	var parts []turn.Part
	flush := func() {
		h.add(turn.Assistant, parts)
		parts = nil
	}
	for i, b := range blocks {
		at := at(path+".content", i)
		h.tail = b.BlockType()
		switch b := b.(type) {
		case *wire.Text:
			if strings.TrimSpace(b.Text) != "" || len(b.Citations) > 0 {
				parts = append(parts, textPart(b))
			}
			continue
		case *wire.Image, *wire.Document:
			if b.BlockType() == wire.TypeDocument && h.d.call.version == version2026 {
				return invalid(at+".type", "`document` blocks are not permitted in an assistant message under version %s", version2026)
			}
			more, err := h.d.content(at, b)
			if err != nil {
				return err
			}
			parts = append(parts, more...)
			continue
		}
		flush()
		if err := h.said(at, b); err != nil {
			return err
		}
	}
	flush()
	return nil
}

// said decodes a block of the model's that is neither text nor an image.
func (h *history) said(path string, b wire.Block) error {
	switch b := b.(type) {
	case *wire.Thinking:
		r := unseal(b.Thinking, b.Signature)
		r.Raw = raw(b, anySet(b.Extra) && r.Signature != "")
		h.items = append(h.items, r)
	case *wire.RedactedThinking:
		h.items = append(h.items, turn.Reasoning{Encrypted: b.Data, Field: wire.TypeRedactedThinking, Raw: raw(b, anySet(b.Extra))})
	case *wire.ToolUse:
		if b.Type == wire.TypeServerToolUse {
			return h.serverCall(path, b)
		}
		return h.clientCall(path, b)
	case *wire.ServerResult:
		return h.serverResult(path, b)
	case *wire.ToolResult:
		return invalid(path+".type", "`tool_result` blocks can only be in `user` messages")
	default:
		kind := b.BlockType()
		if kind == "" {
			return missing(path + ".type")
		}
		h.block(b)
	}
	return nil
}

// block keeps a block that only this protocol knows.
func (h *history) block(b wire.Block) {
	data, err := wire.Marshal(b)
	if err == nil { // what was decoded always encodes
		h.items = append(h.items, turn.Block{Protocol: protocol, Kind: b.BlockType(), JSON: data})
	}
}

func (h *history) clientCall(path string, b *wire.ToolUse) error {
	if b.ID == "" {
		return missing(path + ".id")
	}
	if b.Name == "" {
		return missing(path + ".name")
	}
	args := b.Input
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if !isObject(args) {
		return invalid(path+".input", "Input should be a valid dictionary")
	}
	call := turn.Call{CallID: ownCallID(b.ID), Name: b.Name, Arguments: string(args)}
	if b.Caller != nil && b.Caller.ToolID != "" {
		call.Caller = ownHostedID(b.Caller.ToolID)
	}
	if err := h.called(path, b.ID, call.Caller != ""); err != nil {
		return err
	}
	call.Raw = raw(b, b.ToolsetName != "" || b.CacheControl != nil || anySet(b.Extra))
	h.items = append(h.items, call)
	return nil
}
