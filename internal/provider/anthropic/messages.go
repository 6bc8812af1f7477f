package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lathe-gateway/lathe/internal/turn"
	"github.com/lathe-gateway/lathe/internal/upstream"
	wire "github.com/lathe-gateway/lathe/internal/wire/anthropic"
)

// conversation builds the messages by the protocol's rules: the roles take turns and the user begins, no text is blank, the results of
// calls stand together at the beginning of the message behind them, system text stands in front or directly behind a user's turn.
type conversation struct {
	enc    encoder
	system []wire.Block
	out    []wire.Message
	// later is system text that waits for the end of the user's turn.
	later []wire.Block
	ids   callIDs
	// called are the names of the tools that were called, each once.
	called []string
	// cached says that the client has marked something to be kept.
	cached bool
}

func (enc encoder) conversation(items []turn.Item) (*conversation, error) {
	c := &conversation{enc: enc, ids: callIDs{used: map[string]bool{}, open: map[string][]string{}}}
	for _, it := range items {
		var err error
		switch it := it.(type) {
		case turn.Message:
			err = c.message(it)
		case turn.Reasoning:
			c.reasoning(it)
		case turn.Call:
			c.call(it)
		case turn.Result:
			err = c.result(it)
		case turn.Block:
			if b, ok := own[wire.Block](&turn.Raw{Protocol: it.Protocol, JSON: it.JSON}); ok {
				c.add(wire.RoleAssistant, b)
			}
		default:
			err = turn.Internal(fmt.Errorf("anthropic: a %T reached a provider", it))
		}
		if err != nil {
			return nil, err
		}
	}
	c.close()
	return c, nil
}

// last is the role of the newest message, "" before the first.
func (c *conversation) last() string {
	if len(c.out) == 0 {
		return ""
	}
	return c.out[len(c.out)-1].Role
}

// add puts blocks into the newest message where it has this role, else into a new one.
func (c *conversation) add(role string, blocks ...wire.Block) {
	if len(blocks) == 0 {
		return
	}
	c.note(blocks)
	if role == wire.RoleAssistant {
		if c.last() == "" {
			c.push(wire.RoleUser, &wire.Text{Type: wire.TypeText, Text: "[The conversation begins with the assistant's turn.]"})
		}
		if c.last() == wire.RoleUser && len(c.later) > 0 {
			c.push(wire.RoleSystem, c.later...)
			c.later = nil
		}
	}
	if c.last() != role {
		c.push(role, blocks...)
		return
	}
	m := &c.out[len(c.out)-1]
	m.Content.Blocks = append(m.Content.Blocks, blocks...)
}

// note remembers that the client keeps a cache of its own.
func (c *conversation) note(blocks []wire.Block) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *wire.Text:
			c.cached = c.cached || b.CacheControl != nil
		case *wire.Image:
			c.cached = c.cached || b.CacheControl != nil
		case *wire.Document:
			c.cached = c.cached || b.CacheControl != nil
		case *wire.SearchResult:
			c.cached = c.cached || b.CacheControl != nil
		case *wire.ToolUse:
			c.cached = c.cached || b.CacheControl != nil
		case *wire.ToolResult:
			c.cached = c.cached || b.CacheControl != nil
		case *wire.Raw:
			c.cached = c.cached || marked(b.JSON)
		}
	}
}

// own decodes what this protocol wrote as a T; false where it did not.
func own[T wire.Block](raw *turn.Raw) (T, bool) {
	var none T
	data := raw.Of(Protocol)
	if data == nil {
		return none, false
	}
	b, err := wire.DecodeBlock(data)
	if err != nil {
		return none, false
	}
	out, ok := b.(T)
	return out, ok
}

func (c *conversation) push(role string, blocks ...wire.Block) {
	c.out = append(c.out, wire.Message{Role: role, Content: wire.Content{Blocks: blocks}})
}

// close places what waits, and sees to it that there is something to answer.
func (c *conversation) close() {
	switch {
	case len(c.later) > 0 && c.last() == wire.RoleUser:
		c.push(wire.RoleSystem, c.later...)
	case len(c.later) > 0:
		c.push(wire.RoleUser, c.later...) // behind an assistant's turn there may be no system text
	case len(c.out) == 0 && len(c.system) > 0:
		n := len(c.system) - 1
		c.push(wire.RoleUser, c.system[n])
		c.system = c.system[:n]
	}
	c.later = nil
	if c.last() == wire.RoleAssistant {
		blocks := c.out[len(c.out)-1].Content.Blocks
		if t, ok := blocks[len(blocks)-1].(*wire.Text); ok {
			t.Text = strings.TrimRight(t.Text, " \t\r\n") // the server refuses a beginning that ends in white space
		}
	}
}

func (c *conversation) message(m turn.Message) error {
	switch m.Role {
	case turn.System, turn.Developer:
		return c.instruct(m)
	case turn.Assistant:
		blocks, err := answer(m.Parts)
		c.add(wire.RoleAssistant, blocks...)
		return err
	}
	blocks, err := contents(m.Parts)
	c.add(wire.RoleUser, blocks...)
	return err
}

func (c *conversation) instruct(m turn.Message) error {
	for _, p := range m.Parts {
		t, ok := p.(turn.Text)
		if !ok {
			return turn.Unsupported("messages", "a system message can hold only text, not %s", upstream.PartKind(p))
		}
		b := text(t)
		if b == nil {
			continue
		}
		c.note([]wire.Block{b})
		if len(c.out) == 0 || c.enc.noSystemTurns {
			c.system = append(c.system, b)
		} else {
			c.later = append(c.later, b)
		}
	}
	return nil
}

func answer(parts []turn.Part) ([]wire.Block, error) {
	var out []wire.Block
	for _, p := range parts {
		var b *wire.Text
		switch p := p.(type) {
		case turn.Text:
			b = text(p)
		case turn.Refusal:
			b = text(turn.Text{Text: p.Text})
		default:
			return nil, turn.Unsupported("messages", "an assistant message can hold only text, not %s", upstream.PartKind(p))
		}
		if b != nil {
			out = append(out, b)
		}
	}
	return out, nil
}

// text is nil for a blank text, which the server refuses.
func text(t turn.Text) *wire.Text {
	if strings.TrimSpace(t.Text) == "" {
		return nil
	}
	if b, ok := own[*wire.Text](t.Raw); ok {
		b.Text = t.Text
		return b
	}
	return &wire.Text{Type: wire.TypeText, Text: t.Text}
}

// fieldRedacted marks, as turn.Reasoning.Field, reasoning that came as redacted_thinking: its Encrypted is of this protocol.
const fieldRedacted = "redacted_thinking"

// reasoning goes back with its signature. Without one it is another model's, which the server would refuse.
func (c *conversation) reasoning(r turn.Reasoning) {
	switch {
	case c.enc.noThinkingBack:
	case r.Signature != "":
		c.add(wire.RoleAssistant, &wire.Thinking{Type: wire.TypeThinking, Thinking: r.Text, Signature: r.Signature})
	case r.Encrypted != "" && r.Field == fieldRedacted:
		c.add(wire.RoleAssistant, &wire.RedactedThinking{Type: wire.TypeRedactedThinking, Data: r.Encrypted})
	}
}

// unthought says that the assistant's turn which is to go on made calls and did not begin by thinking.
func (c *conversation) unthought() bool {
	begins := -1 // of the newest turn: results of calls do not end it
	for i, m := range c.out {
		switch {
		case m.Role == wire.RoleUser && !isResult(m.Content.Blocks[0]):
			begins = -1
		case m.Role == wire.RoleAssistant && begins < 0:
			begins = i
		}
	}
	if begins < 0 {
		return false
	}
	for _, m := range c.out[begins:] {
		if m.Role != wire.RoleAssistant {
			continue
		}
		if kind := m.Content.Blocks[0].BlockType(); kind != wire.TypeThinking && kind != wire.TypeRedactedThinking {
			return true
		}
	}
	return false
}

func isResult(b wire.Block) bool {
	_, ok := b.(*wire.ToolResult)
	return ok
}

func (c *conversation) call(call turn.Call) {
	name := legal(call.Name, 128)
	if !slices.Contains(c.called, name) {
		c.called = append(c.called, name)
	}
	args := strings.TrimSpace(upstream.ObjectArguments(call.Arguments)) // white space that JSON does not know would end the encoding
	b, ok := own[*wire.ToolUse](call.Raw)
	if !ok {
		b = &wire.ToolUse{Type: wire.TypeToolUse}
	}
	b.ID, b.Name, b.Input = c.ids.call(call.CallID), name, json.RawMessage(args)
	c.add(wire.RoleAssistant, b)
}

// result joins those that its message begins with: they must stand before all else.
func (c *conversation) result(r turn.Result) error {
	blocks, err := contents(r.Parts)
	if err != nil {
		return err
	}
	b, ok := own[*wire.ToolResult](r.Raw)
	if !ok {
		b = &wire.ToolResult{Type: wire.TypeToolResult}
	}
	b.ToolUseID, b.Content = c.ids.result(r.CallID), wire.Content{Blocks: blocks}
	c.note([]wire.Block{b})
	if r.Error && !slices.ContainsFunc(blocks, func(b wire.Block) bool { return b.BlockType() != wire.TypeText }) {
		b.IsError = new(true) // an error with anything but text is refused; what failed stands in the text
	}
	if c.last() != wire.RoleUser {
		c.add(wire.RoleUser, b)
		return nil
	}
	m := &c.out[len(c.out)-1].Content
	n := 0
	for n < len(m.Blocks) && isResult(m.Blocks[n]) {
		n++
	}
	m.Blocks = slices.Insert(m.Blocks, n, wire.Block(b))
	return nil
}

// callIDs gives each call an id of the form that the server takes, once: open models say call_0 in every turn.
type callIDs struct {
	used map[string]bool
	open map[string][]string // by the id in the history: calls that wait for their result
}

func (ids *callIDs) call(id string) string {
	first := legalID(id)
	out := first
	for n := 2; ids.used[out]; n++ {
		out = fmt.Sprintf("%s_%d", first, n)
	}
	ids.used[out] = true
	ids.open[id] = append(ids.open[id], out)
	return out
}

func (ids *callIDs) result(id string) string {
	open := ids.open[id]
	if len(open) == 0 {
		return legalID(id)
	}
	ids.open[id] = open[1:]
	return open[0]
}

// legalID keeps an id that the server takes. What it makes of another depends on nothing but that, so that the history stays the same.
func legalID(id string) string {
	if id != "" && legal(id, 64) == id {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "toolu_" + hex.EncodeToString(sum[:16])
}

// legal replaces what may not stand in an id or name, and cuts it.
func legal(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, s)
	if s == "" {
		return "_"
	}
	return s[:min(len(s), most)]
}
